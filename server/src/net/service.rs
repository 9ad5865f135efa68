//! The HTTP settings of all connections, and the service that records requests and responses.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, Request, Version, header},
};
use bytes::Bytes;
use doorman_openapi::Moment;
use futures_util::future::{Either, FutureExt};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::{http1, http2},
    service::{Service, service_fn},
};
use hyper_util::rt::TokioExecutor;
use tower::Service as _;

use super::{
    activity::{Activity, ResponseGuard},
    request_slot::{HttpResponse, RequestSlot, short_head},
};
use crate::util::{clock, guarded_body::GuardedBody};

/// Read buffer of an HTTP/1 connection, which also limits the size of a head.
const MAX_BUFFER: usize = 64 * 1024;

/// HTTP/2 window of a connection and of each stream: a quarter of hyper's default, because h2
/// buffers this much of unread bodies before the caller is known. A lone body of 4 MiB arrives
/// within its ten seconds at a round trip of 300 ms.
const HTTP2_WINDOW: u32 = 256 * 1024;

/// Settings of all connections, and the number of those that hyper serves.
///
/// Between two requests a connection in hyper takes 18 KiB of resident memory (16 KiB read buffer,
/// 8 KiB write buffer; hyper 1.12), a parked one 1.4 KiB. TLS adds 8 KiB to both. A request whose
/// handler waits keeps another 8 KiB in hyper, which its head shares.
#[derive(Debug)]
pub(super) struct HttpServer {
    pub(super) http1: http1::Builder,
    pub(super) http2: http2::Builder<TokioExecutor>,
    router: Router,
    parking: Parking,
    active: AtomicUsize,
}

/// When a connection is parked that is idle, or whose only request waits for its handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parking {
    /// After this time of either.
    pub(super) idle_time: Duration,
    /// Immediately, while more connections than this are active.
    pub(super) max_active: usize,
}

impl Default for Parking {
    /// A client that sends several requests per second keeps its connection active. At most 18 MiB
    /// go to active connections that are idle.
    fn default() -> Self {
        Self {
            idle_time: Duration::from_secs(1),
            max_active: 1_000,
        }
    }
}

impl HttpServer {
    /// HTTP/2 peers are sent no pings: a lost peer is closed by the idle or the response timeout.
    pub(super) fn new(router: Router, parking: Parking) -> Self {
        let mut http1 = http1::Builder::new();
        http1.max_buf_size(MAX_BUFFER);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .max_concurrent_streams(256)
            .initial_connection_window_size(HTTP2_WINDOW)
            .initial_stream_window_size(HTTP2_WINDOW)
            .max_header_list_size(16 * 1024);
        Self {
            http1,
            http2,
            router,
            parking,
            active: AtomicUsize::new(0),
        }
    }

    /// The service of one connection. It records requests and responses in the activity. HTTP/1
    /// has a slot, for requests with which the connection can be parked.
    pub(super) fn service(
        &self,
        activity: Arc<Activity>,
        slot: Option<RequestSlot>,
    ) -> impl Service<
        Request<Incoming>,
        Response = HttpResponse,
        Error = Infallible,
        Future = impl Future<Output = Result<HttpResponse, Infallible>> + Send + use<>,
    > + use<> {
        let router = self.router.clone();
        service_fn(move |mut request: Request<Incoming>| {
            if let Some(slot) = &slot
                && slot.is_answered()
            {
                return Either::Left(slot.clone().response().map(Ok));
            }
            if let Some(peer) = activity.peer {
                request.extensions_mut().insert(peer);
            }
            let is_http2 = request.version() == Version::HTTP_2;
            let in_progress = activity.begin_request(is_http2);
            let can_park = *request.method() == Method::GET && request.body().is_end_stream();
            let parkable = slot.as_ref().filter(|_| can_park).map(|slot| {
                activity.allow_parking(clock::now());
                (slot.clone(), short_head(&request))
            });
            let request = request.map(|body| {
                if body.is_end_stream() {
                    Body::new(body)
                } else {
                    Body::new(RequestBody::new(body, Arc::clone(&activity)))
                }
            });
            let activity = Arc::clone(&activity);
            let response = router.clone().call(request);
            let handler = async move {
                let Ok(mut response) = response.await;
                if is_http2 {
                    // That header is one of HTTP/1. Its meaning is GOAWAY.
                    if asks_to_close(&response.headers_mut().remove(header::CONNECTION)) {
                        activity.close();
                    }
                } else if activity.is_draining() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                let no_timeout = response.extensions().get();
                let guard = ResponseGuard::new(activity, no_timeout);
                let response = response.map(|body| GuardedBody::new(body, guard));
                drop(in_progress);
                response
            };
            match parkable {
                Some((slot, head)) => {
                    slot.start(head, Box::pin(handler));
                    Either::Left(slot.response().map(Ok))
                }
                None => Either::Right(handler.map(Ok)),
            }
        })
    }

    /// Counts a connection as active until the guard is dropped.
    pub(super) fn activate(self: &Arc<Self>) -> ActiveGuard {
        self.active.fetch_add(1, Relaxed);
        ActiveGuard(Arc::clone(self))
    }

    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Whether too many connections are active for idle ones to stay so.
    pub(super) fn is_crowded(&self) -> bool {
        self.active.load(Relaxed) > self.parking.max_active
    }

    /// The idle time after which a connection is parked, as things are now.
    pub(super) fn park_after(&self) -> Duration {
        if self.is_crowded() {
            Duration::ZERO
        } else {
            self.parking.idle_time
        }
    }
}

fn asks_to_close(connection: &Option<HeaderValue>) -> bool {
    let options = connection.as_ref().and_then(|it| it.to_str().ok());
    let mut options = options.unwrap_or_default().split(',');
    options.any(|option| option.trim().eq_ignore_ascii_case("close"))
}

#[derive(Debug)]
pub(super) struct ActiveGuard(Arc<HttpServer>);

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Relaxed);
    }
}

/// A request body that records in the activity when it ends.
#[derive(Debug)]
struct RequestBody {
    body: Incoming,
    has_ended: bool,
    since: Moment,
    activity: Arc<Activity>,
}

impl RequestBody {
    fn new(body: Incoming, activity: Arc<Activity>) -> Self {
        let since = clock::now();
        activity.begin_request_body(since);
        Self {
            body,
            has_ended: false,
            since,
            activity,
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) {
            self.has_ended = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let is_read = self.has_ended || self.body.is_end_stream();
        self.activity.end_request_body(self.since, is_read);
    }
}
