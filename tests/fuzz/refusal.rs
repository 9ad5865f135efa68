//! The refusal of a request by a layer.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, Service};
use tower_doorman::{Doorman, Limit, Refusal};

/// Sends a request that the layer must reject immediately, and returns its refusal.
///
/// # Panics
/// When the request passes or waits.
pub(super) fn refusal(doorman: &Doorman, limit: Limit, request: Request<()>) -> Refusal {
    let mut service = doorman.layer([limit]).expect("valid limits").layer(Inner);
    let mut response = std::pin::pin!(service.call(request));
    let context = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(response)) = response.as_mut().poll(context) else {
        panic!("the request waits");
    };
    let refusal: Option<&Refusal> = response.extensions().get();
    refusal.expect("the request is rejected").clone()
}

/// A service that no request reaches.
#[derive(Debug, Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}
