//! Token bucket of one resource, refilled by its lease and shared by the whole process.

mod atomics;
mod bucket;
mod fast_path;
mod lease_state;
mod published;
mod registry;
mod rejection;
mod reservation;
mod retention;
mod settings;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod wait_queue;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use doorman_openapi::{Moment, ResourceId};

pub use self::lease_state::{SharedBalance, Sharing};
pub(crate) use self::{
    atomics::Shortage,
    fast_path::{Acquired, FirstLease},
    lease_state::{LeaseState, Policy, SafeRate},
    registry::{Nudge, PinnedLimiter, Registry, RegistryLookup, Source, WorkerWatchdog},
    rejection::Rejected,
    reservation::{Reservation, WaitPolicy},
    settings::{Burst, LimiterSettings, SettingsConflict},
};
use self::{
    atomics::{AtomicF64, DemandSignal, SeqLock},
    bucket::{BucketView, Refill, RefillSchedule},
    lease_state::{ALWAYS, LimiterUpdate, first_refill},
    published::{Published, WORDS},
    retention::{Purpose, Retention},
    wait_queue::{WaitQueue, unlock_and_wake},
};
use crate::Fallback;

/// The fields of the fast path come first, in this order, so that a decision on one of very many
/// keys loads few cache lines.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Limiter {
    /// All tokens ever taken, including those of waiting requests.
    spent: AtomicF64,
    published: SeqLock<WORDS>,
    admitted: AtomicF64,
    settings: Arc<LimiterSettings>,
    rejected: AtomicF64,
    /// The cost of requests that wait, and of those that were canceled while waiting.
    pending: AtomicF64,
    /// The demand last measured by the worker, in the resource's own unit.
    wants: AtomicF64,
    resource: ResourceId,
    /// When it was created or last woken, in nanoseconds. The wait for a first lease starts here.
    created_at: AtomicU64,
    queue: Mutex<WaitQueue>,
    waiting: AtomicU32,
    demand: DemandSignal,
    /// The resource is a gauge, not a rate.
    unit_mismatch: AtomicBool,
    retention: Retention,
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

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimiterSnapshot {
    pub(crate) tally: Tally,
    pub(crate) waiting: u32,
    /// In the resource's own unit.
    pub(crate) wants: f64,
    /// `None` when the fallback applies.
    pub(crate) lease: Option<LeasedRate>,
    pub(crate) policy: Option<Policy>,
    pub(crate) unit_mismatch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeasedRate {
    /// Tokens a second; `None` when unlimited.
    pub(crate) rate: Option<f64>,
    /// [`Moment::NEVER`] when no lease is needed.
    pub(crate) ends: Moment,
}

impl Limiter {
    fn new(
        resource: ResourceId,
        settings: Arc<LimiterSettings>,
        purpose: Purpose,
        now: Moment,
    ) -> Self {
        let published = Published::new(settings.fallback.get(), now);
        Self {
            spent: AtomicF64::default(),
            published: SeqLock::new(published.into_words()),
            admitted: AtomicF64::default(),
            rejected: AtomicF64::default(),
            pending: AtomicF64::default(),
            wants: AtomicF64::default(),
            resource,
            settings,
            created_at: AtomicU64::new(now.as_nanos()),
            queue: Mutex::default(),
            waiting: AtomicU32::new(0),
            demand: DemandSignal::default(),
            retention: Retention::new(purpose),
            unit_mismatch: AtomicBool::new(false),
        }
    }

    pub(crate) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// When it was created, or last woken.
    pub(crate) fn created_at(&self) -> Moment {
        Moment::from_nanos(self.created_at.load(Ordering::Relaxed))
    }

    pub(crate) fn settings(&self) -> &Arc<LimiterSettings> {
        &self.settings
    }

    /// Lets another limit share this limiter; [`SettingsConflict`] when its settings differ.
    #[expect(
        clippy::inline_always,
        reason = "measured: a tenth of a decision on a hot key"
    )]
    #[inline(always)]
    pub(crate) fn attach(&self, settings: &Arc<LimiterSettings>) -> Result<(), SettingsConflict> {
        if Arc::ptr_eq(&self.settings, settings) {
            return Ok(());
        }
        self.settings.attach(settings)
    }

    /// Logs that the settings of a limit, which attached to this limiter, do not apply.
    pub(crate) fn warn_conflict(&self, limit: &str) {
        tracing::warn!(
            limit,
            resource = %self.resource,
            "limits on one resource differ; the burst, fallback and wants of the first apply"
        );
    }

    pub(crate) fn priority(&self) -> i32 {
        self.settings.priority.highest()
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally {
            admitted: self.admitted.load(),
            refused: self.rejected.load(),
        }
    }

    /// The running total of cost attempted: the demand. It includes waiting requests, since no
    /// lease would come for them otherwise.
    pub(crate) fn attempted(&self) -> f64 {
        self.admitted.load() + self.rejected.load() + self.pending.load()
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether code or a rule names the resource, so that the limiter stays when it is idle.
    pub(crate) fn is_permanent(&self) -> bool {
        self.retention.is_permanent()
    }

    pub(crate) fn set_unit_mismatch(&self, mismatch: bool) {
        self.unit_mismatch.store(mismatch, Ordering::Relaxed);
    }

    pub(crate) fn record_wants(&self, wants: f64) {
        self.wants.update(|_| wants);
    }

    /// Lets the limiter signal a shortage again, after the worker has looked at it.
    pub(crate) fn clear_demand_signal(&self) {
        self.demand.clear();
    }

    /// Applies a lease, or its loss, from `now` on, and wakes waiting requests.
    pub(crate) fn publish(&self, state: LeaseState, now: Moment) {
        // Locked before the words: a waiting request reads them while it holds the queue.
        let mut queue = self.queue();
        self.published.update(|words| {
            let old = Published::from_words(words);
            // A request takes tokens before it counts as admitted. Read in this order, `admitted`
            // never exceeds `taken`.
            let admitted = self.admitted.load();
            let taken = self.spent.load() - queue.cost();
            let LimiterUpdate {
                supply,
                refresh_at,
                policy,
                admit_probability,
                may_grow,
            } = LimiterUpdate::new(state, self.settings.fallback.get(), admitted, now);
            let burst = self.settings.burst.get();
            let limit = policy.map(Policy::per_second);
            let transition = old.schedule.succeed(supply, taken, limit, now, burst);
            let max_spent = queue.forgive(transition.max_spent);
            self.spent
                .update(|spent| spent.max(transition.min_spent).min(max_spent));
            let new = Published {
                schedule: transition.schedule,
                refresh_at,
                policy,
                admit_probability,
                may_grow,
            };
            new.into_words()
        });
        unlock_and_wake(queue);
    }

    /// Gives up the lease of an idle limiter until its next request. False if a request waits.
    pub(crate) fn sleep(&self, now: Moment) -> bool {
        let _queue = self.queue();
        if self.waiting() > 0 {
            return false;
        }
        self.published.update(|words| {
            self.spent.update(|_| 0.0);
            let asleep = Published {
                schedule: RefillSchedule::asleep(now),
                admit_probability: ALWAYS,
                ..Published::from_words(words)
            };
            asleep.into_words()
        });
        true
    }

    /// Ends a sleep: the limiter is as it was when created, with the limit that it knows. Returns
    /// whether it slept. The worker must be notified then.
    fn wake(&self, now: Moment) -> bool {
        if !self.read().schedule.is_asleep() {
            return false;
        }
        let mut woken = false;
        let _queue = self.queue();
        self.published.update(|words| {
            let old = Published::from_words(words);
            if !old.schedule.is_asleep() {
                // Another request was first.
                return words;
            }
            // A request that began before the sleep may have taken some.
            woken = true;
            self.created_at.store(now.as_nanos(), Ordering::Relaxed);
            self.spent.update(|_| 0.0);
            let first = first_refill(self.settings.fallback.get(), old.policy);
            let awake = Published {
                schedule: RefillSchedule::new(first, now),
                refresh_at: now,
                may_grow: true,
                ..old
            };
            awake.into_words()
        });
        woken
    }

    fn queue(&self) -> MutexGuard<'_, WaitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it may be forgotten: a new limiter would start with a full bucket and no debt.
    pub(crate) fn is_full(&self, now: Moment) -> bool {
        self.view(&self.read(), now).is_full(self.spent.load())
    }

    pub(crate) fn reading(&self, now: Moment) -> Reading {
        let published = self.read();
        let view = self.view(&published, now);
        Reading {
            policy: published.policy,
            left: view.left(self.spent.load()),
            rate: view.rate(),
            changes_at: if view.leased {
                published.schedule.ends
            } else {
                published.refresh_at
            },
        }
    }

    pub(crate) fn lease_level(&self, now: Moment) -> LeaseLevel {
        let published = self.read();
        let view = self.view(&published, now);
        let spent = self.spent.load();
        LeaseLevel {
            rate: view.rate().filter(|_| view.leased).unwrap_or_default(),
            left: view.left(spent),
            runs_low: view.runs_low(spent),
            limit: published.policy.map_or(f64::INFINITY, Policy::per_second),
            burst: self.settings.burst.get(),
        }
    }

    /// The fallback that decides at `now`; `None` while there is a lease.
    pub(crate) fn fallback_at(&self, now: Moment) -> Option<Fallback> {
        (now >= self.read().schedule.ends).then(|| self.settings.fallback.get())
    }

    pub(crate) fn snapshot(&self, now: Moment) -> LimiterSnapshot {
        let published = self.read();
        let schedule = published.schedule;
        LimiterSnapshot {
            tally: self.tally(),
            waiting: self.waiting(),
            wants: self.wants.load(),
            lease: (now < schedule.ends).then_some(LeasedRate {
                rate: match schedule.refill {
                    Refill::Blocked => Some(0.0),
                    Refill::PerSecond(rate) => Some(rate),
                    Refill::Credit(_) | Refill::Unlimited => None,
                },
                ends: schedule.ends,
            }),
            policy: published.policy,
            unit_mismatch: self.unit_mismatch.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn read(&self) -> Published {
        Published::from_words(self.published.read())
    }

    #[inline]
    fn view(&self, published: &Published, now: Moment) -> BucketView {
        published.schedule.at(now, self.settings.burst.get())
    }
}
