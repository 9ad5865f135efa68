//! The answers of calls that succeed.

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
    response::IntoResponse,
};
use serde::Serialize;

use super::json;

/// How much room an answer has from the start, so that a small one is not moved while it grows.
const ROOM: usize = 1024;
/// How much the answer for one resource takes, more or less.
const ROOM_OF_A_LEASE: usize = 288;

/// A JSON answer that no cache may keep: leases, and what is true only now.
#[derive(Debug)]
pub(crate) struct Fresh<T> {
    answer: T,
    room: usize,
}

impl<T> Fresh<T> {
    pub(crate) fn new(answer: T) -> Self {
        Self { answer, room: ROOM }
    }

    /// An answer that speaks of so many leases.
    pub(crate) fn of_leases(leases: usize, answer: T) -> Self {
        let room = ROOM.saturating_add(leases.saturating_mul(ROOM_OF_A_LEASE));
        Self { answer, room }
    }
}

impl<T: Serialize> IntoResponse for Fresh<T> {
    fn into_response(self) -> Response<Body> {
        match json::write(&self.answer, self.room) {
            Ok(body) => {
                let mut response = Response::new(Body::from(body));
                let headers = response.headers_mut();
                headers.insert(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/json"),
                );
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                super::internal_error().into_response()
            }
        }
    }
}
