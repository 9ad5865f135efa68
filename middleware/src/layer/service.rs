//! The service that a layer puts around another.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{Decider, LimitBody, ResponseFuture, response_policy::Manner};
use crate::{RequestHead, admission::Verdict};

/// A service held to limits. It answers what it refuses itself; the inner service's error type stays.
///
/// Readiness is the inner service's. Nothing is reserved there, because which limits apply is known only when the request is.
#[derive(Debug, Clone)]
pub struct LimitService<S> {
    inner: S,
    decider: Decider,
    manner: Arc<Manner>,
}

impl<S> LimitService<S> {
    pub(crate) fn new(inner: S, decider: Decider, manner: Arc<Manner>) -> Self {
        Self {
            inner,
            decider,
            manner,
        }
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
        let head = RequestHead::of(&request);
        match self.decider.decide(&head, self.manner.telling()) {
            Verdict::Admitted(fields) => ResponseFuture::forward(self.inner.call(request), fields),
            Verdict::Refused(denial) => {
                ResponseFuture::refuse(self.manner.of_refused(*denial, &head))
            }
            Verdict::Waits(waiting) => {
                // The request waits with the service that is ready for it; the next one finds a clone, and makes that ready.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                ResponseFuture::wait(waiting, ready, request, Arc::clone(&self.manner))
            }
        }
    }
}

#[cfg(test)]
mod tests;
