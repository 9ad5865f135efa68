//! By what a layer refuses a request.

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

/// What a layer with this limit says of a request that it refuses.
///
/// # Panics
/// When it lets the request pass, or wait.
pub(super) fn refusal(doorman: &Doorman, limit: Limit, request: Request<()>) -> Refusal {
    let mut service = doorman.layer([limit]).layer(Inner);
    let mut answer = std::pin::pin!(service.call(request));
    let context = &mut Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(response)) = answer.as_mut().poll(context) else {
        panic!("a refusal waits for nothing");
    };
    let refusal: Option<&Refusal> = response.extensions().get();
    refusal.expect("nothing is allowed").clone()
}

/// What nothing reaches.
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
