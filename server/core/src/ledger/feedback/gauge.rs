//! The verdict on a window of a gauge.
//!
//! The share of overloads is useless: a full pool refuses in microseconds, and the freed unit tries
//! again. By Little's law the units times seconds of successful requests, per second, are the units
//! that were held. If requests take too long, the successes per second times the wanted time are
//! the right number in flight. That needs no baseline, and none can drift.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, Cut, FeedbackControl},
    cut::HALF,
    probe::Probe,
    survey::{self, ClassCounts},
    terms::{ControlTerms, bounded},
    traffic::Load,
    window::{self, EARLIEST, TICK, Window},
};

/// Seconds for which a holder keeps the units of a request that was refused.
const COOL_DOWN: f64 = 0.1;
/// The part of the units in use that are kept so, up to which few requests are refused.
const FEW_REFUSED: f64 = 0.2;
/// The part of the requests whose refusal shows that the target has fallen, and the factor of the
/// wanted time.
const FALLEN: f64 = 0.1;
const SLOW: f64 = 1.25;

impl FeedbackControl {
    /// Gives the verdict on the window of a gauge, once there is one. Where the time of requests
    /// counts, the level grows only on a verdict for this level, not on silence.
    pub(super) fn judge_gauge(
        &mut self,
        window: &Window,
        counts: &ClassCounts,
        load: &Load,
        now: Moment,
    ) -> Option<Change> {
        let age = window.age(now);
        if !window.is_second && self.has_fallen(counts, load, age) {
            self.windows = self.windows.wrapping_add(1);
            self.window = Some(Window::second(self.windows, now));
            return None;
        }
        let is_complete = age >= window::LENGTH;
        let is_clear = is_complete || !survey::is_unclear(self.suffering);
        let requests = counts.outcomes as f64;
        if age >= EARLIEST && requests >= self.terms.enough() && is_clear {
            if let Some(accepted) = self.accepted_units(counts, load) {
                return Some(self.cut_gauge(window, accepted, counts, load, now));
            }
            self.overloaded_share = counts.overloaded as f64 / requests;
            if self.terms.latency.is_some() && self.may_grow_under(load, now) {
                return Some(self.grow(now));
            }
            if is_complete {
                self.window = None;
                self.level.has_passed = true;
            }
        } else if age >= window::LATEST {
            self.window = None;
        }
        None
    }

    /// Whether the target bears much less than when the window opened. Its outcomes are of both
    /// levels then, and so are those of requests that had begun before.
    fn has_fallen(&self, counts: &ClassCounts, load: &Load, age: f64) -> bool {
        let enough = self.terms.enough();
        let refused = (FALLEN * load.requests * age.max(TICK)).max(enough);
        let ok = counts.ok as f64;
        let is_slow = |latency: f64| ok >= enough && counts.used > ok * latency * SLOW;
        counts.all_overloaded as f64 >= refused || self.terms.latency.is_some_and(is_slow)
    }

    fn cut_gauge(
        &mut self,
        window: &Window,
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
        if window.is_second {
            // A cut that is too small would cost another one.
            let error = 1.0 / (counts.ok as f64).sqrt();
            let at_least = if (counts.ok as f64) < self.terms.enough() {
                HALF * self.level.capacity()
            } else {
                0.0
            };
            self.lower(accepted * (1.0 - error), at_least, hold, now);
        } else {
            // A pool that is not overfull refuses nothing: its whole units need no margin.
            let at_least = accepted.floor().min(self.level.capacity());
            self.lower(accepted, at_least, hold, now);
        }
        Change::Cut(Cut {
            leased,
            share,
            requests,
            accepted,
        })
    }

    /// The units that the target bears, if it is overloaded.
    fn accepted_units(&self, counts: &ClassCounts, load: &Load) -> Option<f64> {
        let terms = &self.terms;
        // The amount per unit of the leases, times all of them.
        let of_all = |amount: f64| {
            if counts.leased > 0.0 {
                bounded(load.bookings.booked * (amount / counts.leased))
            } else {
                0.0
            }
        };
        if refuses(counts, terms) {
            let cooling = COOL_DOWN * counts.overloaded as f64 * self.traffic.cost();
            return Some(units_held(
                of_all(counts.used),
                of_all(cooling),
                load.bookings.booked,
            ));
        }
        let ok = counts.ok as f64;
        let is_too_slow = |latency: &f64| {
            let longest = latency * (1.0 + 2.0 / ok.sqrt());
            ok >= terms.enough() && counts.used > ok * longest
        };
        let latency = terms.latency.filter(is_too_slow)?;
        Some(of_all(ok) * latency)
    }
}

/// Whether the target refuses more than is tolerated.
fn refuses(counts: &ClassCounts, terms: &ControlTerms) -> bool {
    let limit = terms.tolerate * counts.outcomes as f64;
    survey::exceeds(counts.overloaded as f64, limit)
}

/// The units that the target holds at most, by those that successful and refused requests had in
/// the mean.
///
/// While few are refused it is not always full, and not every unit of the leases is used at any one
/// time: then the part that was not refused counts, of as many units as were in use at most.
fn units_held(ok: f64, cooling: f64, booked: f64) -> f64 {
    let in_use = ok + cooling;
    if cooling > FEW_REFUSED * in_use {
        return ok;
    }
    let most = booked.min(in_use + in_use.sqrt());
    ok.max(most * (ok / in_use))
}
