//! Connections that ask once, or never, and would stay: as many as the server keeps, and more.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use doorman_server::Settings;
use tokio::net::TcpSocket;

use super::{
    MEMORY, MIB, Victim, beside, healthy,
    wire::{connections, patient},
};
use crate::support::exclusive_load;

/// As many as the memory of the server is promised for.
const CONNECTIONS: usize = 10_000;

/// So many more than the server keeps.
const BEYOND: usize = 300;

/// So many are opened before the first of them asks.
const BATCH: usize = 250;

/// So many come from one address: each has its own ports.
const PER_ADDRESS: usize = 5_000;

/// The next so many connections, when there are some.
async fn connect(at: SocketAddr, there_are: usize, number: usize) -> Vec<TcpStream> {
    let mut batch = Vec::with_capacity(number);
    for n in there_are..there_are + number {
        let host = u8::try_from(2 + n / PER_ADDRESS).expect("few addresses");
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        let socket = TcpSocket::new_v4().expect("there is room for it");
        socket.bind(from).expect("a free port");
        let stream = socket.connect(at).await.expect("it listens");
        let stream = stream.into_std().expect("a socket");
        stream.set_nonblocking(false).expect("a socket");
        batch.push(patient(stream));
    }
    batch
}

/// Opens connections, each of which is answered once.
async fn open(at: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut all = Vec::with_capacity(number);
    while all.len() < number {
        let mut batch = connect(at, all.len(), BATCH.min(number - all.len())).await;
        for stream in &mut batch {
            stream
                .write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
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
    let _exclusive = exclusive_load().await;
    let most = Settings::MAX_CONNECTIONS.get();
    let number = most + BEYOND;
    assert!(number <= connections(), "this needs as many open files");
    assert!(most >= CONNECTIONS);
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
    // A brief look takes fewer, since it takes a while to open them again and again.
    let number = if beside::is_brief() { 1_000 } else { most };
    let name = format!("{number} idle connections");
    beside::measure(&name, &victim, |attack| {
        let _idle = runtime.block_on(open(at, number));
        attack.is_ready();
        while !attack.is_over() {
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_that_never_say_a_word_take_little_memory_and_end_soon() {
    let _exclusive = exclusive_load().await;
    // All of them are to be open before the first is closed, 5 s later: a brief look takes fewer.
    let number = CONNECTIONS / if beside::is_brief() { 5 } else { 1 };
    assert!(number <= connections(), "this needs as many open files");
    let victim = Victim::start();
    let mut silent = Vec::new();
    while silent.len() < number {
        silent.append(&mut connect(victim.at, silent.len(), BATCH).await);
        // Not before all of them are in.
        healthy::ask(victim.at);
    }
    let grown = victim.grown();
    assert!(
        grown <= MEMORY / CONNECTIONS * number,
        "{} MiB more",
        grown / MIB
    );
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).expect("it is closed"), 0);
    }
}
