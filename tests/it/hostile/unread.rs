//! Answers of megabytes that nobody reads, over HTTP/2 with a window of nothing.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, time::timeout};

use super::{
    Victim, healthy,
    wire::{JSON, exchange, post},
};
use crate::support::exclusive_load;

/// More answers than there is room for.
const TOO_MANY: usize = 40;

/// The answer is some nine times as large: 2 MiB.
fn large() -> String {
    let resource = |n| format!(r#"{{"resource_id":"r{n}","wants":1}}"#);
    let resources: Vec<_> = (0..10_000).map(resource).collect();
    format!(
        r#"{{"client_id":"c","resources":[{}]}}"#,
        resources.join(",")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_nobody_reads_take_little_memory_and_end_soon() {
    let _exclusive = exclusive_load().await;
    let victim = Victim::start();
    let body = large();
    let (status, whole) = exchange(victim.at, &post(JSON, &body));
    assert_eq!(status, 200, "{whole}");

    let socket = TcpStream::connect(victim.at).await;
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(socket.expect("it listens")))
        .await
        .expect("it speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    while answers.len() < TOO_MANY {
        let request = Request::post(format!("http://{}/v1/capacity", victim.at))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.clone())))
            .expect("a request");
        let answer = sender.send_request(request).await.expect("it answers");
        let finds_room = answer.status() == StatusCode::OK;
        answers.push(answer);
        if !finds_room {
            break;
        }
    }
    // The first find room, and the others are told when to come again.
    assert_eq!(answers[0].status(), StatusCode::OK);
    let last = &answers[answers.len() - 1];
    assert_eq!(last.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(last.headers()["retry-after"], "1");
    // What is small is always answered.
    healthy::ask(victim.at);
    victim.memory_stayed_flat();

    let ended = timeout(Duration::from_secs(20), connection).await;
    drop(ended.expect("it is closed"));
    let first = answers.swap_remove(0);
    assert!(first.into_body().collect().await.is_err());
    let (status, answer) = exchange(victim.at, &post(JSON, &body));
    assert_eq!(status, 200, "{answer}");
}
