//! The connection limit.

use super::*;

#[tokio::test(start_paused = true)]
async fn eviction_closes_connections_only_between_requests() {
    for transport in TRANSPORTS {
        let (slow, mut peer) = busy(transport).await;
        peer.activity.evict();
        advance(Duration::from_secs(1)).await;
        slow.end.notify_one();
        peer.response("slow").await;
        // A request that has arrived is in progress, even if it is not read yet.
        peer.send(REQUEST).await;
        peer.activity.evict();
        peer.response("quick").await;

        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);
        // A head that is incomplete is not.
        let mut peer = connect(transport, slow.router()).await;
        peer.send(&REQUEST[..10]).await;
        advance(Duration::from_secs(1)).await;
        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_closes_only_slow_request_bodies() {
    for transport in TRANSPORTS {
        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nsl")
            .await;
        sleep(Duration::from_millis(1_900)).await;
        peer.activity.evict();
        sleep(Duration::from_millis(200)).await;
        // It was not slow before, and is now.
        peer.activity.evict();
        assert_eq!(peer.closed().await, (String::new(), 0));

        // A complete request is not slow, however long its handler takes.
        let slow = Slow::default();
        let mut peer = connect(transport, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
            .await;
        slow.begun.notified().await;
        sleep(Duration::from_secs(3)).await;
        peer.activity.evict();
        slow.end.notify_one();
        peer.response("slow").await;
    }
}

pub(super) struct Served {
    pub(super) address: std::net::SocketAddr,
    pub(super) metrics: ConnectionMetrics,
    _server: tokio::task::JoinSet<usize>,
}

/// Serves with this connection limit.
pub(super) async fn serve(transport: Transport, limit: usize, router: Router) -> Served {
    let listener = listener(limit).with_tls(transport.tls());
    let address = listener.address();
    let metrics = ConnectionMetrics::default();
    let served = listener.serve(
        router,
        metrics.clone(),
        std::future::pending(),
        || {},
        |_| 0,
    );
    let mut server = tokio::task::JoinSet::new();
    server.spawn(served);
    Served {
        address,
        metrics,
        _server: server,
    }
}

pub(super) async fn read_response(stream: &mut Box<dyn Stream>, end: &str) {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "closed");
    }
}

async fn is_closed(stream: &mut Box<dyn Stream>) -> bool {
    matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn new_connections_evict_those_idle_longest() {
    for transport in TRANSPORTS {
        let served = serve(transport, 4, Slow::default().router()).await;
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut stream = transport.dial(served.address).await;
            stream.write_all(REQUEST).await.unwrap();
            read_response(&mut stream, "quick").await;
            open.push(stream);
        }
        // One slot is free for the next connection.
        for stream in &mut open[..17] {
            assert!(is_closed(stream).await);
        }
        for stream in &mut open[17..] {
            stream.write_all(REQUEST).await.unwrap();
            read_response(stream, "quick").await;
        }
        assert_eq!(served.metrics.evicted(), 17);
    }
}

#[tokio::test]
async fn busy_connections_are_not_evicted_and_new_ones_wait() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let served = serve(transport, 2, slow.router()).await;
        let mut busy = Vec::new();
        for _ in 0..2 {
            let mut stream = transport.dial(served.address).await;
            stream
                .write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
                .await
                .unwrap();
            slow.begun.notified().await;
            busy.push(stream);
        }
        let newcomer = tokio::spawn(async move {
            let mut stream = transport.dial(served.address).await;
            stream.write_all(REQUEST).await.unwrap();
            read_response(&mut stream, "quick").await;
        });
        // Both are answered; then one of them is evicted.
        for stream in &mut busy {
            slow.end.notify_one();
            read_response(stream, "slow").await;
        }
        newcomer.await.unwrap();
    }
}

#[tokio::test]
async fn new_connections_evict_slow_request_bodies() {
    for transport in TRANSPORTS {
        let served = serve(transport, 4, Slow::default().router()).await;
        let mut dripping = Vec::new();
        for _ in 0..4 {
            let mut stream = transport.dial(served.address).await;
            stream
                .write_all(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\ndrip")
                .await
                .unwrap();
            dripping.push(stream);
        }
        // This router has no body timeout.
        let mut newcomer = transport.dial(served.address).await;
        newcomer.write_all(REQUEST).await.unwrap();
        timeout(
            Duration::from_secs(8),
            read_response(&mut newcomer, "quick"),
        )
        .await
        .unwrap();
        assert!(is_closed(&mut dripping[0]).await);
    }
}
