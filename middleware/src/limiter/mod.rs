//! Token bucket of one resource, or its units in use, under its lease; shared by the whole process.

mod acquisition;
mod arena;
mod atomics;
mod bands;
mod bucket;
mod charge;
mod fast_path;
mod index;
mod lease_state;
mod name;
mod open_charges;
mod outcomes;
mod published;
mod record;
mod registry;
mod rejection;
mod reservation;
mod retention;
mod settings;
mod store;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod units;
mod wait_queue;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use doorman_openapi::{Balance, Bucket, Fallback, Moment, ResourceId, Unit};

pub(crate) use self::{
    acquisition::{Acquisition, WaitLimit},
    atomics::Shortage,
    bands::Bands,
    charge::OpenCharge,
    fast_path::Acquired,
    lease_state::{Growth, LeaseState, Policy, SafeRate},
    name::NamePrefix,
    outcomes::CoolingUnits,
    registry::{Nudge, PinnedLimiter, Registry, Source, WorkerWatchdog},
    rejection::Rejected,
    reservation::{Committed, SpentTokens},
    settings::{Burst, LimiterSettings},
    store::{LimiterTable, RegisteredSettings},
    units::TakenUnits,
};
use self::{
    bucket::{BucketView, Refill, RefillSchedule},
    lease_state::{ALWAYS, first_refill},
    published::Published,
    record::{Record, generation_of, is_banded, is_in_use, settings_of},
    store::{QueueGuard, Store, Writer},
    sync::Notify,
    wait_queue::{WaitQueue, unlock_and_wake},
};
use crate::key::to_resource_id;

/// A limiter in its store.
#[derive(Clone, Copy)]
pub(crate) struct Limiter<'s> {
    store: &'s Arc<Store>,
    record: &'s Record,
    number: u32,
    /// Of the record, when it was found.
    generation: u16,
}

/// A limiter, for those who keep it. It may be forgotten meanwhile, unless it is pinned.
#[derive(Clone)]
pub(crate) struct LimiterHandle {
    store: Arc<Store>,
    number: u32,
    generation: u16,
}

impl LimiterHandle {
    #[inline]
    pub(crate) fn get(&self) -> Limiter<'_> {
        self.store.limiter(self.number, self.generation)
    }
}

impl Limiter<'_> {
    /// The time by the clock of its registry.
    pub(crate) fn now(self) -> Moment {
        self.store.clock.now()
    }
}

impl PartialEq for LimiterHandle {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl PartialEq for Limiter<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.record, other.record) && self.generation == other.generation
    }
}

impl fmt::Debug for Limiter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("resource", &self.resource())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for LimiterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Running totals of cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
}

/// The state of a lease beside which the worker measures the demand, in tokens a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeaseLevel {
    /// The leased rate; 0 without a lease, or with one that is blocked.
    pub(crate) rate: f64,
    /// Tokens left: negative when in debt or reserved ahead, infinite when unlimited.
    pub(crate) left: f64,
    /// Less than three quarters of the bucket are left.
    pub(crate) runs_low: bool,
    /// The whole limit; infinite when unknown.
    pub(crate) limit: f64,
    burst: Burst,
}

impl LeaseLevel {
    /// The rate whose bucket holds this many tokens.
    pub(crate) fn rate_for(&self, tokens: f64) -> f64 {
        self.burst.rate_for(tokens)
    }
}

/// The values of the response headers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    pub(crate) policy: Option<Policy>,
    /// Tokens left: negative when in debt or reserved ahead, infinite when unlimited.
    pub(crate) left: f64,
    /// Tokens a second; `None` when blocked or unlimited.
    pub(crate) rate: Option<f64>,
    /// When the rate changes at the latest: the end of the lease, or the next refresh.
    pub(crate) changes_at: Moment,
}

/// The part of a resource that a process may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Allowance {
    /// Tokens a second, or units; infinite when unlimited.
    pub(crate) amount: f64,
    pub(crate) policy: Option<Policy>,
    pub(crate) is_leased: bool,
    /// The end of the lease; [`Moment::NEVER`] without one.
    pub(crate) ends: Moment,
}

impl<'s> Limiter<'s> {
    pub(crate) fn handle(self) -> LimiterHandle {
        LimiterHandle {
            store: Arc::clone(self.store),
            number: self.number,
            generation: self.generation,
        }
    }

    /// Its number in the [table](LimiterTable). No other one has it until this one is forgotten.
    pub(crate) fn number(self) -> u32 {
        self.number
    }

    /// Tells it from earlier limiters with its number.
    pub(crate) fn generation(self) -> u16 {
        self.generation
    }

    /// Whether it is not forgotten.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.is_of(self.record.head.load())
    }

    /// Whether another resource has its record, so that it was forgotten long ago.
    fn is_reused(self) -> bool {
        generation_of(self.record.head.load()) != self.generation
    }

    /// Whether the head of the record is of this limiter.
    #[inline]
    fn is_of(self, head: u64) -> bool {
        is_in_use(head) && generation_of(head) == self.generation
    }

    pub(crate) fn resource(self) -> ResourceId {
        let name = self.store.name(self);
        let name = name.and_then(|name| ResourceId::new(str::from_utf8(&name).ok()?).ok());
        // Another resource may have its record if it is forgotten.
        name.unwrap_or_else(|| to_resource_id("(unknown)"))
    }

    /// When it was created, or last woken; `None` once there was a lease.
    pub(crate) fn created_at(self) -> Option<Moment> {
        self.record.created_at()
    }

    #[cfg(test)]
    fn settings_number(self) -> u16 {
        settings_of(self.record.head.load())
    }

    pub(crate) fn with_settings<R>(self, read: impl FnOnce(&LimiterSettings) -> R) -> R {
        let number = settings_of(self.record.head.load());
        self.store.with_settings(number, read)
    }

    /// Lets another limit share this limiter. Its priority is one of the [bands](self::bands) while
    /// it exists. Warns once if its other settings differ, which do not apply then.
    #[inline]
    pub(crate) fn attach(self, settings: &RegisteredSettings, limit: &str) {
        let number = settings_of(self.record.head.load());
        if number != settings.number || number == u16::MAX {
            self.attach_other(&settings.settings, limit);
        }
    }

    fn attach_other(self, other: &LimiterSettings, limit: &str) {
        let agrees = self.with_settings(|own| {
            own.priority.attach(&other.priority);
            own.agrees_with(other)
        });
        if !other.priority.is_withdrawn() {
            self.add_band(other.priority.own());
        }
        if !agrees && !other.warned_conflict.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limit,
                resource = %self.resource(),
                "limits on one resource differ; the unit, burst, fallback and wants of the first \
                 apply"
            );
        }
    }

    pub(crate) fn unit(self) -> Unit {
        self.with_settings(|settings| settings.unit)
    }

    pub(crate) fn priority(self) -> i32 {
        self.with_settings(|settings| settings.priority.highest())
    }

    pub(crate) fn tally(self) -> Tally {
        Tally {
            admitted: self.record.admitted.load(),
            refused: self.record.rejected.load(),
        }
    }

    /// The running total of cost attempted: the demand. It includes waiting requests, since no
    /// lease would come for them otherwise.
    pub(crate) fn attempted(self) -> f64 {
        let Tally { admitted, refused } = self.tally();
        admitted + refused + self.store.read_queue(self, WaitQueue::pending)
    }

    pub(crate) fn waiting(self) -> u32 {
        self.read_queue(WaitQueue::slots)
    }

    /// Whether code or a rule names the resource, so that the limiter stays when it is idle.
    pub(crate) fn is_permanent(self) -> bool {
        self.record.retention.is_permanent()
    }

    pub(crate) fn record_wants(self, wants: f64) {
        self.store.extra(self.number).set_wants(wants);
    }

    /// Lets the limiter signal a shortage again, after the worker has looked at it.
    pub(crate) fn clear_demand_signal(self) {
        self.record.demand.clear();
    }

    /// Lets the limiter signal returned units again.
    pub(crate) fn clear_returned(self) {
        self.record.demand.clear_returned();
    }

    /// Applies a lease, or its loss, from `now` on, and wakes waiting requests.
    pub(crate) fn publish(self, state: LeaseState, now: Moment) {
        // Locked before the words: a waiting request reads them while it holds the queue.
        let mut queue = self.queue();
        self.publish_locked(state, Some(&mut queue), &mut self.store.lock(), now);
        unlock_and_wake(queue);
    }

    /// Applies a state; without a queue if no request can wait yet.
    fn publish_locked(
        self,
        state: LeaseState,
        mut queue: Option<&mut QueueGuard<'_>>,
        writer: &mut Writer,
        now: Moment,
    ) {
        if !self.is_current() {
            return;
        }
        let record = self.record;
        record.set_other_unit(matches!(state, LeaseState::OtherUnit { .. }));
        let (old, head) = self.store.read(record, self.number);
        let settings = |it: &LimiterSettings| (it.unit, it.fallback.load(), it.burst.load());
        let (unit, fallback, burst) = self.store.with_settings(settings_of(head), settings);
        // A request takes tokens before it counts as admitted. Read in this order, `admitted`
        // never exceeds `taken`.
        let admitted = record.admitted.load();
        let taken = record.spent.load() - queue.as_ref().map_or(0.0, |queue| queue.cost());
        let (supply, mut new) = old.apply(state, unit, fallback, admitted, now);
        let limit = new.policy.map(Policy::per_second);
        let transition = old.schedule.succeed(supply, taken, limit, now, burst);
        let max_spent = match &mut queue {
            Some(queue) => queue.forgive(transition.max_spent),
            None => transition.max_spent,
        };
        new.schedule = transition.schedule;
        let terms = match self.store.has_terms(record, &new) {
            Some(number) => number,
            None => self.store.intern(writer, &new),
        };
        record.write(self.store.extra(self.number), &new, terms, None, || {
            record
                .spent
                .update(|spent| spent.max(transition.min_spent).min(max_spent));
        });
        if let Some(queue) = queue
            && let now_taken = record.spent.load() - queue.cost()
            && now_taken < taken
            && let Some(charges) = queue.open_charges()
        {
            charges.forgive(now_taken);
        }
    }

    /// Gives up the lease of an idle limiter until its next request. False if a request waits, or
    /// units are in use.
    pub(crate) fn sleep(self, now: Moment) -> bool {
        let queue = self.queue();
        if queue.is_in_use() || !self.is_current() {
            return false;
        }
        if self.unit() == Unit::Gauge && !self.close() {
            return false;
        }
        let mut writer = self.store.lock();
        let asleep = Published {
            schedule: RefillSchedule::asleep(now),
            admit_probability: ALWAYS,
            ..self.read()
        };
        let terms = self.store.intern(&mut writer, &asleep);
        let extra = self.store.extra(self.number);
        self.record.write(extra, &asleep, terms, Some(now), || {
            self.record.spent.update(|_| 0.0);
        });
        true
    }

    /// Ends a sleep: the limiter is as it was when created, with the limit that it knows. Returns
    /// whether it slept. The worker must be notified then.
    fn wake(self, now: Moment) -> bool {
        if !self.read().schedule.is_asleep() {
            return false;
        }
        let _queue = self.queue();
        let mut writer = self.store.lock();
        let (old, head) = self.store.read(self.record, self.number);
        if !old.schedule.is_asleep() || !self.is_of(head) {
            // Another request was first.
            return false;
        }
        let number = settings_of(head);
        let (unit, fallback) = self
            .store
            .with_settings(number, |it| (it.unit, it.fallback.load()));
        let awake = Published {
            schedule: RefillSchedule::new(first_refill(fallback, old.policy, unit), now),
            refresh_at: now,
            growth: Growth::Pending,
            ..old
        };
        let terms = self.store.intern(&mut writer, &awake);
        let extra = self.store.extra(self.number);
        self.record.write(extra, &awake, terms, Some(now), || {
            // A request that began before the sleep may have taken some. It gives units of a gauge
            // back by itself.
            let is_gauge = unit == Unit::Gauge;
            self.record
                .spent
                .update(|spent| if is_gauge { spent } else { 0.0 });
        });
        true
    }

    fn queue(self) -> QueueGuard<'s> {
        self.store.queue(self)
    }

    /// Reads the queue while it is locked, if requests wait.
    fn read_queue<R: Default>(self, read: impl FnOnce(&WaitQueue) -> R) -> R {
        if !self.record.has_queue() {
            return R::default();
        }
        self.store.read_queue(self, read)
    }

    /// Whether it may be forgotten: a new limiter would start with a full bucket and no debt.
    pub(crate) fn is_full(self, now: Moment) -> bool {
        self.view(now).view.is_full(self.record.spent.load())
    }

    #[cfg(test)]
    pub(crate) fn reading(self, now: Moment) -> Reading {
        self.reading_of(i32::MAX, now)
    }

    /// The values for a request of this priority.
    pub(crate) fn reading_of(self, priority: i32, now: Moment) -> Reading {
        let View {
            published,
            view,
            unit,
            head,
            ..
        } = self.view(now);
        let spent = self.record.spent.load();
        let mut left = view.left(spent);
        if is_banded(head) {
            let kept = self.with_band(priority, |band| band.kept(unit, spent));
            left -= kept.unwrap_or_default();
        }
        Reading {
            policy: published.policy,
            left,
            rate: view.rate(),
            changes_at: published.changes_at(&view),
        }
    }

    pub(crate) fn lease_level(self, now: Moment) -> LeaseLevel {
        let View {
            published,
            view,
            burst,
            ..
        } = self.view(now);
        let spent = self.record.spent.load();
        LeaseLevel {
            rate: view.rate().filter(|_| view.leased).unwrap_or_default(),
            left: view.left(spent),
            runs_low: view.runs_low(spent),
            limit: published.policy.map_or(f64::INFINITY, Policy::per_second),
            burst,
        }
    }

    /// Whether the control plane counts the tokens, if it divides the capacity: what is spent of
    /// the bucket lasts for long.
    pub(crate) fn is_counted(self) -> bool {
        let (unit, burst) = self.with_settings(|it| (it.unit, it.burst.load()));
        let policy = self.read().policy.map(Policy::per_second);
        unit == Unit::Rate && policy.map_or(burst.is_long(), |rate| burst.is_long_at(rate))
    }

    /// Whether a limiter of counted tokens may be forgotten although its bucket is not full: it has
    /// no debt, and requests of the next one wait for its lease.
    pub(crate) fn can_begin_anew(self, now: Moment) -> bool {
        let waits = self.with_settings(|it| it.burst.load().is_long());
        waits && self.is_leased(now) && !self.is_permanent() && self.lease_level(now).left >= 0.0
    }

    /// The bucket as the control plane keeps it, if it does. It may before the first answer.
    pub(crate) fn long_bucket(self, now: Moment) -> Option<Bucket> {
        let View {
            view,
            published,
            unit,
            burst,
            ..
        } = self.view(now);
        let is_unknown = published.policy.is_none() && !published.schedule.ever_leased();
        if unit != Unit::Rate || !is_unknown && !self.is_counted() {
            return None;
        }
        let queued = self.read_queue(WaitQueue::cost);
        let spent = self.record.spent.load() - queued;
        // Nothing is issued before the first rate. What is admitted until then is charged to it.
        let tokens = (view.issued != 0.0).then(|| view.issued - spent.max(view.floor));
        Some(Bucket {
            burst: burst.seconds(),
            tokens: tokens.map(Balance::saturating),
        })
    }

    /// Whether it has a lease now.
    pub(crate) fn is_leased(self, now: Moment) -> bool {
        self.view(now).view.leased
    }

    /// The part that the lease allows at `now`; without one, the fallback.
    pub(crate) fn allowance(self, now: Moment) -> Allowance {
        let View {
            published,
            view,
            unit,
            ..
        } = self.view(now);
        let policy = published.policy;
        let refill = if published.schedule.is_asleep() {
            first_refill(self.fallback(), policy, unit)
        } else {
            view.refill
        };
        Allowance {
            amount: match refill {
                Refill::Blocked => 0.0,
                Refill::PerSecond(amount) | Refill::Credit(amount) | Refill::Units(amount) => {
                    amount
                }
                Refill::Unlimited => f64::INFINITY,
            },
            policy,
            is_leased: view.leased,
            ends: if view.leased {
                published.schedule.ends
            } else {
                Moment::NEVER
            },
        }
    }

    /// Notifies of a new lease. Subscribe before looking for changes.
    pub(crate) fn changes(self) -> Arc<Notify> {
        self.queue().changes()
    }

    /// The end of the present lease, unless it is renewed; `None` without one.
    fn lease_end(self, now: Moment) -> Option<Moment> {
        Some(self.read().schedule.ends).filter(|&ends| now < ends)
    }

    /// The fallback that decides at `now`; `None` while there is a lease.
    #[inline]
    pub(crate) fn fallback_at(self, now: Moment) -> Option<Fallback> {
        if self.record.is_leased_at(now) {
            return None;
        }
        Some(self.fallback())
    }

    /// The fallback that decides while there is no lease.
    #[cold]
    pub(crate) fn fallback(self) -> Fallback {
        self.with_settings(|settings| settings.fallback.load())
    }

    /// The demand last reported, in the resource's own unit.
    pub(crate) fn wants(self) -> f64 {
        self.store.extra(self.number).wants()
    }

    /// Whether the resource has another unit than its limits.
    pub(crate) fn has_other_unit(self) -> bool {
        self.record.has_other_unit()
    }

    #[inline]
    fn read(self) -> Published {
        self.store.read(self.record, self.number).0
    }

    #[inline]
    fn view(self, now: Moment) -> View {
        let (published, head) = self.store.read(self.record, self.number);
        let number = settings_of(head);
        let (unit, burst) = self
            .store
            .with_settings(number, |it| (it.unit, it.burst.load()));
        View {
            published,
            view: published.schedule.at(now, burst),
            unit,
            burst,
            head,
        }
    }
}

/// The published state, and the bucket at one moment.
struct View {
    published: Published,
    view: BucketView,
    unit: Unit,
    burst: Burst,
    head: u64,
}
