//! The memory of answers that their clients have not taken yet: no more of all together than there is room for.
//!
//! An answer can be nine times as large as its request, and a client need not read it. How long it may take to do so, the listener says.

use std::sync::{
    Arc,
    atomic::{
        AtomicUsize,
        Ordering::{AcqRel, Relaxed},
    },
};

use axum::{
    body::{Body, HttpBody},
    http::Response,
    response::IntoResponse,
};
use doorman_openapi::ProblemType;

use super::refusal::Refusal;
use crate::util::guarded_body::GuardedBody;

/// The most bytes that are kept of all answers that have not been taken yet: 32 MiB.
const ALL_ANSWERS_BYTES: usize = 32 * 1024 * 1024;

/// An answer of at most so many bytes takes no room, so that small ones are given even when large ones have taken it all: 4 KiB. What
/// hyper keeps of an HTTP/2 stream beside its answer is of that order.
const SMALL_BYTES: usize = 4 * 1024;

/// Marks, in the extensions of an answer, that its bytes are part of the program: none are kept for it, however slowly it is taken. So
/// nobody can fill the room with what needs no token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Static;

/// The room for the answers of all requests.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    /// How many bytes there is room for yet.
    free: Arc<AtomicUsize>,
}

impl Answers {
    /// Nothing but room.
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(AtomicUsize::new(ALL_ANSWERS_BYTES)),
        }
    }

    /// The answer, if there is room for it until its bytes are gone; 503 if not. What was done for it stays done, as when an answer is
    /// lost on its way. What is [`Static`] needs no room.
    pub(super) fn admit(&self, answer: Response<Body>) -> Response<Body> {
        let (head, body) = answer.into_parts();
        let len = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if len <= SMALL_BYTES || head.extensions.get::<Static>().is_some() {
            return Response::from_parts(head, body);
        }
        match self.take(len) {
            Some(share) => Response::from_parts(head, Body::new(GuardedBody::new(body, share))),
            None => no_room().into_response(),
        }
    }

    fn take(&self, len: usize) -> Option<Share> {
        let less = |free: usize| free.checked_sub(len);
        self.free.fetch_update(AcqRel, Relaxed, less).ok()?;
        let free = Arc::clone(&self.free);
        Some(Share { free, len })
    }
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
struct Share {
    free: Arc<AtomicUsize>,
    len: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.free.fetch_add(self.len, AcqRel);
    }
}

fn no_room() -> Refusal {
    Refusal::new(
        ProblemType::Unavailable,
        format!(
            "the answers that clients have yet to take may have at most {ALL_ANSWERS_BYTES} bytes together; those of at most {SMALL_BYTES} bytes are always given"
        ),
    )
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn answer(len: usize) -> Response<Body> {
        Response::new(Body::from(vec![b' '; len]))
    }

    #[tokio::test]
    async fn answers_have_so_much_room_together_until_their_bytes_are_gone() {
        let answers = Answers::new();
        let half = answers.admit(answer(ALL_ANSWERS_BYTES / 2));
        let other_half = answers.admit(answer(ALL_ANSWERS_BYTES / 2));
        assert_eq!(half.status(), 200);
        assert_eq!(other_half.status(), 200);

        let refused = answers.admit(answer(SMALL_BYTES + 1));
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["retry-after"], "1");
        assert_eq!(answers.admit(answer(SMALL_BYTES)).status(), 200);

        // The body is gone, but its bytes are not.
        let bytes = half.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(answers.admit(answer(SMALL_BYTES + 1)).status(), 503);
        drop(bytes);
        assert_eq!(answers.admit(answer(ALL_ANSWERS_BYTES / 2)).status(), 200);
        drop(other_half);
        assert_eq!(answers.admit(answer(ALL_ANSWERS_BYTES)).status(), 200);
        assert_eq!(answers.admit(answer(ALL_ANSWERS_BYTES + 1)).status(), 503);
    }
}
