//! HTTP responses of a hostile control plane, and the responses of the service behind the layer.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use doorman_openapi::Problem;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use sfv::{BareItem, ListEntry, Parser};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_doorman::{Doorman, Fallback, Limit, WorkerState, lease::Transport};

use crate::fuzz::control_plane::block_on;

/// A limit name that structured fields must escape or replace.
const NAME: &str = "per \"db\" \\ ü";
/// Enough yields for the worker to process a response.
const YIELDS: usize = 32;
/// Requests to the service.
const REQUESTS: usize = 3;

/// Reads the bytes as an HTTP/1 response, or else as the body of a successful one.
///
/// # Panics
/// When the worker panics, a number is not finite, or a response of the service is malformed.
pub fn run(data: &[u8]) {
    block_on(exchange(response(data)));
}

async fn exchange(response: Response<Bytes>) {
    let requested = Arc::new(Notify::new());
    let transport = transport(response, Arc::clone(&requested));
    let builder = Doorman::builder("http://a")
        .server("https://b:1/x")
        .service("fuzz");
    let (doorman, worker) = builder.build_with(transport).expect("valid settings");
    let limit = Limit::rate("db").named(NAME).fallback(Fallback::Safe);
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = doorman.layer([limit]).expect("valid limits").layer(inner);
    let worker = tokio::spawn(worker.run());
    requested.notified().await;
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }

    assert_eq!(doorman.worker_state(), WorkerState::Running);
    for _ in 0..REQUESTS {
        let Ok(response) = service.clone().oneshot(Request::new(())).await;
        let (parts, body) = response.into_parts();
        let Ok(body) = body.collect().await;
        check_response(parts.status, &parts.headers, &body.to_bytes());
    }
    let snapshot = doorman.snapshot();
    for limit in &snapshot.limits {
        let lease = limit.lease.map(|lease| [lease.capacity, lease.expires_in]);
        let numbers = [limit.per, limit.wants, limit.admitted, limit.refused];
        let all = lease
            .into_iter()
            .flatten()
            .chain([limit.limit])
            .flatten()
            .chain(numbers);
        assert!(
            all.clone()
                .all(|number| number.is_finite() && number >= 0.0),
            "{limit:?}"
        );
    }
    worker.abort();
}

/// A server that always sends this response.
fn transport(response: Response<Bytes>, requested: Arc<Notify>) -> impl Transport {
    service_fn(move |_: Request<Bytes>| {
        requested.notify_one();
        let response = response.clone();
        async { Ok::<_, Infallible>(response) }
    })
}

/// Parses the bytes as if they came over a connection.
fn response(data: &[u8]) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(data));
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = head.parse(data) else {
        return response;
    };
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = status.unwrap_or_default();
    for header in head.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(header.value)) {
            response.headers_mut().append(name, value);
        }
    }
    *response.body_mut() = Bytes::copy_from_slice(data.get(length..).unwrap_or_default());
    response
}

fn check_response(status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    let policy = list(headers, "ratelimit-policy", ["q", "w"]);
    let limit = list(headers, "ratelimit", ["r", "t"]);
    for [amount, seconds] in policy.into_iter().chain(limit) {
        assert!(amount >= 0 && seconds >= 1, "{headers:?}");
    }
    if status == StatusCode::OK {
        return;
    }
    let retry_after: u64 = headers["retry-after"]
        .to_str()
        .expect("ASCII")
        .parse()
        .expect("a number");
    assert!(retry_after >= 1, "{headers:?}");
    assert!([429, 503].contains(&status.as_u16()), "{status}");
    let problem: Problem = serde_json::from_slice(body).expect("a problem document");
    assert_eq!(problem.status, status.as_u16());
    assert_eq!(problem.violated_policies, [NAME]);
}

/// Parses a structured field: a list of strings with two integer parameters each (RFC 9651).
fn list(headers: &HeaderMap, field: &str, parameters: [&str; 2]) -> Vec<[i64; 2]> {
    let lines: Vec<_> = headers
        .get_all(field)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let list: sfv::List = Parser::new(&lines.join(&b", "[..]))
        .parse()
        .expect("a list");
    list.iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else {
                panic!("{field} has an inner list")
            };
            let BareItem::String(name) = &item.bare_item else {
                panic!("{field} has no name")
            };
            assert_eq!(name.as_str(), "per \"db\" \\ ?");
            parameters.map(|name| match item.params.get(name) {
                Some(BareItem::Integer(number)) => (*number).into(),
                other => panic!("{field} has {other:?} for {name}"),
            })
        })
        .collect()
}
