//! Connections that nobody uses for a while, and what comes just then.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::future::join_all;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn serving(rest: Rest) -> Arc<Serving> {
    Arc::new(Serving::new(Slow::default().router(), rest))
}

#[tokio::test(start_paused = true)]
async fn connections_rest_before_their_first_request_and_a_second_after_each() {
    for wire in WIRES {
        let serving = serving(Rest::default());
        let mut peer = connect_to(wire, &serving).await;
        advance(SECOND).await;
        assert_eq!(serving.awake(), 0);
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.answer("quick").await;
            sleep(SECOND - Duration::from_millis(2)).await;
            assert_eq!(serving.awake(), 1);
            sleep(Duration::from_millis(4)).await;
            assert_eq!(serving.awake(), 0);
        }
        // The end of the wait is what it would have been.
        assert_eq!(peer.closed().await, (String::new(), 73));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_done_with_a_request_stays_awake() {
    for wire in WIRES {
        let slow = Slow::default();
        let serving = Arc::new(Serving::new(slow.router(), Rest::default()));
        let begun = [
            // A handler that takes its time, a head that is not whole, and a body that is not.
            &b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"[..],
            &REQUEST[..10],
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nwhol",
        ];
        let mut peers = Vec::new();
        for bytes in begun {
            let mut peer = connect_to(wire, &serving).await;
            peer.send(bytes).await;
            peers.push(peer);
        }
        sleep(3 * SECOND / 2).await;
        assert_eq!(serving.awake(), 3);

        // An answer that its peer does not read: the pipe has 64 KiB.
        let mut peer = connect_to(wire, &serving).await;
        peer.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(serving.awake(), 4);
        peer.answer("end").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(serving.awake(), 3);

        slow.end.notify_one();
        peers[0].answer("slow").await;
        peers[1].send(&REQUEST[10..]).await;
        peers[1].answer("quick").await;
        peers[2].send(b"e").await;
        peers[2].answer("whole").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(serving.awake(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn when_many_are_awake_they_rest_at_once_and_http2_ends() {
    for wire in WIRES {
        let serving = serving(Rest {
            most_awake: 0,
            ..Rest::default()
        });
        let mut peer = connect_to(wire, &serving).await;
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.answer("quick").await;
            sleep(Duration::from_millis(1)).await;
            assert_eq!(serving.awake(), 0);
        }

        let peer = connect_to(wire, &serving).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        assert_eq!(peer.server.await.unwrap(), Ended::Over);
        connection.await.unwrap().unwrap();
        assert_eq!(serving.awake(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_read_of_the_next_request_when_the_rest_began_is_not_lost() {
    for wire in WIRES {
        let serving = serving(Rest::default());
        let mut peer = connect_to(wire, &serving).await;
        // Both in one piece, so that what is there of the second is read with the first.
        for cut in 1..REQUEST.len() {
            let (now, later) = REQUEST.split_at(cut);
            peer.send(&[REQUEST, REQUEST, now].concat()).await;
            peer.answer("quick").await;
            sleep(2 * SECOND).await;
            peer.send(later).await;
            peer.answer("quick").await;
            sleep(2 * SECOND).await;
            assert_eq!(serving.awake(), 0);
        }
        // The head that has begun is due in time.
        peer.send(&[REQUEST, &REQUEST[..10]].concat()).await;
        peer.answer("quick").await;
        assert_eq!(peer.closed().await, (String::new(), 6));
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_body_that_nobody_read_is_no_request() {
    for wire in WIRES {
        let serving = serving(Rest {
            most_awake: 0,
            ..Rest::default()
        });
        for length in ["content-length: 64000", "transfer-encoding: chunked"] {
            let mut peer = connect_to(wire, &serving).await;
            let head = format!("POST /unread HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n");
            peer.send(head.as_bytes()).await;
            let answer = peer.answer("unread").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            drop(peer.stream.write_all(REQUEST).await);
            assert_eq!(peer.closed().await.0, "");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_left_a_body_that_nobody_read_does_not_stay_awake() {
    for wire in WIRES {
        let serving = serving(Rest::default());
        let mut peer = connect_to(wire, &serving).await;
        for _ in 0..2 {
            peer.send(b"GET /quick HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx")
                .await;
            peer.answer("quick").await;
        }
        assert_eq!(peer.closed().await, (String::new(), 1));
        assert_eq!(serving.awake(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_that_it_closes_is_closed_and_who_would_upgrade_is_served_on() {
    for wire in WIRES {
        let serving = serving(Rest::default());
        let mut peer = connect_to(wire, &serving).await;
        for _ in 0..2 {
            peer.send(
                b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            )
            .await;
            peer.answer("quick").await;
            sleep(2 * SECOND).await;
            assert_eq!(serving.awake(), 0);
        }
        peer.send(b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        let (answer, seconds) = peer.closed().await;
        assert!(answer.ends_with("quick"), "{answer}");
        assert_eq!(seconds, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_rests_makes_room_and_ends_with_the_server() {
    for wire in WIRES {
        let serving = serving(Rest::default());
        let mut peer = connect_to(wire, &serving).await;
        peer.send(REQUEST).await;
        peer.answer("quick").await;
        sleep(2 * SECOND).await;
        peer.activity.give_way();
        assert_eq!(peer.server.await.unwrap(), Ended::GaveWay);

        let peer = connect_to(wire, &serving).await;
        sleep(2 * SECOND).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 1));

        // What has come in already is under way, even if nobody has looked at it yet.
        let gives_way: fn(&Peer) = |peer| peer.activity.give_way();
        let drains: fn(&Peer) = |peer| assert!(!peer.drain.send_replace(true));
        for happens in [gives_way, drains] {
            let mut peer = connect_to(wire, &serving).await;
            peer.send(REQUEST).await;
            peer.answer("quick").await;
            sleep(2 * SECOND).await;
            peer.send(REQUEST).await;
            happens(&peer);
            let (answer, _) = peer.closed().await;
            assert!(answer.ends_with("quick"), "{answer}");
        }
    }
}

/// Over real sockets and in real time, so that requests come before, while and after their connection goes to rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_just_when_their_connection_goes_to_rest_are_served_once() {
    for wire in WIRES {
        const PEERS: u64 = 8;
        const ROUNDS: u64 = 400;
        let after = Duration::from_millis(1);
        let served = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&served);
        let router = Router::new().route(
            "/count",
            post(async move |body: String| {
                counted.fetch_add(1, Relaxed);
                body
            }),
        );
        let listener = listener(1000).encrypting(wire.tls()).resting(Rest {
            after,
            most_awake: 1000,
        });
        let address = listener.address();
        let server = tokio::spawn(listener.serve(
            router,
            ConnectionMetrics::default(),
            std::future::pending(),
            || {},
        ));
        let peer = async |peer: u64| {
            let mut random = fastrand::Rng::with_seed(peer);
            let mut stream = wire.dial(address).await;
            let mut sent = 0;
            for round in 0..ROUNDS {
                let number = random.usize(1..=3);
                let mut bytes = Vec::new();
                let mut bodies = Vec::new();
                for n in 0..number {
                    let body = format!("[{peer} {round} {n}]");
                    let head = format!(
                        "POST /count HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    bytes.extend_from_slice(head.as_bytes());
                    bytes.extend_from_slice(body.as_bytes());
                    bodies.push(body);
                }
                // In up to two pieces, the second of which comes when it likes.
                let cut = random.usize(0..=bytes.len());
                stream.write_all(&bytes[..cut]).await.unwrap();
                if random.bool() {
                    sleep(after.mul_f64(random.f64() * 2.0)).await;
                }
                stream.write_all(&bytes[cut..]).await.unwrap();
                let mut answers = String::new();
                let mut from = 0;
                for body in &bodies {
                    loop {
                        if let Some(at) = answers[from..].find(body) {
                            from += at + body.len();
                            break;
                        }
                        let mut piece = [0; 1024];
                        let len = stream.read(&mut piece).await.unwrap();
                        assert!(len > 0, "closed after {answers:?}");
                        answers.push_str(std::str::from_utf8(&piece[..len]).unwrap());
                    }
                }
                assert_eq!(answers.len(), from, "nothing but the answers");
                assert_eq!(answers.matches("HTTP/1.1 200").count(), number);
                sent += number;
                sleep(after.mul_f64(random.f64() * 2.0)).await;
            }
            sent
        };
        let sent: usize = join_all((0..PEERS).map(peer)).await.into_iter().sum();
        assert_eq!(served.load(Relaxed), sent);
        server.abort();
    }
}
