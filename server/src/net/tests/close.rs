//! Responses with `connection: close`, as those of a server that is not the master.

use axum::http::header;

use super::*;

/// `/close` asks to close the connection, after a signal on `/slow-close`.
fn router(slow: &Slow) -> Router {
    let Slow { begun, end } = slow.clone();
    let close = || ([(header::CONNECTION, "close")], "close");
    slow.router()
        .route("/close", get(async move || close()))
        .route(
            "/slow-close",
            get(async move || {
                begun.notify_one();
                end.notified().await;
                close()
            }),
        )
}

fn request(path: &str) -> Request<Body> {
    let request = Request::get(format!("http://a/{path}"));
    request.body(Body::empty()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn http1_connection_is_closed_after_the_response() {
    for transport in TRANSPORTS {
        // At once, and after the connection was parked.
        for (path, pause) in [("close", 0), ("slow-close", 3)] {
            let slow = Slow::default();
            let mut peer = connect(transport, router(&slow)).await;
            peer.send(REQUEST).await;
            let response = peer.response("quick").await;
            assert!(!response.contains("connection"), "{response}");
            let request = format!("GET /{path} HTTP/1.1\r\nhost: a\r\n\r\n");
            peer.send(request.as_bytes()).await;
            sleep(Duration::from_secs(pause)).await;
            slow.end.notify_one();
            let (response, seconds) = peer.closed().await;
            assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
            assert!(response.ends_with("close"), "{response}");
            assert_eq!(seconds, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn http2_connection_receives_goaway_and_no_such_header() {
    for transport in TRANSPORTS {
        let slow = Slow::default();
        let peer = connect(transport, router(&slow)).await;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(peer.stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..2 {
            let response = sender.send_request(request("quick")).await.unwrap();
            assert_eq!(response.status(), 200);
        }
        let under_way = tokio::spawn(sender.send_request(request("slow")));
        slow.begun.notified().await;
        let response = sender.send_request(request("close")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key(header::CONNECTION));
        drop(response);

        // The next request needs another connection, and that in progress is answered.
        sleep(Duration::from_secs(1)).await;
        let not_sent = sender.try_send_request(request("quick")).await;
        assert!(not_sent.unwrap_err().take_message().is_some());
        slow.end.notify_one();
        assert_eq!(under_way.await.unwrap().unwrap().status(), 200);
        connection.await.unwrap().unwrap();
        assert_eq!(peer.server.await.unwrap(), Closed::Done);
    }
}
