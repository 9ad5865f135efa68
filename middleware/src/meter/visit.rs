//! One direct use of a limit, from its first try to its end.

use super::{LimitMeter, Outcome};
use crate::{Fallback, Refusal};

/// Somebody who asks a limit directly. Dropped while it waits, it has gone away.
pub(crate) struct Visit<'a> {
    meter: &'a LimitMeter,
    waits: bool,
}

impl<'a> Visit<'a> {
    pub(crate) fn new(meter: &'a LimitMeter) -> Self {
        Self {
            meter,
            waits: false,
        }
    }

    /// It has to wait.
    pub(crate) fn waits(&mut self) {
        self.waits = true;
    }

    /// It is admitted; by the fallback that is given where there is no lease.
    pub(crate) fn admitted(mut self, fallback: impl FnOnce() -> Option<Fallback>) {
        let waited = std::mem::take(&mut self.waits);
        self.meter.admitted(waited, fallback);
    }

    /// It is refused.
    pub(crate) fn refused(mut self, refusal: Refusal) -> Refusal {
        self.waits = false;
        self.meter.count(Outcome::Refused(refusal.reason()));
        refusal
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.meter.count(Outcome::Gone);
        }
    }
}
