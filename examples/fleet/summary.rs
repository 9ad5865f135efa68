//! Totals of the whole run, and the rates of its seconds from the first one on.

use std::{fmt, time::Duration};

use doorman_examples::load::{History, Totals};

/// Length of the windows that rates are taken over.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Summary {
    limit: f64,
    elapsed: Duration,
    totals: Totals,
    /// Start of the first window that is not counted yet.
    next: Duration,
    highest: Option<f64>,
    /// When the current overload began; `None` below the limit.
    overloaded_from: Option<Duration>,
    /// Lowest rate of a window under overload.
    lowest: Option<f64>,
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
            overloaded_from: Some(Duration::ZERO),
            lowest: None,
        }
    }

    /// The load shifts at `now`; `overload`: to more than the limit.
    pub(crate) fn shift(&mut self, now: Duration, overload: bool) {
        self.overloaded_from = overload.then_some(now);
    }

    /// Counts every window that is complete and not counted yet, from the first second on.
    pub(crate) fn add_windows<const N: usize>(&mut self, history: &History<N>) {
        for window in history.windows(self.next, WINDOW) {
            self.next = window.from.saturating_add(Duration::from_nanos(1));
            let rate = window.per_second(window.total().admitted);
            self.highest = Some(self.highest.map_or(rate, |highest| highest.max(rate)));
            if self.overloaded_from.is_some_and(|from| from <= window.from) {
                self.lowest = Some(self.lowest.map_or(rate, |lowest| lowest.min(rate)));
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
                "At most {highest:.1}/s over any second, saved-up burst included."
            )?;
        }
        if let Some(lowest) = self.lowest {
            writeln!(f, "At least {lowest:.1}/s over any second of overload.")?;
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
    fn first_second_counts() {
        let mut summary = Summary::new(1000.0);
        summary.add_windows(&history(0, 1200));
        assert_eq!((summary.highest, summary.lowest), (None, None));
        summary.add_windows(&history(1, 1200));
        assert_eq!(
            (summary.highest, summary.lowest),
            (Some(1200.0), Some(1200.0))
        );
    }

    #[test]
    fn lowest_rate_is_that_of_overload() {
        let mut summary = Summary::new(1000.0);
        summary.add_windows(&history(15, 1000));
        assert_eq!(summary.lowest, Some(1000.0));
        summary.shift(Duration::from_secs(15), false);
        summary.add_windows(&history(40, 500));
        assert_eq!(summary.lowest, Some(1000.0));
        summary.shift(Duration::from_secs(40), true);
        summary.add_windows(&history(50, 900));
        assert_eq!(summary.lowest, Some(900.0));
    }
}
