//! The server stops.

use std::{
    future::{pending, ready},
    io::{Read, Write},
};

use super::*;

/// Serves until it is told to stop.
async fn serve(
    router: Router,
    listener: Listener,
    stopping: impl Future<Output = ()>,
    drains: impl FnOnce(),
) -> usize {
    listener
        .serve(router, ConnectionMetrics::default(), stopping, drains)
        .await
}

#[tokio::test(start_paused = true)]
async fn who_is_idle_is_waited_for_a_moment_and_then_closed() {
    for wire in WIRES {
        let never_asked = connect(wire, Slow::default().router()).await;
        let mut awake = connect(wire, Slow::default().router()).await;
        awake.send(REQUEST).await;
        awake.answer("quick").await;
        let mut at_rest = connect(wire, Slow::default().router()).await;
        at_rest.send(REQUEST).await;
        at_rest.answer("quick").await;
        advance(Duration::from_secs(2)).await;
        for idle in [never_asked, awake, at_rest] {
            idle.drain.send_replace(true);
            assert_eq!(idle.closed().await, (String::new(), 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_before_one_is_told_is_answered_and_told_with_the_answer() {
    for wire in WIRES {
        for rested in [0, 2] {
            let mut peer = connect(wire, Slow::default().router()).await;
            peer.send(REQUEST).await;
            let answer = peer.answer("quick").await;
            assert!(!answer.contains("connection"), "{answer}");
            sleep(Duration::from_secs(rested)).await;
            peer.drain.send_replace(true);
            sleep(Duration::from_millis(900)).await;
            peer.send(REQUEST).await;
            let (answer, seconds) = peer.closed().await;
            assert!(
                answer.contains("connection: close") && answer.ends_with("quick"),
                "{answer}"
            );
            assert_eq!(seconds, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_answered() {
    for wire in WIRES {
        let (slow, peer) = busy(wire).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_secs(3)).await;
        slow.end.notify_one();
        let (answer, _) = peer.closed().await;
        assert!(
            answer.contains("connection: close") && answer.ends_with("slow"),
            "{answer}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_begun_to_ask_may_finish() {
    for wire in WIRES {
        for cut in 1..REQUEST.len() {
            let (now, later) = REQUEST.split_at(cut);
            let mut peer = connect(wire, Slow::default().router()).await;
            peer.send(now).await;
            sleep(Duration::from_millis(1)).await;
            peer.drain.send_replace(true);
            sleep(Duration::from_secs(3)).await;
            peer.send(later).await;
            let (answer, _) = peer.closed().await;
            assert!(answer.ends_with("quick"), "{cut}: {answer}");
        }

        let mut peer = connect(wire, Slow::default().router()).await;
        peer.send(&REQUEST[..10]).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_begun_to_ask_while_another_request_was_under_way_may_finish() {
    for wire in WIRES {
        let slow = Slow::default();
        let mut peer = connect(wire, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n")
            .await;
        sleep(Duration::from_millis(1)).await;
        peer.send(b"{}").await;
        slow.begun.notified().await;
        let (now, later) = REQUEST.split_at(10);
        peer.send(now).await;
        sleep(Duration::from_millis(1)).await;
        slow.end.notify_one();
        peer.answer("slow").await;
        peer.drain.send_replace(true);
        sleep(Duration::from_secs(3)).await;
        peer.send(later).await;
        let (answer, _) = peer.closed().await;
        assert!(answer.ends_with("quick"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_came_in_pieces_is_not_taken_for_the_beginning_of_another_request() {
    for wire in WIRES {
        let slow = Slow::default();
        let mut peer = connect(wire, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n")
            .await;
        for piece in [b"{", b"}"] {
            sleep(Duration::from_millis(1)).await;
            peer.send(piece).await;
        }
        slow.begun.notified().await;
        slow.end.notify_one();
        peer.answer("slow").await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_pauses_is_not_listened_to_for_longer_than_others() {
    let activity = Arc::new(Activity::new());
    activity.drains();
    let endless = tokio::io::join(tokio::io::repeat(b'a'), tokio::io::sink());
    let mut stream = Watched::new(endless, activity);
    let closes = tokio::spawn(async move { stream.shutdown().await });
    tokio::task::yield_now().await;
    assert!(!closes.is_finished());
    // It is never idle, so that time does not pass by itself.
    advance(Duration::from_secs(2)).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(closes.is_finished());
}

#[tokio::test(start_paused = true)]
async fn what_has_come_behind_the_last_request_is_taken_from_the_wire() {
    for wire in WIRES {
        let (slow, mut peer) = busy(wire).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_millis(1)).await;
        slow.end.notify_one();
        peer.answer("slow").await;
        // It is no longer served, but a system would reset a connection that is closed on it.
        peer.send(&REQUEST.repeat(1000)).await;
        assert!(!peer.server.is_finished());
        assert_eq!(peer.closed().await, (String::new(), 0));

        // Who does not take notice is not waited for.
        let mut peer = connect(wire, Slow::default().router()).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_millis(1)).await;
        peer.send(REQUEST).await;
        peer.answer("quick").await;
        let start = clock::now();
        peer.server.await.unwrap();
        assert_eq!(clock::now().since(start).as_secs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn over_http2_what_is_under_way_is_answered_and_the_next_is_not_sent() {
    for wire in WIRES {
        let slow = Slow::default();
        let peer = connect(wire, slow.router()).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = |path| {
            Request::get(format!("http://a/{path}"))
                .body(Body::empty())
                .unwrap()
        };
        let under_way = tokio::spawn(sender.send_request(request("slow")));
        slow.begun.notified().await;
        peer.drain.send_replace(true);
        sleep(Duration::from_secs(3)).await;
        let not_sent = sender.try_send_request(request("quick")).await;
        assert!(not_sent.unwrap_err().take_message().is_some());
        slow.end.notify_one();
        assert_eq!(under_way.await.unwrap().unwrap().status(), 200);
        connection.await.unwrap().unwrap();
        assert_eq!(peer.server.await.unwrap(), Ended::Over);
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_peer_that_says_nothing_any_more_is_not_waited_for() {
    for wire in WIRES {
        let mut peer = connect(wire, Slow::default().router()).await;
        // The preface, empty SETTINGS, and GET http://a/quick in HEADERS (RFC 7541, C.3.1: indexed fields; the path as a literal).
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let fields = b"\x82\x86\x04\x06/quick\x41\x01a";
        let length = u8::try_from(fields.len()).unwrap();
        let headers = [&[0, 0, length, 1, 5, 0, 0, 0, 1], &fields[..]].concat();
        peer.send(&[&preface[..], &headers].concat()).await;
        sleep(Duration::from_secs(1)).await;
        peer.drain.send_replace(true);
        let start = clock::now();
        peer.server.await.unwrap();
        assert_eq!(clock::now().since(start).as_secs(), 1);
    }
}

#[tokio::test]
async fn whoever_has_connected_when_the_server_stops_is_answered() {
    // More than the runtime lets one task take at a time.
    const CALLERS: usize = 300;
    let listener = listener(1000);
    let address = listener.address();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(REQUEST).unwrap();
            stream
        })
        .collect();
    let answers = tokio::task::spawn_blocking(|| {
        callers
            .into_iter()
            .filter_map(|mut stream| {
                let mut answer = String::new();
                stream.read_to_string(&mut answer).ok()?;
                answer.ends_with("quick").then_some(())
            })
            .count()
    });
    let cut_off = serve(Slow::default().router(), listener, ready(()), || ()).await;
    assert_eq!((answers.await.unwrap(), cut_off), (CALLERS, 0));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn while_the_door_closes_nobody_is_let_in_only_to_be_thrown_out() {
    let listener = listener(10_000);
    let address = listener.address();
    let (stop, stopping) = oneshot::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    // One after the other, each on a connection of its own.
    let callers = tokio::task::spawn_blocking(move || {
        let mut begun = Some(begun);
        let mut answered = 0;
        while let Ok(mut stream) = std::net::TcpStream::connect(address) {
            let mut answer = String::new();
            let asked =
                stream.write_all(b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let read = asked.and_then(|()| stream.read_to_string(&mut answer));
            read.unwrap_or_else(|error| panic!("after {answered}: {error}"));
            assert!(answer.ends_with("quick"), "after {answered}: {answer}");
            answered += 1;
            if answered == 20
                && let Some(begun) = begun.take()
            {
                begun.send(()).unwrap();
            }
        }
        answered
    });
    let stops = async {
        has_begun.await.unwrap();
        drop(stop);
        pending::<()>().await;
    };
    let served = serve(
        Slow::default().router(),
        listener,
        async { drop(stopping.await) },
        || (),
    );
    tokio::select! {
        cut_off = served => assert_eq!(cut_off, 0),
        () = stops => {}
    }
    assert!(callers.await.unwrap() >= 20);
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_so_that_the_server_is_gone_within_ten_seconds() {
    let slow = Slow::default();
    let listener = listener(1000);
    let address = listener.address();
    let (stop, stopping) = oneshot::channel::<()>();
    let router = slow.router();
    let server = tokio::spawn(serve(
        router,
        listener,
        async { drop(stopping.await) },
        || (),
    ));
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    slow.begun.notified().await;
    // From here on nothing happens but the passing of time.
    tokio::time::pause();
    let start = clock::now();
    stop.send(()).unwrap();
    assert_eq!(server.await.unwrap(), 1);
    assert_eq!(clock::now().since(start).as_secs(), 8);
}
