//! The answers of calls that succeed.

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
    response::IntoResponse,
};
use serde::Serialize;

/// A JSON answer that no cache may keep: leases, and what is true only now.
#[derive(Debug)]
pub(crate) struct Fresh<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Fresh<T> {
    fn into_response(self) -> Response<Body> {
        // Room for what a client with a few resources is answered, so that it is not moved while it grows.
        let mut body = Vec::with_capacity(1024);
        match serde_json::to_writer(&mut body, &self.0) {
            Ok(()) => {
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
