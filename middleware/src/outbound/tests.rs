//! Clients behind limits, against a real server.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::any};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::net::TcpListener;
use tower::ServiceExt as _;
use tower_layer::Layer as _;

use crate::{Doorman, Limit, OnLimit, Refusal};

/// A server that counts requests and sends their bodies back.
struct Server {
    address: SocketAddr,
    calls: Arc<AtomicU32>,
}

impl Server {
    async fn start() -> Self {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let echo = async move |body: Body| {
            counted.fetch_add(1, Ordering::Relaxed);
            body
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/echo", any(echo));
        tokio::spawn(async { axum::serve(listener, app).await });
        Self { address, calls }
    }

    fn url(&self) -> String {
        format!("http://{}/echo", self.address)
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// One request at once, and 20 a second.
fn limit() -> Limit {
    Limit::rate("partner").burst(Duration::ZERO)
}

fn delaying() -> Limit {
    let max_delay = Duration::from_secs(60);
    limit().on_limit(OnLimit::Delay { max_delay })
}

fn doorman() -> Doorman {
    Doorman::fixed([("partner", 20.0)])
}

#[tokio::test]
async fn hyper_client_is_limited() {
    let server = Server::start().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = || {
        Request::post(server.url())
            .body(Full::from("hello"))
            .unwrap()
    };

    let slow = Doorman::fixed([("partner", 1e-3)]);
    let limited = slow.layer(limit()).unwrap().layer(client.clone());
    let response = limited.clone().oneshot(request()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.extensions().get::<Refusal>().is_none());
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
    let refused = limited.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.extensions().get::<Refusal>().is_some());
    assert_eq!(server.calls(), 1);

    let limited = doorman().layer(delaying()).unwrap().layer(client);
    for _ in 0..3 {
        let response = limited.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(server.calls(), 4);
}

#[tokio::test]
async fn hyper_client_holds_units_until_the_body_ends() {
    let server = Server::start().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let limited = Doorman::fixed([("partner", 1.0)])
        .layer(Limit::gauge("partner"))
        .unwrap()
        .layer(client);
    let post = || {
        let request = Request::post(server.url()).body(Full::from("hello"));
        limited.clone().oneshot(request.unwrap())
    };
    let response = post().await.unwrap();
    assert_eq!(post().await.unwrap().status(), 429);
    response.into_body().collect().await.unwrap();
    assert_eq!(post().await.unwrap().status(), 200);
}

#[cfg(feature = "reqwest")]
mod reqwest_client {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream::poll_fn};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use reqwest::{Body, Client};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{LimitedClient, RefusalReason, SendError};

    /// Allows one request.
    fn once() -> Doorman {
        Doorman::fixed([("partner", 1e-3)])
    }

    fn client(doorman: &Doorman, limit: Limit) -> (Client, LimitedClient) {
        let http = Client::new();
        let limited = LimitedClient::new(http.clone(), doorman.layer(limit).unwrap());
        (http, limited)
    }

    #[tokio::test]
    async fn outcomes_of_sent_requests_are_counted() {
        let server = Server::start().await;
        let doorman = doorman();
        let (http, limited) = client(&doorman, Limit::rate("partner"));
        limited.send(http.get(server.url())).await.unwrap();
        let unused = http.get("http://127.0.0.1:1");
        assert!(matches!(
            limited.send(unused).await,
            Err(SendError::Failed(_))
        ));
        let outcomes = doorman.snapshot().limits[0].outcomes;
        let counts = (outcomes.ok, outcomes.overloaded, outcomes.failed);
        assert_eq!(counts, (1, 0, 1));
    }

    #[tokio::test]
    async fn refusal_is_an_error_and_nothing_is_sent() {
        let server = Server::start().await;
        let (http, partner) = client(&once(), limit());
        let response = partner.send(http.post(server.url()).body("hello")).await;
        let response = response.unwrap();
        assert_eq!(response.url().as_str(), server.url());
        assert!(!response.headers().contains_key("ratelimit"));
        assert_eq!(response.text().await.unwrap(), "hello");

        let refused = partner.send(http.get(server.url())).await.unwrap_err();
        assert!(
            matches!(&refused, SendError::Refused(it) if it.reason() == RefusalReason::Spent),
            "{refused}"
        );
        assert_eq!(server.calls(), 1);
    }

    #[tokio::test]
    async fn delayed_requests_are_sent() {
        let server = Server::start().await;
        let (http, partner) = client(&doorman(), delaying());
        let get = || partner.send(http.get(server.url()));
        let (a, b, c) = tokio::join!(get(), get(), get());
        for response in [a, b, c] {
            assert_eq!(response.unwrap().status(), 200);
        }
        assert_eq!(server.calls(), 3);
    }

    #[tokio::test]
    async fn service_responds_to_a_refused_request() {
        let server = Server::start().await;
        let (http, partner) = client(&once(), limit());
        let request = || http.get(server.url()).build().unwrap();
        partner.execute(request()).await.unwrap();
        let response = partner.oneshot(request()).await.unwrap();
        assert_eq!(response.status(), 429);
        assert!(response.extensions().get::<Refusal>().is_some());
        let problem: serde_json::Value =
            serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(problem["reason"], "spent");
    }

    #[tokio::test]
    async fn bodies_stream_in_both_directions() {
        let server = Server::start().await;
        let (http, partner) = client(&doorman(), limit());
        let (chunks, mut received) = unbounded_channel();
        let chunk_stream = poll_fn(move |context| received.poll_recv(context));
        let frames = chunk_stream
            .map(|chunk: &'static str| Ok::<_, Infallible>(Frame::data(Bytes::from(chunk))));
        let body = Body::wrap(StreamBody::new(frames));
        chunks.send("one").unwrap();
        let mut response = partner
            .send(http.post(server.url()).body(body))
            .await
            .unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "one");
        chunks.send("two").unwrap();
        assert_eq!(response.chunk().await.unwrap().unwrap(), "two");
        drop(chunks);
        assert!(response.chunk().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn units_of_a_gauge_are_held_until_the_body_ends() {
        let server = Server::start().await;
        let doorman = Doorman::fixed([("partner", 1.0)]);
        let (http, partner) = client(&doorman, Limit::gauge("partner"));
        let post = || partner.send(http.post(server.url()).body("hello"));
        let response = post().await.unwrap();
        assert!(matches!(post().await, Err(SendError::Refused(_))));
        assert_eq!(response.text().await.unwrap(), "hello");
        let dropped = post().await.unwrap();
        assert!(matches!(post().await, Err(SendError::Refused(_))));
        drop(dropped);
        post().await.unwrap();
    }

    #[tokio::test]
    async fn key_is_made_of_the_outbound_request() {
        let server = Server::start().await;
        let doorman = Doorman::unlimited();
        let (http, partner) = client(&doorman, Limit::rate("{method}/{host}"));
        partner.send(http.get(server.url())).await.unwrap();
        let limits = doorman.snapshot().limits;
        assert_eq!(limits[0].resource.as_str(), "GET/127.0.0.1");
    }

    #[tokio::test]
    async fn timeout_of_the_request_is_kept() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let (http, partner) = client(&doorman(), limit());
        let request = http.get(url).timeout(Duration::from_millis(10));
        let error = partner.send(request).await.unwrap_err();
        assert!(
            matches!(&error, SendError::Failed(it) if it.is_timeout()),
            "{error}"
        );
    }

    #[tokio::test]
    async fn invalid_request_is_an_error() {
        let (http, partner) = client(&once(), limit());
        for url in ["not a url", "file:///etc/hosts"] {
            let error = partner.send(http.get(url)).await.unwrap_err();
            assert!(matches!(error, SendError::Failed(_)), "{url}: {error}");
        }
    }

    #[cfg(feature = "retry")]
    #[tokio::test]
    async fn refused_request_is_retried() {
        let server = Server::start().await;
        let (http, partner) = client(&doorman(), limit());
        let partner = partner.retry(crate::RetryPolicy::new());
        for _ in 0..3 {
            let response = partner.send(http.post(server.url()).body("hello")).await;
            assert_eq!(response.unwrap().text().await.unwrap(), "hello");
        }
        assert_eq!(server.calls(), 3);
    }

    #[cfg(feature = "retry")]
    #[tokio::test]
    async fn connection_error_is_retried_if_selected() {
        // Nothing listens there any more.
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", closed.local_addr().unwrap());
        drop(closed);
        for (retries, tries) in [(false, 1.0), (true, 3.0)] {
            let doorman = Doorman::fixed([("partner", 1e6)]);
            let (http, partner) = client(&doorman, limit());
            let policy = crate::RetryPolicy::new()
                .backoff(Duration::ZERO, Duration::ZERO)
                .retry_errors(move |error: &reqwest::Error| retries && error.is_connect());
            let failed = partner.retry(policy).send(http.get(&url)).await;
            assert!(matches!(failed, Err(SendError::Failed(_))));
            // Each try is limited.
            assert_eq!(doorman.snapshot().limits[0].admitted, tries);
        }
    }
}
