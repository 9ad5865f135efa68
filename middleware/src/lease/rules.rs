//! When to ask for the rules, and whom: a small state machine like the holder, and like it without IO.

use std::time::Duration;

use doorman_openapi::{Moment, RulesResponse};
use http::HeaderValue;

use super::{
    backoff::{Backoff, LONGEST_WAIT, UNTOLD_WAIT},
    endpoints::{Endpoints, Next},
    rarely::Rarely,
};

/// How often they are asked for, but for a tenth more or less, so that a fleet that starts as one does not ask as one.
const INTERVAL: Duration = Duration::from_secs(10);
const SPREAD: f64 = 0.1;
/// How long an answer may take.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(5);

/// What a server says of the rules.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum News {
    /// They are those of the tag that was sent.
    Unchanged,
    /// They are these, and this is their tag.
    Rules(RulesResponse, Option<HeaderValue>),
}

#[derive(Debug)]
pub(super) struct Polling {
    endpoints: Endpoints,
    backoff: Backoff,
    state: State,
    /// Of the rules that are followed.
    tag: Option<HeaderValue>,
    pub(super) unreachable: Rarely,
}

/// `Idle` becomes `Waiting` when somebody wants rules; then it is one of the others in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waiting { due: Moment },
    Asking { since: Moment },
}

impl Polling {
    pub(super) fn new(endpoints: usize) -> Self {
        Self {
            endpoints: Endpoints::new(endpoints),
            backoff: Backoff::default(),
            state: State::Idle,
            tag: None,
            unreachable: Rarely::default(),
        }
    }

    /// Somebody wants rules.
    pub(super) fn begin(&mut self, now: Moment) {
        if self.state == State::Idle {
            self.state = State::Waiting { due: now };
        }
    }

    pub(super) fn wake_at(&self) -> Moment {
        match self.state {
            State::Waiting { due } => due,
            State::Idle | State::Asking { .. } => Moment::NEVER,
        }
    }

    /// Whom to ask now, with the tag of what is followed, if it is time.
    pub(super) fn ask(&mut self, now: Moment) -> Option<(usize, Option<HeaderValue>)> {
        if self.wake_at() > now {
            return None;
        }
        self.state = State::Asking { since: now };
        Some((self.endpoints.current(), self.tag.clone()))
    }

    /// The rules are as they were, or others with this tag are followed from now on.
    pub(super) fn followed(
        &mut self,
        endpoint: usize,
        news: Option<Option<HeaderValue>>,
        now: Moment,
    ) {
        if let Some(tag) = news {
            self.tag = tag;
        }
        self.endpoints.answered(endpoint);
        self.backoff.reset();
        let part = 1.0 - SPREAD + 2.0 * SPREAD * fastrand::f64();
        self.state = State::Waiting {
            due: now.after(INTERVAL.mul_f64(part)),
        };
    }

    /// The server does not do so much. It is asked again, and no other, but not earlier than it says.
    pub(super) fn limited(&mut self, retry_after: Option<Duration>, now: Moment) {
        let wait = retry_after.unwrap_or(UNTOLD_WAIT).min(LONGEST_WAIT);
        self.state = State::Waiting {
            due: now.after(wait.mul_f64(1.0 + 0.5 * fastrand::f64())),
        };
    }

    /// There was no answer, or none that can be followed: the next server at once, and after all of them a pause.
    pub(super) fn failed(&mut self, endpoint: usize, now: Moment) {
        let since = match self.state {
            State::Asking { since } => since,
            State::Idle | State::Waiting { .. } => now,
        };
        let due = match self.endpoints.failed(endpoint) {
            Next::Now => now,
            Next::Later => {
                let mut chance = fastrand::Rng::new();
                self.backoff.fail(None, INTERVAL, since, now, &mut chance);
                self.backoff.until(false)
            }
        };
        self.state = State::Waiting { due };
    }
}
