//! A stream that tells when bytes move, and gives back what was read ahead of its turn.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;

#[derive(Debug)]
pub(super) struct Watched<S> {
    ahead: Bytes,
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            ahead: Bytes::new(),
            stream,
            activity,
        }
    }

    /// What it tells.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// What was read ahead: it is read again before everything else.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Gives back what was read last of all, to be read again.
    pub(super) fn give_back(&mut self, bytes: &[u8]) {
        // A copy, since what is given back may be a small part of a large buffer, or none of it.
        self.ahead = [bytes, &self.ahead].concat().into();
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Reads on, for at most so many bytes more to be ahead. Returns how many there are: none at the end of the stream.
    pub(super) fn poll_ahead<const MOST: usize>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut bytes = [0; MOST];
        let mut more = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut more))?;
        let more = more.filled();
        if !more.is_empty() {
            self.activity.received();
            self.ahead = [&self.ahead, more].concat().into();
        }
        Poll::Ready(Ok(more.len()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let len = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(len));
            self.activity.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.activity.sends();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.activity.sends();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // hyper flushes only when it has written everything that it has.
        self.activity.sent();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.activity.sends();
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
