//! The totals over time, from which the rates of any stretch of time can be read.

use std::{collections::VecDeque, time::Duration};

use super::Totals;

/// The totals of `N` targets, ten times a second, for the last hour of a load.
#[derive(Debug)]
pub struct History<const N: usize> {
    samples: VecDeque<Sample<N>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample<const N: usize> {
    at: Duration,
    totals: [Totals; N],
}

/// What came about between two samples.
#[derive(Debug, Clone, Copy)]
pub struct Window<const N: usize> {
    /// When it begins, since the load began.
    pub from: Duration,
    /// How long it is: as long as was asked for, to a sample.
    pub length: Duration,
    /// What was added in it, target by target.
    pub targets: [Totals; N],
}

const KEPT: Duration = Duration::from_secs(3600);

impl<const N: usize> History<N> {
    /// Adds the totals that stand now; `at` is the time since the load began.
    pub(super) fn record(&mut self, at: Duration, totals: [Totals; N]) {
        self.samples.push_back(Sample { at, totals });
        while let Some(oldest) = self.samples.front()
            && oldest.at.saturating_add(KEPT) < at
        {
            self.samples.pop_front();
        }
    }

    /// How long the load had run at the last sample.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.samples.back().map(|last| last.at).unwrap_or_default()
    }

    /// The last stretch of a length; `None` while the load has not run so long.
    #[must_use]
    pub fn last(&self, length: Duration) -> Option<Window<N>> {
        let end = self.samples.back()?;
        let start = end.at.checked_sub(length)?;
        let begin = self.samples.partition_point(|sample| sample.at <= start);
        Some(between(self.samples.get(begin.checked_sub(1)?)?, end))
    }

    /// Every stretch of a length that begins at `from` or later, in order of time.
    pub fn windows(&self, from: Duration, length: Duration) -> impl Iterator<Item = Window<N>> {
        let first = self.samples.partition_point(|sample| sample.at < from);
        let mut ends = self.samples.iter().skip(first).peekable();
        self.samples.iter().skip(first).map_while(move |begin| {
            let enough = begin.at.saturating_add(length);
            while ends.peek()?.at < enough {
                ends.next();
            }
            Some(between(begin, ends.peek()?))
        })
    }
}

fn between<const N: usize>(begin: &Sample<N>, end: &Sample<N>) -> Window<N> {
    let mut targets = end.totals;
    for (target, earlier) in targets.iter_mut().zip(begin.totals) {
        *target = target.since(earlier);
    }
    Window {
        from: begin.at,
        length: end.at.saturating_sub(begin.at),
        targets,
    }
}

impl<const N: usize> Window<N> {
    /// What was added in it at all targets together.
    #[must_use]
    pub fn total(&self) -> Totals {
        self.targets.into_iter().sum()
    }

    /// A count of this window as a mean rate per second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64()
    }
}

impl<const N: usize> Default for History<N> {
    fn default() -> Self {
        Self {
            samples: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds).unwrap()
    }

    /// A sample every half second, admitting 10 a second at the first target and 20 at the second.
    fn steady(end: f64) -> History<2> {
        let mut history = History::default();
        let mut at = 0.0;
        while at <= end {
            let admitted = |rate: f64| Totals {
                admitted: (rate * at) as u64,
                ..Totals::default()
            };
            history.record(seconds(at), [admitted(10.0), admitted(20.0)]);
            at += 0.5;
        }
        history
    }

    #[test]
    fn tells_the_rate_of_the_last_stretch() {
        let last = steady(9.0).last(seconds(4.0)).unwrap();
        assert_eq!((last.from, last.length), (seconds(5.0), seconds(4.0)));
        assert_eq!(last.targets.map(|target| target.admitted), [40, 80]);
        assert_eq!(last.per_second(last.total().admitted), 30.0);
    }

    #[test]
    fn knows_no_stretch_longer_than_the_load() {
        assert!(steady(3.0).last(seconds(3.5)).is_none());
        assert!(History::<1>::default().last(seconds(1.0)).is_none());
        assert_eq!(steady(3.0).windows(seconds(0.0), seconds(3.5)).count(), 0);
    }

    #[test]
    fn tells_every_stretch_from_a_moment_on() {
        let history = steady(9.0);
        let windows: Vec<_> = history.windows(seconds(2.0), seconds(5.0)).collect();
        let begins: Vec<_> = windows.iter().map(|window| window.from).collect();
        assert_eq!(begins, [2.0, 2.5, 3.0, 3.5, 4.0].map(seconds));
        assert!(windows.iter().all(|window| window.length == seconds(5.0)));
        assert!(windows.iter().all(|window| window.total().admitted == 150));
    }

    #[test]
    fn keeps_the_last_hour() {
        let history = steady(4000.0);
        let oldest = history.windows(seconds(0.0), seconds(1.0)).next().unwrap();
        assert_eq!(oldest.from, seconds(400.0));
    }
}
