//! What tests of the request path share: a service that answers at once, behind limits.

use std::{
    convert::Infallible,
    future::{Future, Ready, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower::{Service, ServiceExt as _};
use tower_layer::Layer as _;

use crate::{Callers, Limit, LimitBody, LimitLayer, LimitService, limiter::Registry};

pub(crate) type Answer = Response<LimitBody<Full<Bytes>>>;

/// Answers every request with 200 and `ok`.
#[derive(Debug, Clone)]
pub(crate) struct Inner;

impl<B> Service<Request<B>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::from("ok"))))
    }
}

/// The service behind limits.
pub(crate) fn limited(
    registry: &Arc<Registry>,
    limits: impl IntoIterator<Item = Limit>,
) -> LimitService<Inner> {
    inner(&LimitLayer::new(
        Arc::clone(registry),
        Callers::new(),
        limits,
    ))
}

/// The service behind a layer.
pub(crate) fn inner(layer: &LimitLayer) -> LimitService<Inner> {
    layer.layer(Inner)
}

pub(crate) async fn send<B>(service: &LimitService<Inner>, request: Request<B>) -> Answer {
    service.clone().oneshot(request).await.unwrap()
}

/// The status of a request without anything in it.
pub(crate) async fn status(service: &LimitService<Inner>) -> u16 {
    send(service, Request::new(())).await.status().as_u16()
}

/// How many of so many requests are admitted at once.
pub(crate) async fn admitted(service: &LimitService<Inner>, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(status(service).await == 200);
    }
    admitted
}

/// A header of a response; several lines are joined.
pub(crate) fn header(answer: &Answer, name: &str) -> String {
    let lines: Vec<_> = answer
        .headers()
        .get_all(name)
        .iter()
        .map(|line| line.to_str().unwrap())
        .collect();
    lines.join(", ")
}

pub(crate) async fn body(answer: Answer) -> Bytes {
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// Counts what is logged at one level.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    level: tracing::Level,
    events: Arc<AtomicUsize>,
}

impl Logged {
    pub(crate) fn at(level: tracing::Level) -> Self {
        Self {
            level,
            events: Arc::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == self.level
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// Polls a future so many times, with a while and whatever `happens` after each, and drops it. What it came to, if it did.
pub(crate) async fn poll_and_drop<F: Future>(
    future: F,
    polls: u32,
    a_while: Duration,
    happens: impl Fn(u32),
) -> Option<F::Output> {
    let mut future = pin!(future);
    for poll in 1..=polls {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::time::advance(a_while).await;
        happens(poll);
    }
    None
}
