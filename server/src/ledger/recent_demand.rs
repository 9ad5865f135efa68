//! How much all holders of a resource have wanted of late (SUPPRESSION).
//!
//! The model is Ably's: the demand is measured before suppression, so that suppressing changes nothing about it and cannot make it
//! oscillate; what counts is its moving mean over 24 seconds, of which the part in progress is ignored while it lies below the mean.
//! Who has stayed within the limit for 24 seconds is so never suppressed. A mean alone would take those 24 seconds to see the whole
//! of a deluge: once six seconds have asked for clearly more than the limit, what is wanted just now counts, if it is more.

use doorman_openapi::{Capacity, Moment};

/// How many slots of a second are looked at; the last is in progress.
const SLOTS: usize = 24;
const SLOT: f64 = 1.0;

/// How many slots tell a deluge.
const FEW: usize = 6;
/// Holders report at different times, so a load that moves from one to another is counted twice for a moment: a deluge is more than
/// the limit by this factor.
const CLEARLY: f64 = 1.25;

/// The demand of the last 24 seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecentDemand {
    /// Demand × seconds in each slot, the one in progress first.
    slots: [f64; SLOTS],
    /// When the slot in progress began.
    began: Moment,
    /// What is wanted since `since`.
    wants: f64,
    since: Moment,
}

impl RecentDemand {
    /// Nothing was wanted before `now`.
    pub(super) fn new(now: Moment) -> Self {
        Self {
            slots: [0.0; SLOTS],
            began: now,
            wants: 0.0,
            since: now,
        }
    }

    /// So much is wanted from `now` on.
    pub(super) fn observe(&mut self, wants: f64, now: Moment) {
        self.advance(now);
        self.wants = wants;
    }

    /// From `now` on it counts over another time: what was so much is so many times as much.
    pub(super) fn count_in(&mut self, factor: f64, now: Moment) {
        self.advance(now);
        for asked in &mut self.slots {
            *asked *= factor;
        }
        self.wants *= factor;
    }

    /// What was asked for in each slot up to `now`, the newest first, and how many nanoseconds ago that began.
    pub(super) fn hand_over(mut self, now: Moment) -> (Vec<f64>, u64) {
        self.advance(now);
        let began_ago = now.as_nanos().saturating_sub(self.began.as_nanos());
        (self.slots.to_vec(), began_ago)
    }

    /// The demand that a predecessor knew when it stopped; what its holders want is told anew.
    pub(super) fn taken_over(asked: &[f64], began_ago: u64, stopped: Moment) -> Self {
        let mut demand = Self::new(stopped);
        demand.began = Moment::from_nanos(stopped.as_nanos().saturating_sub(began_ago));
        for (slot, asked) in demand.slots.iter_mut().zip(asked) {
            *slot = asked.clamp(0.0, Capacity::MAX.get());
        }
        demand
    }

    /// The probability with which each request may be admitted, so that all together come to the capacity.
    pub(super) fn admission_probability(&self, capacity: f64, now: Moment) -> f64 {
        let demand = self.clone().demand(capacity, now);
        if demand > capacity {
            capacity / demand
        } else {
            1.0
        }
    }

    /// The demand that counts, in the resource's own unit.
    fn demand(mut self, capacity: f64, now: Moment) -> f64 {
        self.advance(now);
        let in_progress = now.seconds_since(self.began);
        let seconds = |slots: usize| SLOT * slots as f64 - (SLOT - in_progress);
        let before = SLOT * (SLOTS - 1) as f64;
        let [asked_in_progress, asked_before @ ..] = &self.slots;
        let asked_before = asked_before.iter().sum::<f64>();
        let mean = f64::max(
            asked_before / before,
            (asked_before + asked_in_progress) / seconds(SLOTS),
        );
        let of_late = self.slots.iter().take(FEW).sum::<f64>();
        if of_late > CLEARLY * capacity * seconds(FEW) {
            mean.max(self.wants)
        } else {
            mean
        }
    }

    /// Adds up what was wanted until `now`.
    fn advance(&mut self, now: Moment) {
        for _ in 0..=SLOTS {
            let end = self.began.after_seconds(SLOT);
            if now < end {
                break;
            }
            self.slots[0] += self.wants * end.seconds_since(self.since);
            self.slots.rotate_right(1);
            self.slots[0] = 0.0;
            (self.began, self.since) = (end, end);
        }
        if now >= self.began.after_seconds(SLOT) {
            // After a long silence all slots are alike, and it does not matter when the next begins.
            (self.began, self.since) = (now, now);
        }
        self.slots[0] += self.wants * now.seconds_since(self.since);
        self.since = self.since.max(now);
    }
}
