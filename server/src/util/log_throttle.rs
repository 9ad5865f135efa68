//! Limit on how often one kind of log line is written.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use doorman_openapi::Moment;

/// Admits a number of lines per interval and counts the suppressed ones.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    lines: u32,
    interval: Duration,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    end: Moment,
    admitted: u32,
    suppressed: u64,
}

impl LogThrottle {
    pub(crate) const fn new(lines: u32, interval: Duration) -> Self {
        Self {
            lines,
            interval,
            window: Mutex::new(Window {
                end: Moment::ORIGIN,
                admitted: 0,
                suppressed: 0,
            }),
        }
    }

    /// Admits one line per minute.
    pub(crate) const fn per_minute() -> Self {
        Self::new(1, Duration::from_secs(60))
    }

    /// Admits or suppresses a line. `Some` holds the number of lines suppressed since the last one.
    pub(crate) fn admit(&self, now: Moment) -> Option<u64> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.end <= now {
            window.end = now.after(self.interval);
            window.admitted = 0;
        }
        if window.admitted >= self.lines {
            window.suppressed = window.suppressed.saturating_add(1);
            return None;
        }
        window.admitted = window.admitted.saturating_add(1);
        Some(std::mem::take(&mut window.suppressed))
    }

    /// Takes the number of suppressed lines after their window, if not 0, even without a new line.
    pub(crate) fn take_suppressed(&self, now: Moment) -> Option<u64> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if now < window.end || window.suppressed == 0 {
            return None;
        }
        Some(std::mem::take(&mut window.suppressed))
    }

    /// Counts lines as suppressed that never reached [`Self::admit`].
    pub(crate) fn suppress(&self, lines: u64) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.suppressed = window.suppressed.saturating_add(lines);
    }
}

/// Log of a problem that comes and goes: one warning per interval while it lasts, and its end once
/// after a warning.
#[derive(Debug)]
pub(crate) struct ProblemLog {
    warnings: LogThrottle,
    is_open: AtomicBool,
}

impl ProblemLog {
    /// Admits one warning per interval.
    pub(crate) const fn new(interval: Duration) -> Self {
        Self {
            warnings: LogThrottle::new(1, interval),
            is_open: AtomicBool::new(false),
        }
    }

    /// Notes that the problem lasts. Returns whether to log that.
    pub(crate) fn note(&self, now: Moment) -> bool {
        let is_due = self.warnings.admit(now).is_some();
        self.is_open.fetch_or(is_due, Relaxed);
        is_due
    }

    /// Notes that there is no problem. Returns whether to log its end.
    pub(crate) fn note_end(&self) -> bool {
        self.is_open.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(n))
    }

    #[test]
    fn one_line_per_interval_is_admitted() {
        let throttle = LogThrottle::per_minute();
        let admitted: Vec<_> = (0..180)
            .filter_map(|n| throttle.admit(second(100 + n)))
            .collect();
        assert_eq!(admitted, [0, 59, 59]);
    }

    #[test]
    fn problem_that_alternates_is_logged_once_per_interval() {
        let problem = ProblemLog::new(Duration::from_secs(60));
        assert!(!problem.note_end());
        let logged: Vec<_> = (0..120)
            .map(|n| (problem.note(second(100 + n)), problem.note_end()))
            .enumerate()
            .filter(|(_, logged)| *logged != (false, false))
            .collect();
        assert_eq!(logged, [(0, (true, true)), (60, (true, true))]);
    }

    #[test]
    fn next_admitted_line_reports_suppressed_lines() {
        let throttle = LogThrottle::new(2, Duration::from_secs(1));
        let admitted = [100, 100, 100, 100, 101].map(|n| throttle.admit(second(n)));
        assert_eq!(admitted, [Some(0), Some(0), None, None, Some(2)]);
        throttle.suppress(5);
        assert_eq!(throttle.admit(second(101)), Some(5));
    }

    #[test]
    fn suppressed_lines_are_taken_when_their_window_ends() {
        let throttle = LogThrottle::new(1, Duration::from_secs(1));
        let admitted = [100, 100, 100].map(|n| throttle.admit(second(n)));
        assert_eq!(admitted, [Some(0), None, None]);
        let taken = [100, 101, 102].map(|n| throttle.take_suppressed(second(n)));
        assert_eq!(taken, [None, Some(2), None]);
    }
}
