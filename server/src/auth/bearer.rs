//! The bearer token of a request.

use axum::http::{HeaderMap, header};
use doorman_jwt::MAX_TOKEN;

use super::Unauthenticated;

/// Finds the bearer token (RFC 6750, section 2.1; the scheme is case-insensitive by RFC 9110,
/// section 11.1). Two headers are rejected: another program on the way might use the other one.
pub(super) fn token(headers: &HeaderMap) -> Result<&str, Unauthenticated> {
    let mut lines = headers.get_all(header::AUTHORIZATION).into_iter();
    let value = lines.next().ok_or(Unauthenticated::NoToken)?;
    if lines.next().is_some() {
        return Err(Unauthenticated::Malformed);
    }
    let text = value
        .to_str()
        .map_err(|_| Unauthenticated::Malformed)?
        .trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Unauthenticated::NoToken);
    }
    let token = token.trim_start();
    let is_token = (1..=MAX_TOKEN).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
    is_token.then_some(token).ok_or(Unauthenticated::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&str]) -> Result<String, Unauthenticated> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        token(&headers).map(str::to_owned)
    }

    #[test]
    fn token_is_read_from_a_single_bearer_header() {
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
            assert_eq!(found(absent), Err(Unauthenticated::NoToken), "{absent:?}");
        }
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 1));
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
            assert_eq!(
                found(malformed),
                Err(Unauthenticated::Malformed),
                "{malformed:?}"
            );
        }
    }
}
