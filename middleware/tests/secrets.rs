//! The log of a process with the layer, at trace level, contains no secrets.
#![cfg(all(feature = "axum", feature = "reqwest"))]

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::any,
};
use tokio::{net::TcpListener, sync::watch};
use tower::{ServiceExt as _, service_fn};
use tower_doorman::{
    Callers, Cost, Credentials, Doorman, Fallback, Key, Limit, LimitLayer, OnMissingKey,
};
use tower_layer::Layer as _;
use tracing_subscriber::fmt::MakeWriter;

/// The prefix of all secrets.
const CANARY: &str = "canary";

/// At least one response of each kind.
const RESPONSES: usize = 7;

/// Captured log output.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A control plane that responds with errors, malformed bodies and leases in turn. Counts requests
/// with the token.
async fn respond(State(requests): State<watch::Sender<usize>>, request: Request) -> Response {
    let token = request.headers().get("authorization");
    let authenticated = token.is_some_and(|it| it.as_bytes().starts_with(b"Bearer canary"));
    requests.send_modify(|times| *times += usize::from(authenticated));
    let times = *requests.borrow();
    let status = match times % 5 {
        1 => StatusCode::UNAUTHORIZED,
        2 => StatusCode::FORBIDDEN,
        3 => StatusCode::SERVICE_UNAVAILABLE,
        4 => return "no JSON".into_response(),
        _ => {
            let lease = r#"{"node":"n","epoch":1,"resources":[]}"#;
            return lease.into_response();
        }
    };
    let problem = r#"{"type":"x","title":"x","status":0,"detail":"no"}"#;
    (status, problem).into_response()
}

/// Sends a request full of secrets.
async fn send(limits: &LimitLayer, more: (&str, &str)) -> u16 {
    let inner = service_fn(async |_: Request| {
        Ok::<_, std::convert::Infallible>(Response::new(axum::body::Body::empty()))
    });
    let request = Request::post("/?token=canary-of-a-query")
        .header("authorization", "Bearer canary.of.a.caller")
        .header("cookie", "sid=canary-of-a-cookie")
        .header("x-api-key", "canary-of-an-api-key")
        .header(more.0, more.1)
        .body(axum::body::Body::from("canary-of-a-body"));
    let request = request.expect("a request");
    let Ok(response) = limits.layer(inner).oneshot(request).await;
    response.status().as_u16()
}

#[cfg(feature = "jwt")]
fn callers() -> Callers {
    use tower_doorman::{JwtKey, JwtVerifier};

    let key = JwtKey::hs256("canary of a secret of more than thirty-two bytes").expect("long");
    let verifier = JwtVerifier::new([key], "https://issuer.example", "orders").expect("whole");
    Callers::new()
        .api_key_secret("canary-of-a-hash")
        .jwt(verifier)
}

#[cfg(not(feature = "jwt"))]
fn callers() -> Callers {
    Callers::new().api_key_secret("canary-of-a-hash")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn no_secret_is_ever_logged() {
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .init();

    let (requests, mut times) = watch::channel(0);
    let plane = Router::new().fallback(any(respond)).with_state(requests);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("it has one"));
    tokio::spawn(axum::serve(listener, plane).into_future());

    let name = format!("doorman-token-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "canary-of-a-token-file").expect("a folder for temporary files");
    let closure = Credentials::from_fn(|| Ok("canary-of-a-closure".to_owned()));
    for credentials in [
        Credentials::token("canary-of-a-token"),
        Credentials::file(&file),
        closure,
    ] {
        let builder = Doorman::builder(&address).callers(callers());
        let builder = builder.credentials(credentials);
        let shown = format!("{builder:?}");
        assert!(!shown.contains(CANARY), "{shown}");
        let doorman = builder.spawn().expect("it can be built");
        let limits = doorman
            .layer([
                Limit::rate(Key::api_key()).fallback(Fallback::Pessimistic),
                Limit::rate(Key::jwt("sub").expect("a claim")).on_missing_key(OnMissingKey::Reject),
            ])
            .unwrap();
        let limits = limits.and_rules();
        for more in [
            ("content-type", "application/grpc"),
            ("x-more", "x"),
            ("authorization", "Basic canary-of-a-password"),
        ] {
            let status = send(&limits, more).await;
            assert_ne!(status, 500, "{more:?}");
        }
        drop(doorman.rate("api").try_acquire(Cost::ONE));
        let enough = *times.borrow() + RESPONSES;
        let responded = times.wait_for(|times| *times >= enough);
        tokio::time::timeout(Duration::from_secs(60), responded)
            .await
            .expect("it retries")
            .expect("the plane runs");
        let shown = serde_json::to_string(&doorman.snapshot()).expect("texts and numbers");
        assert!(!shown.contains(CANARY), "{shown}");
        drop(doorman.shutdown().await);
    }
    std::fs::write(&file, "-----BEGIN PRIVATE KEY-----\ncanary-of-a-key\n").expect("it is there");
    let broken = Doorman::builder(&address).client_identity_files(&file, &file);
    let error = broken.spawn().expect_err("that is no key");
    let error = format!("{error:?} {error}");
    assert!(!error.contains(CANARY), "{error}");
    std::fs::remove_file(&file).expect("it is there");

    let log = log.text();
    // The log covers these events.
    for event in [
        "request refused by limit",
        "lease request failed",
        "cannot fetch rules",
        "hyper_util::",
    ] {
        assert!(log.contains(event), "{event}");
    }
    let line = log.lines().find(|line| line.contains(CANARY));
    assert_eq!(line, None);
}
