//! Client of the control plane: sends requests over a [`Transport`] and reads untrusted responses.

use std::{error::Error, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use doorman_holder::Failure;
use doorman_openapi::{
    CapacityRequest, CapacityResponse, Discovery, HintsResponse, Problem, ReleaseRequest,
    RulesResponse, Seq, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest,
    ServerUrl, SpanId, TraceContext, TraceId,
    headers::{REQUEST_ID, TRACEPARENT},
    paths::{
        CAPACITY, CAPACITY_RELEASE, DISCOVERY, HINTS, RULES, SERVER_CAPACITY,
        SERVER_CAPACITY_RELEASE,
    },
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

#[derive(Debug)]
pub(crate) struct ControlPlaneClient<T> {
    pub(crate) transport: T,
    pub(crate) servers: Arc<[ServerUrl]>,
    pub(crate) credentials: Option<Credentials>,
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
pub(super) enum Progress {
    /// It could not be sent: the credentials failed.
    NotSent,
    NoResponse,
    Responded,
}

#[derive(Debug)]
pub(super) struct Outcome<T> {
    pub(super) endpoint: usize,
    pub(super) ids: RequestIds,
    pub(super) progress: Progress,
    pub(super) result: Result<T, RequestError>,
}

#[derive(Debug)]
pub(super) struct RequestError {
    pub(super) failure: Failure,
    pub(super) reason: String,
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

#[derive(Debug)]
pub(super) enum FetchedHints {
    Hints(HintsResponse),
    /// The server has no such route.
    Unsupported,
}

/// A request without what all requests have in common.
struct Outgoing {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Result<Vec<u8>, serde_json::Error>,
}

impl Outgoing {
    fn post(path: &str, body: &impl Serialize) -> Self {
        let json = HeaderValue::from_static("application/json");
        Self {
            method: Method::POST,
            path: path.to_owned(),
            headers: HeaderMap::from_iter([(header::CONTENT_TYPE, json)]),
            body: serde_json::to_vec(body),
        }
    }
}

impl<T: Transport> ControlPlaneClient<T> {
    pub(super) fn request_leases(
        &self,
        seq: Seq,
        endpoint: usize,
        request: &CapacityRequest,
        time: Duration,
    ) -> impl Future<Output = (Seq, Outcome<CapacityResponse>)> + Send + use<T> {
        let servers = Arc::clone(&self.servers);
        let read = move |response: &Response<Bytes>| read_leases(response, &servers);
        let outcome = self.request(endpoint, Outgoing::post(CAPACITY, request), time, read);
        async move { (seq, outcome.await) }
    }

    pub(super) fn release(
        &self,
        endpoint: usize,
        request: &ReleaseRequest,
        time: Duration,
    ) -> impl Future<Output = Outcome<()>> + Send + use<T> {
        let call = Outgoing::post(CAPACITY_RELEASE, request);
        self.request(endpoint, call, time, read_release)
    }

    /// Fetches the rules of a service, or all rules, unless they have this `ETag`. Resolves within
    /// `time`.
    pub(super) fn fetch_rules(
        &self,
        endpoint: usize,
        service: Option<&str>,
        etag: Option<HeaderValue>,
        time: Duration,
    ) -> impl Future<Output = Outcome<FetchedRules>> + Send + use<T> {
        let service = service.map(|it| utf8_percent_encode(it, NON_ALPHANUMERIC));
        let is_conditional = etag.is_some();
        let call = Outgoing {
            method: Method::GET,
            path: match service {
                Some(service) => format!("{RULES}?service={service}"),
                None => RULES.to_owned(),
            },
            headers: etag
                .map(|etag| (header::IF_NONE_MATCH, etag))
                .into_iter()
                .collect(),
            body: Ok(Vec::new()),
        };
        self.request(endpoint, call, time, move |response| {
            read_rules(response, is_conditional)
        })
    }

    /// Fetches the discovery of a server: its node, epoch and level.
    pub(super) fn discover(
        &self,
        endpoint: usize,
        time: Duration,
    ) -> impl Future<Output = Outcome<Discovery>> + Send + use<T> {
        let call = Outgoing {
            method: Method::GET,
            path: DISCOVERY.to_owned(),
            headers: HeaderMap::new(),
            body: Ok(Vec::new()),
        };
        self.request(endpoint, call, time, read_discovery)
    }

    /// Requests leases for a node.
    pub(super) fn request_server_leases(
        &self,
        endpoint: usize,
        request: &ServerCapacityRequest,
        time: Duration,
    ) -> impl Future<Output = Outcome<ServerCapacityResponse>> + Send + use<T> {
        let servers = Arc::clone(&self.servers);
        let read = move |response: &Response<Bytes>| read_leases(response, &servers);
        self.request(
            endpoint,
            Outgoing::post(SERVER_CAPACITY, request),
            time,
            read,
        )
    }

    /// Releases leases of a node.
    pub(super) fn release_server_leases(
        &self,
        endpoint: usize,
        request: &ServerReleaseRequest,
        time: Duration,
    ) -> impl Future<Output = Outcome<()>> + Send + use<T> {
        let call = Outgoing::post(SERVER_CAPACITY_RELEASE, request);
        self.request(endpoint, call, time, read_release)
    }

    /// Polls for hints to the holder with this id, which the parameter `kind` names: `client_id` or
    /// `node_id`. The server responds within `wait`; the poll ends within `time`.
    pub(super) fn poll_hints(
        &self,
        endpoint: usize,
        (kind, id): (&str, &str),
        after: u64,
        wait: Duration,
        time: Duration,
    ) -> impl Future<Output = Outcome<FetchedHints>> + Send + use<T> {
        let id = utf8_percent_encode(id, NON_ALPHANUMERIC);
        let wait = wait.as_secs();
        let call = Outgoing {
            method: Method::GET,
            path: format!("{HINTS}?{kind}={id}&after={after}&wait={wait}"),
            headers: HeaderMap::new(),
            body: Ok(Vec::new()),
        };
        let servers = Arc::clone(&self.servers);
        self.request(endpoint, call, time, move |response| {
            read_hints(response, &servers)
        })
    }

    pub(super) fn address(&self, endpoint: usize) -> String {
        let server = self.servers.get(endpoint);
        server.map_or_else(String::new, ServerUrl::to_string)
    }

    /// Sends a request, which begins a trace of its own, and reads the response.
    fn request<R, F>(
        &self,
        endpoint: usize,
        call: Outgoing,
        time: Duration,
        read: F,
    ) -> impl Future<Output = Outcome<R>> + Send + use<T, R, F>
    where
        F: FnOnce(&Response<Bytes>) -> Result<R, RequestError> + Send,
    {
        let server = self.servers.get(endpoint);
        let uri = server.map(|it| format!("{it}{}", call.path));
        let is_encrypted = server.is_some_and(ServerUrl::is_encrypted);
        let transport = self.transport.clone();
        let credentials = self.credentials.clone();
        async move {
            let trace = TraceContext::root(
                TraceId::from_bits(fastrand::u128(..)),
                SpanId::from_bits(fastrand::u64(..)),
            );
            let trace_id = trace.trace_id;
            let span = tracing::info_span!("control_plane", %trace_id);
            let response = send(transport, credentials, uri, call, trace).instrument(span);
            let response = match timeout(time, response).await {
                Ok(response) => response,
                Err(_) => Err((
                    Progress::NoResponse,
                    format!("no response within {time:?}").into(),
                )),
            };
            let request_id = response.as_ref().ok().and_then(request_id);
            let (progress, result) = match response {
                Ok(response) => (Progress::Responded, read(&response)),
                Err((progress, error)) => {
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
}

async fn send<T: Transport>(
    mut transport: T,
    credentials: Option<Credentials>,
    uri: Option<String>,
    call: Outgoing,
    trace: TraceContext,
) -> Result<Response<Bytes>, (Progress, TransportError)> {
    let request = prepare(credentials, uri, call, trace)
        .await
        .map_err(|error| (Progress::NotSent, error))?;
    let carry = async {
        std::future::poll_fn(|cx| transport.poll_ready(cx)).await?;
        transport.call(request).await
    };
    carry
        .await
        .map_err(|error: T::Error| (Progress::NoResponse, error.into()))
}

async fn prepare(
    credentials: Option<Credentials>,
    uri: Option<String>,
    call: Outgoing,
    trace: TraceContext,
) -> Result<Request<Bytes>, TransportError> {
    let uri = uri.ok_or("no such server")?;
    let request = Request::builder().method(call.method).uri(uri);
    let mut request = request.body(Bytes::from(call.body?))?;
    let headers = request.headers_mut();
    *headers = call.headers;
    let trace = HeaderValue::try_from(trace.to_string())?;
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

fn read_release(response: &Response<Bytes>) -> Result<(), RequestError> {
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(RequestError::unavailable(format!("responded {status}"))),
    }
}

fn read_leases<R: DeserializeOwned>(
    response: &Response<Bytes>,
    servers: &[ServerUrl],
) -> Result<R, RequestError> {
    let status = response.status();
    if status == StatusCode::OK {
        return from_slice(response.body()).map_err(|error| {
            RequestError::unavailable(format!("responded with invalid leases: {error}"))
        });
    }
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
                to: named_master(response, problem.as_ref(), servers),
            }
        }
        _ => Failure::Unavailable { retry_after },
    };
    let reason = match failure {
        Failure::Redirected { to: None } if status.is_redirection() => {
            format!("responded {status} without naming a configured server as master")
        }
        _ => failure_reason(status, problem.as_ref()),
    };
    Err(RequestError { failure, reason })
}

fn read_rules(
    response: &Response<Bytes>,
    is_conditional: bool,
) -> Result<FetchedRules, RequestError> {
    match response.status() {
        StatusCode::NOT_MODIFIED if is_conditional => Ok(FetchedRules::NotModified),
        StatusCode::OK => {
            let rules = from_slice(response.body()).map_err(|error| {
                RequestError::unavailable(format!("responded with invalid rules: {error}"))
            })?;
            let etag = response.headers().get(header::ETAG).cloned();
            Ok(FetchedRules::Modified { rules, etag })
        }
        status => {
            let problem = from_slice(response.body()).ok();
            let retry_after = retry_after(response);
            Err(RequestError {
                failure: match status {
                    StatusCode::TOO_MANY_REQUESTS => Failure::RateLimited { retry_after },
                    _ => Failure::Unavailable { retry_after },
                },
                reason: failure_reason(status, problem.as_ref()),
            })
        }
    }
}

fn read_discovery(response: &Response<Bytes>) -> Result<Discovery, RequestError> {
    match response.status() {
        StatusCode::OK => from_slice(response.body()).map_err(|error| {
            RequestError::unavailable(format!("responded with an invalid discovery: {error}"))
        }),
        status => {
            let problem = from_slice(response.body()).ok();
            let reason = failure_reason(status, problem.as_ref());
            Err(RequestError::unavailable(reason))
        }
    }
}

fn read_hints(
    response: &Response<Bytes>,
    servers: &[ServerUrl],
) -> Result<FetchedHints, RequestError> {
    let status = response.status();
    match status {
        StatusCode::OK => from_slice(response.body())
            .map(FetchedHints::Hints)
            .map_err(|error| {
                RequestError::unavailable(format!("responded with invalid hints: {error}"))
            }),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Ok(FetchedHints::Unsupported)
        }
        _ => {
            let problem: Option<Problem> = from_slice(response.body()).ok();
            let failure = if status.is_redirection() {
                Failure::Redirected {
                    to: named_master(response, problem.as_ref(), servers),
                }
            } else {
                Failure::Unavailable { retry_after: None }
            };
            let reason = failure_reason(status, problem.as_ref());
            Err(RequestError { failure, reason })
        }
    }
}

fn failure_reason(status: StatusCode, problem: Option<&Problem>) -> String {
    match problem {
        Some(problem) => format!("responded {status}: {}", sanitized(&problem.detail)),
        None => format!("responded {status}"),
    }
}

/// Whether the server says that it is not the master, even if it knows of none.
fn is_not_master(problem: Option<&Problem>) -> bool {
    problem.is_some_and(|problem| problem.mastership.is_some())
}

/// The configured server that a response names as master. No other server is ever asked, because it
/// would receive our credentials.
fn named_master(
    response: &Response<Bytes>,
    problem: Option<&Problem>,
    servers: &[ServerUrl],
) -> Option<usize> {
    let master = problem
        .and_then(|problem| problem.mastership.as_ref())
        .and_then(|mastership| mastership.master_address.as_deref())
        .or_else(|| header_text(response, &header::LOCATION))?;
    servers.iter().position(|server| server.serves(master))
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
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
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
        let error = read_leases::<CapacityResponse>(&response, &servers()).unwrap_err();
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
        let leases = read_leases::<CapacityResponse>(&response, &servers()).unwrap();
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
                read_leases::<CapacityResponse>(&response, &servers).unwrap_err(),
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
