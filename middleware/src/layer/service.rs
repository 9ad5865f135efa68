//! The service that [`LimitLayer`](crate::LimitLayer) puts around another.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use super::{LimitBody, ResponseFuture, response::ResponsePolicy};
use crate::{
    admission::{AdmissionSource, CanWait, Decision},
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let head = RequestHead::of(&request);
        let mode = CanWait(self.responses.headers());
        match self.admission.decide(&head, mode) {
            Decision::Admitted => ResponseFuture::forward(self.inner.call(request)),
            Decision::AdmittedWith(headers) => {
                ResponseFuture::forward_with(self.inner.call(request), headers)
            }
            Decision::Holding(mut admitted) => {
                admitted.headers = self.responses.filter(admitted.headers);
                admitted.add_to(request.extensions_mut());
                ResponseFuture::hold(self.inner.call(request), admitted)
            }
            Decision::Refused(refusal, headers) => {
                ResponseFuture::refuse(self.responses.refuse(refusal, headers, &head))
            }
            Decision::Pending(decision) => {
                // The waiting request keeps the ready service; the next one gets a clone.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::wait(decision, ready, request, Arc::clone(&self.responses))
            }
        }
    }
}

#[cfg(test)]
mod gauge_tests;
#[cfg(test)]
mod tests;
