//! Reads a query, and refuses what no call knows: a misspelt filter must not silently show everything.

use axum::http::Uri;
use doorman_openapi::ProblemType;
use percent_encoding::percent_decode_str;

use super::refusal::Refusal;

/// The most elements of a page.
pub(crate) const MAX_LIMIT: usize = 1_000;
/// The elements of a page when nothing is said.
pub(crate) const DEFAULT_LIMIT: usize = 50;

/// The values of a query, of which every key is known and stands once.
#[derive(Debug)]
pub(crate) struct Query<const N: usize> {
    values: [Option<String>; N],
}

impl<const N: usize> Query<N> {
    /// Reads the query of a request that may have these keys; the values come in the order of the keys.
    ///
    /// # Errors
    /// 400 that names an unknown or repeated key, or the key of a value that is not UTF-8.
    pub(crate) fn read(uri: &Uri, known: [&str; N]) -> Result<Self, Refusal> {
        let mut values = [const { None }; N];
        let pairs = uri.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key).ok_or_else(|| bad("the query has a key that is not UTF-8"))?;
            let place = known
                .iter()
                .zip(&mut values)
                .find(|(known, _)| **known == key);
            let Some((_, place)) = place else {
                return Err(bad(unknown(&key, known)));
            };
            let value =
                decode(value).ok_or_else(|| bad(format!("`{key}` in the query must be UTF-8")))?;
            if place.replace(value).is_some() {
                return Err(bad(format!("`{key}` may stand only once in the query")));
            }
        }
        Ok(Self { values })
    }

    pub(crate) fn into_values(self) -> [Option<String>; N] {
        self.values
    }
}

/// Checks that a request to a call that takes no query has none.
///
/// # Errors
/// 400 that names the first key.
pub(crate) fn none(uri: &Uri) -> Result<(), Refusal> {
    Query::read(uri, []).map(|_| ())
}

/// Reads how many elements a page may have: the default when nothing is said, the most there may be when it is more.
///
/// # Errors
/// 400 unless it is a whole number above 0.
pub(crate) fn limit(text: Option<&str>) -> Result<usize, Refusal> {
    let Some(text) = text else {
        return Ok(DEFAULT_LIMIT);
    };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Digits that do not fit are a large number, and large numbers are lowered.
    let limit = text.parse().unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    if digits && limit > 0 {
        Ok(limit)
    } else {
        Err(bad("`limit` in the query must be a whole number above 0"))
    }
}

pub(crate) fn bad(detail: impl Into<String>) -> Refusal {
    Refusal::new(ProblemType::MalformedRequest, detail)
}

fn unknown<const N: usize>(key: &str, known: [&str; N]) -> String {
    let shown: String = key.chars().take(64).collect();
    if known.is_empty() {
        format!("`{shown}` in the query is unknown: this call takes none")
    } else {
        format!(
            "`{shown}` in the query is unknown: this call takes {}",
            known.join(", ")
        )
    }
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<[Option<String>; 2], String> {
        let uri = format!("/?{query}").parse().unwrap();
        Query::read(&uri, ["prefix", "limit"])
            .map(Query::into_values)
            .map_err(|refusal| refusal.into_problem().detail)
    }

    #[test]
    fn reads_values_by_their_keys() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read(""), Ok([None, None]));
        assert_eq!(read("&&"), Ok([None, None]));
        assert_eq!(read("limit=5&prefix=a"), Ok([text("a"), text("5")]));
        assert_eq!(read("prefix=a%2Fb+c%26"), Ok([text("a/b c&"), None]));
        assert_eq!(read("prefix"), Ok([text(""), None]));
        assert_eq!(read("prefix=a=b"), Ok([text("a=b"), None]));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for (query, word) in [
            ("prefx=a", "`prefx`"),
            ("Prefix=a", "`Prefix`"),
            ("limit=1&limit=2", "`limit`"),
            ("prefix=%ff", "`prefix`"),
            ("%ff=1", "not UTF-8"),
        ] {
            let detail = read(query).unwrap_err();
            assert!(detail.contains(word), "{query}: {detail}");
        }
    }

    #[test]
    fn takes_whole_numbers_above_zero_as_limits() {
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
