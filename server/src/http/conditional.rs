//! Conditional requests (RFC 9110, section 13): a client that has the newest version already is told so, without the body, and one that
//! would change a version that is not the newest any more is refused.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use doorman_openapi::ProblemType;
use serde::Serialize;

use super::{internal_error, refusal::Refusal, reply::Fresh};

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
        respond(headers, self.version, || {
            Fresh::new((self.answer)()).into_response()
        })
    }
}

/// The response to a request with these headers for something of this version, which `make` makes when it is needed.
pub(super) fn respond(
    headers: &HeaderMap,
    version: &str,
    make: impl FnOnce() -> Response<Body>,
) -> Response<Body> {
    let tag = tag(version);
    let Ok(value) = HeaderValue::try_from(&tag) else {
        tracing::error!(tag, "a version cannot stand in a header");
        return internal_error().into_response();
    };
    let mut response = if is_known(headers, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        make()
    };
    if !response.status().is_server_error() {
        let headers = response.headers_mut();
        headers.insert(header::ETAG, value);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    response
}

/// Whether `If-None-Match` names the tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    named(headers, &header::IF_NONE_MATCH).is_some_and(|named| is_among(&named, tag))
}

/// Whether a tag is among those that are named for `If-None-Match`, which compares them without regard to their weakness, as section
/// 13.1.2 has it.
fn is_among(named: &[String], tag: &str) -> bool {
    named
        .iter()
        .any(|named| named == "*" || named.strip_prefix("W/").unwrap_or(named) == tag)
}

/// The tags that a header names; `None` when it is absent. What is not text names nothing that there is.
fn named(headers: &HeaderMap, header: &header::HeaderName) -> Option<Vec<String>> {
    let values = headers.get_all(header);
    let mut values = values.iter().peekable();
    values.peek()?;
    let named = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|named| named.trim().to_owned());
    Some(named.collect())
}

/// What must hold for a request to take effect.
#[derive(Debug, Clone)]
pub(crate) struct Preconditions {
    if_match: Option<Vec<String>>,
    if_none_match: Option<Vec<String>>,
}

impl Preconditions {
    /// Those of a request with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self {
            if_match: named(headers, &header::IF_MATCH),
            if_none_match: named(headers, &header::IF_NONE_MATCH),
        }
    }

    /// Checks them for a change of what has this version; `None`: it is not there.
    ///
    /// # Errors
    /// 412 when one of them does not hold.
    pub(crate) fn check(&self, version: Option<&str>) -> Result<(), Refusal> {
        self.check_match(version)?;
        let Some(unwanted) = &self.if_none_match else {
            return Ok(());
        };
        match version {
            Some(version) if is_among(unwanted, &tag(version)) => Err(failed(
                "`if-none-match` does not hold: it is there",
                Some(version),
            )),
            _ => Ok(()),
        }
    }

    /// Checks `If-Match` alone, which a weak tag never fulfils (section 13.1.1).
    ///
    /// # Errors
    /// 412 when it does not hold.
    pub(crate) fn check_match(&self, version: Option<&str>) -> Result<(), Refusal> {
        let Some(wanted) = &self.if_match else {
            return Ok(());
        };
        let Some(version) = version else {
            return Err(failed("`if-match` does not hold: it is not there", None));
        };
        let tag = tag(version);
        if wanted.iter().any(|wanted| wanted == "*" || *wanted == tag) {
            return Ok(());
        }
        Err(failed(
            "`if-match` does not hold: it was changed meanwhile",
            Some(version),
        ))
    }
}

fn tag(version: &str) -> String {
    format!("\"{version}\"")
}

fn failed(why: &str, version: Option<&str>) -> Refusal {
    let refusal = Refusal::new(ProblemType::PreconditionFailed, why);
    match version {
        Some(version) => refusal.with_tag(tag(version)),
        None => refusal,
    }
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

    #[test]
    fn a_change_takes_effect_only_when_what_it_asks_for_holds() {
        for (header, value, version, holds) in [
            ("if-match", "\"a\"", Some("a"), true),
            ("if-match", "\"x\", \"a\"", Some("a"), true),
            ("if-match", "*", Some("a"), true),
            ("if-match", "\"b\"", Some("a"), false),
            ("if-match", "W/\"a\"", Some("a"), false),
            ("if-match", "a", Some("a"), false),
            ("if-match", "", Some("a"), false),
            ("if-match", "*", None, false),
            ("if-match", "\"a\"", None, false),
            ("if-none-match", "*", None, true),
            ("if-none-match", "*", Some("a"), false),
            ("if-none-match", "\"a\"", Some("a"), false),
            ("if-none-match", "W/\"a\"", Some("a"), false),
            ("if-none-match", "\"b\"", Some("a"), true),
            ("x", "y", Some("a"), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header, value.parse().unwrap());
            let checked = Preconditions::of(&headers).check(version);
            assert_eq!(checked.is_ok(), holds, "{header}: {value}, {version:?}");
        }
    }
}
