//! Admission probability from the demand of the last 24 seconds (SUPPRESSION).
//!
//! The model is Ably's: demand is measured before suppression, so suppressing does not change the
//! measurement and cannot oscillate. The decision uses the moving mean over 24 seconds. Demand that
//! stays within the limit for 24 seconds is therefore never suppressed. A mean alone reacts slowly:
//! once the last six seconds clearly exceed the limit, the current demand decides if it is larger.

use doorman_openapi::{Capacity, Moment};

/// Slots of the moving mean. The first is in progress.
const SLOTS: usize = 24;
const SLOT_SECONDS: f64 = 1.0;

const BURST_SLOTS: usize = 6;
/// Demand that moves between holders is counted twice for a moment, because they report at
/// different times. A burst must exceed the limit by this factor.
const BURST_FACTOR: f64 = 1.25;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecentDemand {
    /// Demand × seconds per slot, newest first.
    slots: [f64; SLOTS],
    began: Moment,
    wants: f64,
    since: Moment,
}

impl RecentDemand {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            slots: [0.0; SLOTS],
            began: now,
            wants: 0.0,
            since: now,
        }
    }

    pub(crate) fn observe(&mut self, wants: f64, now: Moment) {
        self.advance(now);
        self.wants = wants;
    }

    /// Converts all demand to another unit.
    pub(crate) fn scale(&mut self, factor: f64, now: Moment) {
        self.advance(now);
        for slot in &mut self.slots {
            *slot *= factor;
        }
        self.wants *= factor;
    }

    /// The slots, newest first, and how many nanoseconds ago the newest began.
    pub(crate) fn into_slots(mut self, now: Moment) -> (Vec<f64>, u64) {
        self.advance(now);
        let began_ago = now.as_nanos().saturating_sub(self.began.as_nanos());
        (self.slots.to_vec(), began_ago)
    }

    /// Restores [`Self::into_slots`]. The current demand follows from the restored holders.
    pub(crate) fn from_slots(slots: &[f64], began_ago: u64, stopped: Moment) -> Self {
        let mut demand = Self::new(stopped);
        demand.began = Moment::from_nanos(stopped.as_nanos().saturating_sub(began_ago));
        for (slot, saved) in demand.slots.iter_mut().zip(slots) {
            *slot = saved.clamp(0.0, Capacity::MAX.get());
        }
        demand
    }

    /// The probability of admitting a request that keeps all demand within the capacity.
    pub(crate) fn admission_probability(&self, capacity: f64, now: Moment) -> f64 {
        let demand = self.clone().demand(capacity, now);
        if demand > capacity {
            capacity / demand
        } else {
            1.0
        }
    }

    fn demand(mut self, capacity: f64, now: Moment) -> f64 {
        self.advance(now);
        let in_progress = now.seconds_since(self.began);
        let seconds = |slots: usize| SLOT_SECONDS * slots as f64 - (SLOT_SECONDS - in_progress);
        let [current, completed @ ..] = &self.slots;
        let completed_sum = completed.iter().sum::<f64>();
        // The slot in progress counts only if it raises the mean.
        let mean = f64::max(
            completed_sum / (SLOT_SECONDS * completed.len() as f64),
            (completed_sum + current) / seconds(SLOTS),
        );
        let burst = self.slots.iter().take(BURST_SLOTS).sum::<f64>();
        if burst > BURST_FACTOR * capacity * seconds(BURST_SLOTS) {
            mean.max(self.wants)
        } else {
            mean
        }
    }

    fn advance(&mut self, now: Moment) {
        for _ in 0..=SLOTS {
            let end = self.began.after_seconds(SLOT_SECONDS);
            if now < end {
                break;
            }
            self.slots[0] += self.wants * end.seconds_since(self.since);
            self.slots.rotate_right(1);
            self.slots[0] = 0.0;
            (self.began, self.since) = (end, end);
        }
        if now >= self.began.after_seconds(SLOT_SECONDS) {
            // After a long pause all slots are equal, so their boundaries do not matter.
            (self.began, self.since) = (now, now);
        }
        self.slots[0] += self.wants * now.seconds_since(self.since);
        self.since = self.since.max(now);
    }
}
