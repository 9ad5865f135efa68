//! Response body whose bytes hold a guard. hyper drops a body when it has the last chunk, and keeps
//! the chunk until the peer takes it. A guard that must live as long must be held by the bytes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// A body that holds a guard, as does each of its chunks.
#[derive(Debug)]
pub(crate) struct GuardedBody<T> {
    body: Body,
    guard: Arc<T>,
}

impl<T> GuardedBody<T> {
    /// Drops `guard` with the last of the body and its chunks.
    pub(crate) fn new(body: Body, guard: T) -> Self {
        let guard = Arc::new(guard);
        Self { body, guard }
    }
}

struct GuardedChunk<T> {
    bytes: Bytes,
    _guard: Arc<T>,
}

impl<T> AsRef<[u8]> for GuardedChunk<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let guarded = |bytes| {
            let _guard = Arc::clone(&self.guard);
            Bytes::from_owner(GuardedChunk { bytes, _guard })
        };
        frame.map_ok(|frame| frame.map_data(guarded))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn guard_lives_as_long_as_any_part_of_a_chunk() {
        let guard = Arc::new(());
        let mut body = GuardedBody::new(Body::from("answer"), Arc::clone(&guard));
        assert_eq!(body.size_hint().exact(), Some(6));
        let mut chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        let rest = chunk.split_off(3);
        assert_eq!((&chunk[..], &rest[..]), (&b"ans"[..], &b"wer"[..]));
        drop(chunk);
        assert_eq!(Arc::strong_count(&guard), 2);
        drop(rest);
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
