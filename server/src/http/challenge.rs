//! What `WWW-Authenticate` says: RFC 6750, section 3.

use axum::http::HeaderValue;
use doorman_openapi::{FieldError, ProblemType, Scope, Scopes};

use super::refusal::Refusal;

pub(super) const NO_TOKEN: &str = r#"Bearer realm="doorman""#;
pub(super) const MALFORMED: &str = r#"Bearer realm="doorman", error="invalid_request", error_description="one authorization header must hold one bearer token of at most 8192 bytes""#;
pub(super) const INVALID: &str = r#"Bearer realm="doorman", error="invalid_token", error_description="the token does not count here""#;
pub(super) const EARLY: &str = r#"Bearer realm="doorman", error="invalid_token", error_description="the token does not count yet""#;
pub(super) const EXPIRED: &str =
    r#"Bearer realm="doorman", error="invalid_token", error_description="the token has expired""#;
const OUT_OF_BOUNDS: &str = r#"Bearer realm="doorman", error="insufficient_scope", error_description="the token is bound to others""#;

/// The refusal of a token without any of these scopes.
pub(super) fn scope(any_of: &[Scope]) -> Refusal {
    let names: Vec<_> = any_of.iter().map(|scope| scope.name()).collect();
    let detail = format!("the token needs the scope {}", names.join(" or "));
    let listed: Scopes = any_of.iter().copied().collect();
    let says = format!(
        r#"Bearer realm="doorman", error="insufficient_scope", error_description="{detail}", scope="{listed}""#
    );
    let refusal = Refusal::new(ProblemType::Forbidden, detail);
    // Names of scopes have no character that a header cannot carry.
    match HeaderValue::try_from(says) {
        Ok(says) => refusal.challenging(says),
        Err(_) => refusal,
    }
}

/// The refusal of a token that has the scope, but is bound to others than those that the call names.
pub(super) fn restrictions(detail: impl Into<String>, errors: Vec<FieldError>) -> Refusal {
    Refusal::new(ProblemType::Forbidden, detail)
        .with_errors(errors)
        .challenging(HeaderValue::from_static(OUT_OF_BOUNDS))
}
