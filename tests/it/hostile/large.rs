//! Bodies of a gibibyte, and of the most that is read.

use std::{io::Write, net::SocketAddr, thread, time::Duration};

use super::{
    MIB, Victim, beside, healthy,
    wire::{Answer, HEAD, connect, connections, last_words},
};
use crate::support::exclusive_load;

const GIB: usize = 1024 * MIB;

/// What the system takes off our hands at most when nobody reads at all: its buffers on both sides.
const BUFFERED: usize = 16 * MIB;

/// What the server reads at most of a body that turns out to be too large, beside that.
const READ: usize = 4 * MIB + 16 * MIB;

/// Sends to a server what is too large, and says what it answered, and how many bytes could be sent.
type Attack = fn(SocketAddr) -> (Answer, usize);

/// Sends a gibibyte of which the server was told, as far as it takes it, and says how much that was.
fn declared(at: SocketAddr) -> (Answer, usize) {
    send(
        at,
        &format!("content-length: {GIB}\r\n\r\n"),
        &" ".repeat(MIB),
    )
}

/// Sends one that it was not told of.
fn chunked(at: SocketAddr) -> (Answer, usize) {
    let piece = format!("{MIB:x}\r\n{}\r\n", " ".repeat(MIB));
    send(at, "transfer-encoding: chunked\r\n\r\n", &piece)
}

fn send(at: SocketAddr, rest_of_head: &str, piece: &str) -> (Answer, usize) {
    let mut stream = connect(at);
    let head = format!("{HEAD}{rest_of_head}");
    stream.write_all(head.as_bytes()).expect("it reads");
    let pieces = (0..GIB / MIB).take_while(|_| stream.write_all(piece.as_bytes()).is_ok());
    let taken = pieces.count() * MIB;
    (last_words(&mut stream), taken)
}

#[tokio::test]
async fn large_bodies_are_refused_and_cost_others_nothing() {
    let _exclusive = exclusive_load().await;
    connections();
    let victim = Victim::start();
    let attacks: [(Attack, usize); 2] = [(declared, BUFFERED), (chunked, BUFFERED + READ)];
    for (send, most) in attacks {
        let ((status, answer), taken) = send(victim.at);
        assert_eq!(status, 413, "{answer}");
        assert!(taken <= most, "it took {} MiB", taken / MIB);
        healthy::ask(victim.at);
    }

    // Each holds back the last byte of the largest body there is.
    let len = 4 * MIB;
    let whole = format!("{HEAD}content-length: {len}\r\n\r\n{}", " ".repeat(len - 1));
    let held_back: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(victim.at);
            // What finds no room is refused, and then nobody reads on.
            drop(stream.write_all(whole.as_bytes()));
            stream
        })
        .collect();
    healthy::ask(victim.at);
    victim.memory_stayed_flat();
    drop(held_back);

    let at = victim.at;
    beside::measure("ten bodies of 1 GiB a second", &victim, |attack| {
        attack.is_ready();
        for send in [declared, chunked].into_iter().cycle() {
            if attack.is_over() {
                return;
            }
            assert_eq!(send(at).0.0, 413);
            attack.struck();
            thread::sleep(Duration::from_millis(100));
        }
    });
}
