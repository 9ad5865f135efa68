//! A stream that tells when bytes move, and gives back what was read ahead of its turn.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::activity::Activity;

/// How long to wait, when the server stops, for a peer to take notice that the connection has ended. A system resets connections that are
/// closed on bytes which nobody has read, and a peer that was just asking the next thing might miss the last answer for it (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Watched<S> {
    ahead: Bytes,
    stream: S,
    activity: Arc<Activity>,
    /// Our end is closed, and the peer's is waited for until then.
    lingers: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            ahead: Bytes::new(),
            stream,
            activity,
            lingers: None,
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
        let Self {
            stream,
            activity,
            lingers,
            ..
        } = &mut *self;
        activity.sends();
        if lingers.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !activity.is_draining() {
                return Poll::Ready(Ok(()));
            }
        }
        let lingers = lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        // First: a peer that never pauses leaves the task no budget to look at the time (tokio, `task::coop`).
        if lingers.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [0; 1024];
        loop {
            let mut unread = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut unread) {
                Poll::Ready(Ok(())) if !unread.filled().is_empty() => {}
                // Who breaks it off has taken notice, too.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
