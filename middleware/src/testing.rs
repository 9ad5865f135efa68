//! Test helpers: a limited service, and captured logs.

use std::{
    convert::Infallible,
    fmt::{Debug, Write as _},
    future::{Future, Ready, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, Once},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower::{Service, ServiceExt as _};
use tower_layer::Layer as _;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, Interest, set_default, set_global_default},
};

use crate::{Callers, Limit, LimitBody, LimitLayer, LimitService, limiter::Registry};

pub(crate) type TestResponse = Response<LimitBody<Full<Bytes>>>;

/// Responds to every request with 200 and `ok`.
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

pub(crate) fn inner(layer: &LimitLayer) -> LimitService<Inner> {
    layer.layer(Inner)
}

pub(crate) async fn send<B>(service: &LimitService<Inner>, request: Request<B>) -> TestResponse {
    service.clone().oneshot(request).await.unwrap()
}

/// The status of an empty request.
pub(crate) async fn status(service: &LimitService<Inner>) -> u16 {
    send(service, Request::new(())).await.status().as_u16()
}

/// How many of `requests` are admitted immediately.
pub(crate) async fn admitted(service: &LimitService<Inner>, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(status(service).await == 200);
    }
    admitted
}

/// A header of a response, with its lines joined.
pub(crate) fn header(response: &TestResponse, name: &str) -> String {
    let lines: Vec<_> = response
        .headers()
        .get_all(name)
        .iter()
        .map(|line| line.to_str().unwrap())
        .collect();
    lines.join(", ")
}

pub(crate) async fn body(response: TestResponse) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Captures the events of one level on this thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logged {
    /// `None` captures nothing.
    level: Option<tracing::Level>,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Logged {
    /// Captures until the guard is dropped.
    pub(crate) fn at(level: tracing::Level) -> (Self, DefaultGuard) {
        // Tracing caches interest in an event by the first thread that emits it. A second, global
        // subscriber disables that cache when another test without a subscriber is first.
        static GLOBAL: Once = Once::new();
        GLOBAL.call_once(|| set_global_default(Self::default()).unwrap());
        let logged = Self {
            level: Some(level),
            lines: Arc::default(),
        };
        let guard = set_default(logged.clone());
        (logged, guard)
    }

    pub(crate) fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// The fields of every event, as `name=value` separated by spaces.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|Line(text)| text.clone()).collect()
    }
}

#[derive(Debug, Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Logged {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.level == Some(*metadata.level())
    }

    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.lines.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Polls a future at most `polls` times, advances time and calls `happens` after each, and drops
/// it. Returns its output if it completed.
pub(crate) async fn poll_and_drop<F: Future>(
    future: F,
    polls: u32,
    pause: Duration,
    happens: impl Fn(u32),
) -> Option<F::Output> {
    let mut future = pin!(future);
    for poll in 1..=polls {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::time::advance(pause).await;
        happens(poll);
    }
    None
}
