//! Log lines of answered requests. Successes are logged at `debug`, because most are renewals;
//! document changes, rejections by authentication and failures by default, a few per second.

use std::time::Duration;

use axum::http::Uri;
use doorman_openapi::{Moment, paths};
use tracing::Level;

use super::context::{CallerLabel, RequestContext, current};
use crate::util::{log_throttle::LogThrottle, peer::PeerAddr};

/// Lines of one class per second.
const LINES: u32 = 20;

const SECOND: Duration = Duration::from_secs(1);

/// Longer paths are cut, in bytes.
const MAX_PATH: usize = 256;

#[derive(Debug, Clone, Copy)]
pub(super) struct Answered<'a> {
    pub(super) method: &'static str,
    /// The path template of the route.
    pub(super) route: &'static str,
    /// Set where the route does not tell the whole path.
    pub(super) uri: Option<&'a Uri>,
    /// Absent in a call without a connection.
    pub(super) peer: Option<PeerAddr>,
    pub(super) status: u16,
    pub(super) seconds: f64,
}

/// Writes access lines, with a throttle for each class, so that none drowns another.
#[derive(Debug)]
pub(super) struct AccessLog {
    failed: LogThrottle,
    unauthenticated: LogThrottle,
    forbidden: LogThrottle,
    changes: LogThrottle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Failed,
    /// 401, which anybody can cause without a token.
    Unauthenticated,
    Forbidden,
    Change,
    Other,
}

/// A macro because tracing needs the level as a constant.
macro_rules! write_line {
    ($level:ident, $answered:expr, $suppressed:expr) => {{
        let Answered { method, route, uri, peer, status, seconds } = $answered;
        tracing::event!(
            target: "doorman::access",
            Level::$level,
            method,
            route,
            path = uri.map(path),
            peer = peer.map(|it| display(it.ip())),
            status,
            seconds,
            issuer = caller(|it| &it.issuer),
            subject = caller(|it| &it.subject),
            failed_check = current(RequestContext::failed_check).flatten(),
            left_out = $suppressed,
            "answered"
        )
    }};
}

impl Default for AccessLog {
    fn default() -> Self {
        let [failed, unauthenticated, forbidden, changes] =
            std::array::from_fn(|_| LogThrottle::new(LINES, SECOND));
        Self {
            failed,
            unauthenticated,
            forbidden,
            changes,
        }
    }
}

impl AccessLog {
    /// Writes the line of the current request, unless it is throttled.
    pub(super) fn log(&self, answered: Answered<'_>, now: Moment) {
        let class = Class::of(answered);
        let Some(throttle) = self.throttle(class) else {
            return write_line!(DEBUG, answered, None::<u64>);
        };
        let Some(suppressed) = throttle.admit(now) else {
            return;
        };
        let suppressed = (suppressed > 0).then_some(suppressed);
        if class == Class::Failed {
            write_line!(WARN, answered, suppressed);
        } else {
            write_line!(INFO, answered, suppressed);
        }
    }

    fn throttle(&self, class: Class) -> Option<&LogThrottle> {
        match class {
            Class::Failed => Some(&self.failed),
            Class::Unauthenticated => Some(&self.unauthenticated),
            Class::Forbidden => Some(&self.forbidden),
            Class::Change => Some(&self.changes),
            Class::Other => None,
        }
    }
}

impl Class {
    fn of(answered: Answered<'_>) -> Self {
        let changes = [paths::TEMPLATES, paths::TEMPLATE, paths::RULE];
        match (answered.status, answered.method) {
            (500.., _) => Self::Failed,
            (401, _) => Self::Unauthenticated,
            (403, _) => Self::Forbidden,
            (_, "PUT" | "DELETE") if changes.contains(&answered.route) => Self::Change,
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
    current(|context| Some(part(context.caller()?).to_owned())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_throttled_separately() {
        let log = AccessLog::default();
        let now = Moment::from_nanos(1);
        let is_written = |status| {
            let class = Class::of(Answered {
                method: "POST",
                route: paths::CAPACITY,
                uri: None,
                peer: None,
                status,
                seconds: 0.001,
            });
            log.throttle(class).unwrap().admit(now).is_some()
        };
        while is_written(401) {}
        assert!(is_written(403));
        while is_written(403) {}
        assert!(is_written(500));
    }
}
