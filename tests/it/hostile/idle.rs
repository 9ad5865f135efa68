//! Idle connections: as many as the server keeps, and more.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use doorman_server::Settings;
use tokio::net::TcpSocket;

use super::{
    MEMORY, MIB, Victim, measure,
    wire::{raise_file_limit, set_timeouts},
};
use crate::support::exclusive_load;

/// The number of connections for which [`MEMORY`] is promised.
const CONNECTIONS: usize = 10_000;

/// Connections beyond the server's maximum.
const EXCESS: usize = 300;

/// Connections opened at a time.
const BATCH: usize = 250;

/// Connections from one source address, which has its own ports.
const PER_ADDRESS: usize = 5_000;

/// Opens `number` connections besides those already `open`.
async fn connect(at: SocketAddr, open: usize, number: usize) -> Vec<TcpStream> {
    let mut batch = Vec::with_capacity(number);
    for n in open..open + number {
        let host = u8::try_from(2 + n / PER_ADDRESS).expect("few addresses");
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(from).expect("a free port");
        let stream = socket.connect(at).await.expect("it listens");
        let stream = stream.into_std().expect("a socket");
        stream.set_nonblocking(false).expect("a socket");
        set_timeouts(&stream);
        batch.push(stream);
    }
    batch
}

/// Opens connections, and completes one request on each.
async fn open(at: SocketAddr, number: usize) -> Vec<TcpStream> {
    let mut all = Vec::with_capacity(number);
    while all.len() < number {
        let mut batch = connect(at, all.len(), BATCH.min(number - all.len())).await;
        for stream in &mut batch {
            stream
                .write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                .expect("the server reads");
        }
        for stream in &mut batch {
            let mut response = [0; 1024];
            let len = stream.read(&mut response).expect("a response");
            assert!(response[..len].starts_with(b"HTTP/1.1 200"));
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
async fn new_connections_evict_idle_ones() {
    let _exclusive = exclusive_load().await;
    let most = Settings::MAX_CONNECTIONS.get();
    let number = most + EXCESS;
    assert!(
        number <= raise_file_limit(),
        "the limit of open files is too low"
    );
    assert!(most >= CONNECTIONS);
    let victim = Victim::start();
    let idle = open(victim.at, number).await;
    for _ in 0..100 {
        measure::request_lease(victim.at);
    }
    let still_open = idle.iter().filter(|it| is_open(it)).count();
    assert!(
        (most * 97 / 100..most).contains(&still_open),
        "{still_open} of {} are open",
        idle.len()
    );
    // The oldest are evicted first.
    assert!(is_open(&idle[idle.len() - 1]) && !is_open(&idle[0]));
    victim.assert_memory_bounded();
    drop(idle);

    let runtime = tokio::runtime::Handle::current();
    let at = victim.at;
    // Opening all of them takes a while, so a brief measurement uses fewer.
    let number = if measure::is_brief() { 1_000 } else { most };
    let name = format!("{number} idle connections");
    measure::compare(&name, &victim, measure::TARGET, |attack| {
        let _idle = runtime.block_on(open(at, number));
        attack.wait_for_start();
        while !attack.is_over() {
            thread::sleep(Duration::from_millis(10));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn silent_connections_take_bounded_memory_and_time_out() {
    let _exclusive = exclusive_load().await;
    // All must be open before the first times out after 5 s, so a brief measurement uses fewer.
    let number = CONNECTIONS / if measure::is_brief() { 5 } else { 1 };
    assert!(
        number <= raise_file_limit(),
        "the limit of open files is too low"
    );
    let victim = Victim::start();
    let mut silent = Vec::new();
    while silent.len() < number {
        silent.append(&mut connect(victim.at, silent.len(), BATCH).await);
        // Returns when the server has accepted the whole batch.
        measure::request_lease(victim.at);
    }
    let growth = victim.memory_growth();
    assert!(
        growth <= MEMORY / CONNECTIONS * number,
        "{} MiB more",
        growth / MIB
    );
    for stream in &mut silent {
        assert_eq!(stream.read(&mut [0]).expect("end of file"), 0);
    }
}
