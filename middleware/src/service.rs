//! The service that a layer puts around another.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::{RequestHead, ResponseFuture, admission::Verdict, body::LimitBody, layer::Decider};

/// A service held to limits. It answers what it refuses itself; the inner service's error type stays.
///
/// Readiness is the inner service's. Nothing is reserved there, because which limits apply is known only when the request is.
#[derive(Debug, Clone)]
pub struct LimitService<S> {
    inner: S,
    decider: Decider,
}

impl<S> LimitService<S> {
    pub(crate) fn new(inner: S, decider: Decider) -> Self {
        Self { inner, decider }
    }
}

impl<S, B, R> Service<Request<B>> for LimitService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<LimitBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.decider.decide(&RequestHead::of(&request)) {
            Verdict::Admitted(fields) => ResponseFuture::forward(self.inner.call(request), fields),
            Verdict::Refused(denial) => ResponseFuture::refuse(denial),
            Verdict::Waits(waiting) => {
                // The request waits with the service that is ready for it; the next one finds a clone, and makes that ready.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                ResponseFuture::wait(waiting, ready, request)
            }
        }
    }
}

#[cfg(test)]
mod tests;
