//! TLS handshakes, and the stream that a handshake makes.

use std::{
    io, mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};

use doorman_openapi::{Problem, ProblemType};
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf, copy, sink,
};
use tokio_rustls::{TlsAcceptor, server};

use super::Tls;
use crate::net::stream::{Opened, Protocol};

/// Accepts a handshake with the certificate that is active at its first byte. `None` when it fails.
/// The caller limits the time.
///
/// # Cancel safety
/// The connection is closed when it is dropped.
pub(in crate::net) async fn accept<S>(tls: Arc<Tls>, stream: S) -> Option<Opened<TlsStream<S>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let handshake = tls.handshakes.begin();
    // One byte distinguishes TLS from HTTP; later bytes bypass this buffer.
    let mut stream = BufReader::with_capacity(1, stream);
    let accepted = match stream.fill_buf().await {
        Ok([]) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok([first, ..]) if first.is_ascii_uppercase() => {
            handshake.fail();
            tracing::debug!("request without TLS rejected");
            reject_plain_http(stream).await;
            return None;
        }
        Ok(_) => {
            let config = Arc::clone(&tls.active.load().config);
            TlsAcceptor::from(config).accept(stream).await
        }
        Err(error) => Err(error),
    };
    match accepted {
        Ok(stream) => {
            handshake.complete();
            let protocol = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Some(Protocol::Http2),
                Some(_) => Some(Protocol::Http1),
                None => None,
            };
            let stream = TlsStream::new(stream);
            Some(Opened { stream, protocol })
        }
        Err(error) => {
            handshake.fail();
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// Answers HTTP without TLS: all methods begin with a capital letter, and no handshake does.
async fn reject_plain_http<S: AsyncRead + AsyncWrite + Unpin>(mut stream: BufReader<S>) {
    let problem = Problem::new(
        ProblemType::MalformedRequest,
        "this port requires TLS; use an https:// address",
    );
    // Text and numbers always serialize.
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        Problem::MEDIA_TYPE,
        body.len()
    );
    if stream.write_all(response.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        // Closing a socket with unread bytes resets it, and the client may lose the response
        // (RFC 9112, 9.6).
        copy(&mut stream, &mut sink()).await.ok();
    }
}

/// Counters of handshake outcomes; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandshakeMetrics(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    completed: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandshakeCounts {
    pub(crate) completed: u64,
    /// One side rejected the other, or the connection broke.
    pub(crate) failed: u64,
    /// Timeout, eviction or shutdown.
    pub(crate) abandoned: u64,
}

impl HandshakeMetrics {
    fn begin(&self) -> Handshake<'_> {
        Handshake {
            counters: &self.0,
            outcome: &self.0.abandoned,
        }
    }

    pub(crate) fn counts(&self) -> HandshakeCounts {
        let Counters {
            completed,
            failed,
            abandoned,
        } = &*self.0;
        HandshakeCounts {
            completed: completed.load(Relaxed),
            failed: failed.load(Relaxed),
            abandoned: abandoned.load(Relaxed),
        }
    }
}

/// A handshake in progress. Counts as abandoned when it is dropped.
#[derive(Debug)]
struct Handshake<'a> {
    counters: &'a Counters,
    outcome: &'a AtomicU64,
}

impl Handshake<'_> {
    fn complete(mut self) {
        self.outcome = &self.counters.completed;
    }

    fn fail(mut self) {
        self.outcome = &self.counters.failed;
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        self.outcome.fetch_add(1, Relaxed);
    }
}

/// An encrypted stream. Its drop sends a `close_notify` if the socket takes it immediately. A write
/// is complete only when the system has the bytes: rustls buffers up to 64 KiB, and
/// an unread response would seem to be taken.
#[derive(Debug)]
pub(in crate::net) struct TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Boxed because it moves whenever its connection is parked and resumed.
    stream: Box<server::TlsStream<BufReader<S>>>,
    /// Bytes of the current write that rustls has taken.
    buffered: usize,
}

impl<S> TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn new(stream: server::TlsStream<BufReader<S>>) -> Self {
        Self {
            stream: Box::new(stream),
            buffered: 0,
        }
    }

    fn inner(&mut self) -> Pin<&mut server::TlsStream<BufReader<S>>> {
        Pin::new(&mut self.stream)
    }

    /// A caller that gets `Pending` calls again with the same bytes, which are not written again.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(
            Pin<&mut server::TlsStream<BufReader<S>>>,
            &mut Context<'_>,
        ) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.buffered == 0 {
            self.buffered = ready!(write(self.inner(), cx))?;
        }
        ready!(self.inner().poll_flush(cx))?;
        Poll::Ready(Ok(mem::take(&mut self.buffered)))
    }
}

impl<S> AsyncRead for TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buf)
    }
}

impl<S> AsyncWrite for TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
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
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}

impl<S> Drop for TlsStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        drop(self.inner().poll_shutdown(&mut cx));
    }
}
