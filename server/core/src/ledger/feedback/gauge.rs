//! The verdict on a window of a gauge.
//!
//! The share of overloads is useless: a full pool refuses in microseconds, and the freed unit tries
//! again. By Little's law the units times seconds of successful requests, per second, are the units
//! that were held. If requests take too long, the successes per second times the wanted time are
//! the right number in flight. That needs no baseline, and none can drift.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, Cut, FeedbackControl},
    probe::Probe,
    survey::{self, ClassCounts},
    terms::{ControlTerms, ONE_UNIT, bounded},
    traffic::Load,
    window::{self, EARLIEST, Window},
};

impl FeedbackControl {
    /// Gives the verdict on the window of a gauge, once there is one. The level grows only on a
    /// verdict for this level, not on silence.
    pub(super) fn judge_gauge(
        &mut self,
        window: &Window,
        counts: &ClassCounts,
        load: &Load,
        now: Moment,
    ) -> Option<Change> {
        let age = window.age(now);
        let is_complete = age >= window::LENGTH;
        let is_clear = is_complete || !survey::is_unclear(self.suffering);
        let requests = counts.outcomes as f64;
        if age >= EARLIEST && requests >= self.terms.enough() && is_clear {
            if let Some(accepted) = accepted_units(counts, load, &self.terms) {
                return Some(self.cut_gauge(accepted, counts, load, now));
            }
            self.overloaded_share = counts.overloaded as f64 / requests;
            if self.may_grow_under(load, now) {
                return Some(self.grow(ONE_UNIT, now));
            }
            if is_complete {
                self.window = None;
            }
        } else if age >= window::LATEST {
            self.window = None;
        }
        None
    }

    fn cut_gauge(
        &mut self,
        accepted: f64,
        counts: &ClassCounts,
        load: &Load,
        now: Moment,
    ) -> Change {
        let requests = counts.outcomes as f64;
        let share = counts.overloaded as f64 / requests;
        let leased = load.bookings.booked;
        self.overloaded_share = share;
        self.is_slow = !refuses(counts, &self.terms);
        if counts.ok == 0 {
            return self.stop(leased, share, requests, now);
        }
        self.forget_common_suffering();
        self.plateau.measure(accepted);
        let hold = Probe::hold_of_gauge(&self.plateau);
        self.lower(accepted, 0.0, hold, now);
        Change::Cut(Cut {
            leased,
            share,
            requests,
            accepted,
        })
    }
}

/// Whether the target refuses more than is tolerated.
fn refuses(counts: &ClassCounts, terms: &ControlTerms) -> bool {
    let limit = terms.tolerate * counts.outcomes as f64;
    survey::exceeds(counts.overloaded as f64, limit)
}

/// The units that the target bears, if it is overloaded.
fn accepted_units(counts: &ClassCounts, load: &Load, terms: &ControlTerms) -> Option<f64> {
    // What one unit of the leases did, times all of them.
    let of_all = |amount: f64| {
        if counts.leased > 0.0 {
            bounded(load.bookings.booked * (amount / counts.leased))
        } else {
            0.0
        }
    };
    if refuses(counts, terms) {
        return Some(of_all(counts.used));
    }
    let ok = counts.ok as f64;
    let is_too_slow = |latency: &f64| {
        let longest = latency * (1.0 + 2.0 / ok.sqrt());
        ok >= terms.enough() && counts.used > ok * longest
    };
    let latency = terms.latency.filter(is_too_slow)?;
    Some(of_all(ok) * latency)
}
