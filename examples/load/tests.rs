//! The load against real listeners on loopback, in real time.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;

/// Cycles through the statuses; closes each connection after a hundred responses.
async fn serve(listener: TcpListener, statuses: &'static [u16]) {
    let mut tasks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        tasks.spawn(respond(stream, statuses));
    }
}

async fn respond(stream: TcpStream, statuses: &'static [u16]) {
    let mut stream = BufReader::new(stream);
    for status in statuses.iter().cycle().take(100) {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let response = format!("HTTP/1.1 {status} -\r\ncontent-length: 2\r\n\r\nok");
        if stream.write_all(response.as_bytes()).await.is_err() {
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

async fn until<const N: usize>(load: &Load<N>, condition: impl Fn(Totals) -> bool) -> Totals {
    loop {
        let total = load.totals().into_iter().sum();
        if condition(total) {
            return total;
        }
        time::sleep(TICK).await;
    }
}

#[tokio::test]
async fn responses_are_counted_by_status() {
    let (target, _service) = service(&[200, 429, 503, 500]).await;
    let load = Load::start([target], 1);
    load.offer([1000.0]);
    until(&load, |total| total.offered >= 400).await;
    load.offer([0.0]);
    // A connection that closes costs no request: it is sent again over the next one.
    let total = until(&load, |total| {
        total.admitted + total.rejected + total.unavailable + total.failed == total.offered
    })
    .await;
    for count in [
        total.admitted,
        total.rejected,
        total.unavailable,
        total.failed,
    ] {
        assert!(count.abs_diff(total.offered / 4) <= 1, "{total:?}");
    }
}

#[tokio::test]
async fn each_target_gets_its_own_rate() {
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
async fn unreachable_target_counts_as_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(listener.local_addr().unwrap()).unwrap();
    drop(listener);
    let load = Load::start([target], 4);
    load.offer([1000.0]);
    let total = until(&load, |total| total.failed >= 100).await;
    assert_eq!(total.admitted, 0);
}

#[tokio::test]
async fn queue_of_a_hanging_target_is_bounded() {
    // The kernel accepts; nothing ever responds.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let load = Load::start([Target::new(listener.local_addr().unwrap()).unwrap()], 4);
    load.offer([200.0]);
    let total = until(&load, |total| total.failed > 0).await;
    assert!(total.offered - total.failed <= 200 + 4, "{total:?}");
}

#[test]
fn other_machines_are_not_targets() {
    for address in ["192.0.2.1:80", "0.0.0.0:80", "[2001:db8::1]:80"] {
        let address: SocketAddr = address.parse().unwrap();
        assert!(Target::new(address).is_err(), "{address}");
    }
}
