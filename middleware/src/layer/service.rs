//! The service that [`LimitLayer`](crate::LimitLayer) puts around another.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{LimitBody, ResponseFuture, response::ResponsePolicy};
use crate::{
    admission::{AdmissionSource, CanWait},
    key::RequestHead,
};

/// A service behind limits. Refusals are responses; the error type is the inner service's. So is
/// [`poll_ready`](Service::poll_ready), which reserves nothing: limits depend on the request.
#[derive(Debug, Clone)]
pub struct LimitService<S> {
    inner: S,
    admission: AdmissionSource,
    responses: Arc<ResponsePolicy>,
}

impl<S> LimitService<S> {
    pub(super) fn new(
        inner: S,
        admission: AdmissionSource,
        responses: Arc<ResponsePolicy>,
    ) -> Self {
        Self {
            inner,
            admission,
            responses,
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
        let mode = CanWait(self.responses.headers());
        let decision = self.admission.decide(&RequestHead::of(&request), mode);
        ResponseFuture::new(decision, &mut self.inner, request, &self.responses)
    }
}

#[cfg(test)]
mod tests;
