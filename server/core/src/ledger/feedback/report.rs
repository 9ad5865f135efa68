//! Reports of holders, and what the ledger knows beside them.

use crate::ledger::feedback::terms::{ControlUnit, bounded};

/// Differences of a holder's totals between two of its reports.
///
/// Only of a holder whose outcomes count, and that counts some: a holder that uses the resource
/// and never has an outcome would make each request seem more expensive than it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::ledger) struct OutcomeReport {
    /// Seconds between the arrivals of the reports.
    pub(in crate::ledger) elapsed: f64,
    /// The cost of the admitted requests.
    pub(in crate::ledger) used: f64,
    /// Requests that succeeded, that the target refused, and that failed otherwise.
    pub(in crate::ledger) ok: u64,
    pub(in crate::ledger) overloaded: u64,
    pub(in crate::ledger) failed: u64,
    /// Of gauges: units times seconds of the requests that succeeded.
    pub(in crate::ledger) ok_seconds: f64,
    /// Demand and lease of the holder, by the report, in the unit of the resource.
    pub(in crate::ledger) wants: f64,
    pub(in crate::ledger) has: f64,
    /// Seconds to wait, by the latest `Retry-After`.
    pub(in crate::ledger) pause: Option<f64>,
    /// The rest of the target's own limit, and the seconds until that is whole again.
    pub(in crate::ledger) seen: Option<(f64, f64)>,
}

/// Sums over all holders at a tick, in the unit of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::ledger) struct Bookings {
    /// The amount that holders may be using.
    pub(in crate::ledger) booked: f64,
    /// Their demand.
    pub(in crate::ledger) wants: f64,
}

/// The use of a lease, as a factor, that counts: what was leased may have shrunk meanwhile.
pub(super) const MOST_USE: f64 = 2.0;
/// Seconds of a lease that a full bucket allows at once.
const BURST_SECONDS: f64 = 1.0;
/// The requests beside.
const MOST_REQUESTS: f64 = 20.0;

/// The requests that a lease of a rate allows in so many seconds, whatever its holder states.
pub(super) fn most_requests(lease: f64, seconds: f64, cost: f64, unit: ControlUnit) -> f64 {
    most_cost(lease, seconds, cost, unit) / cost
}

fn most_cost(lease: f64, seconds: f64, cost: f64, unit: ControlUnit) -> f64 {
    let seconds = MOST_USE * seconds + BURST_SECONDS;
    lease * seconds / unit.period() + MOST_REQUESTS * cost
}

impl OutcomeReport {
    /// The same with numbers that the law can calculate with, and of a rate no more than its lease
    /// allows. `cost` is that of a request.
    pub(super) fn bounded(&self, cost: f64, unit: ControlUnit) -> Self {
        let report = self.finite();
        if unit.is_gauge() {
            return report;
        }
        let most = most_cost(report.has, report.elapsed, cost, unit);
        let part = (most / cost / report.outcomes().max(1) as f64).min(1.0);
        let of = |count: u64| (count as f64 * part).round() as u64;
        Self {
            used: report.used.min(most),
            ok: of(report.ok),
            overloaded: of(report.overloaded),
            failed: of(report.failed),
            ..report
        }
    }

    fn finite(&self) -> Self {
        Self {
            elapsed: bounded(self.elapsed),
            used: bounded(self.used),
            ok_seconds: bounded(self.ok_seconds),
            wants: bounded(self.wants),
            has: bounded(self.has),
            pause: self.pause.map(bounded).filter(|it| *it > 0.0),
            seen: (self.seen).map(|(left, reset)| (bounded(left), bounded(reset))),
            ..*self
        }
    }

    pub(super) fn outcomes(&self) -> u64 {
        let ended = self.ok.saturating_add(self.overloaded);
        ended.saturating_add(self.failed)
    }

    /// The cost of the requests that succeeded.
    pub(super) fn accepted(&self) -> f64 {
        let outcomes = self.outcomes();
        if outcomes > 0 {
            self.used * (self.ok as f64 / outcomes as f64)
        } else {
            0.0
        }
    }

    /// The amount that was used: cost, or units times seconds of a gauge.
    pub(super) fn amount(&self, unit: ControlUnit) -> f64 {
        match unit {
            ControlUnit::Rate { .. } => self.used,
            ControlUnit::Gauge => self.ok_seconds,
        }
    }

    /// The amount that could have been used: cost that was leased and wanted, or units times
    /// seconds of a gauge that were leased.
    pub(super) fn leased(&self, unit: ControlUnit) -> f64 {
        match unit {
            ControlUnit::Rate { .. } => self.elapsed * self.wants.min(self.has) / unit.period(),
            ControlUnit::Gauge => self.elapsed * self.has,
        }
    }
}

impl Bookings {
    pub(super) fn bounded(self) -> Self {
        Self {
            booked: bounded(self.booked),
            wants: bounded(self.wants),
        }
    }
}
