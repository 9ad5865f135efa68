//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    admission::{Denial, Waiting},
    body::LimitBody,
    headers::Fields,
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
        Waiting { waiting: Waiting, held: Option<Box<(S, Request<B>)>> },
        Forwarded { #[pin] response: F, fields: Option<Fields> },
        Refused { denial: Option<Box<Denial>> },
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

    pub(crate) fn refuse(denial: Box<Denial>) -> Self {
        Self {
            state: State::Refused {
                denial: Some(denial),
            },
        }
    }

    pub(crate) fn wait(waiting: Waiting, ready: S, request: Request<B>) -> Self {
        Self {
            state: State::Waiting {
                waiting,
                held: Some(Box::new((ready, request))),
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
                StateProjection::Waiting { waiting, held } => {
                    match (ready!(waiting.as_mut().poll(cx)), held.take()) {
                        (Ok(fields), Some(held)) => {
                            let (mut service, request) = *held;
                            State::Forwarded {
                                response: service.call(request),
                                fields: Some(fields),
                            }
                        }
                        (Err(denial), _) => State::Refused {
                            denial: Some(denial),
                        },
                        // Only a future that is polled after its end comes here.
                        (Ok(_), None) => return Poll::Pending,
                    }
                }
                StateProjection::Forwarded { response, fields } => {
                    let mut response = ready!(response.poll(cx))?.map(LimitBody::inner);
                    if let Some(fields) = fields.take() {
                        fields.append_to(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Refused { denial } => {
                    // Nothing is left only when it is polled after its end.
                    let Some(denial) = denial.take() else {
                        return Poll::Pending;
                    };
                    let Denial { refusal, fields } = *denial;
                    let mut response = refusal.into_response();
                    fields.append_to(response.headers_mut());
                    return Poll::Ready(Ok(response));
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
