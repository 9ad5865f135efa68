//! Measured demand of a process for a resource.
//!
//! It is the mean over a window of seconds, from samples of the running total of attempts. The time
//! between two samples is a stretch. A sudden change begins a new window: a rise once two stretches
//! show it, a fall likewise, or, for a hint, once one stretch does. Whether a stretch shows a
//! change is a matter of its noise, which is that of independent requests times the dispersion seen
//! so far. Bursts are measured apart. Nothing includes headroom: the surplus that the server grants
//! is the headroom.

mod bursts;
mod dispersion;
mod in_use;
mod reported;
#[cfg(test)]
mod tests;

use doorman_openapi::{Capacity, Moment};

use self::{bursts::Bursts, dispersion::Dispersion};
pub(crate) use self::{
    in_use::{GaugeSample, InUseDemand},
    reported::ReportedDemand,
};
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
/// The shortest stretch between samples that tells of a rate, in seconds. Shorter ones are merged.
const MIN_STRETCH: f64 = 0.015;
/// The longest time for which a hint waits to be told of a fall, in seconds.
const MAX_STRETCH_FOR_HINT: f64 = 0.3;
/// The attempts that must be expected of a stretch for their absence to show a fall, and for a
/// third of them to show one.
const SHOWS_ABSENCE: f64 = 5.0;
const SHOWS_THIRD: f64 = 12.0;
/// Above this dispersion requests come in bursts, and not by chance.
const BURSTY: f64 = 5.0;
/// A stretch for a hint is no longer than this, in seconds, if it shows an absence sooner.
const USUAL_STRETCH_FOR_HINT: f64 = 0.03;
/// Stretches up to so many seconds are those of a shortage.
const SHORT_STRETCH: f64 = 0.4;

/// In seconds.
pub(crate) fn window_length(refresh_interval: f64) -> f64 {
    let tuning = tuning();
    (tuning.window * refresh_interval).clamp(MIN_WINDOW, tuning.max_window)
}

/// The seconds between two samples of a window.
fn sample_pause(length: f64, is_quiet: bool) -> f64 {
    let samples = if is_quiet {
        SAMPLES_WHILE_QUIET
    } else {
        SAMPLES
    };
    length / samples
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
        sample_pause(length, is_quiet)
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

    /// Whether the newest stretch has one attempt at most, which is no rate.
    pub(crate) fn is_one_attempt(&self) -> bool {
        match &self.recent {
            Recent::Busy(busy) => busy.stretches[0].attempts <= 1.0,
            Recent::Quiet | Recent::Once { .. } => true,
        }
    }

    /// Whether the requests come in bursts.
    pub(crate) fn is_bursty(&self) -> bool {
        match &self.recent {
            Recent::Busy(busy) => busy.dispersion.get() > BURSTY,
            Recent::Quiet | Recent::Once { .. } => false,
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

    /// Begins a new window with the attempts of the last seconds.
    pub(crate) fn begin_with(&mut self, attempts: f64, seconds: f64) {
        if let Recent::Busy(busy) = &mut self.recent {
            busy.stretches[0] = Slot::new(attempts, seconds);
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

    /// The attempts of the window, with its quiet times: bursts are counted from one to the next.
    fn sum(&self) -> Slot {
        let mut sum = Slot::default();
        for slot in &self.slots {
            sum.add(slot.attempts.into(), slot.seconds.into());
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

/// Converts tokens per second to the unit of a resource with a period of `per` seconds.
pub(crate) fn in_unit(per_second: f64, per: f64) -> Capacity {
    Capacity::saturating(per_second * per)
}
