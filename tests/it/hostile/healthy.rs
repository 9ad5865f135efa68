//! Those who do no harm: a few holders that renew on open connections, and newcomers, at a steady rate far below what the server can do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use super::wire::{HEAD, JSON, asking, connect, exchange, post};
use crate::support::now;

/// How many renew, and how often each does.
const HOLDERS: u32 = 4;
const PERIOD: Duration = Duration::from_millis(10);

/// Every so manieth request of each is that of a newcomer, on a connection of its own.
const NEWCOMERS: usize = 10;

/// One request of a newcomer.
pub(super) fn ask(at: SocketAddr) {
    let (status, answer) = exchange(at, &post(JSON, &body()));
    assert_eq!(status, 200, "{answer}");
}

/// What each of all requests took, within so long.
pub(super) fn measure(at: SocketAddr, time: Duration) -> Vec<Duration> {
    let begin = now();
    thread::scope(|scope| {
        let holders: Vec<_> = (0..HOLDERS)
            .map(|n| {
                // One after the other, not all at once.
                let first = begin + PERIOD / HOLDERS * n;
                scope.spawn(move || renew(at, first, begin + time))
            })
            .collect();
        let each = holders.into_iter();
        each.flat_map(|it| it.join().expect("all are answered"))
            .collect()
    })
}

fn renew(at: SocketAddr, first: Duration, end: Duration) -> Vec<Duration> {
    let mut stream = connect(at);
    let mut took = Vec::new();
    let mut due = first;
    while due < end {
        let early = due.saturating_sub(now());
        thread::sleep(early);
        // Who is late because the answer before was late has waited since then; who only slept too long has not.
        let begin = if early.is_zero() { due } else { now() };
        if took.len() % NEWCOMERS == 0 {
            ask(at);
        } else {
            renew_once(&mut stream);
        }
        took.push(now().saturating_sub(begin));
        due += PERIOD;
    }
    took
}

fn renew_once(stream: &mut TcpStream) {
    let body = body();
    let request = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    stream
        .write_all(request.as_bytes())
        .expect("it is not closed");
    let mut answer = Vec::new();
    while !answer.ends_with(b"}]}") {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).expect("it answers");
        assert!(len > 0, "it is not closed");
        answer.extend_from_slice(&piece[..len]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

fn body() -> String {
    asking(r#"{"resource_id": "api", "wants": 1}"#)
}
