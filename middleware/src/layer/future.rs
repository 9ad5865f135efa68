//! The response future of [`LimitService`](crate::LimitService).

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{LimitBody, response::ResponsePolicy};
use crate::{
    admission::{Admitted, AdmittedBy, Decision, PendingDecision, RateLimitHeaders, Refused},
    key::RequestHead,
    outcome::ResponseHead,
    refusal::Refusal,
};

pin_project! {
    /// The future of a [`LimitService`](crate::LimitService)'s response. Dropping it while the
    /// request waits returns the tokens that it reserved.
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
    /// `Waiting` → `ForwardedWith` | `Holding` | `Refused`.
    #[project = StateProjection]
    enum State<S, B, F> {
        // Boxed, so that the future of other requests stays small.
        Waiting {
            decision: PendingDecision,
            call: Option<Box<(S, Request<B>)>>,
            responses: Arc<ResponsePolicy>,
        },
        Forwarded { #[pin] response: F, by: Option<AdmittedBy> },
        ForwardedWith {
            #[pin]
            response: F,
            headers: Option<RateLimitHeaders>,
            by: Option<AdmittedBy>,
        },
        Holding { #[pin] response: F, admitted: Option<Box<Admitted>> },
        Refused { response: Option<Box<Response<Bytes>>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    /// The response to a request after its decision.
    #[inline]
    pub(super) fn new(
        decision: Decision,
        service: &mut S,
        request: Request<B>,
        responses: &Arc<ResponsePolicy>,
    ) -> Self
    where
        S: Clone,
    {
        let state = match decision {
            Decision::Admitted(by) => State::Forwarded {
                response: service.call(request),
                by,
            },
            Decision::AdmittedWith(headers, by) => State::ForwardedWith {
                response: service.call(request),
                headers: Some(headers),
                by,
            },
            Decision::Holding(admitted) => State::hold(admitted, service, request, responses),
            Decision::Refused(refusal, headers) => {
                State::refuse(refusal, headers, &request, responses)
            }
            Decision::Pending(decision) => {
                // The waiting request keeps the ready service; the next one gets a clone.
                let clone = service.clone();
                let ready = mem::replace(service, clone);
                State::Waiting {
                    decision,
                    call: Some(Box::new((ready, request))),
                    responses: Arc::clone(responses),
                }
            }
        };
        Self { state }
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
                    decision,
                    call,
                    responses,
                } => {
                    let decided = ready!(decision.as_mut().poll(cx));
                    // Empty only if polled after completion.
                    let Some(call) = call.take() else {
                        return Poll::Pending;
                    };
                    State::decided(decided, *call, responses)
                }
                StateProjection::Forwarded { response, by } => {
                    let response = ready!(response.poll(cx));
                    return Poll::Ready(record(response, by.as_ref()));
                }
                StateProjection::ForwardedWith {
                    response,
                    headers,
                    by,
                } => {
                    let response = ready!(response.poll(cx));
                    let mut response = record(response, by.as_ref())?;
                    if let Some(headers) = headers.take() {
                        headers.append_to(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Holding { response, admitted } => {
                    let response = ready!(response.poll(cx));
                    let Some(admitted) = admitted.take() else {
                        // It was polled after completion.
                        return Poll::Pending;
                    };
                    return Poll::Ready(complete(response, *admitted));
                }
                StateProjection::Refused { response } => {
                    // Empty only if polled after completion.
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

impl<S, B> State<S, B, S::Future>
where
    S: Service<Request<B>>,
{
    /// The state after the decision of a request that waited.
    fn decided(
        decided: Result<Admitted, Refused>,
        (mut service, request): (S, Request<B>),
        responses: &ResponsePolicy,
    ) -> Self {
        match decided {
            Ok(admitted) if admitted.is_plain() => Self::ForwardedWith {
                response: service.call(request),
                headers: Some(responses.filter(admitted.headers)),
                by: admitted.by,
            },
            Ok(admitted) => Self::hold(Box::new(admitted), &mut service, request, responses),
            Err((refusal, headers)) => Self::refuse(refusal, headers, &request, responses),
        }
    }

    /// Settles charges by the response, appends headers to it, and gives the permit to its body.
    fn hold(
        mut admitted: Box<Admitted>,
        service: &mut S,
        mut request: Request<B>,
        responses: &ResponsePolicy,
    ) -> Self {
        admitted.headers = responses.filter(mem::take(&mut admitted.headers));
        let charge = admitted.charge.clone();
        admitted.add_to(request.extensions_mut());
        admitted.charge = charge;
        Self::Holding {
            response: service.call(request),
            admitted: Some(admitted),
        }
    }

    fn refuse(
        refusal: Refusal,
        headers: RateLimitHeaders,
        request: &Request<B>,
        responses: &ResponsePolicy,
    ) -> Self {
        let response = responses.refuse(refusal, headers, &RequestHead::of(request));
        Self::Refused {
            response: Some(Box::new(response)),
        }
    }
}

/// Counts the outcome of a request.
#[inline]
fn record<R, E>(
    response: Result<Response<R>, E>,
    by: Option<&AdmittedBy>,
) -> Result<Response<LimitBody<R>>, E> {
    match by {
        Some(by) if by.classifies() => return record_classified(response, by),
        Some(by) => by.record(response.as_ref().ok().map(ResponseHead::from)),
        None => {}
    }
    response.map(|it| it.map(LimitBody::inner))
}

fn record_classified<R, E>(
    response: Result<Response<R>, E>,
    by: &AdmittedBy,
) -> Result<Response<LimitBody<R>>, E> {
    let response = response.map(Response::into_parts);
    by.record_classified(response.as_ref().ok().map(|(head, _)| head));
    response.map(|(head, body)| Response::from_parts(head, LimitBody::inner(body)))
}

/// Counts the outcome of a request, settles its charges by the response, appends the headers to it,
/// and gives the permit to its body.
fn complete<R, E>(
    response: Result<Response<R>, E>,
    admitted: Admitted,
) -> Result<Response<LimitBody<R>>, E> {
    let Admitted {
        headers,
        permit,
        charge,
        by_response,
        by,
    } = admitted;
    let response = response.map(Response::into_parts);
    if let Some(by) = by {
        let head = response.as_ref().ok().map(|(head, _)| head);
        by.record_held(head, &permit, &charge.unwrap_or_default());
    }
    let (mut head, body) = response?;
    by_response.settle(&head);
    headers.append_to(&mut head.headers);
    Ok(Response::from_parts(head, LimitBody::holding(body, permit)))
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
