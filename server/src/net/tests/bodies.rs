//! Slow request bodies and responses that the peer does not read.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioTimer;

use super::*;

const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";

/// An HTTP/2 client with this stream window, which sends keep-alive pings.
fn client_with_window(window: u32) -> http2::Builder<TokioExecutor> {
    let mut peer = http2::Builder::new(TokioExecutor::new());
    peer.timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(7))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(window);
    peer
}

#[tokio::test(start_paused = true)]
async fn unread_response_closes_connection_after_ten_seconds() {
    for transport in TRANSPORTS {
        // The pipe holds 64 KiB.
        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(LARGE).await;
        sleep(Duration::from_millis(9_900)).await;
        assert!(!peer.server.is_finished());
        sleep(Duration::from_millis(200)).await;
        assert_eq!(peer.server.await.unwrap(), Closed::Done);

        // Further requests, or reading a byte now and then, do not extend the timeout.
        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(LARGE).await;
        let start = clock::now();
        while !peer.server.is_finished() {
            drop(peer.stream.write_all(b"G").await);
            drop(peer.stream.read_u8().await);
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(clock::now().since(start).as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn unread_http2_response_closes_connection_whatever_its_window() {
    for transport in TRANSPORTS {
        // With a window of 1, h2 buffers all of the response.
        for window in [0, 1] {
            let peer = connect(transport, Slow::default().router()).await;
            let io = TokioIo::new(peer.stream);
            let (mut sender, connection) = client_with_window(window).handshake(io).await.unwrap();
            let client = tokio::spawn(connection);
            let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
            let start = clock::now();
            let _answer = sender.send_request(request).await.unwrap();
            timeout(Duration::from_secs(600), peer.server)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(clock::now().since(start).as_secs(), 10, "{window}");
            drop(client.await.unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn http2_connection_with_only_pings_is_idle() {
    for transport in TRANSPORTS {
        let peer = connect(transport, Slow::default().router()).await;
        let io = TokioIo::new(peer.stream);
        let (mut sender, connection) = client_with_window(1000).handshake(io).await.unwrap();
        let client = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let response = response.into_body().collect().await.unwrap();
        assert_eq!(response.to_bytes(), "quick");
        let start = clock::now();
        timeout(Duration::from_secs(600), peer.server)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(clock::now().since(start).as_secs(), 75);
        drop(client.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_closes_only_slow_responses() {
    for transport in TRANSPORTS {
        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(LARGE).await;
        sleep(Duration::from_millis(1_900)).await;
        peer.activity.evict();
        peer.response("end").await;

        peer.send(LARGE).await;
        sleep(Duration::from_millis(2_100)).await;
        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_spares_complete_request_beside_slow_one() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let peer = connect(transport, slow.router()).await;
        let io = TokioIo::new(peer.stream);
        let (mut sender, connection) = client_with_window(1000).handshake(io).await.unwrap();
        tokio::spawn(connection);
        let never = stream::pending::<Result<_, Infallible>>();
        let request = Request::post("http://a/echo");
        let request = request.body(Body::new(StreamBody::new(never))).unwrap();
        let _dripping = tokio::spawn(sender.send_request(request));
        let request = Request::get("http://a/slow").body(Body::empty()).unwrap();
        let whole = tokio::spawn(sender.send_request(request));
        slow.begun.notified().await;
        sleep(Duration::from_secs(3)).await;
        peer.activity.evict();
        sleep(Duration::from_secs(3)).await;
        slow.end.notify_one();
        assert_eq!(whole.await.unwrap().unwrap().status(), 200);

        // Nothing but the slow request is left.
        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);
    }
}

const KIB: usize = 1024;
const CHUNK: usize = 16 * KIB;

#[tokio::test(start_paused = true)]
async fn http2_window_limits_unread_request_bodies() {
    for transport in TRANSPORTS {
        let waits = async |request: axum::extract::Request| {
            std::future::pending::<()>().await;
            drop(request);
        };
        let router = Router::new().route("/waits", post(waits));
        let peer = connect(transport, router).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let sent = Arc::new(AtomicUsize::new(0));
        // Several requests, so that no stream window is the limit.
        for _ in 0..4 {
            let counted = Arc::clone(&sent);
            let pieces = stream::repeat_with(move || {
                counted.fetch_add(CHUNK, Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b' '; CHUNK])))
            });
            let body = Body::new(StreamBody::new(pieces));
            let request = Request::post("http://a/waits").body(body).unwrap();
            tokio::spawn(sender.send_request(request));
        }
        sleep(Duration::from_secs(1)).await;
        // The client buffers one chunk of each that it has not sent yet.
        let sent = sent.load(Relaxed);
        let expected = 256 * KIB..=256 * KIB + 8 * CHUNK;
        assert!(expected.contains(&sent), "{sent}");
    }
}
