//! Client of the control plane: sends requests over a [`Transport`] and reads untrusted responses.

use std::{error::Error, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use doorman_holder::{Failure, GRACE, WAIT};
use doorman_openapi::{
    Discovery, HintsResponse, Problem, RulesResponse, Run, ServerUrl, SpanId, TraceContext,
    TraceId,
    headers::{REQUEST_ID, TRACEPARENT},
    paths::{DISCOVERY, HINTS, RULES},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::from_slice;
use tokio::time::timeout;
use tower_service::Service;
use tracing::Instrument;

use crate::{credentials::Credentials, error::error_chain};

/// The longest request id that is logged, in bytes.
const MAX_REQUEST_ID: usize = 128;
/// The longest text of a server that is logged, in characters.
const MAX_DETAIL: usize = 200;

/// Error of a transport.
pub type TransportError = Box<dyn Error + Send + Sync>;

/// A service that carries requests to the control plane: `HttpTransport` (feature `reqwest`) in
/// production, a mock or an in-process router in tests.
pub trait Transport:
    Service<
        Request<Bytes>,
        Response = Response<Bytes>,
        Error: Into<TransportError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
}

impl<T> Transport for T where
    T: Service<
            Request<Bytes>,
            Response = Response<Bytes>,
            Error: Into<TransportError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static
{
}

/// The servers of a control plane, by their position in the list.
#[derive(Debug)]
pub struct ControlPlaneClient<T> {
    /// Carries the requests.
    pub transport: T,
    /// The servers.
    pub servers: Arc<[ServerUrl]>,
    /// The token of the requests.
    pub credentials: Option<Credentials>,
}

/// Ids by which the logs of both sides name a request.
#[derive(Debug)]
pub(super) struct RequestIds {
    pub(super) trace_id: TraceId,
    /// Set by the control plane; `None` without a response.
    pub(super) request_id: Option<String>,
}

/// Stage at which a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It could not be sent: the credentials failed.
    NotSent,
    /// It may have been sent.
    NoResponse,
    /// The server responded.
    Responded,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Outcome<T> {
    pub(super) endpoint: usize,
    pub(super) ids: RequestIds,
    pub(super) progress: Progress,
    /// The content of the response. A timeout is an error.
    pub result: Result<T, RequestError>,
}

/// Why a request failed.
#[derive(Debug)]
pub struct RequestError {
    /// The failure for the state machine.
    pub failure: Failure,
    /// The reason for the log.
    pub reason: String,
}

impl RequestError {
    pub(super) fn unavailable(reason: String) -> Self {
        Self {
            failure: Failure::Unavailable { retry_after: None },
            reason,
        }
    }
}

/// The response to a request for rules.
#[derive(Debug)]
pub enum FetchedRules {
    /// The rules still have the `ETag` that was sent.
    NotModified,
    /// The rules have another `ETag`, or none was sent.
    Modified {
        /// The rules.
        rules: RulesResponse,
        /// Their `ETag`.
        etag: Option<HeaderValue>,
    },
}

/// The response to a poll for hints.
#[derive(Debug)]
pub enum FetchedHints {
    /// The hints; there may be none.
    Hints(HintsResponse),
    /// The server has no such route.
    Unsupported,
}

/// A request, which begins a trace of its own, without what depends on the server.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Headers besides those of the trace and the credentials.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    trace: TraceContext,
}

impl Outgoing {
    /// A request without body.
    #[must_use]
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            trace: TraceContext::root(
                TraceId::from_bits(fastrand::u128(..)),
                SpanId::from_bits(fastrand::u64(..)),
            ),
        }
    }

    /// Adds a body of this media type.
    #[must_use]
    pub fn with_body(mut self, media_type: &'static str, body: impl Into<Bytes>) -> Self {
        let media_type = HeaderValue::from_static(media_type);
        self.headers.insert(header::CONTENT_TYPE, media_type);
        self.body = body.into();
        self
    }
}

impl<T: Transport> ControlPlaneClient<T> {
    /// Posts a request for leases to the path for its kind of holder. Resolves within `time`, as
    /// all requests do.
    pub fn request_leases<Q: Serialize, R: DeserializeOwned>(
        &self,
        endpoint: usize,
        path: &str,
        request: &Q,
        time: Duration,
    ) -> impl Future<Output = Outcome<R>> + Send + use<T, Q, R> {
        self.request(endpoint, post(path, request), time, |response, servers| {
            read_ok(response, servers, "leases")
        })
    }

    /// Posts a release of leases to the path for its kind of holder. If it fails, they expire.
    pub fn release<Q: Serialize>(
        &self,
        endpoint: usize,
        path: &str,
        request: &Q,
        time: Duration,
    ) -> impl Future<Output = Outcome<()>> + Send + use<T, Q> {
        self.request(endpoint, post(path, request), time, |response, servers| {
            let is_released = response.status().is_success();
            is_released
                .then_some(())
                .ok_or_else(|| failure(response, servers))
        })
    }

    /// Fetches the rules of a service, or all rules, unless they have this `ETag`.
    pub fn fetch_rules(
        &self,
        endpoint: usize,
        service: Option<&str>,
        etag: Option<HeaderValue>,
        time: Duration,
    ) -> impl Future<Output = Outcome<FetchedRules>> + Send + use<T> {
        let service = service.map(|it| utf8_percent_encode(it, NON_ALPHANUMERIC));
        let path = match service {
            Some(service) => format!("{RULES}?service={service}"),
            None => RULES.to_owned(),
        };
        let mut call = Outgoing::new(Method::GET, path);
        let is_conditional = etag.is_some();
        call.headers
            .extend(etag.map(|etag| (header::IF_NONE_MATCH, etag)));
        self.request(endpoint, call, time, move |response, servers| {
            if is_conditional && response.status() == StatusCode::NOT_MODIFIED {
                return Ok(FetchedRules::NotModified);
            }
            Ok(FetchedRules::Modified {
                rules: read_ok(response, servers, "rules")?,
                etag: response.headers().get(header::ETAG).cloned(),
            })
        })
    }

    /// Fetches the discovery of a server: its node, epoch and level.
    pub fn discover(
        &self,
        endpoint: usize,
        time: Duration,
    ) -> impl Future<Output = Outcome<Discovery>> + Send + use<T> {
        let call = Outgoing::new(Method::GET, DISCOVERY);
        self.request(endpoint, call, time, |response, servers| {
            read_ok(response, servers, "discovery")
        })
    }

    /// Polls for hints to the holder with this id, which the parameter `kind` names: `client_id` or
    /// `node_id`, and to this run of a client. The server responds within [`WAIT`].
    pub fn poll_hints(
        &self,
        endpoint: usize,
        (kind, id): (&str, &str),
        run: Option<Run>,
        after: u64,
    ) -> impl Future<Output = Outcome<FetchedHints>> + Send + use<T> {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        let wait = WAIT.as_secs();
        let run = run.map_or_else(String::new, |run| format!("&run={run}"));
        let path = format!("{HINTS}?{kind}={id}{run}&after={after}&wait={wait}");
        let call = Outgoing::new(Method::GET, path);
        self.request(endpoint, call, WAIT + GRACE, read_hints)
    }

    /// The address of a server, for the log.
    #[must_use]
    pub fn address(&self, endpoint: usize) -> String {
        let server = self.servers.get(endpoint);
        server.map_or_else(String::new, ServerUrl::to_string)
    }

    /// Sends a request and reads the response.
    fn request<R, F>(
        &self,
        endpoint: usize,
        call: Outgoing,
        time: Duration,
        read: F,
    ) -> impl Future<Output = Outcome<R>> + Send + use<T, R, F>
    where
        F: FnOnce(&Response<Bytes>, &[ServerUrl]) -> Result<R, RequestError> + Send,
    {
        let trace_id = call.trace.trace_id;
        let response = self.send(endpoint, call, time);
        let servers = Arc::clone(&self.servers);
        async move {
            let response = response.await;
            let request_id = response.as_ref().ok().and_then(request_id);
            let (progress, result) = match response {
                Ok(response) => (Progress::Responded, read(&response, &servers)),
                Err((progress, error)) => {
                    let server = servers.get(endpoint);
                    let is_encrypted = server.is_some_and(ServerUrl::is_encrypted);
                    let reason = transport_failure(&*error, is_encrypted);
                    (progress, Err(RequestError::unavailable(reason)))
                }
            };
            Outcome {
                endpoint,
                ids: RequestIds {
                    trace_id,
                    request_id,
                },
                progress,
                result,
            }
        }
    }

    /// Sends a request and returns any response.
    ///
    /// # Errors
    /// The credentials fail, or there is no response within `time`.
    pub fn send(
        &self,
        endpoint: usize,
        call: Outgoing,
        time: Duration,
    ) -> impl Future<Output = Result<Response<Bytes>, (Progress, TransportError)>> + Send + use<T>
    {
        let server = self.servers.get(endpoint);
        let uri = server.map(|it| format!("{it}{}", call.path));
        let mut transport = self.transport.clone();
        let credentials = self.credentials.clone();
        let span = tracing::info_span!("control_plane", trace_id = %call.trace.trace_id);
        let exchange = async move {
            let request = prepare(credentials, uri, call);
            let request = request.await.map_err(|it| (Progress::NotSent, it))?;
            let carry = async {
                std::future::poll_fn(|cx| transport.poll_ready(cx)).await?;
                transport.call(request).await
            };
            carry
                .await
                .map_err(|error: T::Error| (Progress::NoResponse, error.into()))
        };
        async move {
            let response = timeout(time, exchange.instrument(span)).await;
            response.unwrap_or_else(|_| {
                let error = format!("no response within {time:?}");
                Err((Progress::NoResponse, error.into()))
            })
        }
    }
}

fn post(path: &str, request: &impl Serialize) -> Outgoing {
    // Wire types can always be serialized, and no server accepts an empty body.
    let json = serde_json::to_vec(request).unwrap_or_default();
    Outgoing::new(Method::POST, path).with_body("application/json", json)
}

async fn prepare(
    credentials: Option<Credentials>,
    uri: Option<String>,
    call: Outgoing,
) -> Result<Request<Bytes>, TransportError> {
    let uri = uri.ok_or("no such server")?;
    let mut request = Request::builder()
        .method(call.method)
        .uri(uri)
        .body(call.body)?;
    let headers = request.headers_mut();
    *headers = call.headers;
    let trace = HeaderValue::try_from(call.trace.to_string())?;
    headers.insert(HeaderName::from_static(TRACEPARENT), trace);
    if let Some(credentials) = credentials {
        headers.insert(header::AUTHORIZATION, credentials.header().await?);
    }
    Ok(request)
}

fn transport_failure(error: &(dyn Error + 'static), is_encrypted: bool) -> String {
    let reason = error_chain(error);
    // The text of rustls for a server that does not speak TLS.
    if is_encrypted && reason.contains("InvalidContentType") {
        return format!("{reason}; is the server's address http:// and not https://?");
    }
    reason
}

fn request_id(response: &Response<Bytes>) -> Option<String> {
    let id = response.headers().get(REQUEST_ID)?;
    (id.len() <= MAX_REQUEST_ID).then_some(())?;
    id.to_str().ok().map(str::to_owned)
}

/// Reads the content of a response with the status 200.
fn read_ok<R: DeserializeOwned>(
    response: &Response<Bytes>,
    servers: &[ServerUrl],
    content: &str,
) -> Result<R, RequestError> {
    if response.status() != StatusCode::OK {
        return Err(failure(response, servers));
    }
    from_slice(response.body()).map_err(|error| {
        RequestError::unavailable(format!("responded with invalid {content}: {error}"))
    })
}

fn read_hints(
    response: &Response<Bytes>,
    servers: &[ServerUrl],
) -> Result<FetchedHints, RequestError> {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Ok(FetchedHints::Unsupported)
        }
        status if status == StatusCode::OK || status.is_redirection() => {
            read_ok(response, servers, "hints").map(FetchedHints::Hints)
        }
        // Of any kind: the holder then refreshes its leases, and finds another master if there is.
        _ => Err(RequestError::unavailable(failure(response, servers).reason)),
    }
}

/// The failure that a response reports.
fn failure(response: &Response<Bytes>, servers: &[ServerUrl]) -> RequestError {
    let status = response.status();
    let problem: Option<Problem> = from_slice(response.body()).ok();
    let retry_after = retry_after(response);
    let failure = match status {
        StatusCode::PAYLOAD_TOO_LARGE => Failure::TooLarge,
        StatusCode::TOO_MANY_REQUESTS => Failure::RateLimited { retry_after },
        StatusCode::FORBIDDEN | StatusCode::UNPROCESSABLE_ENTITY => Failure::Rejected {
            positions: problem.as_ref().map_or_else(Vec::new, rejected_positions),
        },
        status if status.is_redirection() || is_not_master(problem.as_ref()) => {
            Failure::Redirected {
                to: named_master(response, problem.as_ref())
                    .and_then(|master| servers.iter().position(|it| it.serves(master))),
            }
        }
        _ => Failure::Unavailable { retry_after },
    };
    let reason = match (&failure, problem) {
        (Failure::Redirected { to: None }, _) if status.is_redirection() => {
            format!("responded {status} without naming a configured server as master")
        }
        (_, Some(problem)) => format!("responded {status}: {}", sanitized(&problem.detail)),
        (_, None) => format!("responded {status}"),
    };
    RequestError { failure, reason }
}

/// Whether the server says that it is not the master, even if it knows of none.
fn is_not_master(problem: Option<&Problem>) -> bool {
    problem.is_some_and(|problem| problem.mastership.is_some())
}

/// The address that a response names as master. No other server than the configured ones may be
/// asked, because it would receive our credentials.
#[must_use]
pub fn named_master<'a>(
    response: &'a Response<Bytes>,
    problem: Option<&'a Problem>,
) -> Option<&'a str> {
    let mastership = problem.and_then(|problem| problem.mastership.as_ref());
    mastership
        .and_then(|mastership| mastership.master_address.as_deref())
        .or_else(|| header_text(response, &header::LOCATION))
}

/// The positions in pointers like `/resources/3/wants`.
fn rejected_positions(problem: &Problem) -> Vec<usize> {
    problem
        .errors
        .iter()
        .filter_map(|error| {
            let rest = error.pointer.strip_prefix("/resources/")?;
            rest.split('/').next()?.parse().ok()
        })
        .collect()
}

/// `Retry-After` in seconds. A date is ignored: no wait is computed from wall clocks.
#[must_use]
pub fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let seconds = header_text(response, &header::RETRY_AFTER)?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

fn header_text<'a>(response: &'a Response<Bytes>, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Foreign text for the log: shortened and without control characters.
fn sanitized(text: &str) -> String {
    text.chars()
        .take(MAX_DETAIL)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use doorman_openapi::CapacityResponse;

    use super::*;

    fn servers() -> Vec<ServerUrl> {
        ["http://a:7300", "http://b:7300"]
            .into_iter()
            .map(|address| address.parse().unwrap())
            .collect()
    }

    #[track_caller]
    fn check(status: u16, headers: &[(HeaderName, &str)], body: &str, expected: &Failure) {
        let mut response = Response::new(Bytes::copy_from_slice(body.as_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response
                .headers_mut()
                .insert(name.clone(), value.parse().unwrap());
        }
        let error = read_ok::<CapacityResponse>(&response, &servers(), "leases").unwrap_err();
        assert_eq!(&error.failure, expected, "{status} {body}");
        assert!(error.reason.len() < 400);
    }

    fn problem(more: &str) -> String {
        format!(r#"{{"type":"x","title":"x","status":1,"detail":"x"{more}}}"#)
    }

    #[test]
    fn ok_response_has_leases() {
        let body = r#"{"node":"n","epoch":1,"resources":[]}"#;
        let response = Response::new(Bytes::from_static(body.as_bytes()));
        let leases = read_ok::<CapacityResponse>(&response, &servers(), "leases").unwrap();
        assert_eq!(leases.epoch.get(), 1);
    }

    #[test]
    fn invalid_response_is_unavailable() {
        let unavailable = Failure::Unavailable { retry_after: None };
        for body in ["", "{}", "null", r#"{"node":"","epoch":-1,"resources":[]}"#] {
            check(200, &[], body, &unavailable);
        }
        for status in [101, 204, 400, 401, 404, 500, 502, 599] {
            check(status, &[], "\u{0}", &unavailable);
        }
    }

    #[test]
    fn redirect_leads_only_to_configured_servers() {
        let location = |address| [(header::LOCATION, address)];
        let master = |address| {
            problem(&format!(
                r#","mastership":{{"master_address":"{address}"}}"#
            ))
        };
        let to = |to| Failure::Redirected { to };
        check(307, &[], &master("http://b:7300"), &to(Some(1)));
        let at_b = location("http://b:7300/v1/capacity");
        check(307, &at_b, "", &to(Some(1)));
        let elsewhere = location("http://evil:7300/v1/capacity");
        check(307, &elsewhere, "", &to(None));
        check(307, &[], &master("http://evil"), &to(None));
        check(307, &location("/v1/capacity"), "", &to(None));
        check(307, &[], "", &to(None));
        for near_miss in [
            "https://b:7300",
            "http://b",
            "http://b:7300@evil",
            "b:7300",
            "//b:7300",
        ] {
            check(307, &location(near_miss), "", &to(None));
            check(307, &[], &master(near_miss), &to(None));
        }
    }

    #[test]
    fn redirect_leads_to_servers_by_name_and_over_tls() {
        let servers: Vec<ServerUrl> =
            ["https://doorman-0.doorman:7300", "https://[fd00::1]/limits"]
                .into_iter()
                .map(|address| address.parse().unwrap())
                .collect();
        for (location, to) in [
            ("https://DOORMAN-0.doorman:7300/v1/capacity", Some(0)),
            ("https://[fd00::1]:443/limits/v1/capacity", Some(1)),
            ("http://doorman-0.doorman:7300/v1/capacity", None),
            ("https://doorman-0.doorman/v1/capacity", None),
        ] {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let headers = response.headers_mut();
            headers.insert(header::LOCATION, location.parse().unwrap());
            for error in [
                read_ok::<CapacityResponse>(&response, &servers, "leases").unwrap_err(),
                read_hints(&response, &servers).unwrap_err(),
            ] {
                assert_eq!(error.failure, Failure::Redirected { to }, "{location}");
            }
        }
    }

    #[test]
    fn server_that_is_not_master_is_no_failed_one() {
        let not_master = problem(r#","mastership":{}"#);
        check(503, &[], &not_master, &Failure::Redirected { to: None });
        let b = problem(r#","mastership":{"master_address":"http://b:7300"}"#);
        check(503, &[], &b, &Failure::Redirected { to: Some(1) });
        let unavailable = Failure::Unavailable { retry_after: None };
        check(503, &[], &problem(""), &unavailable);
    }

    #[test]
    fn problem_pointers_name_rejected_positions() {
        let errors = problem(
            r#","errors":[{"pointer":"/resources/3/wants","detail":""},{"pointer":"/resources/x","detail":""},
                {"pointer":"/client_id","detail":""},{"pointer":"/resources/4","detail":""}]"#,
        );
        let rejected = |positions| Failure::Rejected { positions };
        check(422, &[], &errors, &rejected(vec![3, 4]));
        check(403, &[], &errors, &rejected(vec![3, 4]));
        check(403, &[], "", &rejected(vec![]));
        check(413, &[], "", &Failure::TooLarge);
    }

    #[test]
    fn retry_after_is_read_in_seconds_only() {
        for (value, seconds) in [
            ("3", Some(3)),
            ("-1", None),
            ("99999999999999999999", None),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ] {
            let retry_after = seconds.map(Duration::from_secs);
            let unavailable = Failure::Unavailable { retry_after };
            check(503, &[(header::RETRY_AFTER, value)], "", &unavailable);
            let limited = Failure::RateLimited { retry_after };
            check(429, &[(header::RETRY_AFTER, value)], "", &limited);
        }
    }
}
