//! Measured demand of a process for a resource.
//!
//! It is the mean over a window of seconds, from samples of the running total of attempts. The time
//! between two samples is a stretch. A sudden change begins a new window: a rise once two stretches
//! show it, a fall likewise, or, for a hint, once one stretch does. Whether a stretch shows a
//! change is a matter of its noise, which is that of independent requests times the dispersion seen
//! so far. Bursts are measured apart. Nothing includes headroom: the surplus that the server grants
//! is the headroom.

mod in_use;

pub(crate) use self::in_use::{GaugeSample, InUseDemand};
use doorman_holder::FOLLOW_UP_INTERVAL;
use doorman_openapi::{Capacity, Moment};

use crate::tuning::tuning;

const SUB_INTERVALS: f64 = 4.0;
/// Slots for sub-intervals. Samples come at any time, so a window may be cut into a few more.
const SLOTS: usize = 6;
/// Samples per window while there are attempts, so that growing demand shows soon.
const SAMPLES: f64 = 8.0;
/// Samples per window without attempts: the limiter itself signals when it runs low.
const SAMPLES_WHILE_QUIET: f64 = 2.0;
/// The shortest window in seconds: one request after a pause is no rate of thousands.
const MIN_WINDOW: f64 = 1.0;
/// The attempts in a report that show a rate, however short the report.
const ATTEMPTS_OF_RATE: f64 = 10.0;
/// Regular reports are at least this part of the interval apart.
const WHOLE_INTERVAL: f64 = 0.8;
/// The shortest time that a report covers, in seconds.
const MIN_REPORT: f64 = 0.1;
/// The shortest stretch between samples that tells of a rate, in seconds. Shorter ones are merged.
const MIN_STRETCH: f64 = 0.015;
/// The longest time for which a hint waits to be told of a fall, in seconds.
const MAX_STRETCH_FOR_HINT: f64 = 0.3;
/// The attempts that must be expected of a stretch for their absence to show a fall, and for a
/// third of them to show one.
const SHOWS_ABSENCE: f64 = 5.0;
const SHOWS_THIRD: f64 = 12.0;
/// A stretch for a hint is no longer than this, in seconds, if it shows an absence sooner.
const USUAL_STRETCH_FOR_HINT: f64 = 0.03;
/// Stretches up to so many seconds are those of a shortage.
const SHORT_STRETCH: f64 = 0.4;
/// The dispersion of the attempts is remembered for so many windows.
const DISPERSION_MEMORY: f64 = 3.0;
/// A burst is remembered for one to two times as many seconds.
const BURST_MEMORY: f64 = 40.0;

/// In seconds.
pub(crate) fn window_length(refresh_interval: f64) -> f64 {
    let tuning = tuning();
    (tuning.window * refresh_interval).clamp(MIN_WINDOW, tuning.max_window)
}

/// Attempts over the last few seconds, sampled from their running total.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    recent: Recent,
    /// The running total at the last sample.
    total: f64,
    sampled_at: Moment,
}

#[derive(Debug, Clone, Default)]
enum Recent {
    #[default]
    Quiet,
    /// One token or less, as for most of very many keys.
    Once {
        /// The sample with the attempts.
        sample: Slot,
        /// The seconds since then.
        since: f32,
    },
    Busy(Box<Busy>),
}

#[derive(Debug, Clone, Default)]
struct Busy {
    /// Sub-intervals, newest first.
    slots: [Slot; SLOTS],
    /// The last two stretches between samples, newer first: they show a sudden rise.
    stretches: [Slot; 2],
    /// The stretch that is still too short.
    current: Slot,
    /// The seconds that it should have, so that a sample on schedule does not cut a stretch for a
    /// hint in two.
    needed: f32,
    dispersion: Dispersion,
    bursts: Bursts,
    /// Stretches with attempts, as far as it matters: attempts at one moment are no rate that may
    /// fall.
    active_stretches: u8,
    /// The window began with a new rate, and not with attempts that may have come at one moment.
    changed: bool,
}

/// Attempts over some time. Single precision is enough.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    seconds: f32,
    attempts: f32,
}

/// How much the attempts of stretches vary, as variance by mean. It is 1 for independent requests,
/// and larger for requests that come in groups.
#[derive(Debug, Clone, Copy, Default)]
struct Dispersion {
    squares: f32,
    expected: f32,
}

/// Attempts beyond the measured rate, as the level of a bucket that drains at that rate, and its
/// recent maximum. A lease of the rate alone would have rejected them.
#[derive(Debug, Clone, Copy, Default)]
struct Bursts {
    backlog: f32,
    /// The largest backlogs in the current period of [`BURST_MEMORY`] and in the one before.
    peaks: [f32; 2],
    /// The age of the current period in seconds.
    age: f32,
}

impl Window {
    /// Attempts before the first sample count as made just before it.
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            recent: Recent::Quiet,
            total: 0.0,
            sampled_at: now,
        }
    }

    /// Goes on from another running total, without attempts.
    pub(crate) fn continue_from(&mut self, total: f64) {
        self.total = total;
    }

    /// Records a sample of the running total and returns whether it grew. It falls when requests
    /// cost less than they were charged.
    pub(crate) fn record(&mut self, total: f64, length: f64, now: Moment) -> bool {
        let change = total - self.total;
        let attempts = change.max(0.0);
        let seconds = now.seconds_since(self.sampled_at);
        self.total = total;
        self.sampled_at = self.sampled_at.max(now);
        if change < 0.0 {
            self.recent.take_off(-change);
        }
        let sample = Slot::new(attempts, seconds);

        match &mut self.recent {
            Recent::Quiet if attempts > 1.0 => {
                self.recent = Recent::Busy(Box::new(Busy::begin(sample, length)));
            }
            Recent::Quiet if attempts > 0.0 => self.recent = Recent::Once { sample, since: 0.0 },
            Recent::Quiet => {}
            Recent::Once { sample, since } if attempts > 0.0 => {
                let mut busy = Busy::begin(*sample, length);
                busy.record(0.0, (*since).into(), length);
                busy.record(attempts, seconds, length);
                self.recent = Recent::Busy(Box::new(busy));
            }
            Recent::Once { since, .. } => {
                *since += seconds as f32;
                if f64::from(*since) >= length {
                    self.recent = Recent::Quiet;
                }
            }
            Recent::Busy(busy) => {
                if !busy.record(attempts, seconds, length) {
                    self.recent = Recent::Quiet;
                }
            }
        }
        attempts > 0.0
    }

    /// The running total at the last sample.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// The seconds since the last sample.
    pub(crate) fn age(&self, now: Moment) -> f64 {
        now.seconds_since(self.sampled_at)
    }

    /// The seconds until the next sample.
    pub(crate) fn next_sample(&self, length: f64) -> f64 {
        let is_quiet = match &self.recent {
            Recent::Quiet => true,
            Recent::Once { .. } => false,
            Recent::Busy(busy) => busy.is_quiet(),
        };
        length
            / if is_quiet {
                SAMPLES_WHILE_QUIET
            } else {
                SAMPLES
            }
    }

    /// The demand in attempts per second: finite, not negative, and 0 without attempts.
    pub(crate) fn per_second(&self) -> f64 {
        match &self.recent {
            Recent::Quiet => 0.0,
            Recent::Once { sample, since } => {
                f64::from(sample.attempts) / f64::from(sample.seconds + since).max(MIN_WINDOW)
            }
            Recent::Busy(busy) => busy.mean(),
        }
    }

    /// Like [`per_second`](Self::per_second), but right after a change it includes noise, so that
    /// the first request for more asks for enough.
    pub(crate) fn generous(&self) -> f64 {
        match &self.recent {
            Recent::Busy(busy) => busy.generous_mean(),
            Recent::Quiet | Recent::Once { .. } => self.per_second(),
        }
    }

    /// The attempts per second of the newest stretch alone.
    pub(crate) fn newest(&self) -> f64 {
        match &self.recent {
            Recent::Busy(busy) => busy.stretches[0].per_second(),
            Recent::Quiet | Recent::Once { .. } => 0.0,
        }
    }

    /// Begins a new stretch, to measure the demand from now on. Returns how many seconds of it
    /// show a fall; `None` if that takes too long.
    pub(crate) fn begin_stretch(&mut self) -> Option<f64> {
        let Recent::Busy(busy) = &mut self.recent else {
            // Too few attempts to show a fall.
            return None;
        };
        busy.current = Slot::default();
        let mean = busy.mean() / busy.dispersion.get();
        let seconds = (SHOWS_THIRD / mean).min(USUAL_STRETCH_FOR_HINT);
        // A little more: the mean falls meanwhile, and stretches are rounded.
        let seconds = seconds.max(SHOWS_ABSENCE / mean).max(MIN_STRETCH);
        let measured_for = 1.1 * seconds;
        if measured_for > MAX_STRETCH_FOR_HINT {
            return None;
        }
        busy.needed = seconds as f32;
        Some(measured_for)
    }

    /// Begins a new window if the newest stretch alone shows a fall.
    pub(crate) fn accept_fall(&mut self) {
        if let Recent::Busy(busy) = &mut self.recent
            && busy.has_fallen_in(busy.stretches[0])
        {
            busy.begin_again();
        }
    }

    /// The tokens of a bucket that would have held the bursts of the last minute; 0 when one token
    /// is enough, which every bucket holds.
    pub(crate) fn burst(&self) -> f64 {
        match &self.recent {
            Recent::Busy(busy) => busy.bursts.tokens(),
            Recent::Quiet | Recent::Once { .. } => 0.0,
        }
    }

    /// Forgets the bursts so far, so that others get what only they need.
    pub(crate) fn forget_bursts(&mut self) {
        if let Recent::Busy(busy) = &mut self.recent {
            busy.bursts = Bursts::default();
        }
    }
}

impl Recent {
    /// Takes off attempts that cost less than they were charged, the newest first.
    fn take_off(&mut self, attempts: f64) {
        match self {
            Self::Quiet => {}
            Self::Once { sample, .. } => take_off([sample], attempts),
            Self::Busy(busy) => {
                take_off(&mut busy.slots, attempts);
                let [newer, older] = &mut busy.stretches;
                take_off([&mut busy.current, newer, older], attempts);
            }
        }
    }
}

fn take_off<'s>(newest_first: impl IntoIterator<Item = &'s mut Slot>, attempts: f64) {
    let mut rest = attempts as f32;
    for slot in newest_first {
        let taken = slot.attempts.min(rest);
        slot.attempts -= taken;
        rest -= taken;
    }
}

impl Bursts {
    fn tokens(self) -> f64 {
        let [current, before] = self.peaks.map(f64::from);
        let tokens = (current.max(before) - 1e-3).ceil();
        if tokens > 1.0 { tokens } else { 0.0 }
    }

    fn add(&mut self, attempts: f64, drained: f64, seconds: f64, length: f64) {
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

impl Busy {
    /// The first attempts after a quiet time. They may have come at one moment, so they are part
    /// of no stretch.
    fn begin(sample: Slot, length: f64) -> Self {
        let mut busy = Self::default();
        busy.slots[0] = sample;
        let (attempts, seconds) = (sample.attempts.into(), sample.seconds.into());
        busy.bursts.add(attempts, 0.0, seconds, length);
        busy
    }

    /// Adds a sample. False when there are no attempts in the window, and no bursts to remember.
    fn record(&mut self, attempts: f64, seconds: f64, length: f64) -> bool {
        let drained = self.mean() * seconds;
        self.bursts.add(attempts, drained, seconds, length);
        if self.is_quiet() && attempts > 0.0 {
            let bursts = self.bursts;
            *self = Self::default();
            self.slots[0] = Slot::new(attempts, seconds);
            self.bursts = bursts;
        } else {
            self.add(attempts, seconds, length);
        }
        !self.is_quiet() || self.bursts.tokens() > 0.0
    }

    fn is_quiet(&self) -> bool {
        self.slots.iter().all(|slot| slot.attempts <= 0.0)
    }

    fn add(&mut self, attempts: f64, seconds: f64, length: f64) {
        let Self { slots, current, .. } = self;
        if f64::from(slots[0].seconds) + seconds > length / SUB_INTERVALS {
            slots.rotate_right(1);
            slots[0] = Slot::default();
        }
        slots[0].add(attempts, seconds);
        clear_before_window(slots, length);

        current.add(attempts, seconds);
        let is_long = f64::from(current.seconds) >= MIN_STRETCH;
        let (newest, needed) = (*current, self.needed);
        if is_long && (newest.seconds >= needed || newest.per_second() > self.mean()) {
            (self.current, self.needed) = (Slot::default(), 0.0);
            if newest.attempts > 0.0 {
                self.active_stretches = self.active_stretches.saturating_add(1);
            }
            let newer = std::mem::replace(&mut self.stretches[0], newest);
            let before = std::mem::replace(&mut self.stretches[1], newer);
            self.dispersion.add(newer, before, length);
            self.begin_at_change();
        }
    }

    /// Begins a new window if the last two stretches are above the mean, together by more than
    /// their noise, or both are below it. One stretch may contain a burst at one moment, which is
    /// no rate. The change may have come within the older one.
    fn begin_at_change(&mut self) {
        let (mean, dispersion) = (self.mean(), self.dispersion);
        let [newer, older] = self.stretches;
        let mut both = newer;
        both.add(older.attempts.into(), older.seconds.into());
        let has_risen = newer.per_second() > mean
            && older.per_second() > mean
            && both.is_above(mean, dispersion);
        let has_fallen = self.has_fallen_in(newer) && self.has_fallen_in(older);
        if has_risen || has_fallen {
            self.begin_again();
        }
    }

    fn has_fallen_in(&self, stretch: Slot) -> bool {
        self.active_stretches > 1 && stretch.is_below(self.mean(), self.dispersion)
    }

    /// Begins a new window with the newest stretch.
    fn begin_again(&mut self) {
        self.stretches[1] = Slot::default();
        self.slots = [Slot::default(); SLOTS];
        self.slots[0] = self.stretches[0];
        self.changed = true;
    }

    /// The mean over the window.
    fn mean(&self) -> f64 {
        let Slot { seconds, attempts } = self.sum();
        f64::from(attempts) / f64::from(seconds).max(self.shortest())
    }

    /// The mean, and right after a change the noise of so short a time.
    fn generous_mean(&self) -> f64 {
        let Slot { seconds, attempts } = self.sum();
        let (seconds, attempts) = (f64::from(seconds), f64::from(attempts));
        let noise = if self.changed {
            attempts.sqrt() * (1.0 - seconds / MIN_WINDOW).max(0.0)
        } else {
            0.0
        };
        (attempts + noise) / seconds.max(self.shortest())
    }

    /// The shortest time that tells of a rate, in seconds.
    fn shortest(&self) -> f64 {
        if self.changed {
            MIN_STRETCH
        } else {
            MIN_WINDOW
        }
    }

    /// The attempts of the window. The quiet time before a demand began does not count.
    fn sum(&self) -> Slot {
        let mut sum = Slot::default();
        if let Some(oldest) = self.slots.iter().rposition(|slot| slot.attempts > 0.0) {
            for slot in self.slots.iter().take(oldest.saturating_add(1)) {
                sum.add(slot.attempts.into(), slot.seconds.into());
            }
        }
        sum
    }
}

impl Slot {
    fn new(attempts: f64, seconds: f64) -> Self {
        Self {
            seconds: seconds as f32,
            attempts: attempts as f32,
        }
    }

    fn add(&mut self, attempts: f64, seconds: f64) {
        self.seconds += seconds as f32;
        self.attempts += attempts as f32;
    }

    /// Whether it has too few attempts for this rate: fewer in one case of fifty.
    fn is_below(self, rate: f64, dispersion: Dispersion) -> bool {
        let attempts = f64::from(self.attempts) / dispersion.get();
        // The upper bound of the mean of a Poisson distribution, at two standard deviations.
        let most = attempts + 2.0 + 2.0 * (attempts + 1.0).sqrt();
        most < rate * f64::from(self.seconds) / dispersion.get()
    }

    /// Whether it has too many attempts for this rate, beyond noise. Short stretches are those of a
    /// shortage, which is evidence already.
    fn is_above(self, rate: f64, dispersion: Dispersion) -> bool {
        let attempts = f64::from(self.attempts);
        let deviations = if f64::from(self.seconds) < SHORT_STRETCH {
            tuning().rise_deviations
        } else {
            3.0
        };
        let least = attempts - deviations * (attempts * dispersion.get()).sqrt();
        least > rate * f64::from(self.seconds)
    }

    fn per_second(self) -> f64 {
        f64::from(self.attempts) / f64::from(self.seconds).max(MIN_STRETCH)
    }
}

impl Dispersion {
    /// Compares two stretches in a row: the rate itself may be unknown, or change slowly.
    fn add(&mut self, newer: Slot, older: Slot, length: f64) {
        let (seconds, before) = (f64::from(newer.seconds), f64::from(older.seconds));
        if seconds <= 0.0 || before <= 0.0 {
            return;
        }
        let scale = seconds / before;
        let deviation = f64::from(newer.attempts) - f64::from(older.attempts) * scale;
        let mean = f64::from(newer.attempts + older.attempts) / (seconds + before);
        let kept = (1.0 - seconds / (DISPERSION_MEMORY * length)).max(0.0) as f32;
        self.squares = self.squares * kept + (deviation * deviation) as f32;
        // The variance of the deviation if the requests are independent.
        self.expected = self.expected * kept + (mean * seconds * (1.0 + scale)) as f32;
    }

    fn get(self) -> f64 {
        if self.expected > 0.0 {
            f64::from(self.squares / self.expected).max(1.0)
        } else {
            1.0
        }
    }
}

fn clear_before_window(slots: &mut [Slot; SLOTS], length: f64) {
    let mut span = 0.0;
    for slot in slots {
        if span >= length {
            *slot = Slot::default();
        }
        span += f64::from(slot.seconds);
    }
}

/// The demand, in attempts per second, after more than a window without any: one attempt in that
/// time. Fading, it restores the token that the last request took, so that the next one finds it
/// without waiting for a lease.
pub(crate) fn fading_demand(quiet_seconds: f64) -> f64 {
    1.0 / quiet_seconds.max(MIN_WINDOW)
}

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

/// Converts tokens per second to the unit of a resource with a period of `per` seconds.
pub(crate) fn in_unit(per_second: f64, per: f64) -> Capacity {
    Capacity::saturating(per_second * per)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tuning::Tuning;

    /// Samples a demand of `rate(time)` eight times a window and returns (time, measured demand).
    fn measure(length: f64, seconds: f64, rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let step = length / 8.0;
        let start = Moment::ORIGIN;
        let mut window = Window::new(start);
        let mut total = 0.0;
        let mut wants = Vec::new();
        let samples = (seconds / step) as u32;
        for sample in 1..=samples {
            let time = f64::from(sample) * step;
            for part in 0..100 {
                total += rate(time - step * (1.0 - f64::from(part) / 100.0)) * step / 100.0;
            }
            window.record(total, length, start.after_seconds(time));
            wants.push((time, window.per_second()));
        }
        wants
    }

    const INTERVAL: f64 = 5.0;

    #[test]
    fn early_reports_of_few_attempts_show_the_rate() {
        let per_second = 18.0;
        let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
        for quarter in 1..=40 {
            let time = f64::from(quarter) / 4.0;
            let (total, now) = (
                (per_second * time).floor(),
                Moment::ORIGIN.after_seconds(time),
            );
            let reported = demand.per_second(total, now);
            assert!(reported <= 1.1 * per_second, "{reported} after {time} s");
            demand.report(total, now);
            // Ten attempts take more than two reports.
            if quarter % 3 == 0 {
                assert!(reported >= 0.9 * per_second, "{reported} after {time} s");
            }
        }
    }

    #[test]
    fn hinted_report_soon_after_another_keeps_the_rate() {
        for (per_second, pause) in [(100.0, 0.02), (100.0, 0.1), (100.0, 0.2), (20.0, 0.3)] {
            let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
            for time in [5.0, 5.0 + pause, 5.0 + 3.0 * pause, 7.0] {
                let now = Moment::ORIGIN.after_seconds(time);
                let reported = demand.per_second(per_second * time, now);
                assert!(
                    (reported / per_second - 1.0).abs() < 1e-6,
                    "{reported} at {time} s"
                );
                demand.report(per_second * time, now);
            }
        }
    }

    #[test]
    fn early_reports_of_one_attempt_count_it_once() {
        let mut demand = ReportedDemand::new(0.0, 0.0, INTERVAL, Moment::ORIGIN);
        let mut counted = 0.0;
        let reports = [0.1, 0.35, 0.6, 5.4, 10.2, 15.0];
        for (time, until) in reports.into_iter().zip(reports.into_iter().skip(1)) {
            let now = Moment::ORIGIN.after_seconds(time);
            counted += demand.per_second(1.0, now) * (until - time);
            demand.report(1.0, now);
        }
        assert!((0.9..=1.1).contains(&counted), "{counted}");
    }

    #[test]
    fn steady_demand_is_measured_without_headroom() {
        for rate in [1.0, 10.0, 45.0, 720.0, 1e6] {
            for (time, wants) in measure(2.0, 10.0, |_| rate) {
                let ratio = wants / rate;
                assert!(
                    time < 3.0 || (0.999..=1.001).contains(&ratio),
                    "{time} {rate} {wants}"
                );
            }
        }
    }

    #[test]
    fn step_is_measured_within_two_refresh_intervals() {
        for (before, after) in [(30.0, 2700.0), (2700.0, 30.0), (0.0, 100.0), (100.0, 0.0)] {
            let rate = |time| if time < 10.3 { before } else { after };
            for (time, wants) in measure(2.0, 20.0, rate) {
                if time >= 10.3 + 2.5 {
                    assert!(
                        wants >= after * 0.999,
                        "{before} {after}: {wants} at {time}"
                    );
                    assert!(
                        wants <= after * 1.001,
                        "{before} {after}: {wants} at {time}"
                    );
                }
            }
        }
    }

    impl Window {
        /// The demand as reported for a hint.
        fn current(&self) -> f64 {
            let mut window = self.clone();
            window.accept_fall();
            window.per_second()
        }
    }

    #[test]
    fn stretch_begun_by_a_hint_shows_a_fall() {
        let mut window = Window::new(Moment::ORIGIN);
        let (mut now, mut total) = (Moment::ORIGIN, 0.0);
        for _ in 0..20 {
            now = now.after_seconds(0.25);
            total += 0.25 * 800.0;
            window.record(total, 2.0, now);
        }
        // The demand falls after the last sample, just before the hint.
        now = now.after_seconds(0.1);
        total += 0.09 * 800.0;
        window.record(total, 2.0, now);
        assert!(window.current() > 700.0, "{}", window.current());

        let seconds = window.begin_stretch().unwrap();
        assert!(seconds < 0.05, "{seconds}");
        now = now.after_seconds(seconds);
        window.record(total + 1.0, 2.0, now);
        assert!(window.current() < 250.0, "{}", window.current());

        let mut slow = Window::new(Moment::ORIGIN);
        for second in 1..10 {
            slow.record(
                f64::from(second),
                2.0,
                Moment::ORIGIN.after_seconds(second.into()),
            );
        }
        assert_eq!(slow.begin_stretch(), None);
    }

    #[test]
    fn quiet_before_a_demand_does_not_count() {
        let rate = |time| if time < 5.0 { 0.0 } else { 100.0 };
        let wants = measure(2.0, 6.1, rate);
        let (time, wants) = wants.last().unwrap();
        assert!(*wants >= 99.9, "{wants} at {time}");
    }

    /// Samples at these seconds, each with attempts since the one before; returns the last demand.
    fn wants_after(window: &mut Window, samples: &[(f64, f64)]) -> f64 {
        let start = window.sampled_at;
        for (seconds, attempts) in samples {
            window.record(
                window.total + attempts,
                Tuning::DEFAULT.max_window,
                start.after_seconds(*seconds),
            );
        }
        window.per_second()
    }

    #[test]
    fn sudden_rise_is_measured_within_a_second() {
        for rate in [100.0, 1_000.0, 10_000.0] {
            let rise = [
                (0.0, 1.0),
                (0.1, 0.1 * rate),
                (0.3, 0.2 * rate),
                (0.7, 0.4 * rate),
            ];
            let quiet = Window::new(Moment::ORIGIN);
            let mut trickling = quiet.clone();
            let trickle = (1..=30).map(|second| (f64::from(second), 1.0));
            wants_after(&mut trickling, &trickle.collect::<Vec<_>>());
            for mut window in [quiet, trickling] {
                let wants = wants_after(&mut window, &rise);
                assert!((0.75..=1.2).contains(&(wants / rate)), "{rate}: {wants}");
            }
        }
    }

    #[test]
    fn sudden_fall_shows_within_one_stretch() {
        for rate in [100.0, 1_000.0] {
            let mut window = Window::new(Moment::ORIGIN);
            let steady = (1..=30).map(|second| (f64::from(second), rate));
            wants_after(&mut window, &steady.collect::<Vec<_>>());
            wants_after(&mut window, &[(0.5, 0.05 * rate)]);
            assert!(window.per_second() > 0.9 * rate, "not yet confirmed");
            assert!(window.current() <= 0.2 * rate, "{}", window.current());
            wants_after(&mut window, &[(0.5, 0.05 * rate)]);
            let wants = window.per_second();
            assert!((0.1..=0.2).contains(&(wants / rate)), "{rate}: {wants}");
        }
        let mut trickle = Window::new(Moment::ORIGIN);
        let steady = (1..=30).map(|second| (f64::from(second), 5.0));
        wants_after(&mut trickle, &steady.collect::<Vec<_>>());
        wants_after(&mut trickle, &[(0.1, 0.0)]);
        assert_eq!(trickle.current(), trickle.per_second(), "too short to tell");
    }

    #[test]
    fn burst_at_one_moment_is_no_rate() {
        let burst = [(0.0, 1.0), (0.1, 29.0), (0.3, 0.0), (0.7, 0.0)];
        for samples in 1..=burst.len() {
            let mut window = Window::new(Moment::ORIGIN);
            let wants = wants_after(&mut window, &burst[..samples]);
            assert!(wants <= 36.0, "{samples}: {wants}");
        }
    }

    #[test]
    fn late_or_frequent_samples_do_not_distort() {
        let mut window = Window::new(Moment::ORIGIN);
        let mut total = 0.0;
        for sample in 1..10_000 {
            total += 0.1;
            window.record(
                total,
                2.0,
                Moment::ORIGIN.after_seconds(f64::from(sample) / 1000.0),
            );
        }
        assert!((99.9..=100.1).contains(&window.per_second()), "{window:?}");
        // An hour without a sample is one long sub-interval.
        let much_later = Moment::ORIGIN.after_seconds(3610.0);
        window.record(total + 7200.0, 2.0, much_later);
        assert!((1.99..=2.01).contains(&window.per_second()), "{window:?}");
    }

    proptest! {
        #[test]
        fn demand_is_finite_and_zero_when_idle(
            samples in prop::collection::vec((0.0..20.0_f64, -1e15..1e15_f64), 1..50),
            refresh in 0.0..1000.0_f64,
        ) {
            let length = window_length(refresh);
            prop_assert!((MIN_WINDOW..=Tuning::DEFAULT.max_window).contains(&length));
            let mut window = Window::new(Moment::ORIGIN);
            let mut now = Moment::ORIGIN;
            let mut last = 0.0;
            for (seconds, total) in samples {
                now = now.after_seconds(seconds);
                window.record(total, length, now);
                let wants = window.per_second();
                prop_assert!(wants.is_finite() && wants >= 0.0, "{}", wants);
                last = total;
            }
            for _ in 0..=SLOTS {
                now = now.after_seconds(length / SUB_INTERVALS);
                window.record(last, length, now);
            }
            prop_assert_eq!(window.per_second(), 0.0);
        }
    }
}
