//! Answers that their peers do not take.

use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::TokioTimer;

use super::*;

const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";

/// A peer that takes so many bytes of each answer, and asks by pings whether the server is there.
fn takes(window: u32) -> http2::Builder<TokioExecutor> {
    let mut peer = http2::Builder::new(TokioExecutor::new());
    peer.timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(7))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(window);
    peer
}

#[tokio::test(start_paused = true)]
async fn an_answer_must_be_taken_within_ten_seconds() {
    for wire in WIRES {
        // The pipe has 64 KiB.
        let mut peer = connect(wire, Slow::default().router()).await;
        peer.send(LARGE).await;
        sleep(Duration::from_millis(9_900)).await;
        assert!(!peer.server.is_finished());
        sleep(Duration::from_millis(200)).await;
        assert_eq!(peer.server.await.unwrap(), Ended::Over);

        // Who asks on, or takes a byte now and then, has no more time.
        let mut peer = connect(wire, Slow::default().router()).await;
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
async fn an_answer_must_be_taken_in_time_over_http2_whatever_its_window() {
    for wire in WIRES {
        // With a window the server's HTTP/2 has all of the answer, and keeps it.
        for window in [0, 1] {
            let peer = connect(wire, Slow::default().router()).await;
            let io = TokioIo::new(peer.stream);
            let (mut sender, connection) = takes(window).handshake(io).await.unwrap();
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
async fn who_only_sends_pings_is_idle() {
    for wire in WIRES {
        let peer = connect(wire, Slow::default().router()).await;
        let io = TokioIo::new(peer.stream);
        let (mut sender, connection) = takes(1000).handshake(io).await.unwrap();
        let client = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let answer = answer.into_body().collect().await.unwrap();
        assert_eq!(answer.to_bytes(), "quick");
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
async fn who_is_asked_to_give_way_closes_within_an_answer_only_when_that_has_taken_long() {
    for wire in WIRES {
        let mut peer = connect(wire, Slow::default().router()).await;
        peer.send(LARGE).await;
        sleep(Duration::from_millis(1_900)).await;
        peer.activity.give_way();
        peer.answer("end").await;

        peer.send(LARGE).await;
        sleep(Duration::from_millis(2_100)).await;
        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);
    }
}

#[tokio::test(start_paused = true)]
async fn a_whole_request_does_not_suffer_for_a_slow_one_on_its_connection() {
    for wire in WIRES {
        let slow = Slow::default();
        let peer = connect(wire, slow.router()).await;
        let io = TokioIo::new(peer.stream);
        let (mut sender, connection) = takes(1000).handshake(io).await.unwrap();
        tokio::spawn(connection);
        let never = futures_util::stream::pending::<Result<_, std::convert::Infallible>>();
        let request = Request::post("http://a/echo");
        let request = request.body(Body::new(StreamBody::new(never))).unwrap();
        let _dripping = tokio::spawn(sender.send_request(request));
        let request = Request::get("http://a/slow").body(Body::empty()).unwrap();
        let whole = tokio::spawn(sender.send_request(request));
        slow.begun.notified().await;
        sleep(Duration::from_secs(3)).await;
        peer.activity.give_way();
        sleep(Duration::from_secs(3)).await;
        slow.end.notify_one();
        assert_eq!(whole.await.unwrap().unwrap().status(), 200);

        // Now there is nothing else.
        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);
    }
}
