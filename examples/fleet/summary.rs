//! Totals and ten-second averages of the whole run.

use std::{fmt, time::Duration};

use doorman_examples::load::{History, Totals};

/// Length of the windows that averages are taken over.
const WINDOW: Duration = Duration::from_secs(10);

/// How long the leases may take to follow a shift of the load.
const SETTLING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Summary {
    limit: f64,
    elapsed: Duration,
    totals: Totals,
    /// Start of the first window that is not counted yet.
    next: Duration,
    highest: Option<f64>,
    /// When the leases follow the current overload; `None` below the limit.
    settled_from: Option<Duration>,
    /// Lowest and highest average of windows under a settled overload.
    settled: Option<(f64, f64)>,
}

impl Summary {
    /// The summary of a run that begins with an overload.
    pub(crate) fn new(limit: f64) -> Self {
        Self {
            limit,
            elapsed: Duration::ZERO,
            totals: Totals::default(),
            next: Duration::ZERO,
            highest: None,
            settled_from: Some(SETTLING),
            settled: None,
        }
    }

    /// The load shifts at `now`; `overload`: to more than the limit.
    pub(crate) fn shift(&mut self, now: Duration, overload: bool) {
        self.settled_from = overload.then_some(now.saturating_add(SETTLING));
    }

    /// Counts every window that is complete and not counted yet, from the first second on.
    pub(crate) fn add_windows<const N: usize>(&mut self, history: &History<N>) {
        for window in history.windows(self.next, WINDOW) {
            self.next = window.from.saturating_add(Duration::from_nanos(1));
            let average = window.per_second(window.total().admitted);
            self.highest = Some(self.highest.map_or(average, |highest| highest.max(average)));
            if self.settled_from.is_some_and(|from| from <= window.from) {
                let (lowest, highest) = self.settled.unwrap_or((average, average));
                self.settled = Some((lowest.min(average), highest.max(average)));
            }
        }
    }

    /// The run ends.
    pub(crate) fn finish(&mut self, elapsed: Duration, totals: Totals) {
        self.elapsed = elapsed;
        self.totals = totals;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, totals, .. } = self;
        let seconds = self.elapsed.as_secs_f64();
        let rejected = totals.rejected.saturating_add(totals.unavailable);
        writeln!(
            f,
            "In {seconds:.1} s: {} offered, {} admitted, {rejected} rejected, {} failed.",
            totals.offered, totals.admitted, totals.failed,
        )?;
        let mean = totals.admitted as f64 / seconds.max(0.1);
        writeln!(
            f,
            "Admitted {mean:.1}/s on average; the limit is {limit}/s."
        )?;
        if let Some(highest) = self.highest {
            writeln!(
                f,
                "At most {highest:.1}/s over any 10 s, saved-up burst included."
            )?;
        }
        if let Some((lowest, highest)) = self.settled {
            writeln!(
                f,
                "{lowest:.1} to {highest:.1}/s over any 10 s of overload, from 5 s after a shift."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of `per_second` admitted requests, one per second for `seconds`.
    fn history(seconds: u64, per_second: u64) -> History<1> {
        let mut history = History::default();
        for second in 0..=seconds {
            let totals = Totals {
                admitted: second * per_second,
                ..Totals::default()
            };
            history.record(Duration::from_secs(second), [totals]);
        }
        history
    }

    #[test]
    fn first_full_window_is_counted() {
        let mut summary = Summary::new(1000.0);
        summary.add_windows(&history(9, 1200));
        assert_eq!(summary.highest, None);
        summary.add_windows(&history(10, 1200));
        assert_eq!((summary.highest, summary.settled), (Some(1200.0), None));
    }

    #[test]
    fn only_settled_overload_is_averaged() {
        let mut summary = Summary::new(1000.0);
        summary.add_windows(&history(15, 1000));
        assert_eq!(summary.settled, Some((1000.0, 1000.0)));
        summary.shift(Duration::from_secs(15), false);
        summary.add_windows(&history(40, 500));
        assert_eq!(summary.settled, Some((1000.0, 1000.0)));
        summary.shift(Duration::from_secs(35), true);
        summary.add_windows(&history(50, 900));
        assert_eq!(summary.settled, Some((900.0, 1000.0)));
    }
}
