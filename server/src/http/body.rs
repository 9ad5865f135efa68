//! Takes a body off the connection: no more bytes than allowed, neither of one body nor of all that are under way, and no longer than
//! allowed.

use std::time::Duration;

use axum::{
    body::{Body, HttpBody as _},
    http::{HeaderMap, header},
};
use bytes::Bytes;
use doorman_openapi::{MAX_BODY_BYTES, ProblemType};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::refusal::Refusal;

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a body that is too large is read and thrown away before the answer. A client that is still sending would otherwise
/// see its connection reset, and perhaps not why. One that has said that it sends more is answered at once.
const DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;

/// The most bytes that are kept of all bodies that are still arriving: 32 MiB. Bodies that arrive in one piece take nothing of it, so
/// that small ones are read even when large ones have taken it all.
const ALL_BODIES_BYTES: usize = 32 * 1024 * 1024;

/// What is taken of that at a time; so a body in a few small pieces takes from it once.
const SHARE_BYTES: usize = 16 * 1024;

/// After so much of one body other tasks have their turn: on a fast connection more of a large body is always there, and to read it in one
/// go would keep them waiting for milliseconds.
const TURN_BYTES: usize = 256 * 1024;

/// The room for all bodies that are still arriving.
#[derive(Debug)]
pub(crate) struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(ALL_BODIES_BYTES / SHARE_BYTES))
    }
}

/// Takes the whole body.
///
/// # Errors
/// 413 when it is too large, 503 when it finds no room beside all others, 408 when it does not arrive in time, 400 when it breaks off.
pub(crate) async fn take(headers: &HeaderMap, body: Body, room: &Room) -> Result<Bytes, Refusal> {
    // The timer is armed only when the body is not there at once.
    match tokio::time::timeout(BODY_TIMEOUT, collect(headers, body, room)).await {
        Ok(taken) => taken,
        Err(_) => Err(Refusal::new(
            ProblemType::RequestTimeout,
            format!("the body must arrive within {} s", BODY_TIMEOUT.as_secs()),
        )),
    }
}

async fn collect(headers: &HeaderMap, mut body: Body, room: &Room) -> Result<Bytes, Refusal> {
    // Who sends `expect: 100-continue` has not sent the body yet, and is refused before it does.
    let waits = headers.contains_key(header::EXPECT);
    let declared: Option<usize> = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if let Some(length) = declared.filter(|length| *length > MAX_BODY_BYTES) {
        if !waits && length <= DISCARDED_BYTES {
            discard(body).await;
        }
        return Err(too_large());
    }

    let first = next(&mut body).await?.unwrap_or_default();
    if body.is_end_stream() {
        // It came in one piece, as small ones do: no copy, and nothing is kept while the rest is waited for.
        let fits = first.len() <= MAX_BODY_BYTES;
        return if fits { Ok(first) } else { Err(too_large()) };
    }
    let mut whole = Arriving::new(room);
    let mut turn = Turn::default();
    let mut piece = first;
    loop {
        if let Err(refusal) = whole.push(&piece) {
            // What is thrown away takes no room.
            drop((whole, piece));
            discard(body).await;
            return Err(refusal);
        }
        let len = piece.len();
        // It is a part of hyper's buffer, which must not be kept whole while the next piece is waited for.
        drop(piece);
        turn.took(len).await;
        piece = match next(&mut body).await? {
            Some(next) => next,
            None => return Ok(whole.bytes.into()),
        };
    }
}

/// A body of which more may come, with its part of the room.
struct Arriving<'a> {
    bytes: Vec<u8>,
    room: &'a Semaphore,
    taken: Option<SemaphorePermit<'a>>,
}

impl<'a> Arriving<'a> {
    fn new(Room(room): &'a Room) -> Self {
        Self {
            bytes: Vec::new(),
            room,
            taken: None,
        }
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let len = self.bytes.len().saturating_add(piece.len());
        if len > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if len > self.bytes.capacity() {
            // What is allocated counts, not what is used of it.
            self.grow(len.next_power_of_two().max(SHARE_BYTES))?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn grow(&mut self, capacity: usize) -> Result<(), Refusal> {
        let held = self.taken.as_ref().map_or(0, SemaphorePermit::num_permits);
        let more = (capacity / SHARE_BYTES).saturating_sub(held);
        let more = u32::try_from(more).map_err(|_| no_room())?;
        let more = self.room.try_acquire_many(more).map_err(|_| no_room())?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        self.bytes
            .reserve_exact(capacity.saturating_sub(self.bytes.len()));
        Ok(())
    }
}

/// The next piece of data; `None` at the end.
async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Refusal::new(
                ProblemType::MalformedRequest,
                "the body broke off before its end",
            )
        })?;
        // Trailers mean nothing to us.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn discard(mut body: Body) {
    let mut discarded: usize = 0;
    let mut turn = Turn::default();
    while discarded < DISCARDED_BYTES {
        let Ok(Some(data)) = next(&mut body).await else {
            return;
        };
        let len = data.len();
        drop(data);
        discarded = discarded.saturating_add(len);
        turn.took(len).await;
    }
}

/// How much of a body was taken since others had their turn.
#[derive(Debug, Default)]
struct Turn(usize);

impl Turn {
    /// So much more was taken.
    async fn took(&mut self, len: usize) {
        self.0 = self.0.saturating_add(len);
        if self.0 >= TURN_BYTES {
            self.0 = 0;
            // The sockets are looked at before this goes on.
            tokio::task::yield_now().await;
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(
        ProblemType::PayloadTooLarge,
        format!("a body may have at most {MAX_BODY_BYTES} bytes"),
    )
}

fn no_room() -> Refusal {
    Refusal::new(
        ProblemType::Unavailable,
        format!(
            "the bodies of all requests under way may have at most {ALL_BODIES_BYTES} bytes together; smaller bodies find room sooner"
        ),
    )
}
