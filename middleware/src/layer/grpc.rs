//! Refusals as gRPC tells them: HTTP status 200, and the status of the call in the only headers there are.
//!
//! The form is that of a response of trailers only, in "gRPC over HTTP2" (PROTOCOL-HTTP2.md of grpc/grpc); gRPC-Web (PROTOCOL-WEB.md)
//! takes the same in the headers. When to come back is told as proposal A6 has it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::RequestHead;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Printable ASCII stands for itself, but for the sign that begins what does not.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

const SOON: Duration = Duration::from_secs(1);

/// The codes of statuses that a refusal may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The content type of the answer to a request of gRPC; `None` when it is none.
///
/// It is always a `POST`. Of any other method a status of 200 would mean success to whoever stands between, and for a `GET` a cache may keep it.
pub(super) fn answers(head: &RequestHead<'_>) -> Option<HeaderValue> {
    const GRPC: &str = "application/grpc";
    if head.method() != Method::POST {
        return None;
    }
    let asked = head.header(&header::CONTENT_TYPE)?.to_str().ok()?;
    let (family, rest) = asked.split_at_checked(GRPC.len())?;
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

/// Puts a status in.
pub(super) fn tell(headers: &mut HeaderMap, code: Code, message: &str) {
    headers.insert(STATUS, HeaderValue::from(code as u16));
    let message = utf8_percent_encode(message, ENCODED).to_string();
    // Printable ASCII always makes a value.
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(MESSAGE, message);
    }
}

/// Puts in when to come back. An answer that is due at this moment is no reason to come back at once, which 0 would mean: then it is a
/// second, as in `Retry-After`.
pub(super) fn push_back(headers: &mut HeaderMap, wait: Duration) {
    let wait = if wait.is_zero() { SOON } else { wait };
    // Whole milliseconds, rounded up, and no more than clients can read.
    let millis = wait.as_nanos().div_ceil(1_000_000);
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    headers.insert(PUSHBACK, HeaderValue::from(millis));
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn knows_requests_of_grpc_by_their_content_type() {
        for (asked, expected) in [
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
            let request = Request::post("/").header("content-type", asked);
            let request = request.body(()).unwrap();
            let answer = answers(&RequestHead::of(&request));
            assert_eq!(answer.as_ref().map(|it| it.to_str().unwrap()), expected);
        }
        let untyped = Request::post("/").body(()).unwrap();
        assert_eq!(answers(&RequestHead::of(&untyped)), None);
    }

    #[test]
    fn only_a_post_is_of_grpc() {
        for method in ["GET", "HEAD", "PUT", "OPTIONS", "post"] {
            let request = Request::builder().method(method).uri("/");
            let request = request.header("content-type", "application/grpc").body(());
            let answer = answers(&RequestHead::of(&request.unwrap()));
            assert_eq!(answer, None, "{method}");
        }
    }

    #[test]
    fn a_message_is_printable_and_can_be_read_back() {
        let mut headers = HeaderMap::new();
        tell(&mut headers, Code::Unavailable, "100 % \"ü\"\n~");
        assert_eq!(headers[STATUS], "14");
        assert_eq!(headers[MESSAGE], "100 %25 \"%C3%BC\"%0A~");
    }
}
