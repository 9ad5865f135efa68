//! Log lines of answered requests. Successes are logged at `debug`, because most are renewals;
//! document changes, rejections by authentication and failures by default, a few per second.

use std::time::Duration;

use axum::http::Uri;
use doorman_openapi::{Moment, paths};
use tracing::Level;

use super::context::{CallerLabel, current};
use crate::util::{log_throttle::LogThrottle, peer::PeerAddr};

/// Lines of one class per second.
const LINES: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// Longer paths are cut, in bytes.
const MAX_PATH: usize = 256;

#[derive(Debug)]
pub(super) struct LoggedRequest {
    pub(super) method: &'static str,
    /// The path template of the route.
    pub(super) route: &'static str,
    /// Set where the route does not tell the whole path.
    pub(super) uri: Option<Uri>,
    /// Absent in a call without a connection.
    pub(super) peer: Option<PeerAddr>,
}

/// Writes access lines, with a throttle for each class, so that none drowns another.
#[derive(Debug)]
pub(super) struct AccessLog([LogThrottle; Class::Other as usize]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Failed,
    /// 401, which anybody can cause without a token.
    Unauthenticated,
    Forbidden,
    Change,
    /// Not throttled.
    Other,
}

/// A macro because tracing needs the level as a constant.
macro_rules! write_line {
    ($level:ident, $call:expr, $status:expr, $seconds:expr, $suppressed:expr) => {{
        let LoggedRequest { method, route, uri, peer } = $call;
        tracing::event!(
            target: "doorman::access",
            Level::$level,
            method,
            route,
            path = uri.as_ref().map(path),
            peer = peer.map(|it| display(it.ip())),
            status = $status,
            seconds = $seconds,
            issuer = caller(|it| &it.issuer),
            subject = caller(|it| &it.subject),
            failed_check = current(|it| it.failed_check.get().copied()).flatten(),
            left_out = $suppressed,
            "answered"
        )
    }};
}

impl Default for AccessLog {
    fn default() -> Self {
        Self(std::array::from_fn(|_| LogThrottle::new(LINES, SECOND)))
    }
}

impl AccessLog {
    /// Writes the line of the current request, unless it is throttled.
    pub(super) fn log(&self, call: &LoggedRequest, status: u16, seconds: f64, now: Moment) {
        let class = Class::of(call, status);
        let Some(throttle) = self.throttle(class) else {
            return write_line!(DEBUG, call, status, seconds, None::<u64>);
        };
        let Some(suppressed) = throttle.admit(now) else {
            return;
        };
        let suppressed = (suppressed > 0).then_some(suppressed);
        if class == Class::Failed {
            write_line!(WARN, call, status, seconds, suppressed);
        } else {
            write_line!(INFO, call, status, seconds, suppressed);
        }
    }

    fn throttle(&self, class: Class) -> Option<&LogThrottle> {
        self.0.get(class as usize)
    }
}

impl Class {
    fn of(call: &LoggedRequest, status: u16) -> Self {
        let changes = [paths::TEMPLATES, paths::TEMPLATE, paths::RULE];
        match (status, call.method) {
            (500.., _) => Self::Failed,
            (401, _) => Self::Unauthenticated,
            (403, _) => Self::Forbidden,
            (_, "PUT" | "DELETE") if changes.contains(&call.route) => Self::Change,
            _ => Self::Other,
        }
    }
}

/// The path without the query, which may hold secrets.
fn path(uri: &Uri) -> &str {
    let path = uri.path();
    // A path is ASCII, so every index is a boundary.
    path.get(..path.len().min(MAX_PATH)).unwrap_or_default()
}

fn caller(part: impl FnOnce(&CallerLabel) -> &str) -> Option<String> {
    current(|context| Some(part(context.caller.get()?).to_owned())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_throttled_separately() {
        let log = AccessLog::default();
        let now = Moment::from_nanos(1);
        let is_written = |status| {
            let call = LoggedRequest {
                method: "POST",
                route: paths::CAPACITY,
                uri: None,
                peer: None,
            };
            let class = Class::of(&call, status);
            log.throttle(class).unwrap().admit(now).is_some()
        };
        while is_written(401) {}
        assert!(is_written(403));
        while is_written(403) {}
        assert!(is_written(500));
    }
}
