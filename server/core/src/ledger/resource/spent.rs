//! Tokens that holders have spent of buckets that they fill for long.
//!
//! A rate is all that the ledger divides: a holder saves up on its own. One whose bucket holds more
//! than the tokens of a few seconds states what is in it. When its lease shrinks or ends, what that
//! part of the bucket lacks stays with the capacity, and passes to the next lease on it. So all
//! buckets together are one for the whole capacity.
//!
//! That is as exact as the reports: what a holder spends between its last one and a crash is not
//! known. A server without the snapshot of its predecessor knows only what living holders state.

use std::collections::BTreeMap;

use doorman_openapi::{Balance, Bucket, Capacity, LONG_BURST, Moment, Seconds};

use super::{
    Resource,
    entry::Entry,
    recent_demand::{BucketReport, RecentDemand, measured_seconds},
};
use crate::ledger::{
    keys::{EntrySlot, HolderKey},
    records::HolderRecord,
    resource::decision::{Decision, TOLERANCE},
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
    recent_demand: RecentDemand,
}

/// The bucket of a holder, as of its last request.
#[derive(Debug, Clone, Copy)]
struct Held {
    lacks: f64,
    /// The part of a token that it has beyond a full bucket.
    extra: f64,
    since: Moment,
    /// The seconds of its rate that it holds.
    burst: f64,
    /// The rate of its lease.
    rate: f64,
    /// The last decision: the rate before it, what it added to what the free capacity lacks, and
    /// the tokens in its response.
    before: f64,
    moved: f64,
    tokens: Option<f64>,
}

/// The rates of a resource before a decision.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct RatesBefore {
    /// Of the lease that the holder states.
    held: f64,
    /// That nobody holds.
    free: f64,
    whole: f64,
}

impl Held {
    fn lacks(&self, now: Moment) -> f64 {
        (self.lacks - self.rate * now.seconds_since(self.since)).max(0.0)
    }

    /// By a request, of a holder with a lease of this rate.
    fn before_decision(bucket: Bucket, rate: f64, now: Moment) -> Self {
        let mut held = Self {
            lacks: 0.0,
            extra: 0.0,
            since: now,
            burst: bucket.burst.get(),
            rate,
            before: rate,
            moved: 0.0,
            tokens: None,
        };
        if let Some(tokens) = bucket.tokens {
            held.state(tokens.get(), now);
        }
        held
    }

    /// Passes what the smaller bucket cannot lack to the free capacity.
    fn shrink(&mut self, bucket: Bucket) {
        let returned = self.lacks.min(self.burst * (self.before - self.rate));
        self.lacks -= returned;
        // A holder keeps a token of a bucket for less.
        let kept = bucket.tokens.map_or(0.0, Balance::get).min(1.0);
        self.moved = returned + (kept - self.burst * self.rate).max(0.0);
    }

    /// Takes over what the holder states, within one bucket of debt.
    fn state(&mut self, tokens: f64, now: Moment) {
        let full = self.burst * self.rate;
        self.lacks = (full - tokens).clamp(0.0, 2.0 * full);
        self.extra = (tokens - full).clamp(0.0, 1.0);
        self.since = now;
    }
}

impl Spent {
    fn new(free: f64, now: Moment) -> Self {
        Self {
            free,
            since: now,
            held: BTreeMap::new(),
            recent_demand: RecentDemand::new(now),
        }
    }

    /// Refills the bucket of the free capacity at this rate.
    fn refill(&mut self, rate: f64, now: Moment) {
        self.free = self.free_at(rate, now);
        self.since = now;
    }

    fn free_at(&self, rate: f64, now: Moment) -> f64 {
        (self.free - rate * now.seconds_since(self.since)).max(0.0)
    }

    /// Passes what a holder's bucket lacks to the free capacity.
    fn give_back(&mut self, slot: EntrySlot, whole: f64, now: Moment) {
        self.recent_demand.remove(slot);
        if let Some(held) = self.held.remove(&slot) {
            let most = 2.0 * held.burst * whole;
            self.free = (self.free + held.lacks(now) - held.extra).clamp(0.0, most);
        }
    }

    /// The tokens that a holder has spent since its last request, by what it states now.
    fn spent_by(&self, slot: EntrySlot, bucket: Bucket, before: RatesBefore, now: Moment) -> f64 {
        let known = self.held.get(&slot);
        let heard = known.filter(|known| is_same(known.rate, before.held));
        heard.map_or(0.0, |known| {
            let stated = Held::before_decision(bucket, before.held, now);
            (stated.lacks - known.lacks(now)).max(0.0)
        })
    }

    /// Takes over a request and the decision on it, a lease of this rate. Returns the tokens that
    /// it brings, if it is new or has grown.
    fn decided(
        &mut self,
        slot: EntrySlot,
        bucket: Bucket,
        before: RatesBefore,
        rate: f64,
        now: Moment,
    ) -> Option<f64> {
        let known = self.held.remove(&slot);
        let is_heard = known.is_some_and(|known| is_same(known.rate, before.held));
        let mut held = Held::before_decision(bucket, before.held, now);
        let most = 2.0 * held.burst * before.whole;
        if let Some(known) = known.filter(|_| !is_heard) {
            // The response with that lease was lost.
            self.free = (self.free - known.moved).clamp(0.0, most);
        }
        held.rate = rate;
        if before.held == 0.0 && !is_heard {
            self.begin(&mut held, bucket, before, now);
        } else if rate > before.held && !is_same(rate, before.held) {
            let passed = self.passed(&held, before);
            held.lacks += passed;
            held.moved = -passed;
            held.tokens = Some(held.burst * (rate - before.held) - passed);
        } else if !is_same(rate, before.held) {
            held.shrink(bucket);
        }
        self.free = (self.free + held.moved).clamp(0.0, most);
        self.held.insert(slot, held);
        held.tokens
    }

    /// The first lease, or one after a lease that ended: then the bucket has tokens, and what it
    /// lacks was passed to the free capacity. So it gets no more than is left there.
    fn begin(&self, held: &mut Held, bucket: Bucket, before: RatesBefore, now: Moment) {
        let passed = self.passed(held, before);
        let brought = held.burst * held.rate - passed;
        let Some(stated) = bucket.tokens.map(Balance::get) else {
            held.state(brought, now);
            held.moved = -passed;
            held.tokens = Some(brought);
            return;
        };
        // A holder with a lease for less than a token keeps one, if the free capacity has it.
        let left = held.burst * (before.free - held.rate) - (self.free - passed);
        let kept = (stated.min(1.0) - brought).min(left).max(0.0);
        let most = brought + kept;
        held.state(stated.min(most), now);
        held.moved = kept - passed;
        held.tokens = Some((most - stated).min(0.0));
    }

    /// The part of what the free capacity lacks that passes to a lease which grows.
    fn passed(&self, held: &Held, before: RatesBefore) -> f64 {
        let grown = held.rate - before.held;
        let part = if grown < before.free {
            grown / before.free
        } else {
            1.0
        };
        (self.free * part).min(held.burst * grown)
    }
}

/// A bucket that holds at least a token at the rate of the whole capacity, rounding included.
fn of_one_token(bucket: Bucket, whole: f64) -> Bucket {
    let least = (1.0 + TOLERANCE) / whole;
    Bucket {
        burst: Seconds::saturating(bucket.burst.get().max(least)),
        ..bucket
    }
}

fn is_same(rate: f64, other: f64) -> bool {
    (rate - other).abs() <= other * TOLERANCE
}

impl Resource {
    /// Whether holders have parts of one rate.
    fn divides_rate(&self) -> bool {
        self.terms.is_rate() && self.terms.rule().divides() && self.terms.capacity().is_finite()
    }

    fn free_rate(&self) -> f64 {
        (self.terms.promised() - self.booked.total()).max(0.0) / self.terms.per()
    }

    /// Refills the bucket of the free capacity, before that changes.
    pub(in crate::ledger) fn refill_free(&mut self, now: Moment) {
        if self.spent.is_none() || !self.divides_rate() {
            return;
        }
        let free = self.free_rate();
        if let Some(spent) = &mut self.spent {
            spent.refill(free, now);
        }
    }

    /// The rates before a decision for a holder that states it `has` so much.
    pub(in crate::ledger) fn rates_before(&self, has: f64) -> RatesBefore {
        RatesBefore {
            held: has.min(self.terms.promised()) / self.terms.per(),
            free: self.free_rate(),
            whole: self.terms.promised_rate(),
        }
    }

    /// Takes over the bucket that a request states, and the decision on it. Returns the tokens that
    /// a new or larger lease brings: for a copy of the request the same ones.
    pub(in crate::ledger) fn continue_bucket(
        &mut self,
        holder: HolderKey,
        bucket: Bucket,
        before: RatesBefore,
        decision: &Decision,
        now: Moment,
    ) -> Option<Balance> {
        if !self.divides_rate() {
            return None;
        }
        let entry = self.entries.get(holder)?;
        let (slot, wants, per) = (entry.slot, entry.wants(), self.terms.per());
        let bucket = match self.parent {
            None => of_one_token(bucket, self.terms.promised_rate()),
            // The capacity of a node is what its parent leases now.
            Some(_) => bucket,
        };
        if bucket.burst.get() <= LONG_BURST {
            self.give_back_bucket(slot, now);
            return None;
        }
        if decision.lacks.is_none() {
            let held = self.spent.as_ref()?.held.get(&slot)?;
            let is_copy = is_same(held.before, before.held);
            return held.tokens.filter(|_| is_copy).map(Balance::saturating);
        }
        let rate = decision.capacity.get() / per;
        let refresh_interval = self.terms.refresh_interval(false).get();
        let spent = self
            .spent
            .get_or_insert_with(|| Spent::new(0.0, now).into());
        let report = BucketReport {
            wants: wants / per,
            spent: spent.spent_by(slot, bucket, before, now),
            tokens: bucket.tokens.map(Balance::get),
            burst: bucket.burst.get(),
            per,
            refresh_interval,
        };
        spent.recent_demand.record(slot, &report, now);
        let tokens = spent.decided(slot, bucket, before, rate, now);
        tokens.map(Balance::saturating)
    }

    /// Forgets the demand of a long bucket that a holder no longer states.
    pub(in crate::ledger) fn forget_recent_demand(&mut self, holder: HolderKey) {
        if let (Some(spent), Some(entry)) = (&mut self.spent, self.entries.get(holder)) {
            spent.recent_demand.remove(entry.slot);
        }
    }

    /// Takes over what a holder states when it releases its lease.
    pub(in crate::ledger) fn note_tokens(&mut self, slot: EntrySlot, tokens: Balance, now: Moment) {
        let held = self.spent.as_mut().and_then(|it| it.held.get_mut(&slot));
        if let Some(held) = held {
            held.state(tokens.get(), now);
        }
    }

    /// The lease of a holder ends.
    pub(in crate::ledger) fn give_back_bucket(&mut self, slot: EntrySlot, now: Moment) {
        self.refill_free(now);
        let whole = self.terms.promised_rate();
        if let Some(spent) = &mut self.spent {
            spent.give_back(slot, whole, now);
        }
    }

    /// The tokens that the bucket of the free capacity lacks now, for a successor.
    pub(in crate::ledger) fn spent_of_free(&self, now: Moment) -> Option<Capacity> {
        let free = self.spent.as_ref()?.free_at(self.free_rate(), now);
        (free > 0.0).then(|| Capacity::saturating(free))
    }

    pub(in crate::ledger) fn restore_spent_of_free(&mut self, free: Capacity, stopped: Moment) {
        self.spent = Some(Box::new(Spent::new(free.get(), stopped)));
    }

    /// The tokens that the bucket of a holder lacks now, for a successor.
    pub(in crate::ledger) fn spent_of(&self, slot: EntrySlot, now: Moment) -> Option<Capacity> {
        let held = self.spent.as_ref()?.held.get(&slot)?;
        Some(Capacity::saturating(held.lacks(now)))
    }

    /// The same for a holder whose lease is restored. It states its bucket with its next request.
    pub(in crate::ledger) fn restore_spent_of(
        &mut self,
        slot: EntrySlot,
        record: &HolderRecord,
        stopped: Moment,
    ) {
        let lease = self
            .entries
            .at(slot)
            .and_then(|it| it.booking.lease(stopped));
        let (Some(lacks), Some(lease)) = (record.spent, lease) else {
            return;
        };
        let rate = lease.amount / self.terms.per();
        let held = Held {
            lacks: lacks.get(),
            extra: 0.0,
            since: stopped,
            burst: LONGEST,
            rate,
            before: rate,
            moved: 0.0,
            tokens: None,
        };
        let spent = self
            .spent
            .get_or_insert_with(|| Spent::new(0.0, stopped).into());
        spent.held.insert(slot, held);
    }

    /// The demand of the last time, if all holders have long buckets.
    fn recent_demand(&self) -> Option<&RecentDemand> {
        let recent = &self.spent.as_ref()?.recent_demand;
        (self.divides_rate() && recent.covers(self.clients())).then_some(recent)
    }

    /// The demand of all holders that operators are shown.
    pub(in crate::ledger) fn shown_wants(&self, now: Moment) -> f64 {
        self.recent_demand().map_or(self.sum_wants(), |recent| {
            recent.per_second(self.terms.rate(), now) * self.terms.per()
        })
    }

    /// The clients that have made a request of late, at most: in the time over which they measure
    /// their demand, or in that of a long bucket. A demand of less than one request in that time is
    /// of an earlier one, which fades.
    pub(in crate::ledger) fn requesting_clients(&self, now: Moment) -> f64 {
        if let Some(recent) = self.recent_demand() {
            return self.clients().min(recent.requests(self.terms.rate(), now));
        }
        let interval = self.terms.refresh_interval(false).get();
        let one_request = self.terms.period() / measured_seconds(interval);
        self.demands.requesting_clients(one_request)
    }

    /// The demand of a holder that operators are shown.
    pub(in crate::ledger) fn shown_wants_of(&self, entry: &Entry, now: Moment) -> f64 {
        let recent = self.recent_demand();
        let recent = recent.and_then(|it| it.per_second_of(entry.slot, now));
        recent.map_or_else(|| entry.wants(), |wants| wants * self.terms.per())
    }

    /// Whether a holder had tokens in a long bucket at its last request.
    pub(in crate::ledger) fn has_tokens(&self, entry: &Entry) -> bool {
        let recent = self.recent_demand();
        recent.is_some_and(|it| it.has_tokens(entry.slot))
    }

    /// The seconds of its rate that a long bucket holds; 0 without.
    pub(in crate::ledger) fn long_burst(&self) -> f64 {
        self.recent_demand().map_or(0.0, RecentDemand::burst)
    }

    /// From when on a new state would be the same, while nobody has a lease.
    pub(in crate::ledger) fn full_at(&self) -> Moment {
        // A node may have no capacity without holders.
        let rate = self.terms.limit() / self.terms.per();
        match &self.spent {
            Some(spent) if spent.free > 0.0 && rate > 0.0 => {
                let seconds = (spent.free / rate).min(LONGEST.max(2.0 / rate));
                spent.since.after_seconds(seconds)
            }
            Some(_) | None => Moment::ORIGIN,
        }
    }
}
