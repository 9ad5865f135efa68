//! Dispersion of attempts, by which noise is told from a change.

use super::Slot;

/// The dispersion of the attempts is remembered for so many windows.
const DISPERSION_MEMORY: f64 = 3.0;
/// How much the attempts of stretches vary, as variance by mean. It is 1 for independent requests,
/// and larger for requests that come in groups.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dispersion {
    squares: f32,
    expected: f32,
}

impl Dispersion {
    /// Compares two stretches in a row: the rate itself may be unknown, or change slowly.
    pub(super) fn add(&mut self, newer: Slot, older: Slot, length: f64) {
        let (seconds, before) = (f64::from(newer.seconds), f64::from(older.seconds));
        if seconds <= 0.0 || before <= 0.0 {
            return;
        }
        let scale = seconds / before;
        let deviation = f64::from(newer.attempts) - f64::from(older.attempts) * scale;
        let mean = f64::from(newer.attempts + older.attempts) / (seconds + before);
        let kept = (1.0 - seconds / (DISPERSION_MEMORY * length)).max(0.0) as f32;
        self.squares = self.squares * kept + (deviation * deviation) as f32;
        // The variance of the deviation if the requests are independent.
        self.expected = self.expected * kept + (mean * seconds * (1.0 + scale)) as f32;
    }

    pub(super) fn get(self) -> f64 {
        if self.expected > 0.0 {
            f64::from(self.squares / self.expected).max(1.0)
        } else {
            1.0
        }
    }
}
