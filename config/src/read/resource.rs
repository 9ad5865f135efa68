//! The `resource` of a rule: which placeholders there are.

use doorman_openapi::{KeyTemplatePart, parse_key_template};
use http::HeaderName;

use crate::quote::Quoted;

pub(super) const EXPECTED: &str = "a resource, such as \"tenant/{jwt:sub}\"";

const PLACEHOLDERS: &str =
    "{header:NAME}, {jwt:CLAIM}, {client_ip}, {method}, {route}, {host} and {api_key}";

/// Checks a resource; why it is none, in words that fit behind its name.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err(format!("must be {EXPECTED}, without control characters"));
    }
    let parts = parse_key_template(text).map_err(|why| format!("must be {EXPECTED}; {why}"))?;
    parts.into_iter().try_for_each(|part| match part {
        KeyTemplatePart::Text(_) => Ok(()),
        KeyTemplatePart::Placeholder(name) => placeholder(name),
    })
}

/// The text that every id of this resource begins with.
pub(super) fn beginning(text: &str) -> &str {
    text.split('{').next().unwrap_or_default()
}

fn placeholder(name: &str) -> Result<(), String> {
    match name.split_once(':') {
        None if ["client_ip", "method", "route", "host", "api_key"].contains(&name) => Ok(()),
        Some(("header", header)) => match HeaderName::from_bytes(header.as_bytes()) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "must name a header that can be, not {}",
                Quoted(header)
            )),
        },
        Some(("jwt", claim)) if !claim.is_empty() => Ok(()),
        Some(_) | None => Err(format!(
            "must have no other placeholders than {PLACEHOLDERS}, not {}",
            Quoted(&format!("{{{name}}}"))
        )),
    }
}
