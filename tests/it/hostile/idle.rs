//! Ten thousand connections that asked once, and would stay: more than the server keeps.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use doorman_server::Settings;
use tokio::net::TcpSocket;

use super::{
    Victim, beside, healthy,
    wire::{connections, patient},
};
use crate::support::alone;

const CONNECTIONS: usize = 10_000;

/// So many are opened before the first of them asks.
const BATCH: usize = 250;

/// So many come from one address: each has its own ports.
const PER_ADDRESS: usize = 5_000;

/// Opens connections, each of which is answered once.
async fn open(at: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut all = Vec::with_capacity(number);
    while all.len() < number {
        let mut batch = Vec::with_capacity(BATCH);
        for n in all.len()..(all.len() + BATCH).min(number) {
            let host = u8::try_from(2 + n / PER_ADDRESS).expect("few addresses");
            let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
            let socket = TcpSocket::new_v4().expect("there is room for it");
            socket.bind(from).expect("a free port");
            let stream = socket.connect(at).await.expect("it listens");
            let stream = stream.into_std().expect("a socket");
            stream.set_nonblocking(false).expect("a socket");
            batch.push(patient(stream));
        }
        for stream in &mut batch {
            stream
                .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
                .expect("it reads");
        }
        for stream in &mut batch {
            let mut answer = [0; 1024];
            let len = stream.read(&mut answer).expect("it answers");
            assert!(answer[..len].starts_with(b"HTTP/1.1 200"));
        }
        all.append(&mut batch);
    }
    all
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    matches!(stream.read(&mut [0]), Err(it) if it.kind() == ErrorKind::WouldBlock)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn newcomers_find_room_beside_more_idle_connections_than_the_server_keeps() {
    let _alone = alone().await;
    let number = CONNECTIONS.min(connections());
    let most = Settings::MAX_CONNECTIONS.get();
    assert!(number > most, "this needs as many open files");
    let victim = Victim::start();
    let idle = open(victim.at, number).await;
    for _ in 0..100 {
        healthy::ask(victim.at);
    }
    let still_open = idle.iter().filter(|it| is_open(it)).count();
    assert!(
        (most * 97 / 100..most).contains(&still_open),
        "{still_open} of {} are open",
        idle.len()
    );
    // They are those that came last.
    assert!(is_open(&idle[idle.len() - 1]) && !is_open(&idle[0]));
    victim.memory_stayed_flat();
    drop(idle);

    let runtime = tokio::runtime::Handle::current();
    let at = victim.at;
    // A brief look takes as many as the server keeps, since it takes a while to open the others.
    let number = if beside::is_brief() { most } else { number };
    let name = format!("{number} idle connections");
    beside::measure(&name, &victim, |attack| {
        let _idle = runtime.block_on(open(at, number));
        attack.is_ready();
        while !attack.is_over() {
            thread::sleep(Duration::from_millis(10));
        }
    });
}
