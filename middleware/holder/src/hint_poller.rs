//! Schedule of the long polls for hints: when to open the next one, and at which server.

use std::time::Duration;

use doorman_openapi::{HintsResponse, Moment};

/// How long the server may wait for hints.
pub const WAIT: Duration = Duration::from_secs(25);
/// How long a response may take beyond the wait of the poll.
pub const GRACE: Duration = Duration::from_secs(5);
/// An empty response more than this before the end of the wait counts as a failure.
const EARLY: Duration = Duration::from_secs(1);
/// The shortest mean time between polls, and how many may follow each other without a pause.
const SPACING: Duration = Duration::from_millis(50);
const BURST: u32 = 20;
/// The shortest refresh interval that paces polls after a failure.
pub(crate) const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures in a row: a proxy may cut every poll.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// When a failed poll of one of few holders comes back after its server has answered a request.
const REPOLL_PAUSE: Duration = Duration::from_millis(100);
/// The pause for a server without hints.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Waiting {
        due: Moment,
    },
    Open {
        /// The server of the lease requests, or of the rules.
        source: usize,
        since: Moment,
    },
}

/// Schedule of the polls for hints, as a state machine without IO: at most one is open.
#[derive(Debug, Clone)]
pub(crate) struct HintPoller {
    state: Poll,
    /// The source of the last poll; `None` if its server is not the master, or is about to stop.
    /// Not the server that it was redirected to: a server that redirects polls may answer every
    /// lease request.
    polled: Option<usize>,
    /// The `after` of the next poll, which confirms the hints of the last response.
    after: u64,
    failures: u32,
    /// The master that the polled server named.
    redirected: Option<usize>,
    /// A server without hints, and when to try again.
    unsupported: Option<(usize, Moment)>,
    /// The time up to which polls have used their spacing.
    spaced: Moment,
    /// When a request failed last because the server was unavailable.
    unavailable_at: Moment,
    rng: fastrand::Rng,
}

impl HintPoller {
    /// The first poll is due at once. `seed` is that of jitter.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            state: Poll::Waiting {
                due: Moment::ORIGIN,
            },
            polled: None,
            after: 0,
            failures: 0,
            redirected: None,
            unsupported: None,
            spaced: Moment::ORIGIN,
            unavailable_at: Moment::ORIGIN,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// When to open the next poll, or to abandon the open one, if requests go to `source`.
    pub(crate) fn wake_at(&self, source: Option<usize>) -> Moment {
        let Some(source) = source else {
            return Moment::NEVER;
        };
        match (self.state, self.unsupported) {
            (Poll::Open { source: polled, .. }, _) if polled == source => Moment::NEVER,
            (Poll::Open { .. }, _) => Moment::ORIGIN,
            (Poll::Waiting { due }, Some((server, until))) if server == source => due.max(until),
            (Poll::Waiting { due }, _) => due,
        }
    }

    /// Whether a poll of `source` is open or due.
    pub(crate) fn is_polling(&self, source: usize, now: Moment) -> bool {
        match self.state {
            Poll::Open { source: polled, .. } => polled == source,
            Poll::Waiting { .. } => self.wake_at(Some(source)) <= now,
        }
    }

    /// Opens a poll, and returns the server to poll.
    pub(crate) fn open(&mut self, source: usize, now: Moment) -> usize {
        self.state = Poll::Open { source, since: now };
        self.polled = Some(source);
        self.spaced = self.spaced.max(now).after(SPACING);
        self.redirected.unwrap_or(source)
    }

    /// Abandons the poll if requests go to another server now, and returns whether it did.
    pub(crate) fn follow(&mut self, source: usize, now: Moment) -> bool {
        let Poll::Open { source: polled, .. } = self.state else {
            return false;
        };
        let moved = polled != source;
        if moved {
            self.begin_anew(self.next_in_row(now));
        }
        moved
    }

    /// The poll was answered. `interval` is the refresh interval of leases.
    pub(crate) fn on_hints(&mut self, hints: &HintsResponse, interval: Duration, now: Moment) {
        let Poll::Open { since, .. } = self.state else {
            return;
        };
        if hint_count(hints) == 0 && now.after(EARLY) < since.after(WAIT) {
            // The server has no connection to spare.
            return self.on_failure(interval, now);
        }
        self.failures = 0;
        self.redirected = None;
        self.after = hints.after;
        if hints.leaving {
            self.polled = None;
        }
        let due = if hints.leaving {
            now.after(interval.mul_f64(self.rng.f64()))
        } else {
            self.next_in_row(now)
        };
        self.wait_until(due);
    }

    /// Closes the open poll, and returns whether there was one.
    pub(crate) fn close(&mut self, now: Moment) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.wait_until(now);
        }
        is_open
    }

    fn is_open(&self) -> bool {
        matches!(self.state, Poll::Open { .. })
    }

    /// The polled server is not master, and has named `to` as master.
    pub(crate) fn on_redirect(
        &mut self,
        from: usize,
        to: Option<usize>,
        interval: Duration,
        now: Moment,
    ) {
        if !self.is_open() {
            return;
        }
        match to.filter(|to| *to != from && self.redirected.is_none()) {
            Some(to) => {
                self.redirected = Some(to);
                self.wait_until(self.next_in_row(now));
            }
            None => self.on_failure(interval, now),
        }
    }

    /// The polled server does not support polls.
    pub(crate) fn on_unsupported(&mut self, now: Moment) {
        let Poll::Open { source, .. } = self.state else {
            return;
        };
        let pause = UNSUPPORTED_PAUSE.mul_f64(0.5 + 0.5 * self.rng.f64());
        self.unsupported = Some((source, now.after(pause)));
        self.redirected = None;
        self.wait_until(self.next_in_row(now));
    }

    /// The poll failed. The next one is due within one interval at random, so that a fleet does not
    /// poll all at once, and later after further failures.
    pub(crate) fn on_failure(&mut self, interval: Duration, now: Moment) {
        if !self.is_open() {
            return;
        }
        let ceiling = interval
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_PAUSE.max(interval));
        let least = if self.failures == 0 { 0.0 } else { 0.5 };
        let share = least + (1.0 - least) * self.rng.f64();
        self.failures = self.failures.saturating_add(1);
        // The server may have restarted, and its numbers with it.
        self.begin_anew(now.after(ceiling.mul_f64(share)));
    }

    /// The holder's server, `source`, has answered a lease request. If the next poll waits because
    /// the one before reached a server that is not the master, or was for another source, it is due
    /// now.
    pub(crate) fn on_answer(&mut self, source: usize, now: Moment) {
        let waits = matches!(self.state, Poll::Waiting { .. });
        if waits && self.polled != Some(source) {
            self.failures = 0;
            self.begin_anew(self.next_in_row(now));
        }
    }

    /// A request has failed because the server was unavailable.
    pub(crate) fn on_unavailable(&mut self, now: Moment) {
        self.unavailable_at = now;
    }

    /// The server of one of few holders has answered a request: after a failed poll the next one is
    /// due soon. A poll that was opened before a request failed may wait at a server that is gone,
    /// so it is abandoned. Returns whether it was.
    pub(crate) fn on_reachable(&mut self, now: Moment) -> bool {
        let soon = now.after(REPOLL_PAUSE);
        match self.state {
            Poll::Waiting { due } if self.failures > 0 => {
                self.wait_until(due.min(soon));
                false
            }
            Poll::Open { since, .. } if since < self.unavailable_at => {
                self.begin_anew(soon);
                true
            }
            Poll::Waiting { .. } | Poll::Open { .. } => false,
        }
    }

    /// The `after` of the next poll, which confirms the hints of the last response.
    pub(crate) fn after(&self) -> u64 {
        self.after
    }

    /// The next poll confirms no hints, and goes to the server of the lease requests.
    fn begin_anew(&mut self, due: Moment) {
        self.redirected = None;
        self.after = 0;
        self.wait_until(due);
    }

    fn wait_until(&mut self, due: Moment) {
        self.state = Poll::Waiting { due };
    }

    fn next_in_row(&self, now: Moment) -> Moment {
        now.after(self.spaced.since(now).saturating_sub(SPACING * BURST))
    }
}

/// The number of hints in a response.
#[must_use]
pub fn hint_count(hints: &HintsResponse) -> u64 {
    let HintsResponse {
        node: _,
        epoch: _,
        after: _,
        refresh,
        all,
        rules,
        leaving,
    } = hints;
    refresh.len() as u64 + u64::from(*all) + u64::from(*rules) + u64::from(*leaving)
}

#[cfg(test)]
mod tests {
    use doorman_openapi::Epoch;

    use super::*;

    #[test]
    fn failed_poll_comes_back_once_the_server_answers() {
        let interval = Duration::from_secs(8);
        let mut poller = HintPoller::new(7);
        let mut now = Moment::ORIGIN.after_seconds(3600.0);
        for _ in 0..4 {
            poller.open(0, now);
            poller.on_failure(interval, now);
            now = now.max(poller.wake_at(Some(0)));
        }
        poller.open(0, now);
        poller.on_failure(interval, now);
        assert!(poller.wake_at(Some(0)) > now.after(interval));
        poller.on_unavailable(now);
        assert!(!poller.on_reachable(now));
        assert_eq!(poller.wake_at(Some(0)), now.after(REPOLL_PAUSE));
        // A poll that was opened since then is left alone.
        let opened = now.after(REPOLL_PAUSE);
        poller.open(0, opened);
        assert!(!poller.on_reachable(opened));
        assert_eq!(poller.wake_at(Some(0)), Moment::NEVER);
    }

    #[test]
    fn poll_is_due_when_the_master_answers() {
        let interval = Duration::from_secs(8);
        let now = Moment::ORIGIN.after_seconds(3600.0);
        let hints = |leaving: bool| HintsResponse {
            node: "n".parse().unwrap(),
            epoch: Epoch::ZERO,
            after: 9,
            refresh: Vec::new(),
            all: !leaving,
            rules: false,
            leaving,
        };
        let open = || {
            let mut poller = HintPoller::new(7);
            poller.open(0, now);
            poller
        };

        // Behind one address the next connection may lead to the master.
        let mut poller = open();
        poller.on_hints(&hints(true), interval, now);
        poller.on_answer(0, now);
        assert_eq!((poller.wake_at(Some(0)), poller.after()), (now, 0));

        // A failed poll waits, except when another server answers.
        let mut poller = open();
        poller.on_hints(&hints(false), interval, now);
        for _ in 0..3 {
            poller.open(0, now);
            poller.on_failure(interval, now);
        }
        let due = poller.wake_at(Some(0));
        assert!(due > now.after(interval));
        poller.on_answer(0, now);
        assert_eq!(poller.wake_at(Some(0)), due);
        poller.on_answer(1, now);
        assert_eq!(poller.wake_at(Some(1)), now);
        poller.open(1, now);
        poller.on_failure(interval, now);
        assert!(
            poller.wake_at(Some(1)) <= now.after(interval),
            "the first failure of this server"
        );

        // A redirect was for the other server's polls.
        let mut poller = open();
        poller.on_redirect(0, Some(2), interval, now);
        poller.on_answer(1, now);
        assert_eq!(poller.open(1, now), 1);

        // An open poll is left to `follow`, which is due.
        poller.on_answer(2, now);
        assert_eq!(poller.wake_at(Some(1)), Moment::NEVER);
        assert_eq!(poller.wake_at(Some(2)), Moment::ORIGIN);
    }

    #[test]
    fn poll_from_before_a_failure_is_abandoned() {
        let mut poller = HintPoller::new(7);
        let opened = Moment::ORIGIN.after_seconds(3600.0);
        poller.open(0, opened);
        poller.on_unavailable(opened.after_seconds(3.0));
        let answered = opened.after_seconds(4.0);
        assert!(poller.on_reachable(answered));
        assert_eq!(poller.wake_at(Some(0)), answered.after(REPOLL_PAUSE));
    }
}
