//! `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.
//!
//! A draft, not a standard: every name and letter of it is in this module. Both fields are lists (RFC 9651) with one item a limit;
//! `RateLimit-Policy` says the whole limit of the resource, the same on every instance, and `RateLimit` what this instance would
//! admit now.

use std::fmt::Write as _;

use bytes::Bytes;
use doorman_openapi::Moment;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limiter::{Policy, Reading};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The largest integer of a structured field.
const MAX_INTEGER: f64 = 999_999_999_999_999.0;

/// The fields of one response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    policy: String,
    limit: String,
}

/// The name of a limit, as a structured field spells it: a quoted string of printable ASCII.
#[derive(Debug, Clone)]
pub(crate) struct FieldName(String);

impl FieldName {
    pub(crate) fn new(name: &str) -> Self {
        let mut quoted = String::with_capacity(name.len().saturating_add(2));
        quoted.push('"');
        for character in name.chars() {
            match character {
                '"' | '\\' => quoted.extend(['\\', character]),
                ' '..='~' => quoted.push(character),
                _ => quoted.push('?'),
            }
        }
        quoted.push('"');
        Self(quoted)
    }
}

impl Fields {
    /// Adds a limit that admitted the request, or was not the one that refused it.
    pub(crate) fn add(&mut self, name: &FieldName, reading: &Reading, now: Moment) {
        self.add_policy(name, reading);
        let Some(rate) = reading.rate else { return };
        if reading.left.is_finite() {
            let available = reading.left.max(0.0).floor();
            let changes = whole_seconds(reading.changes_at.seconds_since(now));
            let next = whole_seconds((available + 1.0 - reading.left) / rate);
            self.add_limit(name, available, next.min(changes));
        }
    }

    /// Adds the limit that refused the request.
    pub(crate) fn add_refusing(&mut self, name: &FieldName, reading: &Reading, retry_after: u64) {
        self.add_policy(name, reading);
        self.add_limit(name, 0.0, retry_after as f64);
    }

    fn add_policy(&mut self, name: &FieldName, reading: &Reading) {
        if let Some((quota, window)) = reading.policy.and_then(quota) {
            separate(&mut self.policy);
            // Writing to a string does not fail.
            write!(self.policy, "{};q={quota};w={window}", name.0).ok();
        }
    }

    fn add_limit(&mut self, name: &FieldName, available: f64, window: f64) {
        let (available, window) = (available.min(MAX_INTEGER), window.min(MAX_INTEGER));
        separate(&mut self.limit);
        write!(self.limit, "{};r={available};t={window}", name.0).ok();
    }

    /// Adds the fields to a response. One that has them already, of another layer, keeps those too.
    pub(crate) fn append_to(self, headers: &mut HeaderMap) {
        for (name, value) in [(POLICY, self.policy), (LIMIT, self.limit)] {
            // Printable ASCII always makes a value.
            if !value.is_empty()
                && let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value))
            {
                headers.append(name, value);
            }
        }
    }
}

fn separate(list: &mut String) {
    if !list.is_empty() {
        list.push_str(", ");
    }
}

/// Whole seconds, rounded up, and at least one.
fn whole_seconds(seconds: f64) -> f64 {
    seconds.ceil().max(1.0)
}

/// A policy in the whole numbers of the draft: as much as is in the fewest whole seconds that hold the policy's own time, and at
/// least one unit.
fn quota(Policy { limit, per }: Policy) -> Option<(f64, f64)> {
    let window = whole_seconds(per);
    let quota = (limit * (window / per)).floor();
    if quota >= 1.0 || limit <= 0.0 {
        return Some((quota.clamp(0.0, MAX_INTEGER), window.min(MAX_INTEGER)));
    }
    let window = whole_seconds(per / limit);
    (window <= MAX_INTEGER).then_some((1.0, window))
}

#[cfg(test)]
mod tests;
