//! Demand under SUPPRESSION: the attempts between reports.

use doorman_holder::FOLLOW_UP_INTERVAL;
use doorman_openapi::Moment;

/// The attempts in a report that show a rate, however short the report.
const ATTEMPTS_OF_RATE: f64 = 10.0;
/// Regular reports are at least this part of the interval apart.
const WHOLE_INTERVAL: f64 = 0.8;
/// The shortest time that a report covers, in seconds.
const MIN_REPORT: f64 = 0.1;

/// Attempts since a report, for SUPPRESSION: without headroom, and each attempt counts once. More
/// than the truth would suppress holders within the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedDemand {
    /// The seconds that a report covers.
    pub(crate) interval: f64,
    last: Report,
    /// The report before the attempts of early reports that were too few to tell of a rate.
    base: Report,
    /// The rate in the last report.
    rate: f64,
}

#[derive(Debug, Clone, Copy)]
struct Report {
    /// The running total then.
    total: f64,
    at: Moment,
}

impl ReportedDemand {
    /// Attempts from `at` on count, when their running total was `total` and their rate `rate`.
    pub(crate) fn new(total: f64, rate: f64, interval: f64, at: Moment) -> Self {
        let start = Report { total, at };
        Self {
            interval,
            last: start,
            base: start,
            rate,
        }
    }

    /// Records a report.
    pub(crate) fn report(&mut self, total: f64, now: Moment) {
        let Report { total: before, at } = self.since(now);
        let elapsed = now.seconds_since(at);
        let shows_rate =
            total - before >= ATTEMPTS_OF_RATE && elapsed >= FOLLOW_UP_INTERVAL.as_secs_f64();
        self.rate = self.per_second(total, now);
        self.last = Report { total, at: now };
        if shows_rate || elapsed >= self.interval * WHOLE_INTERVAL {
            self.base = self.last;
        }
    }

    /// Attempts per second since the last report. Few attempts are spread over an interval
    /// even if the report is early, and over the next early ones: they tell of no rate. Nor do they
    /// tell of a fall, unless more were expected.
    pub(crate) fn per_second(&self, total: f64, now: Moment) -> f64 {
        let Report { total: before, at } = self.since(now);
        let attempts = (total - before).max(0.0);
        let elapsed = now.seconds_since(at);
        let covered = if attempts < ATTEMPTS_OF_RATE {
            self.interval.max(MIN_REPORT)
        } else {
            FOLLOW_UP_INTERVAL.as_secs_f64()
        };
        let measured = attempts / elapsed.max(covered);
        let is_too_short = elapsed < FOLLOW_UP_INTERVAL.as_secs_f64()
            || attempts < ATTEMPTS_OF_RATE && self.rate * elapsed < ATTEMPTS_OF_RATE;
        if is_too_short && elapsed < self.interval * WHOLE_INTERVAL {
            measured.max(self.rate)
        } else {
            measured
        }
    }

    fn since(&self, now: Moment) -> Report {
        if self.last.at.after_seconds(self.interval * WHOLE_INTERVAL) <= now {
            self.last
        } else {
            self.base
        }
    }
}
