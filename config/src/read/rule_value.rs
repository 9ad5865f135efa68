//! The values of a rule's fields.

use doorman_openapi::{Capacity, Fallback, OnMissingKey, RuleName};
use http::Method;

use super::{
    resource,
    value::{Form, Refusal, checked, number, text},
};
use crate::{Glob, InvalidGlob, nearest::nearest, node::Value, quote::Quoted};

pub(super) const NAME: Form<RuleName> = Form {
    expected: "a name of 1 to 256 bytes of UTF-8 without control characters",
    read: |value| RuleName::new(text(value)?).map_err(|_| Refusal::NotAsExpected),
};

pub(super) const SERVICE: Form<Glob> = Form {
    expected: "a glob over the names of services, such as \"orders*\"",
    read: |value| {
        let text = text(value)?;
        Glob::new(&text).map_err(|invalid: InvalidGlob| {
            Refusal::Because(format!("{invalid}, not {}", Quoted(&text)))
        })
    },
};

/// The methods that HTTP itself has (RFC 9110, RFC 5789).
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

pub(super) const METHOD: Form<String> = Form {
    expected: "a method in upper case, such as GET",
    read: |value| {
        let text = text(value)?;
        if METHODS.contains(&text.as_str()) {
            return Ok(text);
        }
        if let Some(meant) = nearest(&text, &METHODS) {
            return Err(Refusal::Because(format!(
                "must be a method in upper case, not {}; did you mean {meant}?",
                Quoted(&text)
            )));
        }
        // Others are for services that speak more than HTTP's own.
        let is_one = Method::from_bytes(text.as_bytes()).is_ok();
        if is_one && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            Ok(text)
        } else {
            Err(Refusal::NotAsExpected)
        }
    },
};

/// The most bytes that a path may have.
const MAX_PATH_BYTES: usize = 1024;

pub(super) const PATH: Form<String> = Form {
    expected: "a path as axum writes routes, such as \"/v1/orders/{id}\"",
    read: |value| {
        let text = text(value)?;
        if !text.starts_with('/') || text.chars().any(char::is_control) {
            return Err(Refusal::NotAsExpected);
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(Refusal::Because(format!(
                "must have at most {MAX_PATH_BYTES} bytes"
            )));
        }
        // What axum itself refuses, as it meant placeholders in earlier versions.
        if text.split('/').any(|it| it.starts_with([':', '*'])) {
            return Err(Refusal::Because(format!(
                "must have its placeholders in braces, such as {{id}} or {{*rest}}, not {}",
                Quoted(&text)
            )));
        }
        match matchit::Router::new().insert(text.as_str(), ()) {
            Ok(()) => Ok(text),
            Err(_) => Err(Refusal::Because(format!(
                "must have placeholders that have a name and end with their segment, and {{*rest}} at its end, not {}",
                Quoted(&text)
            ))),
        }
    },
};

pub(super) const RESOURCE: Form<String> = Form {
    expected: resource::EXPECTED,
    read: |value| {
        let text = text(value)?;
        match resource::check(&text) {
            Ok(()) => Ok(text),
            Err(why) => Err(Refusal::Because(why)),
        }
    },
};

pub(super) const COST: Form<Capacity> = Form {
    expected: "a number above 0 and at most 1e15",
    read: |value| {
        let cost = checked(number(value)?, Capacity::new)?;
        (cost > Capacity::ZERO)
            .then_some(cost)
            .ok_or(Refusal::NotAsExpected)
    },
};

/// What becomes of a request for which nothing is left, before its delay is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Reject,
    Delay,
    Shadow,
    Exempt,
}

pub(super) const ACTION: Form<Action> = Form {
    expected: "reject, delay, shadow or exempt",
    read: |value| match value.as_text() {
        Some("reject") => Ok(Action::Reject),
        Some("delay") => Ok(Action::Delay),
        Some("shadow") => Ok(Action::Shadow),
        Some("exempt") => Ok(Action::Exempt),
        _ => Err(Refusal::NotAsExpected),
    },
};

pub(super) const ON_MISSING_KEY: Form<OnMissingKey> = Form {
    expected: "shared, skip or reject",
    read: |value| match value.as_text() {
        Some("shared") => Ok(OnMissingKey::Shared),
        Some("skip") => Ok(OnMissingKey::Skip),
        Some("reject") => Ok(OnMissingKey::Reject),
        _ => Err(Refusal::NotAsExpected),
    },
};

pub(super) const FALLBACK: Form<Fallback> = Form {
    expected: "safe, optimistic or pessimistic",
    read: |value| match value.as_text() {
        Some("safe") => Ok(Fallback::Safe),
        Some("optimistic") => Ok(Fallback::Optimistic),
        Some("pessimistic") => Ok(Fallback::Pessimistic),
        _ => Err(Refusal::NotAsExpected),
    },
};

pub(super) const PRIORITY: Form<i32> = Form {
    expected: "a whole number from -2147483648 to 2147483647",
    read: |value| match value {
        Value::Number { value, .. } => whole(*value).ok_or(Refusal::NotAsExpected),
        Value::Nothing | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Err(Refusal::NotAsExpected)
        }
    },
};

fn whole(number: f64) -> Option<i32> {
    let within = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
    (within && number.fract() == 0.0).then_some(number as i32)
}
