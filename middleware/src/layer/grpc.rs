//! gRPC status of a refusal, as a response of headers only: Trailers-Only in grpc/grpc's
//! PROTOCOL-HTTP2.md, also read by gRPC-Web. The retry pushback is that of proposal A6.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::key::RequestHead;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Everything but printable ASCII, and the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The content type of the response to a gRPC request, which is always a `POST`. With another
/// method, intermediaries would read status 200 as success, and could cache it for a `GET`.
pub(super) fn response_content_type(head: &RequestHead<'_>) -> Option<HeaderValue> {
    const GRPC: &str = "application/grpc";
    if head.method() != Method::POST {
        return None;
    }
    let content_type = head.header(&header::CONTENT_TYPE)?.to_str().ok()?;
    let (family, rest) = content_type.split_at_checked(GRPC.len())?;
    if !family.eq_ignore_ascii_case(GRPC) {
        return None;
    }
    let end = rest.find(['+', ';', ' ']).unwrap_or(rest.len());
    let variant = rest.get(..end)?.to_ascii_lowercase();
    match variant.as_str() {
        "" => Some(HeaderValue::from_static(GRPC)),
        "-web" => Some(HeaderValue::from_static("application/grpc-web")),
        "-web-text" => Some(HeaderValue::from_static("application/grpc-web-text")),
        _ => None,
    }
}

pub(super) fn insert_status(headers: &mut HeaderMap, code: Code, message: &str) {
    headers.insert(STATUS, HeaderValue::from(code as u16));
    let message = utf8_percent_encode(message, ENCODED).to_string();
    // Printable ASCII is always valid.
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(MESSAGE, message);
    }
}

/// Inserts the wait in milliseconds, rounded up. 0 would mean an immediate retry: like
/// `Retry-After` it becomes a second.
pub(super) fn insert_pushback(headers: &mut HeaderMap, wait: Duration) {
    let wait = if wait.is_zero() {
        Duration::from_secs(1)
    } else {
        wait
    };
    let millis = wait.as_nanos().div_ceil(1_000_000);
    // Clients read an i32.
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    headers.insert(PUSHBACK, HeaderValue::from(millis));
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn content_type_selects_grpc_variant() {
        for (requested, expected) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("Application/GRPC; x=y", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web")),
            ("application/grpc-web+proto", Some("application/grpc-web")),
            (
                "application/grpc-web-text",
                Some("application/grpc-web-text"),
            ),
            ("application/grpcx", None),
            ("application/json", None),
            ("", None),
        ] {
            let request = Request::post("/").header("content-type", requested);
            let request = request.body(()).unwrap();
            let response = response_content_type(&RequestHead::of(&request));
            assert_eq!(response.as_ref().map(|it| it.to_str().unwrap()), expected);
        }
        let untyped = Request::post("/").body(()).unwrap();
        assert_eq!(response_content_type(&RequestHead::of(&untyped)), None);
    }

    #[test]
    fn only_post_is_grpc() {
        for method in ["GET", "HEAD", "PUT", "OPTIONS", "post"] {
            let request = Request::builder().method(method).uri("/");
            let request = request.header("content-type", "application/grpc").body(());
            let response = response_content_type(&RequestHead::of(&request.unwrap()));
            assert_eq!(response, None, "{method}");
        }
    }

    #[test]
    fn message_is_percent_encoded() {
        let mut headers = HeaderMap::new();
        insert_status(&mut headers, Code::Unavailable, "100 % \"ü\"\n~");
        assert_eq!(headers[STATUS], "14");
        assert_eq!(headers[MESSAGE], "100 %25 \"%C3%BC\"%0A~");
    }
}
