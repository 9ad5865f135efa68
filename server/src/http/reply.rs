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

/// A JSON answer that no cache may keep: what is true only now.
#[derive(Debug)]
pub(crate) struct Fresh<T>(T);

impl<T> Fresh<T> {
    pub(crate) fn new(answer: T) -> Self {
        Self(answer)
    }
}

impl<T: Serialize> IntoResponse for Fresh<T> {
    fn into_response(self) -> Response<Body> {
        Written(json::write(&self.0, ROOM)).into_response()
    }
}

/// The same, written already: leases.
#[derive(Debug)]
pub(super) struct Written(pub(super) serde_json::Result<Vec<u8>>);

impl IntoResponse for Written {
    fn into_response(self) -> Response<Body> {
        match self.0 {
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
