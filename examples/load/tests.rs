//! The load against real listeners on loopback, in real time: it lives by sockets, which know no other.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Answers each request with the next status of a cycle; closes a connection after every hundredth answer.
async fn serve(listener: TcpListener, statuses: &'static [u16]) {
    let mut tasks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        tasks.spawn(answer(stream, statuses));
    }
}

async fn answer(stream: TcpStream, statuses: &'static [u16]) {
    let mut stream = BufReader::new(stream);
    for status in statuses.iter().cycle().take(100) {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let answer = format!("HTTP/1.1 {status} -\r\ncontent-length: 2\r\n\r\nok");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn service(statuses: &'static [u16]) -> (Target, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(listener.local_addr().unwrap()).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, statuses));
    (target, tasks)
}

/// Waits until something is so; the test's own time limit is the runner's.
async fn until<const N: usize>(load: &Load<N>, so: impl Fn(Totals) -> bool) -> Totals {
    loop {
        let total = load.totals().into_iter().sum();
        if so(total) {
            return total;
        }
        time::sleep(TICK).await;
    }
}

#[tokio::test]
async fn counts_each_answer_as_what_it_is() {
    let (target, _service) = service(&[200, 429, 503, 500]).await;
    let load = Load::start([target], 1);
    load.offer([1000.0]);
    until(&load, |total| total.offered >= 400).await;
    load.offer([0.0]);
    // Every connection breaks after 100 answers, which costs no request: it is sent again over the next one.
    let total = until(&load, |total| {
        total.admitted + total.refused + total.unavailable + total.failed == total.offered
    })
    .await;
    for count in [
        total.admitted,
        total.refused,
        total.unavailable,
        total.failed,
    ] {
        assert!(count.abs_diff(total.offered / 4) <= 1, "{total:?}");
    }
}

#[tokio::test]
async fn offers_each_target_its_own_rate() {
    let (first, _first) = service(&[200]).await;
    let (second, _second) = service(&[200]).await;
    let load = Load::start([first, second], 8);
    load.offer([900.0, 100.0]);
    until(&load, |total| total.admitted >= 1000).await;
    let [many, few] = load.totals();
    assert!(
        few.offered.abs_diff(many.offered / 9) <= 1,
        "{many:?} {few:?}"
    );
}

#[tokio::test]
async fn what_nobody_answers_has_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(listener.local_addr().unwrap()).unwrap();
    drop(listener);
    let load = Load::start([target], 4);
    load.offer([1000.0]);
    let total = until(&load, |total| total.failed >= 100).await;
    assert_eq!(total.admitted, 0);
}

#[tokio::test]
async fn does_not_hoard_requests_for_a_target_that_hangs() {
    // It accepts through the kernel's queue and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let load = Load::start([Target::new(listener.local_addr().unwrap()).unwrap()], 4);
    load.offer([200.0]);
    let total = until(&load, |total| total.failed > 0).await;
    assert!(total.offered - total.failed <= 200 + 4, "{total:?}");
}

#[test]
fn goes_to_no_other_machine() {
    for address in ["192.0.2.1:80", "0.0.0.0:80", "[2001:db8::1]:80"] {
        let address: SocketAddr = address.parse().unwrap();
        assert!(Target::new(address).is_err(), "{address}");
    }
}
