//! Memory limit for responses that clients have not read yet.
//!
//! A response can be nine times as large as its request. `net` limits how long a client may take.

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody},
    http::Response,
    response::IntoResponse,
};
use tokio::sync::Semaphore;

use crate::{http::error::ApiError, util::guarded_body::GuardedBody};

const BUFFER_BYTES: u32 = 32 * 1024 * 1024;

/// Responses of at most this size are always sent. hyper keeps about as much per HTTP/2 stream.
const SMALL_BYTES: u32 = 4 * 1024;

/// Response extension: the body is part of the program and needs no buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StaticBody;

#[derive(Debug, Clone)]
pub(crate) struct ResponseBuffer(Arc<Semaphore>);

impl Default for ResponseBuffer {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUFFER_BYTES as usize)))
    }
}

impl ResponseBuffer {
    /// Reserves memory until the last byte is gone; 503 if there is not enough. What the request
    /// did stays done, as when a response is lost.
    pub(crate) fn reserve(&self, response: Response<Body>) -> Response<Body> {
        let (head, body) = response.into_parts();
        let len = u32::try_from(body.size_hint().lower()).unwrap_or(u32::MAX);
        if len <= SMALL_BYTES || head.extensions.get::<StaticBody>().is_some() {
            return Response::from_parts(head, body);
        }
        match Arc::clone(&self.0).try_acquire_many_owned(len) {
            Ok(reserved) => Response::from_parts(head, Body::new(GuardedBody::new(body, reserved))),
            Err(_) => buffer_full().into_response(),
        }
    }
}

fn buffer_full() -> ApiError {
    ApiError::unavailable(format!(
        "response buffer full ({BUFFER_BYTES} bytes for all unread responses); retry later"
    ))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn response(len: u32) -> Response<Body> {
        Response::new(Body::from(vec![b' '; len as usize]))
    }

    #[tokio::test]
    async fn buffer_is_reserved_until_the_bytes_are_gone() {
        let buffer = ResponseBuffer::default();
        let half = buffer.reserve(response(BUFFER_BYTES / 2));
        let other_half = buffer.reserve(response(BUFFER_BYTES / 2));
        assert_eq!(half.status(), 200);
        assert_eq!(other_half.status(), 200);

        let rejected = buffer.reserve(response(SMALL_BYTES + 1));
        assert_eq!(rejected.status(), 503);
        assert_eq!(rejected.headers()["retry-after"], "1");
        assert_eq!(buffer.reserve(response(SMALL_BYTES)).status(), 200);

        // The body is gone, but its bytes are not.
        let bytes = half.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(buffer.reserve(response(SMALL_BYTES + 1)).status(), 503);
        drop(bytes);
        assert_eq!(buffer.reserve(response(BUFFER_BYTES / 2)).status(), 200);
        drop(other_half);
        assert_eq!(buffer.reserve(response(BUFFER_BYTES)).status(), 200);
        assert_eq!(buffer.reserve(response(BUFFER_BYTES + 1)).status(), 503);
    }
}
