//! Carries requests to the servers, and what became of them back.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use doorman_openapi::{
    CapacityRequest, CapacityResponse, ReleaseRequest, Seq,
    paths::{CAPACITY, CAPACITY_RELEASE, RULES},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use tokio::time::timeout;
use tower_service::Service;
use tracing::Instrument;

use super::{
    address::Address,
    call::{Call, Called},
    reply::{self, Failed},
    rules::News,
};
use crate::Credentials;

/// An error of a transport.
pub type TransportError = Box<dyn std::error::Error + Send + Sync>;

/// A service that can be the way to the control plane: `HttpTransport` (feature `reqwest`) in production, a mock or an in-process
/// router in tests.
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

/// What became of a request for leases.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) seq: Seq,
    pub(super) endpoint: usize,
    pub(super) called: Called,
    pub(super) result: Result<CapacityResponse, Failed>,
}

/// What became of a request for rules.
#[derive(Debug)]
pub(super) struct RulesOutcome {
    pub(super) endpoint: usize,
    pub(super) called: Called,
    pub(super) result: Result<News, Failed>,
}

/// A request on its way.
struct Sending<F> {
    call: Call,
    answer: F,
}

#[derive(Debug)]
pub(crate) struct Carrier<T> {
    pub(crate) transport: T,
    pub(crate) servers: Arc<[Address]>,
    pub(crate) credentials: Option<Credentials>,
}

impl<T: Transport> Carrier<T> {
    /// Sends a request for leases. Whatever happens, it is over when the time is.
    pub(super) fn ask(
        &self,
        seq: Seq,
        endpoint: usize,
        request: &CapacityRequest,
        time: Duration,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let servers = Arc::clone(&self.servers);
        let sending = self.post(endpoint, CAPACITY, request);
        async move {
            let (called, answer) = in_time(sending, time).await;
            let result = match answer {
                Ok(response) => reply::read(&response, &servers),
                Err(reason) => Err(Failed::unavailable(reason)),
            };
            Outcome {
                seq,
                endpoint,
                called,
                result,
            }
        }
    }

    /// Gives leases back.
    pub(super) fn give_back(
        &self,
        endpoint: usize,
        request: &ReleaseRequest,
        time: Duration,
    ) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let sending = self.post(endpoint, CAPACITY_RELEASE, request);
        async move {
            let (called, answer) = in_time(sending, time).await;
            let released = answer.and_then(|response| {
                let status = response.status();
                let is_done = status.is_success();
                is_done.then_some(()).ok_or(format!("answers {status}"))
            });
            released.inspect_err(|reason| {
                let Called {
                    trace_id,
                    request_id,
                } = called;
                tracing::debug!(reason, %trace_id, request_id, "leases could not be given back");
            })
        }
    }

    /// Asks for the rules for a service, unless they are those of the tag.
    pub(super) fn rules(
        &self,
        endpoint: usize,
        service: &str,
        tag: Option<HeaderValue>,
        time: Duration,
    ) -> impl Future<Output = RulesOutcome> + Send + 'static {
        let service = utf8_percent_encode(service, NON_ALPHANUMERIC);
        let uri = self.uri(endpoint, &format!("{RULES}?service={service}"));
        let mut headers = HeaderMap::new();
        let conditional = tag.is_some();
        if let Some(tag) = tag {
            headers.insert(header::IF_NONE_MATCH, tag);
        }
        let sending = self.send(Method::GET, uri, headers, Ok(Vec::new()));
        async move {
            let (called, answer) = in_time(sending, time).await;
            let result = match answer {
                Ok(response) => reply::read_rules(&response, conditional),
                Err(reason) => Err(Failed::unavailable(reason)),
            };
            RulesOutcome {
                endpoint,
                called,
                result,
            }
        }
    }

    /// The address of an endpoint, for the log.
    pub(super) fn name(&self, endpoint: usize) -> String {
        self.servers
            .get(endpoint)
            .map_or_else(String::new, Address::to_string)
    }

    fn post(
        &self,
        endpoint: usize,
        path: &str,
        body: &impl Serialize,
    ) -> Sending<impl Future<Output = Result<Response<Bytes>, TransportError>> + Send + 'static>
    {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, json)]);
        let body = serde_json::to_vec(body);
        self.send(Method::POST, self.uri(endpoint, path), headers, body)
    }

    fn uri(&self, endpoint: usize, path: &str) -> Option<String> {
        Some(self.servers.get(endpoint)?.uri(path))
    }

    fn send(
        &self,
        method: Method,
        uri: Option<String>,
        mut headers: HeaderMap,
        body: Result<Vec<u8>, serde_json::Error>,
    ) -> Sending<impl Future<Output = Result<Response<Bytes>, TransportError>> + Send + 'static>
    {
        let credentials = self.credentials.clone();
        let mut transport = self.transport.clone();
        let call = Call::begin();
        call.mark(&mut headers);
        let answer = async move {
            let uri = uri.ok_or("there is no such server")?;
            let request = Request::builder().method(method).uri(uri);
            let mut request = request.body(Bytes::from(body?))?;
            *request.headers_mut() = headers;
            if let Some(credentials) = credentials {
                let value = credentials.header().await?;
                request.headers_mut().insert(header::AUTHORIZATION, value);
            }
            std::future::poll_fn(|cx| transport.poll_ready(cx))
                .await
                .map_err(Into::into)?;
            transport.call(request).await.map_err(Into::into)
        };
        Sending { call, answer }
    }
}

/// Waits for the answer; why there is none.
async fn in_time(
    Sending { call, answer }: Sending<
        impl Future<Output = Result<Response<Bytes>, TransportError>>,
    >,
    time: Duration,
) -> (Called, Result<Response<Bytes>, String>) {
    let answer = match timeout(time, answer.instrument(call.span())).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(with_sources(&*error)),
        Err(_) => Err(format!("no answer within {time:?}")),
    };
    (call.answered(answer.as_ref().ok()), answer)
}

/// An error in one line: reqwest's own text leaves out why.
fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
