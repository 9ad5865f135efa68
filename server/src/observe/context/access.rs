//! The line that the log has of an answered request.
//!
//! Renewals are most of all requests, and nothing about one that went well is worth a line, so they are told at `debug`. What changes
//! the document, who is turned away, and what failed is told by default; but few of each kind a second, for anybody can be turned away
//! as often as they like.

mod room;

use std::sync::{Mutex, PoisonError};

use axum::http::Uri;
use doorman_openapi::{Moment, paths};
use tracing::Level;

use self::room::Room;
use super::{CallerLabel, current};
use crate::util::peer::PeerAddr;

/// The longest part of a path that is written, in bytes.
const LONGEST_PATH: usize = 256;

/// What an access line says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered<'a> {
    pub(crate) method: &'static str,
    /// The route's template.
    pub(crate) route: &'static str,
    /// What was asked for, where the route does not say it all.
    pub(crate) uri: Option<&'a Uri>,
    /// Where it came from, if it came over a connection.
    pub(crate) peer: Option<PeerAddr>,
    pub(crate) status: u16,
    pub(crate) seconds: f64,
}

/// Writes access lines, as many as somebody could read.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    unauthenticated: Mutex<Room>,
    refused: Mutex<Room>,
    changing: Mutex<Room>,
    failed: Mutex<Room>,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The server failed, or could not serve.
    Failed,
    /// It is not known who sent it. That takes no token, so that it must not drown what those are told who have one.
    Unauthenticated,
    /// Who sent it may not do that.
    Refused,
    /// It was to change the document.
    Changing,
    Other,
}

/// Writes a line of this level with these fields; the level must be known where it is written.
macro_rules! write_line {
    ($level:ident, $answered:expr, $left_out:expr) => {{
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
            left_out = $left_out,
            "answered"
        )
    }};
}

impl AccessLog {
    /// Writes the line of the request that is being worked on, if it is to be written.
    pub(crate) fn tell(&self, answered: Answered<'_>, now: Moment) {
        let kind = Kind::of(answered);
        let Some(room) = self.room(kind) else {
            return write_line!(DEBUG, answered, None::<u64>);
        };
        // It is whole after every statement, so a panic elsewhere does no harm to it.
        let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left_out) = room.for_another(now) else {
            return;
        };
        drop(room);
        let left_out = (left_out > 0).then_some(left_out);
        if kind == Kind::Failed {
            write_line!(WARN, answered, left_out);
        } else {
            write_line!(INFO, answered, left_out);
        }
    }

    /// The room for lines of a kind; `None` when there is no end of it.
    fn room(&self, kind: Kind) -> Option<&Mutex<Room>> {
        match kind {
            Kind::Failed => Some(&self.failed),
            Kind::Unauthenticated => Some(&self.unauthenticated),
            Kind::Refused => Some(&self.refused),
            Kind::Changing => Some(&self.changing),
            Kind::Other => None,
        }
    }
}

impl Kind {
    fn of(answered: Answered<'_>) -> Self {
        let Answered {
            method,
            route,
            status,
            ..
        } = answered;
        match status {
            500.. => Self::Failed,
            401 => Self::Unauthenticated,
            403 => Self::Refused,
            _ if matches!(method, "PUT" | "DELETE")
                && [paths::TEMPLATES, paths::TEMPLATE, paths::RULE].contains(&route) =>
            {
                Self::Changing
            }
            _ => Self::Other,
        }
    }
}

/// The path without the query, and not longer than somebody would read.
fn path(uri: &Uri) -> &str {
    let path = uri.path();
    // A path is ASCII; were it not, it would be left out.
    path.get(..path.len().min(LONGEST_PATH)).unwrap_or_default()
}

/// A word about who sent it, where that is known.
fn caller(word: impl FnOnce(&CallerLabel) -> &str) -> Option<String> {
    current(|context| Some(word(context.caller()?).to_owned())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_no_token_leaves_room_for_those_who_may_not_do_a_thing() {
        let log = AccessLog::default();
        let now = Moment::from_nanos(1);
        let is_written = |status| {
            let kind = Kind::of(Answered {
                method: "POST",
                route: paths::CAPACITY,
                uri: None,
                peer: None,
                status,
                seconds: 0.001,
            });
            let room = log.room(kind).unwrap();
            room.lock().unwrap().for_another(now).is_some()
        };
        while is_written(401) {}
        assert!(is_written(403));
        while is_written(403) {}
        assert!(is_written(500));
    }
}
