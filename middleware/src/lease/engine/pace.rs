//! When a limiter is sampled: often while a shortage is measured, so that its demand shows soon.

use crate::{limiter::Shortage, tuning::tuning};

#[derive(Debug, Clone, Copy, Default)]
enum Pace {
    #[default]
    Usual,
    /// A shortage is being measured. The pauses between samples double.
    Shortage { samples: u8 },
}

/// The shortages that a limiter has signaled, and the pace at which they are measured.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    pace: Pace,
    /// The most urgent one since the demand signal was last cleared.
    signaled: Option<Shortage>,
    /// The most urgent one that was measured already, until a period without one.
    measured: Option<Shortage>,
}

impl Shortages {
    pub(super) fn signaled(&self) -> Option<Shortage> {
        self.signaled
    }

    pub(super) fn is_measuring(&self) -> bool {
        matches!(self.pace, Pace::Shortage { .. })
    }

    /// The seconds until the next sample of a shortage; 0 at the usual pace.
    pub(super) fn pause(&self) -> f64 {
        match self.pace {
            Pace::Usual => 0.0,
            Pace::Shortage { samples } => {
                f64::from(tuning().first_fast_sample) * 2.0_f64.powi(samples.into())
            }
        }
    }

    /// Notes a shortage, and begins to measure it unless it is a known one. Returns whether it did.
    pub(super) fn signal(&mut self, shortage: Shortage) -> bool {
        let is_new = Some(shortage) > self.signaled.max(self.measured);
        self.signaled = self.signaled.max(Some(shortage));
        if is_new {
            self.measure();
        }
        is_new
    }

    pub(super) fn measure(&mut self) {
        self.pace = Pace::Shortage { samples: 0 };
    }

    pub(super) fn end_measuring(&mut self) {
        self.pace = Pace::Usual;
    }

    /// The next shortage is another one.
    pub(super) fn forget_measured(&mut self) {
        self.measured = None;
    }

    /// Counts a sample, after which the demand signal is cleared. Returns how many were taken
    /// before to measure a shortage; `None` at the usual pace.
    pub(super) fn on_sample(&mut self) -> Option<u8> {
        let signaled = self.signaled.take();
        match &mut self.pace {
            Pace::Usual => {
                self.measured = signaled;
                None
            }
            Pace::Shortage { samples } => {
                self.measured = self.measured.max(signaled);
                let before = *samples;
                *samples = before.saturating_add(1);
                Some(before)
            }
        }
    }
}
