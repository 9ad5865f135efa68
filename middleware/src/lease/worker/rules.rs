//! Polling of the rules: when and where to fetch them, and how to apply them.

use std::time::Duration;

use doorman_holder::{
    Backoff, DEFAULT_RETRY_AFTER, Endpoints, Failure, LogThrottle, LongestPause, MAX_RETRY_AFTER,
    Retry,
};
use doorman_openapi::Moment;
use http::HeaderValue;

use super::{Worker, WorkerParts};
use crate::{
    clock,
    lease::client::{FetchedRules, Outcome, RequestError, Transport},
    rules::RulesChange,
    tuning::tuning,
};

const INTERVAL: Duration = Duration::from_secs(10);
/// Jitter of the interval, so that a fleet does not poll in step.
const JITTER: f64 = 0.1;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Over how long a fleet that is told of changed rules fetches them. Also the shortest time between
/// such fetches.
const CHANGE_SPREAD: Duration = Duration::from_millis(500);

/// `Idle → Waiting` when a layer follows rules; `Waiting → InFlight` when the request is sent;
/// `InFlight → Waiting` when it is answered or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    Idle,
    Waiting {
        due: Moment,
    },
    InFlight {
        since: Moment,
        /// Whether the rules changed meanwhile.
        outdated: bool,
    },
}

/// Schedule of polling, as a state machine without IO.
#[derive(Debug)]
pub(super) struct RulesPoller {
    endpoints: Endpoints,
    backoff: Backoff,
    state: Fetch,
    /// No change of the rules is followed before.
    not_before: Moment,
    /// Of the rules that are applied.
    etag: Option<HeaderValue>,
    unreachable: LogThrottle,
}

impl RulesPoller {
    pub(super) fn new(endpoints: usize, first: usize) -> Self {
        Self {
            endpoints: Endpoints::new(endpoints, first),
            backoff: Backoff::default(),
            state: Fetch::Idle,
            not_before: Moment::ORIGIN,
            etag: None,
            unreachable: LogThrottle::default(),
        }
    }

    /// Asks this server first, and not a random one.
    #[cfg(test)]
    pub(super) fn begin_at(&mut self, endpoint: usize) {
        self.endpoints.on_success(endpoint);
    }

    pub(super) fn start(&mut self, now: Moment) {
        if self.state == Fetch::Idle {
            self.state = Fetch::Waiting { due: now };
        }
    }

    pub(super) fn wake_at(&self) -> Moment {
        match self.state {
            Fetch::Waiting { due } => due,
            Fetch::Idle | Fetch::InFlight { .. } => Moment::NEVER,
        }
    }

    /// The server that tells of changed rules; `None` while none are followed, and while no server
    /// answers.
    pub(super) fn hint_source(&self) -> Option<usize> {
        let polls = self.state != Fetch::Idle && self.backoff.is_idle();
        polls.then(|| self.endpoints.current())
    }

    /// The server to ask now and the `ETag` to send, if a poll is due.
    fn poll(&mut self, now: Moment) -> Option<(usize, Option<HeaderValue>)> {
        if self.wake_at() > now {
            return None;
        }
        self.state = Fetch::InFlight {
            since: now,
            outdated: false,
        };
        self.not_before = now.after(CHANGE_SPREAD);
        Some((self.endpoints.current(), self.etag.clone()))
    }

    fn on_success(&mut self, endpoint: usize, now: Moment) {
        self.endpoints.on_success(endpoint);
        self.backoff.reset();
        let jitter = 1.0 - JITTER + 2.0 * JITTER * fastrand::f64();
        let before = std::mem::replace(
            &mut self.state,
            Fetch::Waiting {
                due: now.after(INTERVAL.mul_f64(jitter)),
            },
        );
        if let Fetch::InFlight { outdated: true, .. } = before {
            self.on_changed(now);
        }
    }

    /// Fetches the rules soon: the server says that they have changed.
    pub(super) fn on_changed(&mut self, now: Moment) {
        match &mut self.state {
            Fetch::Idle => {}
            Fetch::Waiting { due } => {
                let soon = now.after(CHANGE_SPREAD.mul_f64(fastrand::f64()));
                *due = soon.max(self.not_before).min(*due);
            }
            Fetch::InFlight { outdated, .. } => *outdated = true,
        }
    }

    /// A rate limited poll is retried at the same server, a failed one at the next.
    fn on_failure(&mut self, endpoint: usize, failure: &Failure, now: Moment) {
        let since = match self.state {
            Fetch::InFlight { since, .. } => since,
            Fetch::Idle | Fetch::Waiting { .. } => now,
        };
        let due = if let Failure::RateLimited { retry_after } = failure {
            let wait = retry_after
                .unwrap_or(DEFAULT_RETRY_AFTER)
                .min(MAX_RETRY_AFTER);
            now.after(wait.mul_f64(1.0 + 0.5 * fastrand::f64()))
        } else {
            match self.endpoints.on_failure(endpoint) {
                Retry::Now | Retry::Soon => now,
                Retry::AfterPause => {
                    let longest = LongestPause {
                        leased: None,
                        missing: INTERVAL,
                    };
                    let mut rng = fastrand::Rng::new();
                    self.backoff.record_failure(
                        None,
                        longest,
                        since,
                        &tuning().holder,
                        now,
                        &mut rng,
                    );
                    self.backoff.until(false)
                }
            }
        };
        self.not_before = due;
        self.state = Fetch::Waiting { due };
    }
}

impl<T: Transport> Worker<T> {
    pub(super) fn poll_rules(&mut self, now: Moment) {
        if let Some((endpoint, etag)) = self.rules_poller.poll(now) {
            let WorkerParts {
                client, service, ..
            } = &self.parts;
            let fetch = client.fetch_rules(endpoint, Some(service), etag, TIMEOUT);
            self.rules_requests.push(Box::pin(fetch));
        }
    }

    pub(super) fn on_rules_response(&mut self, outcome: Outcome<FetchedRules>) {
        let Outcome {
            endpoint,
            ids,
            progress,
            result,
        } = outcome;
        let now = clock::now();
        match result.and_then(|fetched| self.apply_rules(fetched)) {
            Ok(()) => {
                self.rules_poller.on_success(endpoint, now);
                if self.rules_poller.unreachable.resolve() {
                    tracing::info!("rules can be fetched again");
                }
            }
            Err(RequestError { failure, reason }) => {
                self.rules_poller.on_failure(endpoint, &failure, now);
                let reason = self.failure_reason(endpoint, progress, reason);
                self.parts.status.set_last_failure(&reason, now);
                if self.rules_poller.unreachable.try_log(now).is_some() {
                    tracing::warn!(
                        reason,
                        trace_id = %ids.trace_id,
                        request_id = ids.request_id,
                        "cannot fetch rules; the last valid rules stay in force"
                    );
                }
                self.parts.rules.set_error(reason);
            }
        }
    }

    fn apply_rules(&mut self, fetched: FetchedRules) -> Result<(), RequestError> {
        let FetchedRules::Modified { rules, etag } = fetched else {
            self.parts.rules.clear_error();
            return Ok(());
        };
        // Without a registry the worker is about to end.
        let Some(registry) = self.parts.registry.upgrade() else {
            return Ok(());
        };
        let change = self.parts.rules.apply(rules, &registry).map_err(|error| {
            RequestError::unavailable(format!("responded with invalid rules: {error}"))
        })?;
        if let Some(change) = change {
            log_change(&change);
        }
        // Without it, the next response has the rules again.
        self.rules_poller.etag = etag.filter(|_| !self.parts.rules.has_unapplied());
        // The limiters of the rules are awaited, too.
        if self.take_nudges().is_some() {
            self.waiters.on_rules(&self.parts.engine);
        }
        Ok(())
    }
}

fn log_change(change: &RulesChange) {
    let RulesChange {
        version,
        applied,
        not_applied,
    } = change;
    tracing::info!(version, limits = applied, "rules updated");
    for rule in not_applied {
        tracing::error!(rule = rule.rule, reason = rule.reason, "rule not applied");
    }
}
