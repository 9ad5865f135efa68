//! Operations in flight of a client, which use units of a gauge.

use doorman_openapi::{Epoch, Moment, Seq};

/// A lease, or a report of operations, that lets so many units be in use.
#[derive(Debug, Clone, Copy)]
struct Cover {
    units: f64,
    ends: Moment,
    epoch: Epoch,
}

/// A report of operations that has not been answered.
#[derive(Debug, Clone, Copy)]
struct Report {
    seq: Seq,
    units: f64,
    /// When the lease that the client had then ends.
    ends: Moment,
}

/// Operations of a client that use units of one gauge. All times are simulated.
///
/// An operation keeps its units after a smaller lease has replaced the one under which it began.
/// They count against the capacity until that lease ends. A report of them prolongs this until the
/// end of the newest lease, if it is answered while they are still covered, by the server that
/// granted the units. What is in use beyond that outlives its lease, which is a named exception.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) in_use: f64,
    covers: Vec<Cover>,
    reports: Vec<Report>,
}

impl Operations {
    /// The units in use that count against the capacity.
    pub(super) fn counted(&self, time: Moment) -> f64 {
        if self.in_use == 0.0 {
            return 0.0;
        }
        self.in_use.min(self.covered(time))
    }

    fn covered(&self, time: Moment) -> f64 {
        let covers = self.covers.iter().filter(|it| time < it.ends);
        covers.map(|it| it.units).fold(0.0, f64::max)
    }

    pub(super) fn add_lease(&mut self, units: f64, ends: Moment, epoch: Epoch, time: Moment) {
        self.covers.retain(|it| time < it.ends);
        self.covers.push(Cover { units, ends, epoch });
    }

    /// A request is sent while the newest lease lasts until `ends`.
    pub(super) fn report(&mut self, seq: Seq, units: f64, ends: Moment) {
        self.reports.push(Report { seq, units, ends });
    }

    /// A request was answered in an epoch.
    pub(super) fn on_answer(&mut self, seq: Seq, epoch: Epoch, time: Moment) {
        let answered = self.reports.iter().find(|it| it.seq == seq).copied();
        self.reports.retain(|it| it.seq > seq);
        let Some(report) = answered else {
            return;
        };
        let covers = |it: &&Cover| {
            let is_valid = time < it.ends && it.ends < report.ends;
            is_valid && it.epoch == epoch && it.units >= report.units
        };
        if self.covers.iter().any(|it| covers(&it)) {
            self.add_lease(report.units, report.ends, epoch, time);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
