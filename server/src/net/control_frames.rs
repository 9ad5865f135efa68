//! Limit on HTTP/2 control frames, by which one connection could keep a core busy: a peer may send
//! SETTINGS, PING or WINDOW_UPDATE without pause, and hyper handles and answers each.
//!
//! h2 limits what takes memory: header blocks, resets of requests that wait, empty and unread DATA,
//! invalid streams. This limit counts all other frames that are neither requests nor their bodies.
//! It reads their headers as the bytes pass, without a lock or an allocation.

use std::{
    future::pending,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use doorman_openapi::Moment;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout,
};

use super::stream::{HTTP2_PREFACE, LINGER};
use crate::util::clock;

/// A connection may send this many control frames at once, and one per [`FRAME_INTERVAL`]. Enough to
/// cancel all requests in progress.
const MAX_BURST: u32 = 600;
const FRAME_INTERVAL: Duration = Duration::from_millis(10);

/// A request allows one more: the DATA frame that ends it may be empty.
const PER_REQUEST: u32 = 1;

/// Control frames as which RST_STREAM counts, so that a canceled request allows none.
const RESET: u32 = PER_REQUEST + 1;

/// The server's bytes that allow one more control frame: the peer updates windows as it reads.
const BYTES_PER_FRAME: u32 = 64;

/// Shorter DATA frames are control frames.
const MIN_DATA: u32 = 32;

/// The longest padding, with its length.
const MAX_PADDING: u32 = 256;

/// The header of a frame (RFC 9113, 4.1): length, type, flags and stream.
const HEADER_LEN: usize = 9;

/// Types and flags of frames (RFC 9113, 6).
const DATA: u32 = 0x0;
const HEADERS: u32 = 0x1;
const RST_STREAM: u32 = 0x3;
const PADDED: u32 = 0x8;

/// A token bucket, as the time at which it will be full.
#[derive(Debug)]
struct Budget {
    full_at: Moment,
}

impl Budget {
    /// Takes `frames`. Returns whether there were as many.
    fn spend(&mut self, frames: u32, now: Moment) -> bool {
        self.full_at = self.full_at.max(now).after(FRAME_INTERVAL * frames);
        self.full_at.since(now) <= FRAME_INTERVAL * MAX_BURST
    }

    fn earn(&mut self, time: Duration) {
        let full_at = Duration::from_nanos(self.full_at.as_nanos()).saturating_sub(time);
        self.full_at = Moment::ORIGIN.after(full_at);
    }
}

/// Reads the headers of a peer's frames.
#[derive(Debug)]
struct FrameLimit {
    /// Bytes until the next header.
    payload: usize,
    /// The last bytes read of a header.
    header: u128,
    header_len: usize,
    /// The newest stream of the peer.
    last_stream: u32,
    budget: Budget,
}

impl FrameLimit {
    fn new() -> Self {
        Self {
            payload: HTTP2_PREFACE.len(),
            header: 0,
            header_len: 0,
            last_stream: 0,
            budget: Budget {
                full_at: Moment::ORIGIN,
            },
        }
    }

    /// Counts the frames of the peer's next bytes. Returns whether it may send them.
    fn admit(&mut self, mut bytes: &[u8], now: Moment) -> bool {
        loop {
            let (skipped, rest) = bytes.split_at(bytes.len().min(self.payload));
            self.payload -= skipped.len();
            let Some((byte, rest)) = rest.split_first() else {
                return true;
            };
            bytes = rest;
            self.header = self.header << 8 | u128::from(*byte);
            self.header_len += 1;
            if self.header_len == HEADER_LEN {
                self.header_len = 0;
                if !self.admit_frame(now) {
                    return false;
                }
            }
        }
    }

    fn admit_frame(&mut self, now: Moment) -> bool {
        let [length, kind, flags, stream] =
            [(48, 0xff_ffff), (40, 0xff), (32, 0xff), (0, 0x7fff_ffff)]
                .map(|(shift, mask)| (self.header >> shift) as u32 & mask);
        self.payload = length as usize;
        let padding = if flags & PADDED == 0 { 0 } else { MAX_PADDING };
        match kind {
            HEADERS if stream > self.last_stream => {
                self.last_stream = stream;
                self.budget.earn(FRAME_INTERVAL * PER_REQUEST);
                true
            }
            DATA if length >= MIN_DATA + padding => true,
            RST_STREAM => self.budget.spend(RESET, now),
            _ => self.budget.spend(1, now),
        }
    }
}

/// An HTTP/2 connection's stream. A read fails when the peer has sent too many control frames.
#[derive(Debug)]
pub(super) struct LimitedStream<S> {
    stream: S,
    limit: FrameLimit,
    /// No frame of the server is partly written.
    flushed: bool,
    exceeded: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> LimitedStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            limit: FrameLimit::new(),
            flushed: false,
            exceeded: false,
        }
    }

    /// Whether the peer has sent too many control frames.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    /// Closes the connection after an error of the peer. Nothing more is read, so that the peer
    /// cannot continue, nor open the next connection at once. Closing a socket with unread bytes
    /// resets it, so the peer gets some time to read the GOAWAY first. That of h2 is sent by now;
    /// for too many control frames it is sent here, unless the connection was `draining`.
    pub(super) async fn close(mut self, draining: bool) {
        let close = async {
            if self.exceeded && self.flushed && !draining {
                let goaway = goaway(self.limit.last_stream);
                drop(self.stream.write_all(&goaway).await);
            }
            drop(self.stream.shutdown().await);
            pending::<()>().await;
        };
        drop(timeout(LINGER, close).await);
    }

    fn on_write(&mut self, written: &Poll<io::Result<usize>>) {
        self.flushed = false;
        if let Poll::Ready(Ok(bytes)) = written {
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
            self.limit
                .budget
                .earn(FRAME_INTERVAL / BYTES_PER_FRAME * bytes);
        }
    }
}

/// GOAWAY with ENHANCE_YOUR_CALM (RFC 9113, 6.8 and 7).
fn goaway(last_stream: u32) -> [u8; HEADER_LEN + 8] {
    let [s0, s1, s2, s3] = last_stream.to_be_bytes();
    [0, 0, 8, 7, 0, 0, 0, 0, 0, s0, s1, s2, s3, 0, 0, 0, 0xb]
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if self
            .limit
            .admit(buf.filled().split_at(before).1, clock::now())
        {
            return Poll::Ready(Ok(()));
        }
        self.exceeded = true;
        Poll::Ready(Err(io::Error::other("too many HTTP/2 control frames")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.on_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.on_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// h2 flushes only when it has written everything.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
