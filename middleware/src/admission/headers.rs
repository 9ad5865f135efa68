//! The `RateLimit-Policy` and `RateLimit` headers of draft-ietf-httpapi-ratelimit-headers-11: lists
//! (RFC 9651) of one item per limit. `RateLimit-Policy` is the limit of the resource, the same at
//! every instance. `RateLimit` is what this instance would admit now.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use doorman_openapi::{Moment, Unit};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limiter::{Policy, Reading};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const QUOTA: &str = ";q=";
const WINDOW: &str = ";w=";
/// The unit of a quota of a gauge.
const CONCURRENT: &str = ";qu=\"concurrent-requests\"";
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

/// A header value: a list of items.
#[derive(Debug, Clone, Default)]
enum List {
    #[default]
    Empty,
    /// One item, whose value others may share.
    One(HeaderValue),
    Several(Vec<u8>),
}

/// Values of `RateLimit-Policy` that a thread remembers.
const REMEMBERED: usize = 16;

/// The last policy of a limit, with its header value.
#[derive(Debug)]
struct Remembered {
    /// The number of the limit's [`LimitItem`].
    number: u64,
    policy: Policy,
    value: HeaderValue,
}

thread_local! {
    /// By the number of the item. Each thread has values of its own, since threads would contend
    /// for their reference counts.
    static POLICIES: RefCell<[Option<Remembered>; REMEMBERED]> =
        const { RefCell::new([const { None }; REMEMBERED]) };
}

/// The start of a limit's items: its name as a quoted string of printable ASCII, and the first
/// parameter.
#[derive(Debug)]
pub(crate) struct LimitItem {
    /// No other item of the process has it.
    number: u64,
    unit: Unit,
    policy: String,
    limit: String,
}

impl LimitItem {
    pub(crate) fn new(name: &str, unit: Unit) -> Self {
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
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            unit,
            policy: format!("{quoted}{QUOTA}"),
            limit: format!("{quoted}{AVAILABLE}"),
        }
    }
}

impl RateLimitHeaders {
    /// Adds a limit that did not refuse the request.
    pub(crate) fn add(&mut self, item: &LimitItem, reading: &Reading, now: Moment) {
        self.add_policy(item, reading);
        if item.unit == Unit::Gauge {
            if reading.policy.is_some() {
                let available = integer(reading.left.max(0.0).min(MAX_INTEGER as f64));
                self.limit.push(units_value(&item.limit, available));
            }
            return;
        }
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
        let Some(policy) = reading.policy else { return };
        let slot = usize::try_from(item.number).unwrap_or_default() % REMEMBERED;
        POLICIES.with_borrow_mut(|policies| {
            let Some(slot) = policies.get_mut(slot) else {
                return;
            };
            if let Some(known) = slot
                && known.number == item.number
                && known.policy == policy
            {
                self.policy.push(known.value.clone());
                return;
            }
            let value = match item.unit {
                Unit::Rate => match whole_quota(policy) {
                    Some((quota, window)) => item_value(&item.policy, quota, WINDOW, window),
                    None => return,
                },
                Unit::Gauge => {
                    let quota = integer(policy.limit.floor()).min(MAX_INTEGER);
                    header_value(format!("{}{quota}{CONCURRENT}", item.policy))
                }
            };
            *slot = Some(Remembered {
                number: item.number,
                policy,
                value: value.clone(),
            });
            self.policy.push(value);
        });
    }

    fn add_limit(&mut self, item: &LimitItem, available: u64, window: u64) {
        let value = item_value(&item.limit, available, EFFECTIVE_WINDOW, window);
        self.limit.push(value);
    }

    /// Appends to the headers that an inner layer may have set.
    pub(crate) fn append_to(self, headers: &mut HeaderMap) {
        if let Some(policy) = self.policy.into_value() {
            headers.append(POLICY, policy);
        }
        if let Some(limit) = self.limit.into_value() {
            headers.append(LIMIT, limit);
        }
    }
}

impl List {
    fn push(&mut self, item: HeaderValue) {
        match self {
            Self::Empty => *self = Self::One(item),
            Self::One(first) => {
                let mut list = first.as_bytes().to_vec();
                push_to(&mut list, &item);
                *self = Self::Several(list);
            }
            Self::Several(list) => push_to(list, &item),
        }
    }

    fn into_value(self) -> Option<HeaderValue> {
        match self {
            Self::Empty => None,
            Self::One(value) => Some(value),
            // Printable ASCII is always valid.
            Self::Several(list) => HeaderValue::try_from(list).ok(),
        }
    }
}

fn push_to(list: &mut Vec<u8>, item: &HeaderValue) {
    list.extend_from_slice(b", ");
    list.extend_from_slice(item.as_bytes());
}

fn item_value(begin: &str, first: u64, between: &str, second: u64) -> HeaderValue {
    let mut digits = [itoa::Buffer::new(), itoa::Buffer::new()];
    let [ones, others] = &mut digits;
    let first = ones.format(first.min(MAX_INTEGER));
    let second = others.format(second.min(MAX_INTEGER));
    let len = begin.len() + first.len() + between.len() + second.len();
    let mut item = Vec::with_capacity(len);
    for part in [begin, first, between, second] {
        item.extend_from_slice(part.as_bytes());
    }
    header_value(item)
}

/// An item without a window.
fn units_value(begin: &str, available: u64) -> HeaderValue {
    header_value(format!("{begin}{available}"))
}

/// Of printable ASCII, which is always valid.
fn header_value(item: impl Into<Vec<u8>>) -> HeaderValue {
    HeaderValue::try_from(item.into()).unwrap_or(HeaderValue::from_static(""))
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
