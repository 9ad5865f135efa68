//! JSON responses.

pub(super) mod buffer;
pub(super) mod conditional;
pub(super) mod json;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
    response::IntoResponse,
};
use serde::Serialize;

use super::error::ApiError;

const BODY_CAPACITY: usize = 1024;

/// A JSON response that must not be cached.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response<Body> {
        let mut text = Vec::with_capacity(BODY_CAPACITY);
        let written = json::append(&mut text, &self.0);
        JsonText(written.map(|()| text)).into_response()
    }
}

/// The same, already serialized.
#[derive(Debug)]
pub(super) struct JsonText(pub(super) serde_json::Result<Vec<u8>>);

impl IntoResponse for JsonText {
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
                tracing::error!(%error, "cannot serialize response");
                ApiError::internal().into_response()
            }
        }
    }
}
