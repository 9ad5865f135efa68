//! Metrics of the layer through the `metrics` facade; without that feature the calls do nothing.
//!
//! To add a metric, add its name, its counter and its description to `limits` or `leases`, the same
//! method to `noop`, and a row to the table of `docs/LAYER.md`.

#[cfg(feature = "metrics")]
mod leases;
#[cfg(feature = "metrics")]
mod limits;
#[cfg(not(feature = "metrics"))]
mod noop;
#[cfg(test)]
#[cfg(feature = "metrics")]
pub(crate) mod testing;
#[cfg(test)]
#[cfg(feature = "metrics")]
mod tests;

use doorman_openapi::Fallback;

#[cfg(not(feature = "metrics"))]
pub(crate) use self::noop::{LeaseMeter, LimitMeter, Meters};
#[cfg(feature = "metrics")]
pub(crate) use self::{
    leases::LeaseMeter,
    limits::{LimitMeter, Meters},
};
use crate::refusal::{Refusal, RefusalReason};

/// Outcome of a request at a limit that did not admit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    Refused(RefusalReason),
    /// The limit did not apply: the key was missing or the program skipped it.
    Skipped,
    /// A limit in shadow mode would have rejected the request.
    Shadow,
    /// The caller went away while the request waited.
    Gone,
}

/// `None → Leased | Blocked`, from there to each other and to `Lost`, and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LeasePhase {
    #[default]
    None,
    Leased,
    /// Leased a capacity of 0, because the whole capacity is 0.
    Blocked,
    Lost,
}

impl LeasePhase {
    /// The phase of a resource that has no lease now.
    pub(crate) fn without_lease(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Leased | Self::Blocked | Self::Lost => Self::Lost,
        }
    }
}

/// Counts the outcome of one direct use of a limit. Dropped while it waits, it counts as gone.
pub(crate) struct UseGuard<'a> {
    meter: &'a LimitMeter,
    waiting: bool,
}

impl<'a> UseGuard<'a> {
    pub(crate) fn new(meter: &'a LimitMeter) -> Self {
        Self {
            meter,
            waiting: false,
        }
    }

    pub(crate) fn mark_waiting(&mut self) {
        self.waiting = true;
    }

    /// `fallback` is the fallback that admitted it, if there was no lease.
    pub(crate) fn admitted(mut self, fallback: impl FnOnce() -> Option<Fallback>) {
        let waited = std::mem::take(&mut self.waiting);
        self.meter.admitted(waited, fallback);
    }

    pub(crate) fn refused(mut self, refusal: Refusal) -> Refusal {
        self.waiting = false;
        self.meter.count(NotAdmitted::Refused(refusal.reason()));
        refusal
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.meter.count(NotAdmitted::Gone);
        }
    }
}
