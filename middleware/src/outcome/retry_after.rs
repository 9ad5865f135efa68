//! The wait for which a response asks.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header, header::AsHeaderName};

/// `Retry-After` in seconds or as a date; `None` if it is missing or invalid.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, header::RETRY_AFTER)?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    Some(until.duration_since(sent_at(headers)?).unwrap_or_default())
}

/// The `Date` of a response. Times in it count from there, so that clocks need not agree.
pub(super) fn sent_at(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, header::DATE)?).ok()
}

pub(super) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}
