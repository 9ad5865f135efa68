//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{LimitBody, response_policy::Manner};
use crate::{
    RequestHead,
    admission::{Fields, Waiting},
};

pin_project! {
    /// The future of a [`LimitService`](crate::LimitService)'s response. Dropping it while the request waits gives its place back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    /// `Waiting` → `Forwarded` | `Refused`; `Forwarded` and `Refused` answer.
    #[project = StateProjection]
    enum State<S, B, F> {
        // Boxed: a request that waits does not mind, and the others' future stays small.
        Waiting { waiting: Waiting, held: Option<Box<(S, Request<B>)>>, manner: Arc<Manner> },
        Forwarded { #[pin] response: F, fields: Option<Fields> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn forward(response: S::Future, fields: Fields) -> Self {
        Self {
            state: State::Forwarded {
                response,
                fields: Some(fields),
            },
        }
    }

    pub(crate) fn refuse(response: Response<Bytes>) -> Self {
        Self {
            state: State::Refused {
                response: Some(Box::new(response)),
            },
        }
    }

    pub(crate) fn wait(
        waiting: Waiting,
        ready: S,
        request: Request<B>,
        manner: Arc<Manner>,
    ) -> Self {
        Self {
            state: State::Waiting {
                waiting,
                held: Some(Box::new((ready, request))),
                manner,
            },
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<LimitBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting {
                    waiting,
                    held,
                    manner,
                } => {
                    match (ready!(waiting.as_mut().poll(cx)), held.take()) {
                        (Ok(fields), Some(held)) => {
                            let (mut service, request) = *held;
                            State::Forwarded {
                                response: service.call(request),
                                fields: Some(manner.of_admitted(fields)),
                            }
                        }
                        (Err(denial), Some(held)) => {
                            let head = RequestHead::of(&held.1);
                            let response = manner.of_refused(*denial, &head);
                            State::Refused {
                                response: Some(Box::new(response)),
                            }
                        }
                        // Only a future that is polled after its end comes here.
                        (Ok(_) | Err(_), None) => return Poll::Pending,
                    }
                }
                StateProjection::Forwarded { response, fields } => {
                    let mut response = ready!(response.poll(cx))?.map(LimitBody::inner);
                    if let Some(fields) = fields.take() {
                        fields.append_to(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Refused { response } => {
                    // Nothing is left only when it is polled after its end.
                    let Some(response) = response.take() else {
                        return Poll::Pending;
                    };
                    return Poll::Ready(Ok(response.map(LimitBody::refused)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
