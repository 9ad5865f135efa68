//! A thousand connections, on each of which a byte comes a second: half of them drip a head, the others a body.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use super::{
    MIB, Victim, beside, healthy,
    wire::{HEAD, connect, connections},
};
use crate::support::exclusive_load;

const CONNECTIONS: usize = 1000;

/// All are served within a second, so many at a time.
const BATCH: usize = 50;

fn begin(at: SocketAddr, number: usize) -> TcpStream {
    let mut stream = connect(at);
    stream.set_nonblocking(true).expect("a socket");
    if drips_a_body(number) {
        let head = format!("{HEAD}content-length: {}\r\n\r\n", 4 * MIB);
        stream.write_all(head.as_bytes()).expect("it reads");
    }
    stream
}

fn drips_a_body(number: usize) -> bool {
    number.is_multiple_of(2)
}

#[tokio::test]
async fn slow_requests_are_ended_in_time_and_cost_others_nothing() {
    let _exclusive = exclusive_load().await;
    connections();
    let victim = Victim::start();
    let mut slow: Vec<_> = (0..CONNECTIONS)
        .map(|number| begin(victim.at, number))
        .collect();
    for byte in &HEAD.as_bytes()[..12] {
        for stream in &mut slow {
            // The server may have had enough of it.
            drop(stream.write(&[*byte]));
        }
        // All of them are answered, each with 200.
        healthy::measure(victim.at, Duration::from_secs(1));
    }
    for (number, stream) in slow.iter_mut().enumerate() {
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        assert!(
            !end.is_err_and(|it| it.kind() == ErrorKind::WouldBlock),
            "it is still open after 12 s"
        );
        let answer = String::from_utf8_lossy(&answer);
        if drips_a_body(number) {
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        } else {
            assert_eq!(answer, "", "there is no request to answer");
        }
    }
    victim.memory_stayed_flat();

    let at = victim.at;
    beside::measure("1,000 slow connections", &victim, |attack| {
        let mut slow: Vec<_> = (0..CONNECTIONS).map(|number| begin(at, number)).collect();
        attack.is_ready();
        for number in (0..CONNECTIONS).cycle() {
            if number % BATCH == 0 {
                if attack.is_over() {
                    return;
                }
                thread::sleep(Duration::from_secs(1) * BATCH as u32 / CONNECTIONS as u32);
            }
            let stream = &mut slow[number];
            let is_open =
                matches!(stream.read(&mut [0]), Err(it) if it.kind() == ErrorKind::WouldBlock);
            if !is_open || stream.write(b"P").is_err() {
                *stream = begin(at, number);
            }
            attack.struck();
        }
    });
}
