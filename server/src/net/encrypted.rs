//! A stream within TLS.

use std::{
    io, mem,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_rustls::server::TlsStream;

/// A stream within TLS. However it ends, its peer is sent a `close_notify`, if the system takes it at once.
///
/// Bytes count as written only when the system has them, and not when rustls has: it would keep up to 64 KiB of an answer that nobody
/// reads, and the answer would count as taken.
#[derive(Debug)]
pub(super) struct Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// On the heap, since it is moved whenever its connection goes to rest and wakes.
    stream: Box<TlsStream<BufReader<S>>>,
    /// How many bytes rustls has taken of those that are being written.
    taken: usize,
}

impl<S> Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    pub(super) fn new(stream: TlsStream<BufReader<S>>) -> Self {
        Self {
            stream: Box::new(stream),
            taken: 0,
        }
    }

    fn inner(&mut self) -> Pin<&mut TlsStream<BufReader<S>>> {
        Pin::new(&mut self.stream)
    }

    /// Whoever writes and is told to wait comes back with the same bytes, to which `take` is not put again.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(
            Pin<&mut TlsStream<BufReader<S>>>,
            &mut Context<'_>,
        ) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            self.taken = ready!(take(self.inner(), cx))?;
        }
        ready!(self.inner().poll_flush(cx))?;
        Poll::Ready(Ok(mem::take(&mut self.taken)))
    }
}

impl<S> AsyncRead for Encrypted<S>
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

impl<S> AsyncWrite for Encrypted<S>
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

impl<S> Drop for Encrypted<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    fn drop(&mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        // Nobody is left to wait for it: a peer whose window is full sees only that the stream ends.
        drop(self.inner().poll_shutdown(&mut nobody));
    }
}
