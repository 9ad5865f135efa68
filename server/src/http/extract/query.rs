//! Query strings. An unknown or repeated parameter is an error: it may be a misspelt filter.

use axum::http::Uri;
use doorman_config::suggestion;
use doorman_openapi::SortBy;
use percent_encoding::percent_decode_str;
use utoipa::IntoParams;

use crate::http::error::ApiError;

const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 50;

/// Parses a query whose parameters are all in `known`; returns their values in the same order.
///
/// # Errors
/// 400 for an unknown or repeated parameter, or one that is not UTF-8.
pub(crate) fn parse<const N: usize>(
    uri: &Uri,
    known: [&str; N],
) -> Result<[Option<String>; N], ApiError> {
    let mut values = [const { None }; N];
    let pairs = uri.query().unwrap_or_default().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name =
            decode(name).ok_or_else(|| ApiError::malformed("query parameter name is not UTF-8"))?;
        let Some((_, slot)) = known.iter().zip(&mut values).find(|(it, _)| **it == name) else {
            return Err(unknown(&name, &known));
        };
        let value = decode(value)
            .ok_or_else(|| ApiError::malformed(format!("query parameter `{name}` is not UTF-8")))?;
        if slot.replace(value).is_some() {
            return Err(ApiError::malformed(format!(
                "duplicate query parameter `{name}`"
            )));
        }
    }
    Ok(values)
}

/// The part of a list that a request asks for.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// The page size: 50 by default, at most 1000; a larger value is lowered
    #[param(value_type = Option<u64>, minimum = 1, example = 50)]
    pub(crate) limit: usize,
    /// The `next_cursor` of the previous page
    pub(crate) cursor: Option<String>,
}

impl Page {
    /// # Errors
    /// 400 unless the limit is a positive integer.
    pub(crate) fn parse(limit: Option<&str>, cursor: Option<String>) -> Result<Self, ApiError> {
        let limit = self::limit(limit)?;
        Ok(Self { limit, cursor })
    }
}

/// Parses a page size; too large a value is lowered to the maximum.
///
/// # Errors
/// 400 unless it is a positive integer.
fn limit(text: Option<&str>) -> Result<usize, ApiError> {
    let Some(text) = text else {
        return Ok(DEFAULT_LIMIT);
    };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    if digits && limit > 0 {
        Ok(limit)
    } else {
        Err(ApiError::malformed(
            "query parameter `limit` must be a positive integer",
        ))
    }
}

/// Parses the order of a sorted list.
///
/// # Errors
/// 400 unless it is one, or with a `cursor`: a sorted list has one page.
pub(crate) fn sort(text: Option<&str>, cursor: Option<&str>) -> Result<Option<SortBy>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let Some(sort) = SortBy::from_name(text) else {
        let names = SortBy::ALL.map(SortBy::name).join(", ");
        return Err(ApiError::malformed(format!(
            "query parameter `sort` must be one of {names}"
        )));
    };
    if cursor.is_some_and(|cursor| !cursor.is_empty()) {
        return Err(ApiError::malformed(
            "query parameters `cursor` and `sort` cannot be combined: a sorted list has one page",
        ));
    }
    Ok(Some(sort))
}

fn unknown(name: &str, known: &[&str]) -> ApiError {
    let meant = suggestion(name, known).map(|meant| format!("did you mean `{meant}`?"));
    let hint = meant.unwrap_or_else(|| match known {
        [] => "this endpoint takes none".to_owned(),
        known => format!("expected {}", known.join(", ")),
    });
    let name: String = name.chars().take(64).collect();
    ApiError::malformed(format!("unknown query parameter `{name}`; {hint}"))
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(query: &str) -> Result<[Option<String>; 2], String> {
        let uri = format!("/v1/resources?{query}").parse().unwrap();
        parse(&uri, ["prefix", "limit"]).map_err(|error| error.into_problem().detail)
    }

    #[test]
    fn values_come_in_the_order_of_the_names() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(values(""), Ok([None, None]));
        assert_eq!(values("&&"), Ok([None, None]));
        assert_eq!(values("limit=5&prefix=a"), Ok([text("a"), text("5")]));
        assert_eq!(values("prefix=a%2Fb+c%26"), Ok([text("a/b c&"), None]));
        assert_eq!(values("prefix"), Ok([text(""), None]));
        assert_eq!(values("prefix=a=b"), Ok([text("a=b"), None]));
    }

    #[test]
    fn unknown_and_repeated_parameters_are_rejected() {
        for (query, word) in [
            (
                "prefx=a",
                "unknown query parameter `prefx`; did you mean `prefix`?",
            ),
            (
                "sort=a",
                "unknown query parameter `sort`; expected prefix, limit",
            ),
            ("Prefix=a", "`Prefix`"),
            ("limit=1&limit=2", "`limit`"),
            ("prefix=%ff", "`prefix`"),
            ("%ff=1", "not UTF-8"),
        ] {
            let detail = values(query).unwrap_err();
            assert!(detail.contains(word), "{query}: {detail}");
        }
    }

    #[test]
    fn limit_is_a_positive_integer() {
        assert_eq!(limit(None), Ok(50));
        assert_eq!(limit(Some("1")), Ok(1));
        assert_eq!(limit(Some("1000")), Ok(1_000));
        assert_eq!(limit(Some("1001")), Ok(1_000));
        assert_eq!(limit(Some("99999999999999999999999")), Ok(1_000));
        for bad in ["", "0", "-1", "+1", "1.5", "ten", "1e3", "٣"] {
            assert!(limit(Some(bad)).is_err(), "{bad}");
        }
    }
}
