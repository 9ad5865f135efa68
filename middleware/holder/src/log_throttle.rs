//! Throttle for repeated log lines.

use std::time::Duration;

use doorman_openapi::Moment;

const INTERVAL: Duration = Duration::from_secs(60);

/// Allows one line a minute and counts the lines suppressed in between.
#[derive(Debug, Clone, Default)]
pub struct LogThrottle {
    last: Option<Moment>,
    suppressed: u64,
    logged: bool,
}

impl LogThrottle {
    /// Creates a throttle that allows a line at once.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: None,
            suppressed: 0,
            logged: false,
        }
    }

    /// Returns how many lines were suppressed since the last one if a line may be logged now.
    pub fn try_log(&mut self, now: Moment) -> Option<u64> {
        if self.last.is_some_and(|last| now < last.after(INTERVAL)) {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        self.logged = true;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Ends the condition and returns whether it was logged, so that its end is worth a line too.
    pub fn resolve(&mut self) -> bool {
        std::mem::take(&mut self.logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_once_a_minute_and_counts_suppressed_lines() {
        let mut throttle = LogThrottle::default();
        let start = Moment::ORIGIN;
        assert!(!throttle.resolve());
        assert_eq!(throttle.try_log(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(throttle.try_log(start.after_seconds(59.0)), None);
        }
        assert_eq!(throttle.try_log(start.after(INTERVAL)), Some(1000));
        assert_eq!(throttle.try_log(start.after(2 * INTERVAL)), Some(0));
        assert!(throttle.resolve());
        assert!(!throttle.resolve());
    }
}
