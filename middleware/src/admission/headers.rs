//! The `RateLimit-Policy` and `RateLimit` headers of draft-ietf-httpapi-ratelimit-headers-11: lists
//! (RFC 9651) of one item per limit. `RateLimit-Policy` is the limit of the resource, the same at
//! every instance. `RateLimit` is what this instance would admit now.

use doorman_openapi::Moment;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limiter::{Policy, Reading};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
const AVAILABLE: &str = ";r=";
const EFFECTIVE_WINDOW: &str = ";t=";

/// The largest integer of a structured field.
const MAX_INTEGER: u64 = 999_999_999_999_999;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderPolicy {
    Send,
    Omit,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RateLimitHeaders {
    policy: List,
    limit: List,
}

/// A header value. With one item it is allocated once.
type List = Vec<u8>;

/// The start of a limit's items: its name as a quoted string of printable ASCII, and the first
/// parameter.
#[derive(Debug, Clone)]
pub(crate) struct LimitItem {
    policy: String,
    limit: String,
}

impl LimitItem {
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

impl RateLimitHeaders {
    /// Adds a limit that did not refuse the request.
    pub(crate) fn add(&mut self, item: &LimitItem, reading: &Reading, now: Moment) {
        self.add_policy(item, reading);
        let Some(rate) = reading.rate else { return };
        let available = reading.left.max(0.0).floor();
        let next = (available + 1.0 - reading.left) / rate;
        let window = next.min(reading.changes_at.seconds_since(now));
        self.add_limit(item, integer(available), whole_seconds(window));
    }

    /// Adds the limit that refused the request.
    pub(crate) fn add_exceeded(&mut self, item: &LimitItem, reading: &Reading, retry_after: u64) {
        self.add_policy(item, reading);
        self.add_limit(item, 0, retry_after);
    }

    fn add_policy(&mut self, item: &LimitItem, reading: &Reading) {
        if let Some((quota, window)) = reading.policy.and_then(whole_quota) {
            push_item(&mut self.policy, &item.policy, quota, WINDOW, window);
        }
    }

    fn add_limit(&mut self, item: &LimitItem, available: u64, window: u64) {
        let list = &mut self.limit;
        push_item(list, &item.limit, available, EFFECTIVE_WINDOW, window);
    }

    /// Appends to the headers that an inner layer may have set.
    pub(crate) fn append_to(self, headers: &mut HeaderMap) {
        append(headers, POLICY, self.policy);
        append(headers, LIMIT, self.limit);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, list: List) {
    // Printable ASCII is always valid.
    if !list.is_empty()
        && let Ok(value) = HeaderValue::try_from(list)
    {
        headers.append(name, value);
    }
}

fn push_item(list: &mut List, begin: &str, first: u64, between: &str, second: u64) {
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

/// Rounded up, at least 1.
fn whole_seconds(seconds: f64) -> u64 {
    integer(seconds.ceil().max(1.0))
}

/// A whole number. The cast saturates.
fn integer(number: f64) -> u64 {
    number as u64
}

/// The quota in the fewest whole seconds that hold the policy's own period, or one unit in as many
/// seconds as it takes.
fn whole_quota(Policy { limit, per }: Policy) -> Option<(u64, u64)> {
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
