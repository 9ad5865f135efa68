//! What holders have spent of buckets that they fill for long.
//!
//! A rate is all that the ledger divides: a holder saves up on its own. One whose bucket holds more
//! than the tokens of a few seconds states what that bucket lacks. When its lease shrinks or ends,
//! that part of what is lacking stays with the capacity, and passes to the next lease on it. So no
//! change of leases, no clean stop and no restart fills a bucket again. The sum of the tokens is
//! that of one bucket for the whole capacity.
//!
//! It is as exact as the reports: what a holder spends between its last one and a crash is not
//! known. A server without the snapshot of its predecessor knows only what living holders state.

use std::collections::BTreeMap;

use doorman_openapi::{Balance, Bucket, Capacity, Moment};

use super::Resource;
use crate::ledger::{
    keys::{EntrySlot, HolderKey},
    records::HolderRecord,
    resource::decision::TOLERANCE,
    terms::ResourceTerms,
};

/// The longest time in which a bucket fills, in seconds.
const LONGEST: f64 = 86_400.0;

/// Tokens that buckets lack to be full.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct Spent {
    /// Those of the bucket of the free capacity, at `since`.
    free: f64,
    since: Moment,
    held: BTreeMap<EntrySlot, Held>,
}

/// The bucket of a holder, as of its last report.
#[derive(Debug, Clone, Copy)]
struct Held {
    lacks: f64,
    /// The rate of its lease.
    rate: f64,
    since: Moment,
}

/// A resource before a decision.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Before {
    /// The rate of the holder's lease, as far as both sides know it.
    held: f64,
    /// The rate that nobody holds.
    free: f64,
}

impl Held {
    fn lacks(&self, now: Moment) -> f64 {
        (self.lacks - self.rate * now.seconds_since(self.since)).max(0.0)
    }
}

impl Spent {
    pub(in crate::ledger) fn new(free: f64, now: Moment) -> Self {
        Self {
            free,
            since: now,
            held: BTreeMap::new(),
        }
    }

    /// Refills the bucket of the free capacity at this rate.
    fn refill(&mut self, rate: f64, now: Moment) {
        self.free = (self.free - rate * now.seconds_since(self.since)).max(0.0);
        self.since = now;
    }

    /// Passes what a holder's bucket lacks to the free capacity, of which this rate is free.
    fn give_back(&mut self, slot: EntrySlot, free: f64, now: Moment) {
        if let Some(held) = self.held.remove(&slot) {
            self.refill(free, now);
            self.free += held.lacks(now);
        }
    }

    /// Takes over a report and the decision on it. Returns the tokens of a new or larger lease.
    fn continued(
        &mut self,
        slot: EntrySlot,
        bucket: Bucket,
        before: Before,
        rate: f64,
        now: Moment,
    ) -> Option<f64> {
        self.refill(before.free, now);
        let size = |rate: f64| full(bucket, rate);
        // The first lease begins with nothing.
        let held = bucket.spent.map_or(0.0, |_| before.held);
        let most = 2.0 * size(held.max(rate));
        let mut lacks = bucket.spent.map_or(0.0, Capacity::get).min(most);
        if let Some(known) = self.held.remove(&slot)
            && held < known.rate * (1.0 - TOLERANCE)
        {
            // The response with the larger lease was lost.
            self.free += (known.lacks(now) - lacks).max(0.0);
        }
        let grown = rate - held;
        if grown.abs() <= held * TOLERANCE {
            // The same lease.
        } else if grown < 0.0 {
            let returned = lacks.min(size(held) - size(rate));
            self.free += returned;
            lacks -= returned;
        } else {
            let part = if grown < before.free {
                grown / before.free
            } else {
                1.0
            };
            let passed = (self.free * part).min(size(rate) - size(held));
            self.free -= passed;
            lacks += passed;
        }
        let since = now;
        self.held.insert(slot, Held { lacks, rate, since });
        (grown > held * TOLERANCE).then(|| size(rate) - lacks)
    }

    /// When all of the free capacity's bucket is full.
    fn full_at(&self, rate: f64) -> Moment {
        if self.free > 0.0 && rate > 0.0 {
            self.since.after_seconds((self.free / rate).min(LONGEST))
        } else {
            Moment::ORIGIN
        }
    }
}

/// The tokens of a full bucket at this rate: at least one, as in every holder.
fn full(bucket: Bucket, rate: f64) -> f64 {
    if rate > 0.0 {
        (rate * bucket.burst.get()).max(1.0)
    } else {
        0.0
    }
}

impl Resource {
    fn free_rate(&self) -> f64 {
        (self.terms.capacity() - self.booked.total()).max(0.0) / self.terms.per()
    }

    /// Refills the bucket of the free capacity, before that changes.
    pub(in crate::ledger) fn refill_free(&mut self, now: Moment) {
        let free = self.free_rate();
        if let Some(spent) = &mut self.spent {
            spent.refill(free, now);
        }
    }

    /// The state before a decision on a request that states it `has` so much.
    pub(in crate::ledger) fn before(&self, holder: HolderKey, has: f64, now: Moment) -> Before {
        let entry = self.entries.get(holder);
        // One that is not known to the master may have a lease of its predecessor.
        let leased = entry.and_then(|it| it.booking.lease(now));
        let held = leased.map_or(has, |lease| lease.amount.min(has));
        Before {
            held: held / self.terms.per(),
            free: self.free_rate(),
        }
    }

    /// Takes over what a request states of its bucket, after the decision on it. Returns the
    /// tokens that the bucket has now, if the lease is new or has grown.
    pub(in crate::ledger) fn continue_bucket(
        &mut self,
        holder: HolderKey,
        bucket: Bucket,
        before: Before,
        granted: Capacity,
        now: Moment,
    ) -> Option<Balance> {
        if !passes_on(&self.terms) {
            self.spent = None;
            return None;
        }
        let slot = self.entries.get(holder)?.slot;
        let rate = granted.get() / self.terms.per();
        let spent = self
            .spent
            .get_or_insert_with(|| Spent::new(0.0, now).into());
        let tokens = spent.continued(slot, bucket, before, rate, now);
        tokens.map(Balance::saturating)
    }

    /// Takes over what a holder states when it releases its lease.
    pub(in crate::ledger) fn note_spent(
        &mut self,
        holder: HolderKey,
        lacks: Capacity,
        now: Moment,
    ) {
        if let Some(entry) = self.entries.get(holder)
            && let Some(held) = (self.spent.as_mut()).and_then(|it| it.held.get_mut(&entry.slot))
        {
            held.lacks = lacks.get();
            held.since = now;
        }
    }

    /// The lease of a holder ends.
    pub(in crate::ledger) fn give_back_bucket(&mut self, slot: EntrySlot, now: Moment) {
        let free = self.free_rate();
        if let Some(spent) = &mut self.spent {
            spent.give_back(slot, free, now);
        }
    }

    /// What the free capacity's bucket lacks now, for a successor.
    pub(in crate::ledger) fn spent_now(&self, now: Moment) -> Option<Capacity> {
        let mut spent = self.spent.as_deref()?.clone();
        spent.refill(self.free_rate(), now);
        (spent.free > 0.0).then(|| Capacity::saturating(spent.free))
    }

    pub(in crate::ledger) fn spent_of(&self, slot: EntrySlot, now: Moment) -> Option<Capacity> {
        let held = self.spent.as_ref()?.held.get(&slot)?;
        Some(Capacity::saturating(held.lacks(now)))
    }

    /// The same for a holder whose lease is restored.
    pub(in crate::ledger) fn restore_spent_of(
        &mut self,
        slot: EntrySlot,
        record: &HolderRecord,
        stopped: Moment,
    ) {
        if let Some(lacks) = record.spent {
            let lease = record.lease.map_or(0.0, |lease| lease.amount.get());
            let held = Held {
                lacks: lacks.get(),
                rate: lease / self.terms.per(),
                since: stopped,
            };
            let spent = self
                .spent
                .get_or_insert_with(|| Spent::new(0.0, stopped).into());
            spent.held.insert(slot, held);
        }
    }

    pub(in crate::ledger) fn restore_spent(&mut self, free: Option<Capacity>, stopped: Moment) {
        if let Some(free) = free {
            self.spent = Some(Box::new(Spent::new(free.get(), stopped)));
        }
    }

    /// From when on a new state would be the same.
    pub(in crate::ledger) fn full_at(&self) -> Moment {
        let rate = self.free_rate();
        self.spent
            .as_ref()
            .map_or(Moment::ORIGIN, |it| it.full_at(rate))
    }
}

/// Whether holders have parts of one rate.
fn passes_on(terms: &ResourceTerms) -> bool {
    terms.is_rate() && terms.rule().divides() && terms.capacity().is_finite()
}
