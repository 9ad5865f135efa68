//! Rules of a hostile control plane: a layer applies a response as a whole or not at all, and
//! accepts all rules that a document may have.

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

use crate::fuzz::control_plane::block_on;

/// Enough yields for the worker to process a response.
const YIELDS: usize = 32;
/// Requests to the service.
const REQUESTS: [(&str, &str); 4] = [
    ("GET", "/"),
    ("HEAD", "/healthz"),
    ("POST", "/v1/orders/7"),
    ("PUT", "/a/b/c?d=e"),
];

/// Reads the bytes as the body of a response to `GET /v1/rules`.
///
/// # Panics
/// When the worker panics, an invalid response is applied in part, valid rules are rejected, or a
/// request is rejected by a rule that does not match it.
pub fn run(data: &[u8]) {
    let sent = serde_json::from_slice::<RulesResponse>(data).ok();
    block_on(follow(Bytes::copy_from_slice(data), sent));
}

async fn follow(body: Bytes, sent: Option<RulesResponse>) {
    let requested = Arc::new(Notify::new());
    let builder = Doorman::builder("http://a").service("fuzz");
    let (doorman, worker) = builder
        .build_with(transport(body, Arc::clone(&requested)))
        .expect("valid settings");
    let service = doorman.rules().layer(service_fn(inner));
    let worker = tokio::spawn(worker.run());
    requested.notified().await;
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }

    assert_eq!(doorman.worker_state(), WorkerState::Running);
    let snapshot = doorman.snapshot().rules.expect("a layer follows rules");
    assert_ne!(snapshot.version.is_some(), snapshot.error.is_some());
    let rules = match &snapshot.version {
        Some(version) => {
            let sent = sent.expect("it was applied");
            assert_eq!(*version, sent.version);
            sent.rules
        }
        None => {
            assert!(!sent.is_some_and(|sent| is_valid_in_document(&sent.rules)));
            Vec::new()
        }
    };
    let names: HashSet<_> = rules.iter().map(|rule| &rule.name).collect();
    assert_eq!(names.len(), rules.len(), "two rules have one name");
    for (method, path) in REQUESTS {
        check_request(&service, method, path, &rules, &snapshot);
    }
    worker.abort();
}

async fn inner(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::default())
}

/// A server that always sends these rules, and grants no lease.
fn transport(body: Bytes, requested: Arc<Notify>) -> impl Transport {
    service_fn(move |request: Request<Bytes>| {
        let mut response = Response::new(Bytes::new());
        if request.uri().path() == paths::RULES {
            requested.notify_one();
            *response.body_mut() = body.clone();
        } else {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        async { Ok::<_, Infallible>(response) }
    })
}

fn is_valid_in_document(rules: &[Rule]) -> bool {
    let document = json!({ "resources": [], "rules": rules });
    Document::parse(&document.to_string()).is_ok()
}

/// A request passes, or waits or is rejected because of a matching rule.
fn check_request<S>(
    service: &LimitService<S>,
    method: &str,
    path: &str,
    rules: &[Rule],
    snapshot: &RulesSnapshot,
) where
    S: tower::Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone,
{
    let request = Request::builder().method(method).uri(path).body(());
    let response = service.clone().oneshot(request.expect("a valid request"));
    let context = &mut Context::from_waker(Waker::noop());
    let may_reject = |rule: &&Rule| {
        let has_method = |methods: &Vec<String>| {
            let is = |name: &str| methods.iter().any(|method| method == name);
            is(method) || (method == "HEAD" && is("GET"))
        };
        // A path without parameters needs no router.
        let has_path =
            |pattern: &String| pattern.contains('{') || path.split('?').next() == Some(pattern);
        let passes = matches!(rule.on_limit, OnLimit::Shadow | OnLimit::Exempt);
        !passes
            && rule.methods.as_ref().is_none_or(has_method)
            && rule.path.as_ref().is_none_or(has_path)
    };
    match pin!(response).poll(context) {
        Poll::Ready(Ok(response)) => match response.extensions().get::<Refusal>() {
            None => assert_eq!(response.status(), StatusCode::OK),
            Some(refusal) => {
                assert!(response.status().is_client_error() || response.status() == 503);
                let rule = rules
                    .iter()
                    .find(|rule| rule.name.as_str() == refusal.limit());
                let rule = rule.filter(may_reject);
                assert!(rule.is_some(), "{refusal:?} of {rules:?}");
                let not_applied = |it: &tower_doorman::NotApplied| it.rule == refusal.limit();
                assert!(!snapshot.not_applied.iter().any(not_applied));
            }
        },
        Poll::Pending => {
            // A request waits for the first lease of a gauge, or of a long bucket.
            let delays = |rule: &Rule| {
                matches!(rule.on_limit, OnLimit::Delay { .. })
                    || rule.unit == Unit::Gauge
                    || rule.burst.get() > 10.0
            };
            assert!(
                rules.iter().filter(may_reject).any(delays),
                "no rule delays it"
            );
        }
    }
}
