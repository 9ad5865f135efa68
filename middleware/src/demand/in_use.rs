//! Demand of a process for a gauge: the units that it uses at once.
//!
//! It is the peak of the last seconds, of what was in use or waited for, and of what rejected
//! requests would have used. By Little's law these are the requests times the time for which one
//! uses its units, as far as that time is known.
//!
//! The headroom beyond that is counted in requests, not in units, so that demand in thousands of
//! units for each request is that of one unit for each, times those thousands.

use doorman_openapi::Moment;

use super::sample_pause;

const SUB_INTERVALS: f64 = 4.0;
const SLOTS: usize = 5;
/// For how many seconds uses are remembered, to know how long one takes.
const USE_MEMORY: f64 = 30.0;

/// Running totals and levels of a gauge's limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GaugeSample {
    /// The most units in use or waited for since the last sample.
    pub(crate) peak: f64,
    /// The units in use or waited for now.
    pub(crate) level: f64,
    /// The running total of units admitted.
    pub(crate) admitted: f64,
    /// The running total of units rejected.
    pub(crate) rejected: f64,
    /// The largest cost of a request since the last sample; 0 without one.
    pub(crate) largest: f64,
    /// The whole limit, infinite if it is unknown: a request for more is never admitted.
    pub(crate) limit: f64,
}

/// The measured demand for a gauge.
#[derive(Debug, Clone)]
pub(crate) struct InUseDemand {
    /// Peaks of sub-intervals, newest first.
    slots: [Slot; SLOTS],
    level: f64,
    admitted: f64,
    rejected: f64,
    /// Units in use times seconds, and units admitted, of the last [`USE_MEMORY`] seconds.
    used: f64,
    begun: f64,
    /// The largest cost within the limit of a request of the window, or of the last one that had
    /// any.
    cost: f64,
    sampled_at: Moment,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    seconds: f64,
    peak: f64,
    largest: f64,
}

impl InUseDemand {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            slots: [Slot::default(); SLOTS],
            level: 0.0,
            admitted: 0.0,
            rejected: 0.0,
            used: 0.0,
            begun: 0.0,
            cost: 1.0,
            sampled_at: now,
        }
    }

    /// Forgets everything but the running totals and the cost of a request.
    pub(crate) fn begin_again(&self, now: Moment) -> Self {
        Self {
            cost: self.cost,
            admitted: self.admitted,
            rejected: self.rejected,
            ..Self::new(now)
        }
    }

    /// Records a sample, for a window of `length` seconds.
    pub(crate) fn record(&mut self, sample: GaugeSample, length: f64, now: Moment) {
        let GaugeSample {
            peak,
            level,
            admitted,
            rejected,
            largest,
            limit,
        } = sample;
        let seconds = now.seconds_since(self.sampled_at);
        let kept = (-seconds / USE_MEMORY).exp();
        self.used = self.used * kept + 0.5 * (self.level + level) * seconds;
        self.begun = self.begun * kept + (admitted - self.admitted).max(0.0);
        let denied = (rejected - self.rejected).max(0.0) * self.overlap(seconds);
        self.level = level;
        self.admitted = admitted;
        self.rejected = rejected;
        self.sampled_at = self.sampled_at.max(now);

        let [newest, ..] = &mut self.slots;
        if newest.seconds + seconds > length / SUB_INTERVALS {
            self.slots.rotate_right(1);
            self.slots[0] = Slot::default();
        }
        let [newest, ..] = &mut self.slots;
        newest.seconds += seconds;
        if largest <= limit {
            newest.largest = newest.largest.max(largest);
        }
        let mut span = 0.0;
        for slot in &mut self.slots {
            if span >= length {
                *slot = Slot::default();
            }
            span += slot.seconds;
        }
        self.set_cost(limit);
        // In whole requests: a part of one cannot be in flight.
        let denied = self.cost * (denied / self.cost).ceil();
        let [newest, ..] = &mut self.slots;
        newest.peak = newest.peak.max(peak + denied);
    }

    /// The limit may be known only now.
    fn set_cost(&mut self, limit: f64) {
        let costs = self.slots.iter().map(|slot| slot.largest);
        let largest = costs.filter(|cost| *cost <= limit).fold(0.0, f64::max);
        if largest > 0.0 {
            self.cost = largest.ceil();
        } else if self.cost > limit {
            self.cost = 1.0;
        }
    }

    /// The part of the requests of so many seconds that use their units at once.
    fn overlap(&self, seconds: f64) -> f64 {
        if self.begun <= 0.0 || seconds <= 0.0 {
            return 1.0;
        }
        (self.used / self.begun / seconds).min(1.0)
    }

    /// The peak of the window, in whole units.
    pub(crate) fn peak(&self) -> f64 {
        let peaks = self.slots.iter().map(|slot| slot.peak);
        peaks.fold(0.0, f64::max).ceil()
    }

    /// The peak, and what a peak to come may use beyond it.
    pub(crate) fn with_headroom(&self) -> f64 {
        let peak = self.peak();
        peak + self.cost * (peak / self.cost).sqrt().ceil()
    }

    /// The units that the largest of the last requests needs.
    pub(crate) fn one_request(&self) -> f64 {
        self.cost
    }

    /// The seconds until the next sample.
    pub(crate) fn next_sample(&self, length: f64) -> f64 {
        let is_quiet = self.slots.iter().all(|slot| slot.largest <= 0.0);
        sample_pause(length, is_quiet)
    }

    /// The units in use or waited for at the last sample.
    pub(crate) fn level(&self) -> f64 {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(seconds)
    }

    fn sample(peak: f64, level: f64, admitted: f64, rejected: f64) -> GaugeSample {
        GaugeSample {
            largest: 1.0,
            limit: f64::INFINITY,
            peak,
            level,
            admitted,
            rejected,
        }
    }

    #[test]
    fn peak_is_remembered_for_a_window() {
        let mut demand = InUseDemand::new(at(0.0));
        demand.record(sample(9.0, 2.0, 9.0, 0.0), 10.0, at(1.0));
        assert_eq!((demand.peak(), demand.with_headroom()), (9.0, 12.0));
        let mut seconds = 1.0;
        while demand.peak() > 2.0 {
            seconds += 1.0;
            demand.record(sample(2.0, 2.0, 9.0, 0.0), 10.0, at(seconds));
        }
        assert!((10.0..=14.0).contains(&seconds), "{seconds}");
        assert_eq!(demand.level(), 2.0);
    }

    #[test]
    fn request_for_more_than_the_limit_is_not_kept() {
        let request = |largest, limit| GaugeSample {
            largest,
            limit,
            ..sample(0.0, 0.0, 0.0, 0.0)
        };
        let mut demand = InUseDemand::new(at(0.0));
        demand.record(request(1e9, f64::INFINITY), 10.0, at(1.0));
        assert_eq!(demand.one_request(), 1e9, "the limit is not known yet");
        demand.record(request(0.0, 20.0), 10.0, at(2.0));
        assert_eq!(demand.one_request(), 1.0);
        demand.record(request(5.0, 20.0), 10.0, at(3.0));
        demand.record(request(21.0, 20.0), 10.0, at(4.0));
        assert_eq!(demand.one_request(), 5.0);
        demand.record(request(0.0, 20.0), 10.0, at(100.0));
        assert_eq!(demand.one_request(), 5.0, "it stays without requests");
    }

    #[test]
    fn rejected_requests_count_for_the_time_of_a_use() {
        // Nothing was ever in use: each may be long.
        let mut demand = InUseDemand::new(at(0.0));
        demand.record(sample(0.0, 0.0, 0.0, 30.0), 10.0, at(0.1));
        assert_eq!(demand.peak(), 30.0);

        // 100 uses a second of 10 ms each: one at a time. As many again would use another one.
        let mut demand = InUseDemand::new(at(0.0));
        for second in 1..=20 {
            let seconds = f64::from(second);
            demand.record(sample(1.0, 1.0, 100.0 * seconds, 0.0), 2.0, at(seconds));
        }
        demand.record(sample(1.0, 1.0, 2_100.0, 100.0), 2.0, at(21.0));
        assert_eq!(demand.peak(), 2.0);
    }
}
