//! Connections in memory with paused time, and some over real sockets.

mod bodies;
mod close;
mod control_frames;
mod drain;
mod eviction;
mod handshake;
mod parking;
mod transport;

use std::{future::ready, num::NonZeroUsize, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::Request,
    routing::{get, post},
};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::TcpStream,
    sync::{Notify, oneshot, watch},
    task::JoinHandle,
    time::{advance, sleep, timeout},
};

use self::transport::{Stream, TRANSPORTS, Transport};
use super::{
    Listener,
    activity::Activity,
    connection,
    service::{HttpServer, Parking},
    stream::{Opened, TrackedStream},
    supervisor::Closed,
    tls,
};
use crate::{net::ConnectionMetrics, util::clock};

const REQUEST: &[u8] = b"GET /quick HTTP/1.1\r\nhost: a\r\n\r\n";

/// A handler that signals when it has begun, and waits for a signal to return.
#[derive(Debug, Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    end: Arc<Notify>,
}

impl Slow {
    fn router(&self) -> Router {
        let Self { begun, end } = self.clone();
        let slow = async move |_: String| {
            begun.notify_one();
            end.notified().await;
            "slow"
        };
        Router::new()
            .route("/quick", get(async || "quick"))
            .route("/slow", get(slow.clone()).post(slow))
            .route("/echo", post(async |body: String| body))
            .route("/unread", post(async || "unread"))
            .route("/large", get(async || " ".repeat(1 << 20) + "end"))
    }
}

fn listener(limit: usize) -> Listener {
    let limit = NonZeroUsize::new(limit).unwrap();
    Listener::bind(([127, 0, 0, 1], 0).into(), limit).unwrap()
}

struct Peer {
    stream: Box<dyn Stream>,
    server: JoinHandle<Closed>,
    activity: Arc<Activity>,
    drain: watch::Sender<bool>,
}

async fn connect(transport: Transport, router: Router) -> Peer {
    connect_to(
        transport,
        &Arc::new(HttpServer::new(router, Parking::default())),
    )
    .await
}

async fn connect_to(transport: Transport, server: &Arc<HttpServer>) -> Peer {
    let (stream, far_end) = duplex(64 * 1024);
    let (drain, draining) = watch::channel(false);
    let activity = Arc::new(Activity::new(None));
    let server = Arc::clone(server);
    let active = Arc::clone(&activity);
    let server = match transport.tls() {
        None => {
            let open = ready(Some(Opened {
                stream: far_end,
                protocol: None,
            }));
            tokio::spawn(connection::serve(server, open, active, draining))
        }
        Some(tls) => {
            let open = Box::pin(tls::accept(tls, far_end));
            tokio::spawn(connection::serve(server, open, active, draining))
        }
    };
    Peer {
        stream: transport.open(stream).await,
        server,
        activity,
        drain,
    }
}

/// A connection with a request in progress.
async fn busy(transport: Transport) -> (Slow, Peer) {
    let slow = Slow::default();
    let mut peer = connect(transport, slow.router()).await;
    peer.send(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    slow.begun.notified().await;
    (slow, peer)
}

impl Peer {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until a response with this end.
    async fn response(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut bytes = [0; 1024];
            let read = self.stream.read(&mut bytes).await.unwrap();
            assert!(read > 0, "closed after {text:?}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        text
    }

    /// Reads until the server closes the connection. Returns the text and the time in seconds.
    async fn closed(mut self) -> (String, u64) {
        let start = clock::now();
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).await.unwrap();
        drop(self.stream);
        self.server.await.unwrap();
        (rest, clock::now().since(start).as_secs())
    }
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_closed() {
    for transport in TRANSPORTS {
        let peer = connect(transport, Slow::default().router()).await;
        assert_eq!(peer.closed().await, (String::new(), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_head_times_out() {
    for transport in TRANSPORTS {
        let mut peer = connect(transport, Slow::default().router()).await;
        let start = clock::now();
        for byte in REQUEST {
            sleep(Duration::from_secs(1)).await;
            if peer.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        assert_eq!(clock::now().since(start).as_secs(), 6);
        assert!(peer.server.await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_times_out_after_75_seconds() {
    for transport in TRANSPORTS {
        let mut peer = connect(transport, Slow::default().router()).await;
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.response("quick").await;
            advance(Duration::from_secs(74)).await;
        }
        // The next head begins in time, and is incomplete.
        peer.send(&REQUEST[..10]).await;
        assert_eq!(peer.closed().await, (String::new(), 5));

        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(REQUEST).await;
        peer.response("quick").await;
        assert_eq!(peer.closed().await, (String::new(), 75));
    }
}

#[tokio::test(start_paused = true)]
async fn http2_connection_without_requests_is_idle() {
    for transport in TRANSPORTS {
        let Peer {
            stream,
            server,
            activity: _,
            drain: _open,
        } = connect(transport, Slow::default().router()).await;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        let peer = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        drop(response);

        let start = clock::now();
        timeout(Duration::from_secs(600), server)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(clock::now().since(start).as_secs(), 75);
        drop(peer.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_have_no_timeout() {
    for transport in TRANSPORTS {
        let (slow, mut peer) = busy(transport).await;
        advance(Duration::from_secs(600)).await;
        slow.end.notify_one();
        peer.response("slow").await;
        assert_eq!(peer.closed().await, (String::new(), 75));
    }
}
