//! Headers by which a target tells of its own limit.

use std::time::{Duration, SystemTime};

use doorman_openapi::{Capacity, Seconds, Seen, TargetHeaders};
use http::{HeaderMap, HeaderName};

use super::{
    InvalidHeaders,
    retry_after::{sent_at, text},
};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// A reset above it is a Unix time.
const FIRST_UNIX_TIME: f64 = 1e9;
const SECONDS_PER_DAY: i64 = 86_400;

/// The rest of the limit, and the time until it is whole again. `None` without such headers,
/// and if it is whole.
pub(super) fn read(
    headers: &HeaderMap,
    family: TargetHeaders,
) -> Result<Option<(Capacity, Duration)>, InvalidHeaders> {
    let told = if family == TargetHeaders::Standard && headers.contains_key(RATE_LIMIT) {
        rate_limit(headers)
    } else {
        pair(headers, family)
    };
    let Some((remaining, reset)) = told? else {
        return Ok(None);
    };
    if reset <= 0.0 {
        return Ok(None);
    }
    let remaining = Capacity::new(remaining).map_err(|_| InvalidHeaders)?;
    let reset = Seconds::new(reset).map_err(|_| InvalidHeaders)?;
    let seen = Seen::new(remaining, reset).ok_or(InvalidHeaders)?;
    Ok(Some((seen.remaining, seen.reset.duration())))
}

/// The rest of the limit, and the seconds until it is whole.
type Told = Result<Option<(f64, f64)>, InvalidHeaders>;

/// Two headers, of which both are there or none.
fn pair(headers: &HeaderMap, family: TargetHeaders) -> Told {
    let Some((remaining, reset)) = names(family) else {
        return Ok(None);
    };
    if !headers.contains_key(remaining) && !headers.contains_key(reset) {
        return Ok(None);
    }
    let read = || {
        let remaining = number(text(headers, remaining)?)?;
        let reset = text(headers, reset)?;
        let reset = match family {
            TargetHeaders::Standard => seconds_or_unix_time(headers, reset),
            TargetHeaders::OpenaiRequests | TargetHeaders::OpenaiTokens => duration(reset),
            _ => until(headers, unix_time(reset)?),
        };
        Some((remaining, reset?))
    };
    read().map(Some).ok_or(InvalidHeaders)
}

/// The headers of what is left, and of the time until it is whole.
fn names(family: TargetHeaders) -> Option<(&'static str, &'static str)> {
    Some(match family {
        TargetHeaders::Standard => ("x-ratelimit-remaining", "x-ratelimit-reset"),
        TargetHeaders::OpenaiRequests => (
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
        ),
        TargetHeaders::OpenaiTokens => ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        TargetHeaders::AnthropicRequests => (
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ),
        TargetHeaders::AnthropicInputTokens => (
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ),
        TargetHeaders::AnthropicOutputTokens => (
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ),
        TargetHeaders::AnthropicTokens => (
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ),
        _ => return None,
    })
}

/// The tightest of the limits in `RateLimit`: a list such as `"minute";r=50;t=30`.
fn rate_limit(headers: &HeaderMap) -> Told {
    let pace = |(left, seconds): (f64, f64)| left / seconds.max(1.0);
    let mut tightest = None;
    for line in headers.get_all(RATE_LIMIT) {
        let line = line.to_str().map_err(|_| InvalidHeaders)?;
        for limit in line.split(',').filter_map(list_item) {
            if tightest.is_none_or(|it| pace(limit) < pace(it)) {
                tightest = Some(limit);
            }
        }
    }
    tightest.map(Some).ok_or(InvalidHeaders)
}

fn list_item(item: &str) -> Option<(f64, f64)> {
    let parameter = |name: &str| {
        let mut parameters = item.split(';').skip(1);
        parameters.find_map(|it| it.trim().strip_prefix(name)?.strip_prefix('='))
    };
    Some((number(parameter("r")?)?, number(parameter("t")?)?))
}

/// The seconds until a time that is told in seconds or as a Unix time.
fn seconds_or_unix_time(headers: &HeaderMap, text: &str) -> Option<f64> {
    let number = number(text)?;
    if number > FIRST_UNIX_TIME {
        until(headers, number)
    } else {
        Some(number)
    }
}

/// The seconds from the `Date` of the response to a Unix time.
fn until(headers: &HeaderMap, unix_time: f64) -> Option<f64> {
    let sent = sent_at(headers)?.duration_since(SystemTime::UNIX_EPOCH);
    Some(unix_time - sent.ok()?.as_secs_f64())
}

/// A decimal number that is not negative.
fn number(text: &str) -> Option<f64> {
    let is_decimal = |it: u8| it.is_ascii_digit() || it == b'.';
    let number = text.bytes().all(is_decimal).then(|| text.parse().ok())?;
    number.filter(|it: &f64| it.is_finite())
}

/// Seconds of a text such as `6m0s`, `1h2m3.5s` or `120ms`.
fn duration(mut text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    if text.is_empty() {
        return None;
    }
    while !text.is_empty() {
        let unit = text.find(|it: char| it.is_ascii_alphabetic())?;
        let (amount, rest) = text.split_at(unit);
        let end = rest.find(|it: char| !it.is_ascii_alphabetic());
        let (unit, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let factor = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number(amount)? * factor;
        text = rest;
    }
    Some(seconds)
}

/// The Unix time of a text such as `2026-11-29T03:25:41.5Z` or `2026-11-29T04:25:41+01:00`.
pub(super) fn unix_time(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone);
    let mut date = date.splitn(3, '-').map(integer);
    let days = days_since_epoch(date.next()??, date.next()??, date.next()??)?;
    let mut time = time.splitn(3, ':');
    let (hours, minutes) = (integer(time.next()?)?, integer(time.next()?)?);
    let seconds = number(time.next()?)?;
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign, offset) => {
            let (hours, minutes) = offset.split_once(':')?;
            let offset = integer(hours)? * 60 + integer(minutes)?;
            if sign == "-" { -offset } else { offset }
        }
    };
    let is_time = hours < 24 && minutes < 60 && seconds < 61.0 && offset.abs() < 1_440;
    let whole = days * SECONDS_PER_DAY + (hours * 60 + minutes - offset) * 60;
    is_time.then_some(whole as f64 + seconds)
}

/// At most four digits.
fn integer(text: &str) -> Option<i64> {
    let is_short = (1..=4).contains(&text.len());
    let is_number = is_short && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}
