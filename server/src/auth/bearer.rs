//! The token in the headers of a request.

use axum::http::{HeaderMap, header};

/// No token is longer, in bytes; nothing is looked at in one that is.
pub(super) const LONGEST_TOKEN: usize = 8 * 1024;

/// Why there is no token to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoToken {
    /// The request says nothing of who sends it, or says it in another way.
    Absent,
    /// There are several `Authorization` headers, no token behind `Bearer`, or one that is too long or no token at all.
    Malformed,
}

/// Finds the bearer token: RFC 6750, section 2.1. The scheme is written in either case (RFC 9110, section 11.1).
///
/// Of two headers another program on the way might take the other one; so neither counts.
pub(super) fn token(headers: &HeaderMap) -> Result<&str, NoToken> {
    let mut lines = headers.get_all(header::AUTHORIZATION).into_iter();
    let value = lines.next().ok_or(NoToken::Absent)?;
    if lines.next().is_some() {
        return Err(NoToken::Malformed);
    }
    let text = value.to_str().map_err(|_| NoToken::Malformed)?.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(NoToken::Absent);
    }
    let token = token.trim_start();
    let is_token = (1..=LONGEST_TOKEN).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    is_token.then_some(token).ok_or(NoToken::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&str]) -> Result<String, NoToken> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        token(&headers).map(str::to_owned)
    }

    #[test]
    fn a_token_stands_behind_its_scheme_in_one_header() {
        for value in ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c "] {
            assert_eq!(found(&[value]).unwrap(), "a.b.c", "{value}");
        }
        for absent in [
            &[][..],
            &[""],
            &["Basic YTpi"],
            &["a.b.c"],
            &["Bearera.b.c"],
        ] {
            assert_eq!(found(absent), Err(NoToken::Absent), "{absent:?}");
        }
        let long = format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
        for malformed in [
            &["Bearer a.b.c", "Bearer a.b.c"][..],
            &["Bearer a.b.c", "Basic YTpi"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer a.b.c, Bearer d"],
            &["Bearer \"a\""],
            &[&long],
        ] {
            assert_eq!(found(malformed), Err(NoToken::Malformed), "{malformed:?}");
        }
    }
}
