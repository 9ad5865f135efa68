//! Slow requests, oversized bodies, and responses that are never read.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::timeout;

use super::{
    MIB, Victim,
    measure::{self, Attack},
    wire::{HEAD, JSON, Response, connect, early_response, exchange, post, raise_file_limit},
};
use crate::support::exclusive_load;

const GIB: usize = 1024 * MIB;

/// Slow connections, each of which sends a byte a second.
const SLOW_CONNECTIONS: usize = 1000;

/// Slow connections that send at the same moment.
const BATCH: usize = 5;

/// The most bytes of an unread body that socket buffers take.
const BUFFERED: usize = 16 * MIB;

/// The most bytes that the server reads of a body before it knows that it is too large.
const READ: usize = 4 * MIB + 16 * MIB;

/// The most that large bodies may multiply the latency: clients and server share the processor.
const BODIES_BOUND: f64 = 2.5;

/// More large responses than the server holds.
const UNREAD_RESPONSES: usize = 40;

#[tokio::test]
async fn slow_requests_time_out_without_harming_others() {
    let _exclusive = exclusive_load().await;
    raise_file_limit();
    let victim = Victim::start();
    let mut slow: Vec<_> = (0..SLOW_CONNECTIONS)
        .map(|number| open_slow(victim.at, number))
        .collect();
    for byte in &HEAD.as_bytes()[..12] {
        for stream in &mut slow {
            // The server may have closed it.
            drop(stream.write(&[*byte]));
        }
        // Asserts that every regular request succeeds.
        measure::latencies(victim.at, Duration::from_secs(1));
    }
    for (number, stream) in slow.iter_mut().enumerate() {
        let mut response = Vec::new();
        let end = stream.read_to_end(&mut response);
        assert!(
            !end.is_err_and(|it| it.kind() == ErrorKind::WouldBlock),
            "still open after 12 s"
        );
        let response = String::from_utf8_lossy(&response);
        if is_slow_in_body(number) {
            assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        } else {
            assert_eq!(response, "", "an incomplete head gets no response");
        }
    }
    victim.assert_memory_bounded();

    let slow_to = |at| move |attack: &Attack| send_slowly(at, attack);
    measure::compare_with(
        "1,000 slow connections",
        &victim,
        measure::TARGET,
        slow_to(silent_listener()),
        slow_to(victim.at),
    );
}

/// Keeps slow connections open, each of which sends a byte a second.
fn send_slowly(at: SocketAddr, attack: &Attack) {
    let mut slow: Vec<_> = (0..SLOW_CONNECTIONS)
        .map(|number| open_slow(at, number))
        .collect();
    attack.wait_for_start();
    for number in (0..SLOW_CONNECTIONS).cycle() {
        if number % BATCH == 0 {
            if attack.is_over() {
                return;
            }
            thread::sleep(Duration::from_secs(1) * BATCH as u32 / SLOW_CONNECTIONS as u32);
        }
        let stream = &mut slow[number];
        let is_open =
            matches!(stream.read(&mut [0]), Err(it) if it.kind() == ErrorKind::WouldBlock);
        if !is_open || stream.write(b"P").is_err() {
            *stream = open_slow(at, number);
        }
        attack.count_request();
    }
}

/// A listener that reads nothing: what its clients send costs no time but their own.
fn silent_listener() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let mut streams: Vec<_> = Vec::new();
        for stream in listener.incoming() {
            // The connections of one round are open at the same time.
            if streams.len() == SLOW_CONNECTIONS {
                streams.clear();
            }
            streams.push(stream);
        }
    });
    at
}

/// Half of the slow connections are slow in the head, the other half in the body.
fn is_slow_in_body(number: usize) -> bool {
    number.is_multiple_of(2)
}

fn open_slow(at: SocketAddr, number: usize) -> TcpStream {
    let mut stream = connect(at);
    stream.set_nonblocking(true).expect("a socket");
    if is_slow_in_body(number) {
        let head = format!("{HEAD}content-length: {}\r\n\r\n", 4 * MIB);
        stream.write_all(head.as_bytes()).expect("the server reads");
    }
    stream
}

/// Sends an oversized body; returns the response, and how many bytes the server took.
type SendBody = fn(SocketAddr) -> (Response, usize);

#[tokio::test]
async fn oversized_bodies_are_rejected_without_harming_others() {
    let _exclusive = exclusive_load().await;
    raise_file_limit();
    let victim = Victim::start();
    let attacks: [(SendBody, usize); 2] =
        [(send_declared, BUFFERED), (send_chunked, BUFFERED + READ)];
    for (send, most) in attacks {
        let ((status, body), sent) = send(victim.at);
        assert_eq!(status, 413, "{body}");
        assert!(sent <= most, "it took {} MiB", sent / MIB);
        measure::request_lease(victim.at);
    }

    // Bodies of the largest size allowed, each without its last byte.
    let len = 4 * MIB;
    let whole = format!("{HEAD}content-length: {len}\r\n\r\n{}", " ".repeat(len - 1));
    let incomplete: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = connect(victim.at);
            // Bodies beyond the server's memory limit are rejected, and not read any further.
            drop(stream.write_all(whole.as_bytes()));
            stream
        })
        .collect();
    measure::request_lease(victim.at);
    victim.assert_memory_bounded();
    drop(incomplete);

    let at = victim.at;
    measure::compare(
        "ten bodies of 1 GiB a second",
        &victim,
        BODIES_BOUND,
        |attack| {
            attack.wait_for_start();
            for send in [send_declared, send_chunked].into_iter().cycle() {
                if attack.is_over() {
                    return;
                }
                assert_eq!(send(at).0.0, 413);
                attack.count_request();
                thread::sleep(Duration::from_millis(100));
            }
        },
    );
}

/// Declares a length of one gibibyte.
fn send_declared(at: SocketAddr) -> (Response, usize) {
    let length = format!("content-length: {GIB}\r\n\r\n");
    send_body(at, &length, &" ".repeat(MIB))
}

/// Sends chunks, so that the server does not know the length.
fn send_chunked(at: SocketAddr) -> (Response, usize) {
    let chunk = format!("{MIB:x}\r\n{}\r\n", " ".repeat(MIB));
    send_body(at, "transfer-encoding: chunked\r\n\r\n", &chunk)
}

fn send_body(at: SocketAddr, rest_of_head: &str, chunk: &str) -> (Response, usize) {
    let mut stream = connect(at);
    let head = format!("{HEAD}{rest_of_head}");
    stream.write_all(head.as_bytes()).expect("the server reads");
    let chunks = (0..GIB / MIB).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok());
    let sent = chunks.count() * MIB;
    (early_response(&mut stream), sent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unread_responses_take_bounded_memory_and_time_out() {
    let _exclusive = exclusive_load().await;
    let victim = Victim::start();
    let body = request_of_large_response();
    let (status, whole) = exchange(victim.at, &post(JSON, &body));
    assert_eq!(status, 200, "{whole}");

    // The client announces a flow control window of zero.
    let socket = tokio::net::TcpStream::connect(victim.at).await;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(socket.expect("it listens")))
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let mut responses = Vec::new();
    while responses.len() < UNREAD_RESPONSES {
        let request = Request::post(format!("http://{}/v1/capacity", victim.at))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.clone())))
            .expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        let accepted = response.status() == StatusCode::OK;
        responses.push(response);
        if !accepted {
            break;
        }
    }
    // The first ones fit into the response buffer, later ones get a Retry-After.
    assert_eq!(responses[0].status(), StatusCode::OK);
    let last = &responses[responses.len() - 1];
    assert_eq!(last.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(last.headers()["retry-after"], "1");
    // Small responses are always sent.
    measure::request_lease(victim.at);
    victim.assert_memory_bounded();

    let ended = timeout(Duration::from_secs(20), connection).await;
    drop(ended.expect("the server closes the connection"));
    let first = responses.swap_remove(0);
    assert!(first.into_body().collect().await.is_err());
    let (status, response) = exchange(victim.at, &post(JSON, &body));
    assert_eq!(status, 200, "{response}");
}

/// The response is about nine times as large as this request: 2 MiB.
fn request_of_large_response() -> String {
    let resource = |n| format!(r#"{{"resource_id":"r{n}","wants":1}}"#);
    let resources: Vec<_> = (0..10_000).map(resource).collect();
    let resources = resources.join(",");
    format!(r#"{{"client_id":"c","resources":[{resources}]}}"#)
}
