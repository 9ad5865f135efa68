//! Serves one connection.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use axum::{
    Router,
    body::Body,
    http::{Request, Version},
};
use doorman_openapi::Moment;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};
use tower::Service;

use super::{
    patience::{Activity, HEAD_TIMEOUT, IDLE_TIMEOUT, Patience},
    watched::Watched,
};
use crate::clock;

/// How many bytes of an HTTP/1 connection are read ahead at most; so many a head may have, too.
const READ_AHEAD: usize = 64 * 1024;

/// What all connections are served with.
///
/// HTTP/2 peers are not asked by pings whether they are still there: the answers would keep a connection open for ever that nobody
/// uses, and a peer that is gone is idle, or does not take its answer.
pub(super) fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(READ_AHEAD);
    builder
        .http2()
        .max_concurrent_streams(256)
        .max_header_list_size(16 * 1024);
    builder
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself: its peer closed it, our patience was over, or what was under way when the server stopped was answered.
    Over,
    /// To make room for others.
    GaveWay,
}

/// Serves a connection to its end: the peer's, the end of our patience, the end of what is under way when `draining` turns true, or
/// as soon as it is asked to give way while it waits for its peer.
pub(super) async fn serve(
    builder: Arc<Builder<TokioExecutor>>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    activity: Arc<Activity>,
    router: Router,
    mut draining: watch::Receiver<bool>,
) -> Ended {
    let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
    let told = Arc::clone(&activity);
    let service = service_fn(move |request: Request<Incoming>| {
        let under_way = UnderWay::begin(&told, request.version() == Version::HTTP_2);
        let answer = router.clone().call(request.map(Body::new));
        async move {
            let answer = answer.await;
            drop(under_way);
            answer
        }
    });

    let mut connection = pin!(builder.serve_connection(io, service));
    let mut drain = pin!(draining.wait_for(|draining| *draining));
    let mut closing = false;

    let start = clock::now();
    let mut patience = Patience::new(start);
    let mut rings = start.after(HEAD_TIMEOUT);
    let mut timer = pin!(sleep(HEAD_TIMEOUT));

    poll_fn(|cx| {
        activity.calls(cx.waker());
        // First what has come in already: it is under way when the drain begins, and when others need room.
        let mut served = connection.as_mut().poll(cx);
        if served.is_pending() && !closing && drain.as_mut().poll(cx).is_ready() {
            closing = true;
            connection.as_mut().graceful_shutdown();
            served = connection.as_mut().poll(cx);
        }
        if let Poll::Ready(served) = served {
            if let Err(error) = served {
                tracing::debug!(error, "a connection broke off");
            }
            return Poll::Ready(Ended::Over);
        }
        let now = clock::now();
        let until = patience.until(&activity, now);
        if until <= now {
            return Poll::Ready(Ended::Over);
        }
        if activity.was_asked_to_give_way() && activity.waits_since() != Moment::NEVER {
            return Poll::Ready(Ended::GaveWay);
        }
        // The timer may ring too early, since it is not set anew each time that something moves, but never too late.
        if until < rings {
            rings = until;
            timer.set(sleep(until.since(now)));
        }
        while timer.as_mut().poll(cx).is_ready() {
            rings = until.min(now.after(IDLE_TIMEOUT));
            timer.set(sleep(rings.since(now)));
        }
        Poll::Pending
    })
    .await
}

/// A request under way, until it is dropped.
struct UnderWay(Arc<Activity>);

impl UnderWay {
    fn begin(activity: &Arc<Activity>, interleaved: bool) -> Self {
        activity.begin(interleaved);
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end();
    }
}
