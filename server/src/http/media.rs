//! What a body is said to be.

use axum::http::{HeaderMap, header};
use doorman_openapi::ProblemType;

use super::refusal::Refusal;

/// Checks that the body is said to be JSON: `application/json`, with any parameters but a `charset` other than UTF-8, and not
/// compressed. `+json` types are other formats that happen to be written in JSON, and are refused.
///
/// # Errors
/// 415 with what would be right.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |detail| Err(Refusal::new(ProblemType::UnsupportedMediaType, detail));
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return refuse("the body must come with `content-type: application/json`");
    };
    if !value.to_str().is_ok_and(is_json) {
        return refuse("the body must be `application/json` in UTF-8");
    }
    match headers.get(header::CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            refuse("the body must not be compressed: no `content-encoding` is read")
        }
        _ => Ok(()),
    }
}

fn is_json(media_type: &str) -> bool {
    // What nearly every request says, before the general case.
    if media_type == "application/json" {
        return true;
    }
    let mut parts = media_type.split(';').map(str::trim);
    parts
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case("application/json"))
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use super::is_json;

    #[test]
    fn takes_json_in_utf_8_and_nothing_else() {
        for right in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json; profile=\"x\"",
            "application/json;",
        ] {
            assert!(is_json(right), "{right}");
        }
        for wrong in [
            "",
            "text/json",
            "text/plain",
            "application/problem+json",
            "application/merge-patch+json",
            "application/jsonp",
            "application/json; charset=latin1",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!is_json(wrong), "{wrong}");
        }
    }
}
