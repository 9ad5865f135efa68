//! Parking of connections.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::extract::Path;
use futures_util::future::join_all;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn http_server(rest: Parking) -> Arc<HttpServer> {
    Arc::new(HttpServer::new(Slow::default().router(), rest))
}

#[tokio::test(start_paused = true)]
async fn connections_are_parked_until_first_request_and_when_idle() {
    for transport in TRANSPORTS {
        let server = http_server(Parking::default());
        let mut peer = connect_to(transport, &server).await;
        advance(SECOND).await;
        assert_eq!(server.active(), 0);
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.response("quick").await;
            sleep(SECOND - Duration::from_millis(2)).await;
            assert_eq!(server.active(), 1);
            sleep(Duration::from_millis(4)).await;
            assert_eq!(server.active(), 0);
        }
        // Parking does not extend the idle timeout.
        assert_eq!(peer.closed().await, (String::new(), 73));
    }
}

#[tokio::test(start_paused = true)]
async fn connections_with_bodies_or_heads_in_progress_are_not_parked() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let server = Arc::new(HttpServer::new(slow.router(), Parking::default()));
        let begun = [
            // A slow handler after a body, an incomplete head, and an incomplete body.
            &b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody"[..],
            &REQUEST[..10],
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nwhol",
        ];
        let mut peers = Vec::new();
        for bytes in begun {
            let mut peer = connect_to(transport, &server).await;
            peer.send(bytes).await;
            peers.push(peer);
        }
        sleep(3 * SECOND / 2).await;
        assert_eq!(server.active(), 3);

        // A response that its peer does not read: the pipe holds 64 KiB.
        let mut peer = connect_to(transport, &server).await;
        peer.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(server.active(), 4);
        peer.response("end").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(server.active(), 3);

        slow.end.notify_one();
        peers[0].response("slow").await;
        peers[1].send(&REQUEST[10..]).await;
        peers[1].response("quick").await;
        peers[2].send(b"e").await;
        peers[2].response("whole").await;
        sleep(3 * SECOND / 2).await;
        assert_eq!(server.active(), 0);
    }
}

const SLOW_REQUEST: &[u8] = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n";

/// A connection that is parked while its request waits for its handler.
async fn parked_with_request(transport: Transport, request: &[u8]) -> (Slow, Peer) {
    let slow = Slow::default();
    let server = Arc::new(HttpServer::new(slow.router(), Parking::default()));
    let mut peer = connect_to(transport, &server).await;
    peer.send(request).await;
    slow.begun.notified().await;
    sleep(Duration::from_millis(998)).await;
    assert_eq!(server.active(), 1);
    sleep(Duration::from_millis(4)).await;
    assert_eq!(server.active(), 0);
    (slow, peer)
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_its_handler_while_parked() {
    for transport in TRANSPORTS {
        let (slow, mut peer) = parked_with_request(transport, SLOW_REQUEST).await;
        // A handler has no timeout, and its request is not evicted.
        sleep(600 * SECOND).await;
        peer.activity.evict();
        sleep(SECOND).await;
        slow.end.notify_one();
        let response = peer.response("slow").await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(!response.contains("connection:"), "{response}");
        // The connection serves further requests, and is parked with them.
        peer.send(SLOW_REQUEST).await;
        slow.begun.notified().await;
        sleep(2 * SECOND).await;
        slow.end.notify_one();
        peer.response("slow").await;
        peer.send(REQUEST).await;
        peer.response("quick").await;
        assert_eq!(peer.closed().await, (String::new(), 75));
    }
}

#[tokio::test(start_paused = true)]
async fn parked_request_keeps_its_version_and_connection_options() {
    for transport in TRANSPORTS {
        for (request, start, stays) in [
            ("GET /slow HTTP/1.1\r\nconnection: close", "HTTP/1.1", false),
            ("GET /slow HTTP/1.0", "HTTP/1.0", false),
            (
                "GET /slow HTTP/1.0\r\nConnection: keep-alive",
                "HTTP/1.0",
                true,
            ),
        ] {
            let request = format!("{request}\r\nhost: a\r\n\r\n");
            let (slow, mut peer) = parked_with_request(transport, request.as_bytes()).await;
            slow.end.notify_one();
            let response = peer.response("slow").await;
            assert!(response.starts_with(start), "{response}");
            let seconds = if stays { 75 } else { 0 };
            assert_eq!(peer.closed().await, (String::new(), seconds), "{request}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_behind_a_parked_one_are_served() {
    for transport in TRANSPORTS {
        let now = [SLOW_REQUEST, &REQUEST[..10]].concat();
        for request in [SLOW_REQUEST, &now] {
            let (slow, mut peer) = parked_with_request(transport, request).await;
            if request == SLOW_REQUEST {
                peer.send(&REQUEST[..10]).await;
            }
            sleep(20 * SECOND).await;
            slow.end.notify_one();
            peer.response("slow").await;
            peer.send(&[&REQUEST[10..], REQUEST].concat()).await;
            peer.response("quick").await;
            assert_eq!(peer.closed().await, (String::new(), 75));
        }
        // The started head times out.
        let (slow, mut peer) = parked_with_request(transport, SLOW_REQUEST).await;
        peer.send(&REQUEST[..10]).await;
        slow.end.notify_one();
        peer.response("slow").await;
        assert_eq!(peer.closed().await, (String::new(), 5));
    }
}

#[tokio::test(start_paused = true)]
async fn closed_connection_cancels_its_parked_request() {
    for transport in TRANSPORTS {
        let (slow, peer) = parked_with_request(transport, SLOW_REQUEST).await;
        let began = clock::now();
        drop(peer.stream);
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
        assert_eq!(clock::now(), began);
        // The handler held the other.
        assert_eq!(Arc::strong_count(&slow.end), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn parked_request_is_answered_during_shutdown() {
    for transport in TRANSPORTS {
        let (slow, mut peer) = parked_with_request(transport, SLOW_REQUEST).await;
        peer.drain.send_replace(true);
        sleep(3 * SECOND).await;
        slow.end.notify_one();
        let response = peer.response("slow").await;
        assert!(response.contains("connection: close"), "{response}");
        assert_eq!(peer.closed().await.0, "");
    }
}

#[tokio::test(start_paused = true)]
async fn crowded_server_parks_http1_and_closes_http2_immediately() {
    for transport in TRANSPORTS {
        let server = http_server(Parking {
            max_active: 0,
            ..Parking::default()
        });
        let mut peer = connect_to(transport, &server).await;
        for _ in 0..3 {
            peer.send(REQUEST).await;
            peer.response("quick").await;
            sleep(Duration::from_millis(1)).await;
            assert_eq!(server.active(), 0);
        }

        let peer = connect_to(transport, &server).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get("http://a/quick").body(Body::empty()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
        connection.await.unwrap().unwrap();
        assert_eq!(server.active(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_read_before_parking_are_not_lost() {
    for transport in TRANSPORTS {
        let server = http_server(Parking::default());
        let mut peer = connect_to(transport, &server).await;
        // In one write, so that the start of the last request is read with the first.
        for cut in 1..REQUEST.len() {
            let (now, later) = REQUEST.split_at(cut);
            peer.send(&[REQUEST, REQUEST, now].concat()).await;
            peer.response("quick").await;
            sleep(2 * SECOND).await;
            peer.send(later).await;
            peer.response("quick").await;
            sleep(2 * SECOND).await;
            assert_eq!(server.active(), 0);
        }
        // The started head times out.
        peer.send(&[REQUEST, &REQUEST[..10]].concat()).await;
        peer.response("quick").await;
        assert_eq!(peer.closed().await, (String::new(), 6));
    }
}

#[tokio::test(start_paused = true)]
async fn unread_body_is_not_parsed_as_request() {
    for transport in TRANSPORTS {
        let server = http_server(Parking {
            max_active: 0,
            ..Parking::default()
        });
        for length in ["content-length: 64000", "transfer-encoding: chunked"] {
            let mut peer = connect_to(transport, &server).await;
            let head = format!("POST /unread HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n");
            peer.send(head.as_bytes()).await;
            let response = peer.response("unread").await;
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            drop(peer.stream.write_all(REQUEST).await);
            assert_eq!(peer.closed().await.0, "");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn connection_with_unread_body_is_closed_when_idle() {
    for transport in TRANSPORTS {
        let server = http_server(Parking::default());
        let mut peer = connect_to(transport, &server).await;
        for _ in 0..2 {
            peer.send(b"GET /quick HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx")
                .await;
            peer.response("quick").await;
        }
        assert_eq!(peer.closed().await, (String::new(), 1));
        assert_eq!(server.active(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn connection_close_is_honoured_and_upgrade_ignored() {
    for transport in TRANSPORTS {
        let server = http_server(Parking::default());
        let mut peer = connect_to(transport, &server).await;
        for _ in 0..2 {
            peer.send(
                b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            )
            .await;
            peer.response("quick").await;
            sleep(2 * SECOND).await;
            assert_eq!(server.active(), 0);
        }
        peer.send(b"GET /quick HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        let (response, seconds) = peer.closed().await;
        assert!(response.ends_with("quick"), "{response}");
        assert_eq!(seconds, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn parked_connections_are_evicted_and_end_at_shutdown() {
    for transport in TRANSPORTS {
        let server = http_server(Parking::default());
        let mut peer = connect_to(transport, &server).await;
        peer.send(REQUEST).await;
        peer.response("quick").await;
        sleep(2 * SECOND).await;
        peer.activity.evict();
        assert_eq!(peer.server.await.unwrap(), Closed::Evicted);

        let peer = connect_to(transport, &server).await;
        sleep(2 * SECOND).await;
        peer.drain.send_replace(true);
        assert_eq!(peer.closed().await, (String::new(), 1));

        // A request that has arrived is in progress, even if it is not read yet.
        let evict: fn(&Peer) = |peer| peer.activity.evict();
        let drains: fn(&Peer) = |peer| assert!(!peer.drain.send_replace(true));
        for happens in [evict, drains] {
            let mut peer = connect_to(transport, &server).await;
            peer.send(REQUEST).await;
            peer.response("quick").await;
            sleep(2 * SECOND).await;
            peer.send(REQUEST).await;
            happens(&peer);
            let (response, _) = peer.closed().await;
            assert!(response.ends_with("quick"), "{response}");
        }
    }
}

/// Over real sockets and in real time, so that requests arrive, and handlers return, before, while
/// and after their connection is parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn requests_that_race_with_parking_are_served_once() {
    for transport in TRANSPORTS {
        const PEERS: u64 = 8;
        const ROUNDS: u64 = 400;
        let idle_time = Duration::from_millis(1);
        let served = Arc::new(AtomicUsize::new(0));
        let (posts, gets) = (Arc::clone(&served), Arc::clone(&served));
        let router = Router::new()
            .route(
                "/count",
                post(async move |body: String| {
                    posts.fetch_add(1, Relaxed);
                    body
                }),
            )
            .route(
                "/count/{text}",
                get(async move |Path(text): Path<String>| {
                    sleep(idle_time.mul_f64(fastrand::f64() * 2.0)).await;
                    gets.fetch_add(1, Relaxed);
                    text
                }),
            );
        let listener = listener(1000)
            .with_tls(transport.tls())
            .with_parking(Parking {
                idle_time,
                max_active: 1000,
            });
        let address = listener.address();
        let server = tokio::spawn(listener.serve(
            router,
            ConnectionMetrics::default(),
            std::future::pending(),
            || {},
            |_| 0,
        ));
        let peer = async |peer: u64| {
            let mut random = fastrand::Rng::with_seed(peer);
            let mut stream = transport.dial(address).await;
            let mut sent = 0;
            for round in 0..ROUNDS {
                let number = random.usize(1..=3);
                let mut bytes = Vec::new();
                let mut bodies = Vec::new();
                for n in 0..number {
                    let body = format!("({peer}.{round}.{n})");
                    let request = if random.bool() {
                        format!("GET /count/{body} HTTP/1.1\r\nhost: a\r\n\r\n")
                    } else {
                        let len = body.len();
                        format!(
                            "POST /count HTTP/1.1\r\nhost: a\r\ncontent-length: {len}\r\n\r\n{body}"
                        )
                    };
                    bytes.extend_from_slice(request.as_bytes());
                    bodies.push(body);
                }
                // In up to two writes.
                let cut = random.usize(0..=bytes.len());
                stream.write_all(&bytes[..cut]).await.unwrap();
                if random.bool() {
                    sleep(idle_time.mul_f64(random.f64() * 2.0)).await;
                }
                stream.write_all(&bytes[cut..]).await.unwrap();
                let mut responses = String::new();
                let mut from = 0;
                for body in &bodies {
                    loop {
                        if let Some(at) = responses[from..].find(body) {
                            from += at + body.len();
                            break;
                        }
                        let mut piece = [0; 1024];
                        let len = stream.read(&mut piece).await.unwrap();
                        assert!(len > 0, "closed after {responses:?}");
                        responses.push_str(std::str::from_utf8(&piece[..len]).unwrap());
                    }
                }
                assert_eq!(responses.len(), from, "nothing but the responses");
                assert_eq!(responses.matches("HTTP/1.1 200").count(), number);
                sent += number;
                sleep(idle_time.mul_f64(random.f64() * 2.0)).await;
            }
            sent
        };
        let sent: usize = join_all((0..PEERS).map(peer)).await.into_iter().sum();
        assert_eq!(served.load(Relaxed), sent);
        server.abort();
    }
}
