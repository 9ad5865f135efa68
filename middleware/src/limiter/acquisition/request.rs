//! A request as one limiter sees it: its cost, its band, and its part of the demand.

use std::mem;

use doorman_openapi::{Moment, Unit};

use crate::{
    cost::Cost,
    limiter::{
        Limiter, LimiterHandle, Rejected, View,
        bands::{BandRef, RequestBand},
        bucket::TokenRange,
    },
};

#[derive(Debug)]
pub(in crate::limiter) struct Request {
    pub(super) handle: LimiterHandle,
    pub(super) cost: f64,
    pub(in crate::limiter) unit: Unit,
    pub(super) priority: i32,
    /// Among requests of other priorities, when it last tried.
    pub(in crate::limiter) band: Option<RequestBand>,
    /// Whether the cost is part of the queue's pending cost.
    is_pending: bool,
    /// The band whose attempts include the pending cost.
    pending_band: Option<RequestBand>,
}

impl Request {
    pub(super) fn new(handle: LimiterHandle, priority: i32, cost: Cost) -> Self {
        let unit = handle.get().unit();
        let cost = match unit {
            Unit::Rate => cost,
            Unit::Gauge => cost.whole(),
        };
        Self {
            handle,
            cost: cost.get(),
            unit,
            priority,
            band: None,
            is_pending: false,
            pending_band: None,
        }
    }

    #[inline]
    pub(in crate::limiter) fn limiter(&self) -> Limiter<'_> {
        self.handle.get()
    }

    pub(super) fn band(&self) -> Option<BandRef<'_>> {
        self.band.as_ref().map(RequestBand::get)
    }

    /// The band, if there are higher ones.
    pub(super) fn lower_band(&self) -> Option<BandRef<'_>> {
        self.band().filter(|band| band.is_lower())
    }

    /// The tokens that it leaves for higher bands, with so much *spent* in all.
    pub(super) fn kept(&self, spent: f64) -> f64 {
        let band = self.lower_band();
        band.map_or(0.0, |band| band.kept(self.unit, spent))
    }

    /// The range that must be available before it may take its tokens.
    pub(super) fn needed(&self, at: &View, spent: f64) -> TokenRange {
        let range = at.view.next(spent, self.cost);
        at.view.with_kept(range, self.kept(spent))
    }

    pub(super) fn count_attempt(&self, cost: f64) {
        if let Some(band) = self.band() {
            band.count(cost);
        }
    }

    /// Counts units of a gauge in their band; given back if they are negative.
    pub(in crate::limiter) fn use_units(&self, units: f64) {
        if let Some(band) = self.band() {
            band.use_units(units);
        }
    }

    /// Notes how many units a request for a gauge needs.
    pub(super) fn note_cost(&self) {
        if self.unit == Unit::Gauge {
            self.limiter().note_cost(self.cost);
        }
    }

    /// Counts units of a gauge that are in use or waited for.
    pub(super) fn raise_peaks(&self, range: TokenRange) {
        if self.unit == Unit::Gauge {
            self.limiter().raise_peak(range.end());
            self.raise_peak(0.0, range.end());
        }
    }

    /// Raises the peak of its band, if it is of a gauge.
    pub(super) fn raise_peak(&self, wanted: f64, spent: f64) {
        if self.unit == Unit::Gauge
            && let Some(band) = self.band()
        {
            band.raise_peak(wanted, spent);
        }
    }

    /// Counts it as admitted.
    pub(in crate::limiter) fn count_admission(&mut self) {
        let limiter = self.limiter();
        if !limiter.is_reused() {
            let admitted = &limiter.record.admitted;
            admitted.update(|total| total + self.cost);
        }
        self.count_attempt(self.cost);
        self.clear_pending();
    }

    /// Rejects it, and counts it.
    pub(super) fn reject(
        &self,
        needed: TokenRange,
        at: &View,
        reach: Option<Moment>,
        now: Moment,
    ) -> Rejected {
        let limiter = self.limiter();
        self.count_attempt(needed.cost);
        self.raise_peak(needed.cost, limiter.record.spent.load());
        limiter.reject(needed, at, reach, now)
    }

    /// Adds the cost to the demand while it waits, here or at another limit. The limiter is not
    /// forgotten meanwhile.
    pub(super) fn mark_pending(&mut self) {
        if !mem::replace(&mut self.is_pending, true) {
            self.limiter().queue().add_pending(self.cost);
            if self.band.is_none() {
                self.band = self.limiter().band(self.priority);
            }
            self.count_attempt(self.cost);
            self.pending_band.clone_from(&self.band);
        }
    }

    pub(super) fn clear_pending(&mut self) {
        if mem::take(&mut self.is_pending) {
            self.limiter().queue().remove_pending(self.cost);
            if let Some(band) = self.pending_band.take() {
                band.get().count(-self.cost);
            }
        }
    }
}

impl Drop for Request {
    /// The caller is gone: the cost stays part of the demand.
    fn drop(&mut self) {
        if self.is_pending {
            self.limiter().queue().cancel_pending(self.cost);
        }
    }
}
