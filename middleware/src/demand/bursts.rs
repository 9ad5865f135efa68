//! Bursts: attempts beyond the measured rate.

/// A burst is remembered for one to two times as many seconds.
const BURST_MEMORY: f64 = 40.0;

/// Attempts beyond the measured rate, as the level of a bucket that drains at that rate, and its
/// recent maximum. A lease of the rate alone would have rejected them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bursts {
    backlog: f32,
    /// The largest backlogs in the current period of [`BURST_MEMORY`] and in the one before.
    peaks: [f32; 2],
    /// The age of the current period in seconds.
    age: f32,
}

impl Bursts {
    pub(super) fn tokens(self) -> f64 {
        let [current, before] = self.peaks.map(f64::from);
        let tokens = (current.max(before) - 1e-3).ceil();
        if tokens > 1.0 { tokens } else { 0.0 }
    }

    pub(super) fn add(&mut self, attempts: f64, drained: f64, seconds: f64, length: f64) {
        // The backlog of a slow rise, which the measured rate follows late, is no burst.
        let kept = (1.0 - seconds / length).max(0.0);
        let level = f64::from(self.backlog) * kept + attempts;
        let backlog = (level - drained).max(0.0);
        self.backlog = backlog as f32;

        self.age += seconds as f32;
        if f64::from(self.age) >= BURST_MEMORY {
            let [current, _] = self.peaks;
            let recent = f64::from(self.age) < 2.0 * BURST_MEMORY;
            self.peaks = [0.0, if recent { current } else { 0.0 }];
            self.age = 0.0;
        }
        if attempts > 0.0 {
            // Attempts that the rate explains may still have come at one moment, up to their noise.
            let peak = backlog + drained.min(attempts.sqrt());
            let [current, _] = &mut self.peaks;
            *current = current.max(peak.min(level) as f32);
        }
    }
}
