//! Every request gets its trail, and every answer the name of its request.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::task::futures::TaskLocalFuture;
use tower::{Layer, Service};

use super::{CURRENT, REQUEST_ID, RequestContext};

/// Gives every request its trail. To be the outermost layer: what lies outside of it is said of nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContextLayer;

impl<S> Layer<S> for RequestContextLayer {
    type Service = Trailed<S>;

    fn layer(&self, inner: S) -> Trailed<S> {
        Trailed { inner }
    }
}

/// A service whose requests have a trail.
#[derive(Debug, Clone)]
pub(crate) struct Trailed<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Trailed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let trail = RequestContext::of(request.headers());
        ResponseFuture {
            inner: CURRENT.scope(trail, self.inner.call(request)),
        }
    }
}

pin_project! {
    /// The answer to a request, with the name of the request.
    #[derive(Debug)]
    pub(crate) struct ResponseFuture<F> {
        #[pin]
        inner: TaskLocalFuture<RequestContext, F>,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let mut response = ready!(this.inner.as_mut().poll(cx));
        if let Ok(response) = &mut response
            && let Some(trail) = this.inner.take_value()
        {
            response
                .headers_mut()
                .insert(REQUEST_ID, trail.id.into_header());
        }
        Poll::Ready(response)
    }
}
