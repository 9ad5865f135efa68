//! `RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.
//!
//! A draft, not a standard: every name and letter of it is in this module. Both fields are lists (RFC 9651) with one item a limit;
//! `RateLimit-Policy` says the whole limit of the resource, the same on every instance, and `RateLimit` what this instance would
//! admit now.

use doorman_openapi::Moment;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limiter::{Policy, Reading};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

// The parameters of a policy: a quota, and the seconds it is for.
const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
// The parameters of a limit: what is available, and the seconds in which no more than that is.
const AVAILABLE: &str = ";r=";
const EFFECTIVE_WINDOW: &str = ";t=";

/// The largest integer of a structured field.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Whether responses tell the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    Limits,
    Nothing,
}

/// The fields of one response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    policy: Line,
    limit: Line,
}

/// The text of a field: of one item it is allocated once, and becomes the value of the header as it is.
type Line = Vec<u8>;

/// The name of a limit, as a structured field spells it (a quoted string of printable ASCII), and what follows it in either field.
#[derive(Debug, Clone)]
pub(crate) struct FieldName {
    policy: String,
    limit: String,
}

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
        Self {
            policy: format!("{quoted}{QUOTA}"),
            limit: format!("{quoted}{AVAILABLE}"),
        }
    }
}

impl Fields {
    /// Adds a limit that admitted the request, or was not the one that refused it.
    pub(crate) fn add(&mut self, name: &FieldName, reading: &Reading, now: Moment) {
        self.add_policy(name, reading);
        let Some(rate) = reading.rate else { return };
        let available = reading.left.max(0.0).floor();
        let next = (available + 1.0 - reading.left) / rate;
        let window = next.min(reading.changes_at.seconds_since(now));
        self.add_limit(name, integer(available), whole_seconds(window));
    }

    /// Adds the limit that refused the request.
    pub(crate) fn add_refusing(&mut self, name: &FieldName, reading: &Reading, retry_after: u64) {
        self.add_policy(name, reading);
        self.add_limit(name, 0, retry_after);
    }

    fn add_policy(&mut self, name: &FieldName, reading: &Reading) {
        if let Some((quota, window)) = reading.policy.and_then(quota) {
            add(&mut self.policy, &name.policy, quota, WINDOW, window);
        }
    }

    fn add_limit(&mut self, name: &FieldName, available: u64, window: u64) {
        let list = &mut self.limit;
        add(list, &name.limit, available, EFFECTIVE_WINDOW, window);
    }

    /// Adds the fields to a response. One that has them already, of another layer, keeps those too.
    pub(crate) fn append_to(self, headers: &mut HeaderMap) {
        append(headers, POLICY, self.policy);
        append(headers, LIMIT, self.limit);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, line: Line) {
    // Printable ASCII always makes a value.
    if !line.is_empty()
        && let Ok(value) = HeaderValue::try_from(line)
    {
        headers.append(name, value);
    }
}

/// Adds an item: what it begins with and a number, what comes between and another.
fn add(list: &mut Line, begin: &str, first: u64, between: &str, second: u64) {
    let mut digits = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [ones, others] = &mut digits;
    let first = ones.format(first.min(MAX_INTEGER));
    let second = others.format(second.min(MAX_INTEGER));
    let separator = if list.is_empty() { "" } else { ", " };
    let item = begin.len() + first.len() + between.len() + second.len();
    list.reserve_exact(separator.len() + item);
    list.extend_from_slice(separator.as_bytes());
    list.extend_from_slice(begin.as_bytes());
    list.extend_from_slice(first.as_bytes());
    list.extend_from_slice(between.as_bytes());
    list.extend_from_slice(second.as_bytes());
}

/// Whole seconds, rounded up, and at least one.
fn whole_seconds(seconds: f64) -> u64 {
    integer(seconds.ceil().max(1.0))
}

/// A number that is whole already; a cast takes what is too large to the largest.
fn integer(number: f64) -> u64 {
    number as u64
}

/// A policy in the whole numbers of the draft: as much as is in the fewest whole seconds that hold the policy's own time, and at
/// least one unit.
fn quota(Policy { limit, per }: Policy) -> Option<(u64, u64)> {
    let window = whole_seconds(per);
    let quota = integer((limit * (window as f64 / per)).floor());
    if quota > 0 || limit <= 0.0 {
        return Some((quota, window));
    }
    let window = whole_seconds(per / limit);
    (window <= MAX_INTEGER).then_some((1, window))
}

#[cfg(test)]
mod tests;
