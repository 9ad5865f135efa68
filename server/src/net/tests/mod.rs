//! Connections in memory, under paused time; and a few over real sockets.

mod answers;
mod crowd;
mod drain;
mod encrypted;
mod rest;
mod unread;
mod wire;

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

use self::wire::{Stream, WIRES, Wire};
use super::{
    Listener,
    activity::Activity,
    connection,
    handshake::{self, Opened},
    keeper::Ended,
    serving::{Rest, Serving},
    watched::Watched,
};
use crate::{net::ConnectionMetrics, util::clock};

const REQUEST: &[u8] = b"GET /quick HTTP/1.1\r\nhost: a\r\n\r\n";

/// A handler that says when it has begun, and ends when it is told to.
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

fn listener(most: usize) -> Listener {
    let most = NonZeroUsize::new(most).unwrap();
    Listener::bind(([127, 0, 0, 1], 0).into(), most).unwrap()
}

struct Peer {
    stream: Box<dyn Stream>,
    server: JoinHandle<Ended>,
    activity: Arc<Activity>,
    drain: watch::Sender<bool>,
}

async fn connect(wire: Wire, router: Router) -> Peer {
    connect_to(wire, &Arc::new(Serving::new(router, Rest::default()))).await
}

async fn connect_to(wire: Wire, serving: &Arc<Serving>) -> Peer {
    let (stream, far_end) = duplex(64 * 1024);
    let (drain, draining) = watch::channel(false);
    let activity = Arc::new(Activity::new());
    let serving = Arc::clone(serving);
    let active = Arc::clone(&activity);
    let server = match wire.tls() {
        None => {
            let open = ready(Some(Opened::plain(far_end)));
            tokio::spawn(connection::serve(serving, open, active, draining))
        }
        Some(tls) => {
            let open = Box::pin(handshake::encrypted(tls, far_end));
            tokio::spawn(connection::serve(serving, open, active, draining))
        }
    };
    Peer {
        stream: wire.open(stream).await,
        server,
        activity,
        drain,
    }
}

/// A connection with a request under way, which ends when it is told to.
async fn busy(wire: Wire) -> (Slow, Peer) {
    let slow = Slow::default();
    let mut peer = connect(wire, slow.router()).await;
    peer.send(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    slow.begun.notified().await;
    (slow, peer)
}

impl Peer {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until the answer that ends so.
    async fn answer(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let mut bytes = [0; 1024];
            let read = self.stream.read(&mut bytes).await.unwrap();
            assert!(read > 0, "closed after {text:?}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        text
    }

    /// Reads until the server closes the connection. Returns what still came, and after how many seconds.
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
async fn a_connection_that_says_nothing_is_closed() {
    for wire in WIRES {
        let peer = connect(wire, Slow::default().router()).await;
        assert_eq!(peer.closed().await, (String::new(), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_in_is_not_waited_for() {
    for wire in WIRES {
        let mut peer = connect(wire, Slow::default().router()).await;
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
async fn connections_stay_open_between_requests_for_a_while() {
    for wire in WIRES {
        let mut peer = connect(wire, Slow::default().router()).await;
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.answer("quick").await;
            advance(Duration::from_secs(74)).await;
        }
        // The second head begins in time, and is due in time.
        peer.send(&REQUEST[..10]).await;
        assert_eq!(peer.closed().await, (String::new(), 5));

        let mut peer = connect(wire, Slow::default().router()).await;
        peer.send(REQUEST).await;
        peer.answer("quick").await;
        assert_eq!(peer.closed().await, (String::new(), 75));
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_without_requests_is_idle_though_its_peer_is_there() {
    for wire in WIRES {
        let Peer {
            stream,
            server,
            activity: _,
            drain: _open,
        } = connect(wire, Slow::default().router()).await;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        // It answers whatever it is asked.
        let peer = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        drop(answer);

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
async fn a_handler_may_take_its_time() {
    for wire in WIRES {
        let (slow, mut peer) = busy(wire).await;
        advance(Duration::from_secs(600)).await;
        slow.end.notify_one();
        peer.answer("slow").await;
        assert_eq!(peer.closed().await, (String::new(), 75));
    }
}
