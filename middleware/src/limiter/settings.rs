//! Settings of a limiter: unit, burst, fallback, stated demand and priority.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use crossbeam_utils::atomic::AtomicCell;
use doorman_openapi::{Capacity, Fallback, LONG_BURST, Seconds, Unit};
use smallvec::SmallVec;

const MAX_BURST: Duration = Duration::from_secs(86_400);
/// The settings of the limit that first used a resource, shared by all limiters of that limit. So a
/// change reaches every key.
#[derive(Debug, Default)]
pub(crate) struct LimiterSettings {
    pub(crate) unit: Unit,
    pub(crate) burst: AtomicCell<Burst>,
    /// A change applies from the next publication on.
    pub(crate) fallback: AtomicCell<Fallback>,
    /// The stated demand; `None` when it is measured.
    pub(crate) wants: AtomicCell<Option<Capacity>>,
    pub(crate) priority: Priority,
    /// Whether it was logged that a limiter has others.
    pub(crate) warned_conflict: AtomicBool,
}

/// The clone is independent.
impl Clone for LimiterSettings {
    fn clone(&self) -> Self {
        Self {
            unit: self.unit,
            burst: self.burst.load().into(),
            fallback: self.fallback.load().into(),
            wants: self.wants.load().into(),
            priority: self.priority.clone(),
            warned_conflict: AtomicBool::new(false),
        }
    }
}

impl LimiterSettings {
    /// Whether all but the priorities are the same.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        self.unit == other.unit
            && self.burst.load() == other.burst.load()
            && self.fallback.load() == other.fallback.load()
            && self.wants.load() == other.wants.load()
    }

    /// Takes over the settings of a newer rule on the same resource. Existing limiters follow;
    /// their bands do with the next measurement.
    pub(crate) fn update(&self, other: &Self) {
        self.burst.store(other.burst.load());
        self.fallback.store(other.fallback.load());
        self.priority.update(&other.priority);
    }

    /// The rule was removed; its limiters may live on. Its priority no longer applies.
    pub(crate) fn withdraw(&self) {
        self.priority.withdraw();
    }
}

/// The size of a bucket, in seconds of its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Burst(f64);

impl Burst {
    /// At most a day: so long a bucket counts single tokens at the fastest rate.
    pub(crate) fn new(time: Duration) -> Self {
        Self(time.min(MAX_BURST).as_secs_f64())
    }

    /// Whether it spans changes of leases, so that the control plane keeps what is spent.
    pub(crate) fn is_long(self) -> bool {
        self.0 > LONG_BURST
    }

    /// The same of a bucket of at least one token at this rate, which is that of the whole limit.
    pub(crate) fn is_long_at(self, rate: f64) -> bool {
        self.is_long() || rate * LONG_BURST < 1.0
    }

    pub(crate) fn seconds(self) -> Seconds {
        Seconds::saturating(self.0)
    }

    /// The tokens that a bucket of this rate holds: at least one.
    #[inline]
    pub(crate) fn tokens(self, rate: f64) -> f64 {
        (rate * self.0).max(1.0)
    }

    /// The tokens that a demand spends in this time, or in so many seconds, if that is shorter.
    pub(crate) fn spent_in(self, seconds: f64, per_second: f64) -> f64 {
        per_second * self.0.min(seconds)
    }

    /// The rate whose bucket holds this many tokens; 0 if none does, because none is saved up.
    pub(crate) fn rate_for(self, tokens: f64) -> f64 {
        if self.0 > 0.0 { tokens / self.0 } else { 0.0 }
    }
}

impl Default for Burst {
    /// One second.
    fn default() -> Self {
        Self(1.0)
    }
}

/// The priority of one limit and those of the others on its resource, which are read where those
/// limits store them, so that they follow changes of rules.
#[derive(Debug, Default)]
pub(crate) struct Priority(Arc<Stated>);

#[derive(Debug, Default)]
struct Stated {
    own: AtomicCell<i32>,
    withdrawn: AtomicBool,
    /// Limits that use the same resource and came later.
    others: ArcSwap<Vec<Weak<Self>>>,
}

impl Priority {
    /// Adds that of a later limit on the same resource.
    pub(super) fn attach(&self, Self(other): &Self) {
        let known = |it: &Weak<Stated>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(other));
        if self.0.others.load().iter().any(known) {
            return;
        }
        self.0.others.rcu(|others| {
            let others = others
                .iter()
                .filter(|it| it.strong_count() > 0 && !known(it));
            let mut others: Vec<_> = others.cloned().collect();
            others.push(Arc::downgrade(other));
            others
        });
    }

    fn update(&self, Self(other): &Self) {
        self.0.own.store(other.own.load());
    }

    fn withdraw(&self) {
        self.0.withdrawn.store(true, Ordering::Relaxed);
    }

    /// The priority of the limit's own requests.
    #[inline]
    pub(crate) fn own(&self) -> i32 {
        self.0.own.load()
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.0.is_withdrawn()
    }

    /// The highest of the priorities [in force](Self::in_force).
    pub(super) fn highest(&self) -> i32 {
        self.in_force().first().copied().unwrap_or(self.own())
    }

    /// The priorities that are not withdrawn, or the own one if all are; the highest first.
    pub(super) fn in_force(&self) -> SmallVec<[i32; 4]> {
        let others = self.0.others.load();
        let others = others.iter().filter_map(Weak::upgrade);
        let others = others.filter(|it| !it.is_withdrawn());
        let mut all: SmallVec<[i32; 4]> = others.map(|it| it.own.load()).collect();
        if all.is_empty() || !self.is_withdrawn() {
            all.push(self.own());
        }
        all.sort_unstable_by_key(|priority| Reverse(*priority));
        all.dedup();
        all
    }
}

impl Stated {
    fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }
}

impl From<i32> for Priority {
    fn from(stated: i32) -> Self {
        Self(Arc::new(Stated {
            own: stated.into(),
            ..Stated::default()
        }))
    }
}

/// The clone belongs to another limit.
impl Clone for Priority {
    fn clone(&self) -> Self {
        self.0.own.load().into()
    }
}

const _: () = assert!(AtomicCell::<Burst>::is_lock_free());
const _: () = assert!(AtomicCell::<Fallback>::is_lock_free());
const _: () = assert!(AtomicCell::<i32>::is_lock_free());
