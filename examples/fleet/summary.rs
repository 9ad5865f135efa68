//! What remains to be said at the end.

use std::{fmt, time::Duration};

use doorman_examples::load::{Totals, Window};

use crate::plan::INSTANCES;

/// How long an average is taken over.
pub(crate) const AVERAGED: Duration = Duration::from_secs(10);

/// How long the leases may take to follow a shift of the load.
pub(crate) const SETTLING: Duration = Duration::from_secs(5);

/// The ten-second averages of what was admitted.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    highest: Option<f64>,
    /// The lowest and the highest of those that begin when the leases have followed, under more load than the limit.
    settled: Option<(f64, f64)>,
}

/// All that was offered and answered.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) elapsed: Duration,
    pub(crate) limit: f64,
    pub(crate) totals: Totals,
    pub(crate) averages: Averages,
}

impl Averages {
    /// Takes the ten seconds up to now into account; `settled`: since when the leases have followed an overload, if they have.
    pub(crate) fn add(&mut self, window: &Window<INSTANCES>, settled: Option<Duration>) {
        let average = window.per_second(window.total().admitted);
        self.highest = Some(self.highest.map_or(average, |highest| highest.max(average)));
        if settled.is_some_and(|since| since <= window.from) {
            let (lowest, highest) = self.settled.unwrap_or((average, average));
            self.settled = Some((lowest.min(average), highest.max(average)));
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            elapsed,
            limit,
            totals,
            averages,
        } = self;
        let refused = totals.refused.saturating_add(totals.unavailable);
        writeln!(
            f,
            "In {:.1} s: {} offered, {} admitted, {refused} refused, {} failed.",
            elapsed.as_secs_f64(),
            totals.offered,
            totals.admitted,
            totals.failed,
        )?;
        let mean = totals.admitted as f64 / elapsed.as_secs_f64().max(0.1);
        writeln!(
            f,
            "Admitted {mean:.1}/s on average; the limit is {limit}/s."
        )?;
        if let Some(highest) = averages.highest {
            writeln!(
                f,
                "Over any 10 s at most {highest:.1}/s, what was saved up in a lull included."
            )?;
        }
        if let Some((lowest, highest)) = averages.settled {
            writeln!(
                f,
                "Over any 10 s that begin 5 s after a shift, overloaded: {lowest:.1} to {highest:.1}/s."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten_seconds_from(from: u64, admitted: u64) -> Window<INSTANCES> {
        let total = Totals {
            admitted,
            ..Totals::default()
        };
        Window {
            from: Duration::from_secs(from),
            length: AVERAGED,
            targets: [total, Totals::default(), Totals::default()],
        }
    }

    #[test]
    fn tells_the_settled_averages_from_the_others() {
        let settled = Some(Duration::from_secs(5));
        let mut averages = Averages::default();
        averages.add(&ten_seconds_from(4, 12_000), settled);
        averages.add(&ten_seconds_from(5, 9_900), settled);
        averages.add(&ten_seconds_from(6, 10_010), settled);
        averages.add(&ten_seconds_from(7, 9_000), None);
        assert_eq!(averages.highest, Some(1200.0));
        assert_eq!(averages.settled, Some((990.0, 1001.0)));
    }
}
