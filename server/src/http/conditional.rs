//! Conditional requests (RFC 9110, section 13): who has the newest already is told so, without its body.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde::Serialize;

use super::{internal_error, reply::Fresh};

/// A JSON answer of which a version identifies the bytes. A cache may keep it, and asks every time whether it still holds; most of these
/// times the version is all that is needed.
#[derive(Debug)]
pub(crate) struct Versioned<'a, F> {
    pub(crate) version: &'a str,
    pub(crate) answer: F,
}

impl<T: Serialize, F: FnOnce() -> T> Versioned<'_, F> {
    /// The response to a request with these headers.
    pub(crate) fn answer_to(self, headers: &HeaderMap) -> Response<Body> {
        let tag = format!("\"{}\"", self.version);
        let Ok(value) = HeaderValue::try_from(&tag) else {
            tracing::error!(tag, "a version cannot stand in a header");
            return internal_error().into_response();
        };
        let mut response = if is_known(headers, &tag) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            Fresh::new((self.answer)()).into_response()
        };
        if !response.status().is_server_error() {
            let headers = response.headers_mut();
            headers.insert(header::ETAG, value);
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        response
    }
}

/// Whether `If-None-Match` names the tag. Here tags are compared without regard to their weakness, as section 13.1.2 has it.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|named| named == "*" || named.strip_prefix("W/").unwrap_or(named) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_newest_costs_no_answer() {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, "\"a\"".parse().unwrap());
        let versioned = Versioned {
            version: "a",
            answer: || -> u8 { panic!("nobody needs it") },
        };
        let response = versioned.answer_to(&headers);
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn knows_a_tag_however_it_is_named() {
        for (values, known) in [
            (&[][..], false),
            (&["\"a\""], true),
            (&["W/\"a\""], true),
            (&["\"b\", \"a\""], true),
            (&["\"b\"", " \"a\" "], true),
            (&["*"], true),
            (&["\"b\""], false),
            (&["a"], false),
            (&["\"A\""], false),
            (&[""], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_NONE_MATCH, value.parse().unwrap());
            }
            assert_eq!(is_known(&headers, "\"a\""), known, "{values:?}");
        }
    }
}
