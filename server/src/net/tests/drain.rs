//! Graceful shutdown.

use std::{
    future::{pending, ready},
    io::{Read, Write},
};

use super::*;

async fn serve(
    router: Router,
    listener: Listener,
    stopping: impl Future<Output = ()>,
    on_drain: impl FnOnce(),
) -> usize {
    listener
        .serve(
            router,
            ConnectionMetrics::default(),
            stopping,
            on_drain,
            |_| 0,
        )
        .await
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_after_grace_period() {
    for transport in TRANSPORTS {
        let never_asked = connect(transport, Slow::default().router()).await;
        let mut awake = connect(transport, Slow::default().router()).await;
        awake.send(REQUEST).await;
        awake.response("quick").await;
        let mut at_rest = connect(transport, Slow::default().router()).await;
        at_rest.send(REQUEST).await;
        at_rest.response("quick").await;
        advance(Duration::from_secs(2)).await;
        for idle in [never_asked, awake, at_rest] {
            idle.drain.send_replace(true);
            assert_eq!(idle.closed().await, (String::new(), 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn request_within_grace_period_is_answered_with_connection_close() {
    for transport in TRANSPORTS {
        for rested in [0, 2] {
            let mut peer = connect(transport, Slow::default().router()).await;
            peer.send(REQUEST).await;
            let response = peer.response("quick").await;
            assert!(!response.contains("connection"), "{response}");
            sleep(Duration::from_secs(rested)).await;
            peer.drain.send_replace(true);
            sleep(Duration::from_millis(900)).await;
            peer.send(REQUEST).await;
            let (response, seconds) = peer.closed().await;
            assert!(
                response.contains("connection: close") && response.ends_with("quick"),
                "{response}"
            );
            assert_eq!(seconds, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn request_in_progress_is_answered() {
    for transport in TRANSPORTS {
        let (slow, peer) = busy(transport).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_secs(3)).await;
        slow.end.notify_one();
        let (response, _) = peer.closed().await;
        assert!(
            response.contains("connection: close") && response.ends_with("slow"),
            "{response}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn started_request_may_be_completed() {
    for transport in TRANSPORTS {
        for cut in 1..REQUEST.len() {
            let (now, later) = REQUEST.split_at(cut);
            let mut peer = connect(transport, Slow::default().router()).await;
            peer.send(now).await;
            sleep(Duration::from_millis(1)).await;
            peer.drain.send_replace(true);
            sleep(Duration::from_secs(3)).await;
            peer.send(later).await;
            let (response, _) = peer.closed().await;
            assert!(response.ends_with("quick"), "{cut}: {response}");
        }

        let mut peer = connect(transport, Slow::default().router()).await;
        peer.send(&REQUEST[..10]).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn request_started_during_another_may_be_completed() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let mut peer = connect(transport, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n")
            .await;
        sleep(Duration::from_millis(1)).await;
        peer.send(b"{}").await;
        slow.begun.notified().await;
        let (now, later) = REQUEST.split_at(10);
        peer.send(now).await;
        sleep(Duration::from_millis(1)).await;
        slow.end.notify_one();
        peer.response("slow").await;
        peer.drain.send_replace(true);
        sleep(Duration::from_secs(3)).await;
        peer.send(later).await;
        let (response, _) = peer.closed().await;
        assert!(response.ends_with("quick"), "{response}");
    }
}

#[tokio::test(start_paused = true)]
async fn chunked_body_does_not_start_another_request() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let mut peer = connect(transport, slow.router()).await;
        peer.send(b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n")
            .await;
        for piece in [b"{", b"}"] {
            sleep(Duration::from_millis(1)).await;
            peer.send(piece).await;
        }
        slow.begun.notified().await;
        slow.end.notify_one();
        peer.response("slow").await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn peer_that_keeps_sending_is_closed_in_time() {
    let activity = Arc::new(Activity::new(None));
    activity.start_draining();
    let endless = tokio::io::join(tokio::io::repeat(b'a'), tokio::io::sink());
    let mut stream = TrackedStream::new(endless, activity);
    let closes = tokio::spawn(async move { stream.shutdown().await });
    tokio::task::yield_now().await;
    assert!(!closes.is_finished());
    // The task is never idle, so paused time does not advance.
    advance(Duration::from_secs(2)).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(closes.is_finished());
}

#[tokio::test(start_paused = true)]
async fn bytes_behind_last_request_are_read_before_close() {
    for transport in TRANSPORTS {
        let (slow, mut peer) = busy(transport).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_millis(1)).await;
        slow.end.notify_one();
        peer.response("slow").await;
        // The request is not served, but closing the socket on unread bytes would reset it.
        peer.send(&REQUEST.repeat(1000)).await;
        assert!(!peer.server.is_finished());
        assert_eq!(peer.closed().await, (String::new(), 0));

        // A peer that does not close its end is closed after the linger time.
        let mut peer = connect(transport, Slow::default().router()).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_millis(1)).await;
        peer.send(REQUEST).await;
        peer.response("quick").await;
        let start = clock::now();
        peer.server.await.unwrap();
        assert_eq!(clock::now().since(start).as_secs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn http2_request_in_progress_is_answered_and_next_not_sent() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let peer = connect(transport, slow.router()).await;
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
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn http2_connection_opened_during_shutdown_receives_goaway() {
    for transport in TRANSPORTS {
        let peer = connect(transport, Slow::default().router()).await;
        peer.drain.send_replace(true);
        sleep(Duration::from_millis(500)).await;
        let io = TokioIo::new(peer.stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let connection = tokio::spawn(connection);
        sleep(Duration::from_millis(10)).await;
        let request = Request::get("http://a/slow").body(Body::empty()).unwrap();
        let response = timeout(Duration::from_secs(3), sender.try_send_request(request)).await;
        assert!(response.unwrap().unwrap_err().take_message().is_some());
        connection.await.unwrap().unwrap();
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_http2_peer_is_closed_after_grace_period() {
    for transport in TRANSPORTS {
        let mut peer = connect(transport, Slow::default().router()).await;
        // The preface, empty SETTINGS, and GET http://a/quick in HEADERS (RFC 7541, C.3.1).
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
async fn queued_connections_are_answered_at_shutdown() {
    // More than the task budget of the runtime.
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
    let responses = tokio::task::spawn_blocking(|| {
        callers
            .into_iter()
            .filter_map(|mut stream| {
                let mut response = String::new();
                stream.read_to_string(&mut response).ok()?;
                response.ends_with("quick").then_some(())
            })
            .count()
    });
    let cut_off = serve(Slow::default().router(), listener, ready(()), || ()).await;
    assert_eq!((responses.await.unwrap(), cut_off), (CALLERS, 0));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn no_accepted_connection_is_reset_at_shutdown() {
    let listener = listener(10_000);
    let address = listener.address();
    let (stop, stopping) = oneshot::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    // One after the other, each on its own connection.
    let callers = tokio::task::spawn_blocking(move || {
        let mut begun = Some(begun);
        let mut answered = 0;
        while let Ok(mut stream) = std::net::TcpStream::connect(address) {
            let mut response = String::new();
            let asked =
                stream.write_all(b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            let read = asked.and_then(|()| stream.read_to_string(&mut response));
            read.unwrap_or_else(|error| panic!("after {answered}: {error}"));
            assert!(response.ends_with("quick"), "after {answered}: {response}");
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
async fn unfinished_request_is_aborted_after_drain_timeout() {
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
    // From here on only time passes.
    tokio::time::pause();
    let start = clock::now();
    stop.send(()).unwrap();
    assert_eq!(server.await.unwrap(), 1);
    assert_eq!(clock::now().since(start).as_secs(), 8);
}
