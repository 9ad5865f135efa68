//! Running totals of a client that states its demand and reports the outcomes of its requests.

use doorman_openapi::{Capacity, Moment, Outcomes, RequestCount, Seconds};
use tower_doorman::{
    Outcome,
    lease::{Feedback, SeenLimit},
};

use super::target::TargetResponse;

/// The requests of a client to the target of one resource. Times are of its clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTotals {
    pub(super) used: f64,
    refused: f64,
    ok: u64,
    overloaded: u64,
    failed: u64,
    /// Units of a gauge times the seconds of the requests that had them.
    ok_seconds: f64,
    paused_until: Moment,
    /// The target's own limit, if it stated it since the last report.
    pub(super) seen: Option<SeenLimit>,
    /// The part of a request that is left of its rate beside whole ones.
    rest: f64,
}

impl Default for RequestTotals {
    fn default() -> Self {
        Self {
            used: 0.0,
            refused: 0.0,
            ok: 0,
            overloaded: 0,
            failed: 0,
            ok_seconds: 0.0,
            paused_until: Moment::ORIGIN,
            seen: None,
            rest: 0.0,
        }
    }
}

impl RequestTotals {
    /// The whole requests of so many, of which `refused` more are not admitted.
    pub(super) fn admit(&mut self, requests: f64, refused: f64) -> usize {
        let due = self.rest + requests;
        self.rest = due.fract();
        self.refused += refused;
        due as usize
    }

    /// Counts an admitted request, which takes so many seconds if it is served. `now` is by the
    /// client's clock.
    pub(super) fn count(
        &mut self,
        outcome: Outcome,
        response: &TargetResponse,
        seconds: f64,
        now: Moment,
    ) {
        self.used += 1.0;
        match outcome {
            Outcome::Ok => {
                self.ok += 1;
                self.ok_seconds += seconds;
            }
            Outcome::Overloaded => self.overloaded += 1,
            _ => self.failed += 1,
        }
        if let (Some(pause), Outcome::Overloaded) = (response.retry_after, outcome) {
            self.paused_until = self.paused_until.max(now.after_seconds(pause));
        }
        if let Some(seen) = response.seen {
            self.seen = Some(SeenLimit {
                remaining: Capacity::saturating(seen.remaining),
                whole_at: now.after_seconds(Seconds::saturating(seen.reset).get()),
            });
        }
    }

    /// The report of them.
    pub(super) fn feedback(&self, is_gauge: bool) -> Feedback {
        Feedback {
            outcomes: Outcomes {
                refused: Capacity::saturating(self.refused),
                ok: RequestCount::saturating(self.ok),
                overloaded: RequestCount::saturating(self.overloaded),
                failed: RequestCount::saturating(self.failed),
                ok_seconds: is_gauge.then(|| Capacity::saturating(self.ok_seconds)),
            },
            paused_until: self.paused_until,
            seen: self.seen,
        }
    }
}
