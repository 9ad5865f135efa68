//! A connection's stream: records reads and writes, and returns bytes that were read ahead.

use std::{
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::activity::Activity;

/// How long a shutdown waits for the peer to close its end. Closing a socket with unread bytes
/// resets it, and the peer may lose the last response (RFC 9112, 9.6).
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The first bytes of an HTTP/2 connection (RFC 9113, 3.4).
pub(super) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

#[derive(Debug)]
pub(super) struct Opened<S> {
    pub(super) stream: S,
    /// The protocol that ALPN selected, if any.
    pub(super) protocol: Option<Protocol>,
}

/// A stream that records its reads and writes in an [`Activity`]. A write is complete only when the
/// system has the bytes: rustls buffers up to 64 KiB, and an unread response would seem to be
/// taken.
#[derive(Debug)]
pub(super) struct TrackedStream<S: AsyncRead + AsyncWrite + Unpin> {
    /// Bytes that are read first, and are not the peer's.
    inserted: Bytes,
    /// Bytes that were read ahead, and are read again before all others.
    pub(super) peeked: Bytes,
    stream: S,
    /// Bytes of the current write that the stream has taken.
    buffered: usize,
    pub(super) activity: Arc<Activity>,
    /// Set when the write end is closed: until then the peer may close its end.
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TrackedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            inserted: Bytes::new(),
            peeked: Bytes::new(),
            stream,
            buffered: 0,
            activity,
            linger: None,
        }
    }

    pub(super) fn unread(&mut self, bytes: &[u8]) {
        // A copy: `bytes` may be a small part of a large buffer.
        self.peeked = [bytes, &self.peeked].concat().into();
    }

    /// Makes the next read return `bytes`.
    pub(super) fn insert(&mut self, bytes: Vec<u8>) {
        self.inserted = bytes.into();
    }

    /// A caller that gets `Pending` calls again with the same bytes, which are not written again.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.activity.on_write();
        let mut stream = Pin::new(&mut self.stream);
        if self.buffered == 0 {
            self.buffered = ready!(write(stream.as_mut(), cx))?;
        }
        ready!(stream.poll_flush(cx))?;
        Poll::Ready(Ok(mem::take(&mut self.buffered)))
    }

    /// Reads more bytes into [`Self::peeked`], by way of `buf`. Returns how many: 0 at the end.
    pub(super) fn poll_peek(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        let bytes = buf.filled();
        if !bytes.is_empty() {
            self.activity.on_read();
            self.peeked = [&self.peeked, bytes].concat().into();
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.inserted.is_empty() {
            move_bytes(&mut self.inserted, buf);
            return Poll::Ready(Ok(()));
        }
        if !self.peeked.is_empty() {
            move_bytes(&mut self.peeked, buf);
            self.activity.on_read();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.on_read();
        }
        Poll::Ready(Ok(()))
    }
}

fn move_bytes(from: &mut Bytes, to: &mut ReadBuf<'_>) {
    let len = from.len().min(to.remaining());
    to.put_slice(&from.split_to(len));
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // hyper flushes only when it has written everything.
        self.activity.on_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            stream,
            activity,
            linger,
            ..
        } = &mut *self;
        activity.on_write();
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !activity.is_draining() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        // The timer first: a peer that keeps sending uses up the budget of `tokio::task::coop`.
        if linger.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut discarded = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut discarded);
            match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// TLS sends a `close_notify` if the socket takes it immediately.
impl<S: AsyncRead + AsyncWrite + Unpin> Drop for TrackedStream<S> {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        drop(Pin::new(&mut self.stream).poll_shutdown(&mut cx));
    }
}
