//! Mock control plane, as a transport.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use doorman_openapi::{
    CapacityRequest, CapacityResponse, Moment, ReleaseRequest, headers::TRACEPARENT, paths,
};
use http::{HeaderName, Request, Response, header};
use serde::Serialize;
use tokio::sync::oneshot;
use tower_service::Service;

use crate::{clock, lease::TransportError};

/// A request that was received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) authorization: Option<String>,
    pub(super) if_none_match: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) body: Bytes,
    pub(super) at: Moment,
}

impl Received {
    pub(super) fn capacity(&self) -> Option<CapacityRequest> {
        (self.path == paths::CAPACITY).then(|| serde_json::from_slice(&self.body).unwrap())
    }

    pub(super) fn release(&self) -> Option<ReleaseRequest> {
        (self.path == paths::CAPACITY_RELEASE).then(|| serde_json::from_slice(&self.body).unwrap())
    }

    /// The requested resources.
    pub(super) fn names(&self) -> Vec<String> {
        let resources = self.capacity().map(|request| request.resources);
        let resources = resources.unwrap_or_default().into_iter();
        resources.map(|r| r.resource_id.to_string()).collect()
    }
}

pub(super) enum Reply {
    Response(Response<Bytes>),
    /// The server never responds.
    Hang,
    /// The connection fails.
    Disconnect,
    /// The response comes when the receiver gets it.
    Later(oneshot::Receiver<Response<Bytes>>),
}

impl Reply {
    pub(super) fn json(status: u16, body: &impl Serialize) -> Self {
        Self::Response(
            Response::builder()
                .status(status)
                .header(header::CONTENT_TYPE, "application/json")
                .body(serde_json::to_vec(body).unwrap().into())
                .unwrap(),
        )
    }
}

impl From<CapacityResponse> for Reply {
    fn from(response: CapacityResponse) -> Self {
        Self::json(200, &response)
    }
}

type Handler = Box<dyn FnMut(&Received) -> Reply + Send>;

#[derive(Clone)]
pub(super) struct Plane {
    handler: Arc<Mutex<Handler>>,
    calls: Arc<Mutex<Vec<Received>>>,
    hints: Arc<Mutex<Handler>>,
    hint_polls: Arc<Mutex<Vec<Received>>>,
}

impl Plane {
    pub(super) fn new(handler: impl FnMut(&Received) -> Reply + Send + 'static) -> Self {
        Self {
            handler: Arc::new(Mutex::new(Box::new(handler))),
            calls: Arc::default(),
            hints: Arc::new(Mutex::new(Box::new(|_| Reply::Hang))),
            hint_polls: Arc::default(),
        }
    }

    /// Changes how it answers polls for hints. Until then they hang.
    pub(super) fn set_hints(&self, handler: impl FnMut(&Received) -> Reply + Send + 'static) {
        *self.hints.lock().unwrap() = Box::new(handler);
    }

    /// The polls for hints, which are no part of the calls.
    pub(super) fn hint_polls(&self) -> Vec<Received> {
        self.hint_polls.lock().unwrap().clone()
    }

    /// Changes how it answers from now on.
    pub(super) fn set(&self, handler: impl FnMut(&Received) -> Reply + Send + 'static) {
        *self.handler.lock().unwrap() = Box::new(handler);
    }

    pub(super) fn calls(&self) -> Vec<Received> {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn releases(&self) -> Vec<ReleaseRequest> {
        self.calls().iter().filter_map(Received::release).collect()
    }

    /// The newest lease request.
    pub(super) fn last_request(&self) -> CapacityRequest {
        self.last_requests(1).pop().unwrap()
    }

    /// The newest lease requests, the last one first.
    pub(super) fn last_requests(&self, count: usize) -> Vec<CapacityRequest> {
        let calls = self.calls();
        let requests = calls.iter().rev().filter_map(Received::capacity);
        requests.take(count).collect()
    }
}

impl Service<Request<Bytes>> for Plane {
    type Response = Response<Bytes>;
    type Error = TransportError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, TransportError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let text = |name: HeaderName| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let call = Received {
            host: request.uri().host().unwrap().to_owned(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            authorization: text(header::AUTHORIZATION),
            if_none_match: text(header::IF_NONE_MATCH),
            traceparent: text(HeaderName::from_static(TRACEPARENT)),
            body: request.into_body(),
            at: clock::now(),
        };
        let (handler, calls) = match call.path.as_str() {
            paths::HINTS => (&self.hints, &self.hint_polls),
            _ => (&self.handler, &self.calls),
        };
        let reply = (handler.lock().unwrap())(&call);
        calls.lock().unwrap().push(call);
        Box::pin(async {
            match reply {
                Reply::Response(response) => Ok(response),
                Reply::Hang => pending().await,
                Reply::Later(response) => response.await.map_err(Into::into),
                Reply::Disconnect => Err("connection refused".into()),
            }
        })
    }
}
