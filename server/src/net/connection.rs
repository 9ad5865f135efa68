//! One connection from open to close: alternately parked and served by hyper.
//!
//! A parked connection is outside of hyper, which keeps two buffers per connection. It is parked
//! before its first byte, when it has been idle for a while, and when a request without a body has
//! waited for its handler for a while. Bytes of the next request that hyper has read are kept.

use std::{
    error::Error,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use hyper::server::conn::http1::Parts;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};

use super::{
    activity::Activity,
    control_frames::LimitedStream,
    request_slot::RequestSlot,
    service::HttpServer,
    stream::{HTTP2_PREFACE, Opened, Protocol, TrackedStream},
    supervisor::{Action, Closed, Supervisor},
};

/// Serves a connection until it is closed. `open` makes its stream; `draining` turns true when the
/// server shuts down.
pub(super) async fn serve<S>(
    server: Arc<HttpServer>,
    open: impl Future<Output = Option<Opened<S>>>,
    activity: Arc<Activity>,
    mut draining: watch::Receiver<bool>,
) -> Closed
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shutdown = pin!(draining.wait_for(|draining| *draining));
    let timer = pin!(sleep(Duration::ZERO));
    let mut supervisor = Supervisor::new(Arc::clone(&activity), timer, shutdown);
    let Opened {
        stream,
        mut protocol,
    } = match wait_open(open, &mut supervisor).await {
        Ok(opened) => opened,
        Err(closed) => return closed,
    };
    activity.on_open();
    let mut stream = TrackedStream::new(stream, activity);
    let slot = RequestSlot::default();
    loop {
        let parked = if slot.is_running() {
            wait_answered(&mut stream, &slot, &mut supervisor).await
        } else {
            park(&mut stream, protocol, &mut supervisor).await
        };
        // Boxed, so that the task of a parked connection is small.
        let served = match parked {
            Ok(Protocol::Http1) => {
                Box::pin(serve_http1(&server, stream, &slot, &mut supervisor)).await
            }
            Ok(Protocol::Http2) => {
                Err(Box::pin(serve_http2(&server, stream, &mut supervisor)).await)
            }
            Err(closed) => Err(closed),
        };
        stream = match served {
            Ok(stream) => stream,
            Err(closed) => return closed,
        };
        protocol = Some(Protocol::Http1);
    }
}

/// Waits for the handshake, with the timeout of a head.
async fn wait_open<S, D: Future>(
    open: impl Future<Output = Option<Opened<S>>>,
    supervisor: &mut Supervisor<'_, D>,
) -> Result<Opened<S>, Closed> {
    let mut open = pin!(open);
    poll_fn(|cx| {
        if let Poll::Ready(opened) = open.as_mut().poll(cx) {
            return Poll::Ready(opened.ok_or(Closed::Done));
        }
        poll_closed(supervisor, cx, true).map(Err)
    })
    .await
}

/// Waits until a connection that is not in hyper is to be closed.
fn poll_closed<D: Future>(
    supervisor: &mut Supervisor<'_, D>,
    cx: &mut Context<'_>,
    is_idle: bool,
) -> Poll<Closed> {
    loop {
        match ready!(supervisor.poll(cx, None)) {
            Action::Close(closed) => return Poll::Ready(closed),
            Action::CloseIdle if is_idle => return Poll::Ready(Closed::Done),
            Action::Drain | Action::CloseIdle | Action::Park => {}
        }
    }
}

async fn park<S, D>(
    stream: &mut TrackedStream<S>,
    protocol: Option<Protocol>,
    supervisor: &mut Supervisor<'_, D>,
) -> Result<Protocol, Closed>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Future,
{
    poll_fn(|cx| {
        if let Poll::Ready(result) = poll_protocol(stream, protocol, cx) {
            let protocol = result.inspect_err(|error| tracing::debug!(%error, "connection error"));
            return Poll::Ready(protocol.ok().flatten().ok_or(Closed::Done));
        }
        // A request that has begun may be completed.
        poll_closed(supervisor, cx, stream.peeked.is_empty()).map(Err)
    })
    .await
}

/// Waits until the handler of a parked connection's request has returned. Then hyper is to read
/// from `stream`, and gets the response from `slot`.
async fn wait_answered<S, D>(
    stream: &mut TrackedStream<S>,
    slot: &RequestSlot,
    supervisor: &mut Supervisor<'_, D>,
) -> Result<Protocol, Closed>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Future,
{
    poll_fn(|cx| {
        if let Poll::Ready(head) = slot.poll_answered(cx) {
            stream.insert(head);
            return Poll::Ready(Ok(Protocol::Http1));
        }
        // As in hyper: a peer that closes its end takes no response, and the next request waits.
        if stream.peeked.is_empty()
            && let Poll::Ready(Ok(0) | Err(_)) = stream.poll_peek(cx, &mut [0; 16])
        {
            return Poll::Ready(Err(Closed::Done));
        }
        // During a shutdown the service adds `connection: close` to the response.
        poll_closed(supervisor, cx, false).map(Err)
    })
    .await
}

/// Waits for bytes that tell the protocol, unless it is known; `None` at the end of the stream.
fn poll_protocol<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut TrackedStream<S>,
    known: Option<Protocol>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<Protocol>>> {
    loop {
        if let Some(protocol) = detect_protocol(&stream.peeked, known) {
            return Poll::Ready(Ok(Some(protocol)));
        }
        if ready!(stream.poll_peek(cx, &mut [0; HTTP2_PREFACE.len()]))? == 0 {
            // hyper answers a request that ends early.
            let has_begun = !stream.peeked.is_empty();
            return Poll::Ready(Ok(has_begun.then_some(Protocol::Http1)));
        }
    }
}

/// The protocol of a stream that begins with `bytes`; `None` when more bytes are needed.
fn detect_protocol(bytes: &[u8], known: Option<Protocol>) -> Option<Protocol> {
    if bytes.is_empty() {
        return None;
    }
    if known.is_some() {
        return known;
    }
    if bytes.starts_with(HTTP2_PREFACE) {
        return Some(Protocol::Http2);
    }
    (!HTTP2_PREFACE.starts_with(bytes)).then_some(Protocol::Http1)
}

/// Serves HTTP/1 until the connection is closed, or returns its stream to be parked. A connection
/// with an unread request body cannot be parked and is closed instead.
async fn serve_http1<S, D>(
    server: &Arc<HttpServer>,
    stream: TrackedStream<S>,
    slot: &RequestSlot,
    supervisor: &mut Supervisor<'_, D>,
) -> Result<TrackedStream<S>, Closed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Future,
{
    let _active = server.activate();
    let activity = Arc::clone(&stream.activity);
    let service = server.service(Arc::clone(&activity), Some(slot.clone()));
    let mut connection = server.http1.serve_connection(TokioIo::new(stream), service);
    let mut pinned = Pin::new(&mut connection);
    let mut is_closing = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = pinned.as_mut().poll(cx) {
                return Poll::Ready(Err(done(result)));
            }
            let park_after = (!is_closing).then(|| server.park_after());
            match ready!(supervisor.poll(cx, park_after)) {
                // The service adds `connection: close` to the next response.
                Action::Drain => {}
                // A request that has begun may be completed.
                Action::CloseIdle if activity.head_started() => {}
                Action::CloseIdle => pinned.as_mut().graceful_shutdown(),
                // Only hyper knows where that body ends.
                Action::Park if activity.has_unread_body() => {
                    is_closing = true;
                    pinned.as_mut().graceful_shutdown();
                }
                Action::Park => return Poll::Ready(Ok(())),
                Action::Close(closed) => return Poll::Ready(Err(closed)),
            }
        }
    })
    .await?;

    let unserved = |parts: Parts<TokioIo<TrackedStream<S>>, _>| {
        let mut stream = parts.io.into_inner();
        stream.unread(&parts.read_buf);
        stream
    };
    if slot.is_running() {
        // Nothing is left to read of this request, nor to write of the last response.
        return Ok(unserved(connection.into_parts()));
    }
    // Between two requests a graceful shutdown completes immediately, without another read.
    pinned.graceful_shutdown();
    match connection.without_shutdown().now_or_never() {
        Some(Ok(parts)) => Ok(unserved(parts)),
        Some(Err(error)) => Err(done(Err(error))),
        None => Err(Closed::Done),
    }
}

/// Serves HTTP/2 until the connection is closed. It cannot be taken out of hyper, so it is closed
/// when it is idle and too many connections are active.
async fn serve_http2<S, D>(
    server: &Arc<HttpServer>,
    stream: TrackedStream<S>,
    supervisor: &mut Supervisor<'_, D>,
) -> Closed
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Future,
{
    let activity = Arc::clone(&stream.activity);
    let mut stream = LimitedStream::new(stream);
    let error = match drive_http2(server, &mut stream, &activity, supervisor).await {
        Ok(closed) => return closed,
        Err(error) => error,
    };
    let is_flood = stream.is_exceeded();
    let is_invalid = is_protocol_error(&error);
    let closed = done(Err(error));
    if !is_flood && !is_invalid {
        return closed;
    }
    activity.linger();
    let mut close = pin!(stream.close());
    let closed = poll_fn(|cx| match close.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(closed),
        Poll::Pending => poll_closed(supervisor, cx, true),
    })
    .await;
    if is_flood {
        let evicted = closed == Closed::Evicted;
        return Closed::Flooded { evicted };
    }
    closed
}

/// Whether h2 ended the connection because of what its peer sent.
fn is_protocol_error(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|it| it.downcast_ref());
    source.is_some_and(|it: &h2::Error| it.is_go_away() && it.is_library())
}

/// Drives hyper until the connection ends.
async fn drive_http2<S, D>(
    server: &Arc<HttpServer>,
    stream: &mut LimitedStream<TrackedStream<S>>,
    activity: &Arc<Activity>,
    supervisor: &mut Supervisor<'_, D>,
) -> hyper::Result<Closed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: Future,
{
    let _active = server.activate();
    // A shutdown may have begun before the connection was in hyper.
    let mut is_closing = activity.is_draining();
    let service = server.service(Arc::clone(activity), None);
    let mut connection = pin!(server.http2.serve_connection(TokioIo::new(stream), service));
    if is_closing {
        connection.as_mut().graceful_shutdown();
    }
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(result.map(|()| Closed::Done));
            }
            let park_after = (!is_closing && server.is_crowded()).then_some(Duration::ZERO);
            match ready!(supervisor.poll(cx, park_after)) {
                // Sends GOAWAY; requests that were sent before the peer has it are answered.
                Action::Drain | Action::Park => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                Action::CloseIdle if activity.is_quiet() => return Poll::Ready(Ok(Closed::Done)),
                Action::CloseIdle => {}
                Action::Close(closed) => return Poll::Ready(Ok(closed)),
            }
        }
    })
    .await
}

fn done(result: hyper::Result<()>) -> Closed {
    if let Err(error) = result {
        tracing::debug!(%error, "connection error");
    }
    Closed::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http2_is_detected_by_its_whole_preface() {
        for (bytes, protocol) in [
            (&b""[..], None),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (HTTP2_PREFACE, Some(Protocol::Http2)),
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore",
                Some(Protocol::Http2),
            ),
            (b"G", Some(Protocol::Http1)),
            (b"PO", Some(Protocol::Http1)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", Some(Protocol::Http1)),
        ] {
            assert_eq!(detect_protocol(bytes, None), protocol, "{bytes:?}");
        }
        let http1 = Some(Protocol::Http1);
        assert_eq!(detect_protocol(b"P", http1), http1);
        assert_eq!(detect_protocol(b"", http1), None);
    }
}
