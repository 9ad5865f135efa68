//! More connections than there is room for.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_give_way_closes_between_requests_and_not_within_one() {
    for wire in WIRES {
        let (slow, mut peer) = busy(wire).await;
        peer.activity.give_way();
        advance(Duration::from_secs(1)).await;
        slow.end.notify_one();
        peer.answer("slow").await;
        // What has come in already is within a request, even if nobody has looked at it yet.
        peer.send(REQUEST).await;
        peer.activity.give_way();
        peer.answer("quick").await;

        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);
        // A head that is still coming is waited for no longer either.
        let mut peer = connect(wire, slow.router()).await;
        peer.send(&REQUEST[..10]).await;
        advance(Duration::from_secs(1)).await;
        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_give_way_closes_within_a_body_that_has_taken_long() {
    for wire in WIRES {
        let mut peer = connect(wire, Slow::default().router()).await;
        peer.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nsl")
            .await;
        sleep(Duration::from_millis(1_900)).await;
        peer.activity.give_way();
        sleep(Duration::from_millis(200)).await;
        // It was not slow then, and is now.
        peer.activity.give_way();
        assert_eq!(peer.closed().await, (String::new(), 0));

        // What has arrived is not slow, however long its handler takes.
        let slow = Slow::default();
        let mut peer = connect(wire, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
            .await;
        slow.begun.notified().await;
        sleep(Duration::from_secs(3)).await;
        peer.activity.give_way();
        slow.end.notify_one();
        peer.answer("slow").await;
    }
}

struct Served {
    address: std::net::SocketAddr,
    counted: ConnectionMetrics,
    _server: tokio::task::JoinSet<usize>,
}

/// Serves so many connections at one time.
async fn serve(wire: Wire, most: usize, router: Router) -> Served {
    let listener = listener(most).encrypting(wire.tls());
    let address = listener.address();
    let counted = ConnectionMetrics::default();
    let served = listener.serve(router, counted.clone(), std::future::pending(), || {});
    let mut server = tokio::task::JoinSet::new();
    server.spawn(served);
    Served {
        address,
        counted,
        _server: server,
    }
}

async fn answered(stream: &mut Box<dyn Stream>, end: &str) {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "closed");
    }
}

async fn is_closed(stream: &mut Box<dyn Stream>) -> bool {
    matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn newcomers_find_room_since_those_that_have_waited_longest_make_it() {
    for wire in WIRES {
        let served = serve(wire, 4, Slow::default().router()).await;
        let mut open = Vec::new();
        for _ in 0..20 {
            let mut stream = wire.dial(served.address).await;
            stream.write_all(REQUEST).await.unwrap();
            answered(&mut stream, "quick").await;
            open.push(stream);
        }
        // One place is free for who comes next.
        for stream in &mut open[..17] {
            assert!(is_closed(stream).await);
        }
        for stream in &mut open[17..] {
            stream.write_all(REQUEST).await.unwrap();
            answered(stream, "quick").await;
        }
        assert_eq!(served.counted.evicted(), 17);
    }
}

#[tokio::test]
async fn who_is_served_is_never_closed_for_others_and_they_come_in_afterwards() {
    for wire in WIRES {
        let slow = Slow::default();
        let served = serve(wire, 2, slow.router()).await;
        let mut busy = Vec::new();
        for _ in 0..2 {
            let mut stream = wire.dial(served.address).await;
            stream
                .write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
                .await
                .unwrap();
            slow.begun.notified().await;
            busy.push(stream);
        }
        let newcomer = tokio::spawn(async move {
            let mut stream = wire.dial(served.address).await;
            stream.write_all(REQUEST).await.unwrap();
            answered(&mut stream, "quick").await;
        });
        // Both are answered though they stay open afterwards, and one of them then makes room.
        for stream in &mut busy {
            slow.end.notify_one();
            answered(stream, "slow").await;
        }
        newcomer.await.unwrap();
    }
}

#[tokio::test]
async fn newcomers_find_room_beside_bodies_that_drip_in() {
    for wire in WIRES {
        let served = serve(wire, 4, Slow::default().router()).await;
        let mut dripping = Vec::new();
        for _ in 0..4 {
            let mut stream = wire.dial(served.address).await;
            stream
                .write_all(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\ndrip")
                .await
                .unwrap();
            dripping.push(stream);
        }
        // Here nothing else would end these bodies: no reader has a limit of its own.
        let mut newcomer = wire.dial(served.address).await;
        newcomer.write_all(REQUEST).await.unwrap();
        timeout(Duration::from_secs(8), answered(&mut newcomer, "quick"))
            .await
            .unwrap();
        assert!(is_closed(&mut dripping[0]).await);
    }
}
