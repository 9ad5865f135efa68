//! Bodies whose bytes hold on to something until they are gone.
//!
//! hyper drops the body of an answer as soon as it has taken its last piece, and keeps the piece until the peer takes it: with HTTP/2
//! that may be long. So what is to last as long as the memory does must be held by the bytes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// A body that holds on to something, as does each of its pieces.
#[derive(Debug)]
pub(crate) struct Held<T> {
    body: Body,
    held: Arc<T>,
}

impl<T> Held<T> {
    /// Drops `held` with the last of the body and its pieces.
    pub(crate) fn new(body: Body, held: T) -> Self {
        let held = Arc::new(held);
        Self { body, held }
    }
}

/// Bytes that hold on to something.
struct Piece<T> {
    bytes: Bytes,
    _held: Arc<T>,
}

impl<T> AsRef<[u8]> for Piece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let hold = |bytes| {
            let _held = Arc::clone(&self.held);
            Bytes::from_owner(Piece { bytes, _held })
        };
        frame.map_ok(|frame| frame.map_data(hold))
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
    async fn what_is_held_lasts_as_long_as_the_last_part_of_a_piece() {
        let held = Arc::new(());
        let mut body = Held::new(Body::from("answer"), Arc::clone(&held));
        assert_eq!(body.size_hint().exact(), Some(6));
        let mut piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        let rest = piece.split_off(3);
        assert_eq!((&piece[..], &rest[..]), (&b"ans"[..], &b"wer"[..]));
        drop(piece);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(rest);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
