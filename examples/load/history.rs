//! Counts of requests and responses, and their history.

use std::{
    collections::VecDeque,
    iter::Sum,
    ops::Add,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Running totals since the load started. Requests in flight are only in `offered`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests that became due.
    pub offered: u64,
    /// Responses 200.
    pub admitted: u64,
    /// Responses 429.
    pub rejected: u64,
    /// Responses 503.
    pub unavailable: u64,
    /// Other responses, broken connections, and requests without a free connection for a second.
    pub failed: u64,
}

impl Totals {
    /// The change since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    fn zip(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: each(self.offered, other.offered),
            admitted: each(self.admitted, other.admitted),
            rejected: each(self.rejected, other.rejected),
            unavailable: each(self.unavailable, other.unavailable),
            failed: each(self.failed, other.failed),
        }
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// The totals of one target while its connections count.
#[derive(Debug, Default)]
pub(super) struct Counters {
    offered: AtomicU64,
    admitted: AtomicU64,
    rejected: AtomicU64,
    unavailable: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(super) fn add_offered(&self, requests: usize) {
        self.offered.fetch_add(requests as u64, Relaxed);
    }

    pub(super) fn add_failed(&self, requests: usize) {
        self.failed.fetch_add(requests as u64, Relaxed);
    }

    /// Counts one response by its status; `None` when there was none.
    pub(super) fn add_response(&self, status: Option<u16>) {
        let counter = match status {
            Some(200) => &self.admitted,
            Some(429) => &self.rejected,
            Some(503) => &self.unavailable,
            Some(_) | None => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            offered: self.offered.load(Relaxed),
            admitted: self.admitted.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            unavailable: self.unavailable.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

/// Samples of the totals of `N` targets, ten per second, for the last hour.
#[derive(Debug)]
pub struct History<const N: usize> {
    samples: VecDeque<Sample<N>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample<const N: usize> {
    at: Duration,
    totals: [Totals; N],
}

/// The change between two samples.
#[derive(Debug, Clone, Copy)]
pub struct Window<const N: usize> {
    /// Start, since the load started.
    pub from: Duration,
    /// Length; at least the requested one, to the next sample.
    pub length: Duration,
    /// The change per target.
    pub targets: [Totals; N],
}

const RETENTION: Duration = Duration::from_secs(3600);

impl<const N: usize> History<N> {
    /// Adds a sample; `at` is the time since the load started.
    pub fn record(&mut self, at: Duration, totals: [Totals; N]) {
        self.samples.push_back(Sample { at, totals });
        while let Some(oldest) = self.samples.front()
            && oldest.at.saturating_add(RETENTION) < at
        {
            self.samples.pop_front();
        }
    }

    /// Age of the load at the last sample.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.samples.back().map(|last| last.at).unwrap_or_default()
    }

    /// The last window of a length; `None` before the load has run that long.
    #[must_use]
    pub fn last(&self, length: Duration) -> Option<Window<N>> {
        let end = self.samples.back()?;
        let start = end.at.checked_sub(length)?;
        let begin = self.samples.partition_point(|sample| sample.at <= start);
        Some(between(self.samples.get(begin.checked_sub(1)?)?, end))
    }

    /// Every window of a length that begins at `from` or later, in order of time.
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
    /// The change of all targets together.
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

    /// A sample every half second: 10 per second at the first target, 20 at the second.
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
    fn last_window_has_its_rate() {
        let last = steady(9.0).last(seconds(4.0)).unwrap();
        assert_eq!((last.from, last.length), (seconds(5.0), seconds(4.0)));
        assert_eq!(last.targets.map(|target| target.admitted), [40, 80]);
        assert_eq!(last.per_second(last.total().admitted), 30.0);
    }

    #[test]
    fn window_longer_than_the_load_is_absent() {
        assert!(steady(3.0).last(seconds(3.5)).is_none());
        assert!(History::<1>::default().last(seconds(1.0)).is_none());
        assert_eq!(steady(3.0).windows(seconds(0.0), seconds(3.5)).count(), 0);
    }

    #[test]
    fn windows_begin_at_every_sample() {
        let history = steady(9.0);
        let windows: Vec<_> = history.windows(seconds(2.0), seconds(5.0)).collect();
        let begins: Vec<_> = windows.iter().map(|window| window.from).collect();
        assert_eq!(begins, [2.0, 2.5, 3.0, 3.5, 4.0].map(seconds));
        assert!(windows.iter().all(|window| window.length == seconds(5.0)));
        assert!(windows.iter().all(|window| window.total().admitted == 150));
    }

    #[test]
    fn samples_are_kept_for_an_hour() {
        let history = steady(4000.0);
        let oldest = history.windows(seconds(0.0), seconds(1.0)).next().unwrap();
        assert_eq!(oldest.from, seconds(400.0));
    }
}
