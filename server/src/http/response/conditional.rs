//! Conditional requests: `ETag`, `If-Match` and `If-None-Match` (RFC 9110, section 13).

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use doorman_openapi::ProblemType;
use serde::Serialize;

use super::Json;
use crate::http::error::ApiError;

/// The `ETag` of a version, which is hexadecimal.
fn etag(version: &str) -> String {
    format!("\"{version}\"")
}

/// Whether a read must not be answered from a copy: `Cache-Control: no-cache`.
pub(crate) fn wants_newest(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).into_iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let mut directives = values.flat_map(|value| value.split(','));
    directives.any(|directive| directive.trim().eq_ignore_ascii_case("no-cache"))
}

/// Says that the response is not known to be the newest one (RFC 7234, section 5.5).
pub(crate) fn set_stale(response: &mut Response<Body>) {
    let text = "111 - \"the newest document cannot be read; this one may be old\"";
    let headers = response.headers_mut();
    headers.insert(header::WARNING, HeaderValue::from_static(text));
}

pub(crate) fn set_etag(response: &mut Response<Body>, version: &str) {
    if let Ok(value) = HeaderValue::try_from(etag(version)) {
        response.headers_mut().insert(header::ETAG, value);
    }
}

/// Responds with 304 if the client has this version, else with the JSON that `value` returns.
pub(crate) fn json<T: Serialize>(
    headers: &HeaderMap,
    version: &str,
    value: impl FnOnce() -> T,
) -> Response<Body> {
    respond(headers, version, || Json(value()).into_response())
}

/// Responds with 304 if the client has this version, else with what `make` returns. Caches must
/// revalidate.
pub(crate) fn respond(
    headers: &HeaderMap,
    version: &str,
    make: impl FnOnce() -> Response<Body>,
) -> Response<Body> {
    let mut response = if Preconditions::of(headers).has_version(version) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        make()
    };
    if !response.status().is_server_error() {
        set_etag(&mut response, version);
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    response
}

#[derive(Debug, Clone)]
pub(crate) struct Preconditions {
    if_match: Option<Vec<String>>,
    if_none_match: Option<Vec<String>>,
}

impl Preconditions {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self {
            if_match: tags(headers, &header::IF_MATCH),
            if_none_match: tags(headers, &header::IF_NONE_MATCH),
        }
    }

    /// Checks both for a change of an entity; `version` is `None` if it does not exist.
    ///
    /// # Errors
    /// 412.
    pub(crate) fn check(&self, version: Option<&str>) -> Result<(), ApiError> {
        self.check_if_match(version)?;
        match version {
            Some(version) if self.has_version(version) => Err(failed(
                "`if-none-match` failed: the entity exists; to change it, send its ETag as \
                 `if-match`, or neither",
                Some(version),
            )),
            _ => Ok(()),
        }
    }

    /// Checks `If-Match`, which a weak tag never matches.
    ///
    /// # Errors
    /// 412.
    pub(crate) fn check_if_match(&self, version: Option<&str>) -> Result<(), ApiError> {
        let Some(if_match) = &self.if_match else {
            return Ok(());
        };
        let Some(version) = version else {
            return Err(failed("`if-match` failed: the entity does not exist", None));
        };
        let etag = etag(version);
        if if_match.iter().any(|tag| tag == "*" || *tag == etag) {
            Ok(())
        } else {
            let is_tag = |tag: &String| tag == "*" || tag.ends_with('"');
            let is_weak = |tag: &String| tag.strip_prefix("W/") == Some(&etag);
            let detail = if if_match.iter().any(is_weak) {
                format!(
                    "`if-match` failed: it needs the strong ETag, which is {etag} without `W/`; a \
                     proxy may have made it weak"
                )
            } else if if_match.iter().all(is_tag) {
                format!(
                    "`if-match` failed: the entity has changed, and its ETag is now {etag}; read \
                     it again, and repeat the change with that"
                )
            } else {
                format!(
                    "`if-match` failed: an ETag is in double quotes, as in {etag}, which is the \
                     current one"
                )
            };
            Err(failed(&detail, Some(version)))
        }
    }

    /// Whether `If-None-Match` names this version; weak tags match, too.
    fn has_version(&self, version: &str) -> bool {
        let etag = etag(version);
        let mut tags = self.if_none_match.iter().flatten();
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
    }
}

/// The entity tags of a header; `None` if it is absent. Our tags contain no comma, so splitting at
/// commas finds them.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<String>> {
    let values = headers.get_all(name);
    values.iter().next()?;
    let texts = values.iter().filter_map(|value| value.to_str().ok());
    let tags = texts.flat_map(|text| text.split(','));
    Some(tags.map(|tag| tag.trim().to_owned()).collect())
}

fn failed(detail: &str, version: Option<&str>) -> ApiError {
    let error = ApiError::new(ProblemType::PreconditionFailed, detail);
    match version {
        Some(version) => error.with_header(header::ETAG, etag(version)),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_version_is_not_serialized() {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, "\"a\"".parse().unwrap());
        let response = json(&headers, "a", || -> u8 { panic!("must not be called") });
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn if_none_match_compares_weakly() {
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
            let preconditions = Preconditions::of(&headers);
            assert_eq!(preconditions.has_version("a"), known, "{values:?}");
        }
    }

    #[test]
    fn failed_if_match_names_the_current_etag_and_the_next_step() {
        for (value, next_step) in [
            (
                "\"b\"",
                "has changed, and its ETag is now \"a\"; read it again",
            ),
            (
                "W/\"b\"",
                "has changed, and its ETag is now \"a\"; read it again",
            ),
            (
                "W/\"a\"",
                "it needs the strong ETag, which is \"a\" without",
            ),
            ("bogus", "an ETag is in double quotes, as in \"a\""),
            ("\"b\", a", "an ETag is in double quotes, as in \"a\""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, value.parse().unwrap());
            let failed = Preconditions::of(&headers).check(Some("a")).unwrap_err();
            let detail = failed.into_problem().detail;
            assert!(detail.contains(next_step), "{value}: {detail}");
        }
    }

    #[test]
    fn changes_need_their_preconditions() {
        for (header, value, version, passes) in [
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
            assert_eq!(checked.is_ok(), passes, "{header}: {value}, {version:?}");
        }
    }
}
