//! What all connections are served with.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, Response, Version, header},
};
use hyper::{
    body::{Body as _, Incoming},
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::TokioExecutor;
use tower::Service as _;

use super::{
    activity::Activity,
    bodies::{Asked, Told},
};
use crate::util::guarded_body::GuardedBody;

/// How many bytes of an HTTP/1 connection are read ahead at most; so many a head may have, too.
const READ_AHEAD: usize = 64 * 1024;

/// How many bytes of bodies an HTTP/2 peer may send before a handler has read them. h2 keeps them, in no room that is counted, also while
/// it is not known yet who sends them; so it is a quarter of hyper's usual window. A body of 4 MiB that is alone on its connection still arrives
/// within its ten seconds where a round trip takes 300 ms; several at one time share the window.
const WINDOW: u32 = 256 * 1024;

/// What all connections are served with, and how many of them are awake: in the hands of hyper. One that has answered a request and
/// waits for the next holds a buffer of 16 KiB to read into and one of 8 KiB to write from, and 2 KiB of all else (heaptrack, hyper
/// 1.12); 18 KiB of that are resident. At rest it has 1.4 KiB. By TLS it has 8 KiB more in
/// either state, half of them the buffer that rustls reads into.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<TokioExecutor>,
    router: Router,
    rest: Rest,
    awake: AtomicUsize,
}

/// When a connection that nobody uses is taken out of hyper's hands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// After so long without a request.
    pub(super) after: Duration,
    /// At once, while more than so many are awake.
    pub(super) most_awake: usize,
}

impl Default for Rest {
    /// A client that sends several requests in a row, or many a second, finds its connection awake; and however many connect at one time,
    /// no more than 18 MiB go to connections that may not be used again.
    fn default() -> Self {
        Self {
            after: Duration::from_secs(1),
            most_awake: 1_000,
        }
    }
}

impl Serving {
    /// HTTP/2 peers are sent no pings to see whether they are still there: a peer that is gone shows as idle, or as one that does not take
    /// its answer, and both have their limits.
    pub(super) fn new(router: Router, rest: Rest) -> Self {
        let mut http1 = http1::Builder::new();
        http1.max_buf_size(READ_AHEAD);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .max_concurrent_streams(256)
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_header_list_size(16 * 1024);
        Self {
            http1,
            http2,
            router,
            rest,
            awake: AtomicUsize::new(0),
        }
    }

    /// Answers the requests of one connection, and notes in its activity what is under way.
    pub(super) fn service(
        &self,
        activity: Arc<Activity>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<GuardedBody<Told>>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<GuardedBody<Told>>, Infallible>> + Send + use<>,
    > + use<> {
        let router = self.router.clone();
        service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = activity.peer() {
                request.extensions_mut().insert(peer);
            }
            let is_http2 = request.version() == Version::HTTP_2;
            let under_way = activity.begin(is_http2);
            let request = request.map(|body| {
                if body.is_end_stream() {
                    Body::new(body)
                } else {
                    Body::new(Asked::new(body, Arc::clone(&activity)))
                }
            });
            let told = Arc::clone(&activity);
            let answer = router.clone().call(request);
            async move {
                let Ok(mut answer) = answer.await;
                if told.is_draining() && !is_http2 {
                    let last = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, last);
                }
                let answer = answer.map(|body| GuardedBody::new(body, Told::new(told)));
                drop(under_way);
                Ok(answer)
            }
        })
    }

    /// Counts a connection as awake, until the guard is dropped.
    pub(super) fn wakes(self: &Arc<Self>) -> Awake {
        self.awake.fetch_add(1, Relaxed);
        Awake(Arc::clone(self))
    }

    /// How many are awake.
    #[cfg(test)]
    pub(super) fn awake(&self) -> usize {
        self.awake.load(Relaxed)
    }

    /// Whether so many are awake that those without a request should not stay so.
    pub(super) fn is_crowded(&self) -> bool {
        self.awake.load(Relaxed) > self.rest.most_awake
    }

    /// How long a connection stays awake without a request, as things stand now.
    pub(super) fn rests_after(&self) -> Duration {
        if self.is_crowded() {
            Duration::ZERO
        } else {
            self.rest.after
        }
    }
}

/// A connection that is awake.
#[derive(Debug)]
pub(super) struct Awake(Arc<Serving>);

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.awake.fetch_sub(1, Relaxed);
    }
}
