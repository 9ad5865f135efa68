//! A fleet in virtual time: holders that use their leases and report every half second, and a
//! target that refuses a part.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, Cut, FeedbackControl},
    holder::HolderEvidence,
    report::{Bookings, OutcomeReport},
    rules::FeedbackRule,
    status::ControlStatus,
    terms::{ControlTerms, ControlUnit},
};

pub(super) const STEP: f64 = 0.25;

/// A rate of 1000 per second.
pub(super) fn terms(without: Option<FeedbackRule>) -> ControlTerms {
    ControlTerms {
        configured: 1000.0,
        floor: 0.1,
        tolerate: 0.01,
        follows_headers: true,
        unit: ControlUnit::Rate { per: 1.0 },
        latency: None,
        without,
    }
}

pub(super) fn gauge(latency: Option<f64>) -> ControlTerms {
    ControlTerms {
        configured: 200.0,
        unit: ControlUnit::Gauge,
        latency,
        ..terms(None)
    }
}

/// Seconds after the origin. Tests begin after an hour.
pub(super) fn at(seconds: f64) -> Moment {
    Moment::ORIGIN.after_seconds(3600.0 + seconds)
}

/// A report of half a second in which `ok` of the requests succeeded.
pub(super) fn half_second(ok: u64, overloaded: u64) -> OutcomeReport {
    let requests = (ok + overloaded) as f64;
    OutcomeReport {
        elapsed: 0.5,
        used: requests,
        ok,
        overloaded,
        wants: 2.0 * requests,
        has: 2.0 * requests,
        ..OutcomeReport::default()
    }
}

pub(super) struct Fleet {
    pub(super) control: FeedbackControl,
    pub(super) holders: Vec<Holder>,
    /// The demand of all holders, in the unit of the resource.
    pub(super) wants: f64,
    pub(super) now: f64,
    pub(super) changes: Vec<(f64, Change)>,
    /// Statements of the target to holders, with each refusal and otherwise.
    pub(super) pause: Option<f64>,
    pub(super) seen: Option<(f64, f64)>,
    /// The part of the requests that fail.
    pub(super) failing: f64,
    pub(super) cost: f64,
    steps: usize,
}

#[derive(Default)]
pub(super) struct Holder {
    pub(super) evidence: HolderEvidence,
    pub(super) booked: f64,
    ok: f64,
    overloaded: f64,
    failed: f64,
    ok_seconds: f64,
}

impl Fleet {
    pub(super) fn new(holders: usize, terms: ControlTerms) -> Self {
        Self::of(FeedbackControl::new(terms, None, at(0.0)), holders)
    }

    pub(super) fn of(control: FeedbackControl, holders: usize) -> Self {
        let mut fleet = Self {
            wants: 1.3 * control.effective(at(0.0)),
            control,
            holders: (0..holders).map(|_| Holder::default()).collect(),
            now: 0.0,
            changes: Vec::new(),
            pause: None,
            seen: None,
            failing: 0.0,
            cost: 1.0,
            steps: 0,
        };
        fleet.lease();
        fleet
    }

    pub(super) fn effective(&self) -> f64 {
        self.control.effective(at(self.now))
    }

    /// Holders follow the effective capacity.
    fn lease(&mut self) {
        let each = self.effective().min(self.wants) / self.holders.len() as f64;
        for holder in &mut self.holders {
            holder.booked = each;
        }
    }

    /// Runs a target that accepts so much per second.
    pub(super) fn run(&mut self, seconds: f64, accepts: f64) {
        self.run_with(seconds, |_, sent| 1.0 - (accepts / sent).min(1.0));
    }

    /// Runs a target that refuses a part of the requests of a holder, while so much is sent.
    pub(super) fn run_with(&mut self, seconds: f64, refuses: impl Fn(usize, f64) -> f64) {
        let per = match self.control.terms.unit {
            ControlUnit::Rate { per } => per,
            ControlUnit::Gauge => 1.0,
        };
        for _ in 0..(seconds / STEP).round() as usize {
            let sent: f64 = self.holders.iter().map(|it| it.booked).sum::<f64>() / per;
            for (index, holder) in self.holders.iter_mut().enumerate() {
                let requests = holder.booked / per / self.cost * STEP;
                let refused = requests * refuses(index, sent);
                holder.overloaded += refused;
                holder.failed += (requests - refused) * self.failing;
                holder.ok += (requests - refused) * (1.0 - self.failing);
            }
            self.step();
        }
    }

    /// Runs a gauge of which the target holds `units` and refuses other requests. A request takes
    /// `takes` seconds.
    pub(super) fn run_pool(&mut self, seconds: f64, units: f64, takes: f64) {
        for _ in 0..(seconds / STEP).round() as usize {
            let booked: f64 = self.holders.iter().map(|it| it.booked).sum();
            let held = (units / booked).min(1.0);
            for holder in &mut self.holders {
                holder.ok += holder.booked * held * STEP / takes;
                holder.ok_seconds += holder.booked * held * STEP;
                // A refused unit returns after a tenth of a second.
                holder.overloaded += holder.booked * (1.0 - held) * STEP / 0.1;
            }
            self.step();
        }
    }

    /// Runs a gauge of which the target works on `workers` requests at a time, of a tenth of a
    /// second each; others wait.
    pub(super) fn run_workers(&mut self, seconds: f64, workers: f64) {
        for _ in 0..(seconds / STEP).round() as usize {
            let booked: f64 = self.holders.iter().map(|it| it.booked).sum();
            let takes = 0.1 * (booked / workers).max(1.0);
            for holder in &mut self.holders {
                holder.ok += holder.booked * STEP / takes;
                holder.ok_seconds += holder.booked * STEP;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.steps += 1;
        self.now += STEP;
        for index in 0..self.holders.len() {
            if (index + self.steps).is_multiple_of(2) {
                self.report(index);
            }
        }
        self.tick();
        self.lease();
    }

    fn report(&mut self, index: usize) {
        let wants = self.wants / self.holders.len() as f64;
        let holder = &mut self.holders[index];
        let report = OutcomeReport {
            elapsed: 2.0 * STEP,
            ok: whole(&mut holder.ok),
            overloaded: whole(&mut holder.overloaded),
            failed: whole(&mut holder.failed),
            ok_seconds: std::mem::take(&mut holder.ok_seconds),
            wants,
            has: holder.booked,
            seen: self.seen,
            ..OutcomeReport::default()
        };
        let report = OutcomeReport {
            used: (report.ok + report.overloaded + report.failed) as f64 * self.cost,
            pause: self.pause.filter(|_| report.overloaded > 0),
            ..report
        };
        (self.control).report(index, &mut holder.evidence, &report, at(self.now));
    }

    /// All holders report the same, every half second; their bookings stay as they are.
    pub(super) fn repeat(&mut self, times: usize, report: &OutcomeReport) {
        for _ in 0..times {
            self.now += 2.0 * STEP;
            for index in 0..self.holders.len() {
                self.report_of(index, report);
            }
            self.tick();
        }
    }

    /// A report of a holder beside those of the run.
    pub(super) fn report_of(&mut self, index: usize, report: &OutcomeReport) {
        let evidence = &mut self.holders[index].evidence;
        self.control.report(index, evidence, report, at(self.now));
    }

    pub(super) fn tick(&mut self) -> Option<Change> {
        assert!(
            self.now < 1000.0,
            "a test waits for a change that never comes"
        );
        let bookings = Bookings {
            booked: self.holders.iter().map(|it| it.booked).sum(),
            wants: self.wants,
        };
        let holders = self.holders.iter().map(|it| (it.evidence, it.booked));
        let change = self.control.tick(bookings, holders, at(self.now));
        self.changes.extend(change.map(|it| (self.now, it)));
        change
    }

    pub(super) fn count(&self, is: impl Fn(&Change) -> bool) -> usize {
        self.changes.iter().filter(|(_, it)| is(it)).count()
    }

    pub(super) fn cuts(&self) -> usize {
        self.count(|it| matches!(it, Change::Cut(_)))
    }

    pub(super) fn trials(&self) -> usize {
        self.count(|it| *it == Change::Trial)
    }

    pub(super) fn raises(&self) -> usize {
        self.count(|it| *it == Change::Raise)
    }

    pub(super) fn last_cut(&self) -> (f64, Cut) {
        let mut cuts = self.changes.iter().filter_map(|(at, it)| match it {
            Change::Cut(cut) => Some((*at, *cut)),
            _ => None,
        });
        cuts.next_back().expect("a cut")
    }

    pub(super) fn status(&self) -> ControlStatus {
        self.control.status(at(self.now))
    }

    pub(super) fn demand_cap(&self, index: usize) -> Option<f64> {
        self.control.demand_cap(&self.holders[index].evidence)
    }
}

pub(super) fn assert_near(is: f64, expected: f64) {
    let is_near = (is - expected).abs() <= 0.02 * expected;
    assert!(is_near, "{is} instead of {expected}");
}

fn whole(number: &mut f64) -> u64 {
    let whole = number.floor();
    *number -= whole;
    whole as u64
}
