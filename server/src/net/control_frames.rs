//! Limit on HTTP/2 control frames. Without it one connection could keep a core busy with SETTINGS,
//! PING or WINDOW_UPDATE: hyper answers each.
//!
//! h2 limits what takes memory: header blocks, resets of requests that wait, empty and unread DATA,
//! invalid streams. This limit counts all other frames that are neither requests nor their bodies.
//! It reads the headers of both directions as the bytes pass, without a lock or an allocation.

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

/// A connection may send this many control frames at once, and one per [`FRAME_INTERVAL`]: enough
/// to cancel all requests in progress every second.
const MAX_BURST: u32 = 1000;
const FRAME_INTERVAL: Duration = Duration::from_millis(2);

/// A new connection may send only this many at once, so that a peer gains little by reconnecting.
const INITIAL_BURST: u32 = 100;

/// Control frames as which SETTINGS counts. A peer sends few, and a change of the window takes time
/// for each stream.
const SETTINGS_COST: u32 = 16;

/// DATA shorter than [`SMALL_DATA`] costs a whole control frame, from [`LARGE_DATA`] on nothing,
/// and in between a part of one.
const SMALL_DATA: u32 = 32;
const LARGE_DATA: u32 = 256;

/// The longest padding, with its length.
const MAX_PADDING: u32 = 256;

/// The server's DATA frames that are at least this long allow control frames: the peer updates
/// windows as it reads.
const MIN_EARNING_DATA: u32 = 512;

/// The server's bytes that allow one more control frame. Go's client updates both windows for every
/// 4 KiB.
const DATA_PER_FRAME: u32 = 2048;

/// The header of a frame (RFC 9113, 4.1): length, type, flags and stream.
const HEADER_LEN: usize = 9;

/// Types and flags of frames (RFC 9113, 6).
const DATA: u32 = 0x0;
const HEADERS: u32 = 0x1;
const SETTINGS: u32 = 0x4;
const GOAWAY: u32 = 0x7;
const END_STREAM: u32 = 0x1;
const PADDED: u32 = 0x8;

/// A token bucket, as the time at which it will be full.
#[derive(Debug)]
struct Budget {
    full_at: Moment,
}

impl Budget {
    fn new(now: Moment) -> Self {
        Self {
            full_at: now.after(FRAME_INTERVAL * (MAX_BURST - INITIAL_BURST)),
        }
    }

    /// Takes control frames, as the time that they take to return. Returns whether there were as
    /// many.
    fn spend(&mut self, cost: Duration, now: Moment) -> bool {
        self.full_at = self.full_at.max(now).after(cost);
        self.full_at.since(now) <= FRAME_INTERVAL * MAX_BURST
    }

    fn earn(&mut self, frames: u32) {
        let full_at = Duration::from_nanos(self.full_at.as_nanos());
        let full_at = full_at.saturating_sub(FRAME_INTERVAL * frames);
        self.full_at = Moment::ORIGIN.after(full_at);
    }
}

#[derive(Debug)]
struct FrameHeader {
    length: u32,
    kind: u32,
    flags: u32,
    stream: u32,
}

/// Finds the headers of frames in a stream of bytes.
#[derive(Debug)]
struct HeaderReader {
    /// Bytes until the next header.
    payload: usize,
    /// The last bytes read of a header.
    header: u128,
    header_len: usize,
}

impl HeaderReader {
    /// For a stream that begins with `preface` bytes before its first frame.
    fn new(preface: usize) -> Self {
        Self {
            payload: preface,
            header: 0,
            header_len: 0,
        }
    }

    /// The next header that ends in `bytes`; afterwards `bytes` begins behind it.
    fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHeader> {
        loop {
            let (skipped, rest) = bytes.split_at(bytes.len().min(self.payload));
            self.payload -= skipped.len();
            let (byte, rest) = rest.split_first()?;
            *bytes = rest;
            self.header = self.header << 8 | u128::from(*byte);
            self.header_len += 1;
            if self.header_len == HEADER_LEN {
                self.header_len = 0;
                let field = |shift, mask| (self.header >> shift) as u32 & mask;
                let length = field(48, 0xff_ffff);
                self.payload = length as usize;
                return Some(FrameHeader {
                    length,
                    kind: field(40, 0xff),
                    flags: field(32, 0xff),
                    stream: field(0, 0x7fff_ffff),
                });
            }
        }
    }
}

/// Counts the frames of a peer and of the server.
#[derive(Debug)]
struct FrameLimit {
    received: HeaderReader,
    sent: HeaderReader,
    /// The newest stream of the peer.
    last_stream: u32,
    /// The server has sent one, and ignores new requests from then on.
    goaway_sent: bool,
    budget: Budget,
}

impl FrameLimit {
    fn new(now: Moment) -> Self {
        Self {
            received: HeaderReader::new(HTTP2_PREFACE.len()),
            sent: HeaderReader::new(0),
            last_stream: 0,
            goaway_sent: false,
            budget: Budget::new(now),
        }
    }

    /// Counts the frames of the peer's next bytes. Returns whether it may send them.
    fn admit(&mut self, mut bytes: &[u8], now: Moment) -> bool {
        while let Some(frame) = self.received.next(&mut bytes) {
            if !self.admit_frame(&frame, now) {
                return false;
            }
        }
        true
    }

    fn admit_frame(&mut self, frame: &FrameHeader, now: Moment) -> bool {
        let cost = match frame.kind {
            HEADERS if frame.stream > self.last_stream => {
                self.last_stream = frame.stream;
                if !self.goaway_sent {
                    // RST_STREAM may cancel the request, and the end of its body may be empty.
                    let has_body = frame.flags & END_STREAM == 0;
                    self.budget.earn(1 + u32::from(has_body));
                    return true;
                }
                FRAME_INTERVAL
            }
            DATA => data_cost(frame),
            SETTINGS => FRAME_INTERVAL * SETTINGS_COST,
            _ => FRAME_INTERVAL,
        };
        self.budget.spend(cost, now)
    }

    /// Counts the frames of the server's next bytes.
    fn on_sent(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.sent.next(&mut bytes) {
            match frame.kind {
                GOAWAY => self.goaway_sent = true,
                DATA if frame.length >= MIN_EARNING_DATA && !self.goaway_sent => {
                    self.budget.earn(frame.length.div_ceil(DATA_PER_FRAME));
                }
                _ => {}
            }
        }
    }
}

fn data_cost(frame: &FrameHeader) -> Duration {
    let padding = match frame.flags & PADDED {
        0 => 0,
        _ => MAX_PADDING,
    };
    let length = frame.length.saturating_sub(padding);
    let missing = LARGE_DATA - length.clamp(SMALL_DATA, LARGE_DATA);
    FRAME_INTERVAL * missing / (LARGE_DATA - SMALL_DATA)
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
            limit: FrameLimit::new(clock::now()),
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
    /// resets it, so the peer gets some time to read the GOAWAY first. h2 has already sent its own;
    /// for too many control frames it is sent here.
    pub(super) async fn close(mut self) {
        let close = async {
            if self.exceeded && self.flushed && !self.limit.goaway_sent {
                let goaway = goaway(self.limit.last_stream);
                drop(self.stream.write_all(&goaway).await);
            }
            drop(self.stream.shutdown().await);
            pending::<()>().await;
        };
        drop(timeout(LINGER, close).await);
    }

    fn on_write<'a>(
        &mut self,
        bufs: impl IntoIterator<Item = &'a [u8]>,
        written: &Poll<io::Result<usize>>,
    ) {
        self.flushed = false;
        let Poll::Ready(Ok(mut left)) = *written else {
            return;
        };
        for buf in bufs {
            let (bytes, _) = buf.split_at(buf.len().min(left));
            left -= bytes.len();
            self.limit.on_sent(bytes);
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
        self.on_write([buf], &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.on_write(bufs.iter().map(|it| &**it), &written);
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
