//! Rules of a hostile control plane, read and followed by a layer: they are understood whole or not at all, and what a document may
//! say is understood.

use std::{
    collections::HashSet,
    convert::Infallible,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use doorman_config::Document;
use doorman_openapi::{OnLimit, Rule, RulesResponse, Unit, paths};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_doorman::{Doorman, LimitService, Refusal, RulesSnapshot, WorkerState, lease::Transport};

use crate::fuzz::plane::block_on;

/// How often others get their turn, so that the worker has read what it was answered.
const TURNS: usize = 32;
/// What callers ask for.
const REQUESTS: [(&str, &str); 4] = [
    ("GET", "/"),
    ("HEAD", "/healthz"),
    ("POST", "/v1/orders/7"),
    ("PUT", "/a/b/c?d=e"),
];

/// Takes the bytes for the body of an answer to `GET /v1/rules`.
///
/// # Panics
/// When the worker dies of it, a part of what is not understood whole is followed, a document may say what is not understood, or a
/// request is refused by what is no rule for it.
pub fn run(data: &[u8]) {
    let told = serde_json::from_slice::<RulesResponse>(data).ok();
    block_on(follow(Bytes::copy_from_slice(data), told));
}

async fn follow(body: Bytes, told: Option<RulesResponse>) {
    let heard = Arc::new(Notify::new());
    let builder = Doorman::builder("http://a").service("fuzz");
    let (doorman, worker) = builder
        .build_with(transport(body, Arc::clone(&heard)))
        .expect("the settings are good");
    let service = doorman.rules().layer(service_fn(inner));
    let worker = tokio::spawn(worker.run());
    heard.notified().await;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }

    assert_eq!(doorman.worker_state(), WorkerState::Running);
    let snapshot = doorman.snapshot().rules.expect("a layer follows them");
    assert_ne!(snapshot.version.is_some(), snapshot.error.is_some());
    let rules = match &snapshot.version {
        Some(version) => {
            let told = told.expect("what is followed can be read");
            assert_eq!(*version, told.version);
            told.rules
        }
        None => {
            assert!(!told.is_some_and(|told| is_of_a_document(&told.rules)));
            Vec::new()
        }
    };
    let names: HashSet<_> = rules.iter().map(|rule| &rule.name).collect();
    assert_eq!(names.len(), rules.len(), "two rules have one name");
    for (method, path) in REQUESTS {
        decides(&service, method, path, &rules, &snapshot);
    }
    worker.abort();
}

async fn inner(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// The way to a server that always tells the same rules, and leases nothing.
fn transport(body: Bytes, heard: Arc<Notify>) -> impl Transport {
    service_fn(move |request: Request<Bytes>| {
        let mut response = Response::new(Bytes::new());
        if request.uri().path() == paths::RULES {
            heard.notify_one();
            *response.body_mut() = body.clone();
        } else {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        async { Ok::<_, Infallible>(response) }
    })
}

/// Whether a server could have them from an operator.
fn is_of_a_document(rules: &[Rule]) -> bool {
    let document = json!({ "resources": [], "rules": rules });
    Document::parse(&document.to_string()).is_ok()
}

/// A request passes, waits or is refused, and the last two because a rule says so.
fn decides<S>(
    service: &LimitService<S>,
    method: &str,
    path: &str,
    rules: &[Rule],
    snapshot: &RulesSnapshot,
) where
    S: tower::Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
{
    let request = Request::builder().method(method).uri(path).body(());
    let answer = service
        .clone()
        .oneshot(request.expect("it is a good request"));
    let context = &mut Context::from_waker(Waker::noop());
    let may_refuse = |rule: &&Rule| {
        let names_it = |methods: &Vec<String>| {
            let is = |name: &str| methods.iter().any(|method| method == name);
            is(method) || (method == "HEAD" && is("GET"))
        };
        // What a path without parameters means needs no router.
        let is_for =
            |pattern: &String| pattern.contains('{') || path.split('?').next() == Some(pattern);
        let passes = matches!(rule.on_limit, OnLimit::Shadow | OnLimit::Exempt);
        !passes
            && rule.unit == Unit::Rate
            && rule.methods.as_ref().is_none_or(names_it)
            && rule.path.as_ref().is_none_or(is_for)
    };
    match pin!(answer).poll(context) {
        Poll::Ready(Ok(response)) => match response.extensions().get::<Refusal>() {
            None => assert_eq!(response.status(), StatusCode::OK),
            Some(refusal) => {
                assert!(response.status().is_client_error() || response.status() == 503);
                let rule = rules
                    .iter()
                    .find(|rule| rule.name.as_str() == refusal.limit());
                let rule = rule.filter(may_refuse);
                assert!(rule.is_some(), "{refusal:?} of {rules:?}");
                let left_out = |it: &tower_doorman::NotApplied| it.rule == refusal.limit();
                assert!(!snapshot.not_applied.iter().any(left_out));
            }
        },
        Poll::Pending => {
            let delays = |rule: &Rule| matches!(rule.on_limit, OnLimit::Delay { .. });
            assert!(
                rules.iter().filter(may_refuse).any(delays),
                "nobody lets it wait"
            );
        }
    }
}
