//! The limiter of one resource: decides on the request path, alone, from what the leasing side last published.

mod atomics;
mod bucket;
mod demand_signal;
mod fast_path;
mod lease_state;
mod live;
mod priority;
mod published;
mod registry;
mod reservation;
mod retention;
mod settings;
mod sync;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;
mod wait;
mod wait_queue;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use doorman_openapi::{Moment, ResourceId};

pub use self::lease_state::{SharedBalance, Sharing};
use self::{
    atomics::{AtomicF64, SeqLock},
    bucket::View,
    demand_signal::DemandSignal,
    published::{News, Published, WORDS},
    retention::Retention,
    wait_queue::{WaitQueue, ring},
};
pub(crate) use self::{
    demand_signal::Shortage,
    fast_path::{FirstLease, Taken},
    lease_state::{LeaseState, Policy, SafeRate},
    registry::{Found, Nudge, Registry, Source, WorkerWatchdog},
    reservation::{Patience, Reservation},
    settings::{Burst, LimiterSettings, SettingsConflict},
};

use crate::{Fallback, RefusalReason};

/// The limiter of one resource, shared by everything in the process that spends it.
///
/// What a decision needs comes first, and in this order: with very many keys each of the fewer cache lines is fetched from the memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Limiter {
    /// The tokens ever taken, those of waiting requests included.
    spent: AtomicF64,
    published: SeqLock<WORDS>,
    admitted: AtomicF64,
    settings: Arc<LimiterSettings>,
    refused: AtomicF64,
    /// The cost of who waits, and of who went away while waiting.
    undecided: AtomicF64,
    /// The demand that the leasing side last saw, in the resource's own unit.
    wants: AtomicF64,
    resource: ResourceId,
    /// When it was made: the wait for a first lease is counted from here, whatever is published meanwhile.
    made_at: Moment,
    /// Those who wait for their turn, and what wakes them.
    line: Mutex<WaitQueue>,
    waiting: AtomicU32,
    hunger: DemandSignal,
    tenure: Retention,
    /// Whether the resource turned out to be no rate.
    unit_mismatch: AtomicBool,
}

/// Running totals of cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: f64,
    pub(crate) refused: f64,
}

/// Why, and until when, a limiter admits nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Refused {
    pub(crate) reason: RefusalReason,
    /// The earliest moment at which coming back makes sense; `None` when nothing is known of it.
    pub(crate) until: Option<Moment>,
    /// When the leasing side asks next; `None` when it never does.
    pub(crate) refresh_at: Option<Moment>,
}

impl Refused {
    /// The same, but for a reason that is none of the caller's doing: the next refresh may mend it.
    pub(crate) fn because(self, reason: RefusalReason) -> Self {
        Self {
            reason,
            until: self.refresh_at.or(self.until),
            ..self
        }
    }
}

/// What the response fields say of a limiter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// The whole limit, as last told.
    pub(crate) policy: Option<Policy>,
    /// The tokens left; negative when some are owed or promised, infinite when everything passes.
    pub(crate) left: f64,
    /// Tokens a second; `None` when none come, or everything passes.
    pub(crate) rate: Option<f64>,
    /// When this may change at the latest: the end of the lease, or the next refresh.
    pub(crate) changes_at: Moment,
}

impl Limiter {
    pub(crate) fn new(
        resource: ResourceId,
        settings: Arc<LimiterSettings>,
        tenure: u8,
        now: Moment,
    ) -> Self {
        let published = Published::new(settings.fallback.get(), now);
        Self {
            spent: AtomicF64::default(),
            published: SeqLock::new(published.into_words()),
            admitted: AtomicF64::default(),
            refused: AtomicF64::default(),
            undecided: AtomicF64::default(),
            wants: AtomicF64::default(),
            resource,
            settings,
            made_at: now,
            line: Mutex::default(),
            waiting: AtomicU32::new(0),
            hunger: DemandSignal::default(),
            tenure: Retention::new(tenure),
            unit_mismatch: AtomicBool::new(false),
        }
    }

    pub(crate) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// When it was made.
    pub(crate) fn made_at(&self) -> Moment {
        self.made_at
    }

    pub(crate) fn settings(&self) -> &Arc<LimiterSettings> {
        &self.settings
    }

    /// Makes another limit on the same resource share this limiter.
    ///
    /// # Errors
    /// [`SettingsConflict`] when the settings differ: those of the first limit apply.
    pub(crate) fn attach(&self, settings: &Arc<LimiterSettings>) -> Result<(), SettingsConflict> {
        if Arc::ptr_eq(&self.settings, settings) {
            return Ok(());
        }
        self.settings.attach(settings)
    }

    /// How important what is leased for it is.
    pub(crate) fn priority(&self) -> i32 {
        self.settings.priority.highest()
    }

    /// What has been admitted and refused so far.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            admitted: self.admitted.load(),
            refused: self.refused.load(),
        }
    }

    /// The running total of cost attempted, whatever came of it. This is the demand: who waits wants a token as much as who was admitted
    /// or refused, and would wait for ever if nobody asked for it.
    pub(crate) fn attempted(&self) -> f64 {
        self.admitted.load() + self.refused.load() + self.undecided.load()
    }

    /// Keeps whether the resource counts what is in use at one time, and so is no rate.
    pub(crate) fn set_unit_mismatch(&self, unit_mismatch: bool) {
        self.unit_mismatch.store(unit_mismatch, Ordering::Relaxed);
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Says what holds from `now` on, and wakes who waits.
    pub(crate) fn publish(&self, standing: LeaseState, now: Moment) {
        // Before the words are being written: who holds the line reads them.
        let mut line = self.line();
        self.published.update(|words| {
            let old = Published::from_words(words);
            // Who takes a token is counted as admitted later: read in this order, nobody is admitted who has not taken any.
            let admitted = self.admitted.load();
            let taken = self.spent.load() - line.cost();
            let News {
                supply,
                refresh_at,
                policy,
                admission,
                may_grow,
            } = published::news(standing, self.settings.fallback.get(), admitted, now);
            let change = old
                .terms
                .succeed(supply, taken, now, self.settings.burst.get());
            let at_most = line.forgive(change.at_most);
            self.spent
                .update(|spent| spent.max(change.at_least).min(at_most));
            let new = Published {
                terms: change.terms,
                refresh_at,
                policy,
                admission,
                may_grow,
            };
            (new.into_words(), ())
        });
        ring(line);
    }

    fn line(&self) -> MutexGuard<'_, WaitQueue> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the limiter report once more that it runs low. Called when the leasing side has looked.
    pub(crate) fn clear_demand_signal(&self) {
        self.hunger.clear();
    }

    /// Whether the leasing side must be told of a need: at most once until it has [`heard`](Self::heard).
    fn becomes_hungry(&self, need: Shortage) -> bool {
        self.hunger.tell(need)
    }

    /// Whether it may be forgotten: one made anew has a full bucket, and knows of no debt.
    pub(crate) fn is_full(&self, now: Moment) -> bool {
        self.view(&self.read(), now).is_full(self.spent.load())
    }

    /// What the response fields may say.
    pub(crate) fn reading(&self, now: Moment) -> Reading {
        let published = self.read();
        let view = self.view(&published, now);
        Reading {
            policy: published.policy,
            left: view.left(self.spent.load()),
            rate: view.rate(),
            changes_at: if view.leased {
                published.terms.ends
            } else {
                published.refresh_at
            },
        }
    }

    /// What decides for want of a lease; `None` while there is one.
    pub(crate) fn fallback_at(&self, now: Moment) -> Option<Fallback> {
        (now >= self.read().terms.ends).then(|| self.settings.fallback.get())
    }

    #[inline]
    fn read(&self) -> Published {
        Published::from_words(self.published.read())
    }

    #[inline]
    fn view(&self, published: &Published, now: Moment) -> View {
        published.terms.at(now, self.settings.burst.get())
    }
}
