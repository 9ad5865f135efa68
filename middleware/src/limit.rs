//! A limit: which requests spend which resource, how much, and what becomes of those for which nothing is left.

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::Capacity;

use crate::{
    Cost, Fallback, Key, MissingKey, Quota, RequestHead,
    limiter::{Burst, LimiterSettings},
};

/// A limit that a layer enforces.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Cost, Key, Limit, OnLimit};
///
/// let fleet = Limit::rate("api");
/// let tenant = Limit::rate(Key::template("tenant/{header:x-tenant}")?)
///     .named("per-tenant")
///     .cost_by(|head| if head.method() == "POST" { Cost::new(5.0).unwrap_or_default() } else { Cost::ONE })
///     .burst(Duration::from_secs(2))
///     .on_limit(OnLimit::Delay { max_delay: Duration::from_millis(500) });
/// # Ok::<(), tower_doorman::InvalidKey>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a limit does nothing until a layer wears it"]
pub struct Limit {
    pub(crate) key: Key,
    /// How much, of a limit of this process alone; `None`: as leased.
    pub(crate) quota: Option<Quota>,
    pub(crate) name: Arc<str>,
    pub(crate) cost: CostRule,
    pub(crate) settings: LimiterSettings,
    pub(crate) on_limit: OnLimit,
    pub(crate) queue: u32,
    pub(crate) wait_for_lease: Duration,
    pub(crate) on_missing_key: MissingKey,
    pub(crate) skip: Skip,
}

/// What becomes of a request for which nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLimit {
    /// It is refused at once.
    #[default]
    Reject,
    /// It waits for its turn. It is refused at once when there is nothing to wait for: its turn would not come in time, too many wait
    /// already, or the resource is suppressed and chance is against the request. Where the lease is small only because little was asked
    /// for, it waits all the same, for a larger one that may come in time; it has no place among the others until then. A caller that
    /// goes away gives its place back.
    Delay {
        /// How long it waits at most; not at all is the same as [`Reject`](OnLimit::Reject).
        max_delay: Duration,
    },
    /// It passes, and spends nothing of this limit: to try a limit out before it counts. It is counted as refused, by the limit's
    /// resource in the [snapshot](crate::Doorman::snapshot), and its response does not speak of the limit.
    ///
    /// What the limit admits is spent of its resource, though, unless a limit of the same layer in earnest spends the same resource for
    /// that request: give a limit that is tried out a resource of its own if another layer, or a limit in earnest, wears it.
    Shadow,
}

#[derive(Clone)]
pub(crate) enum CostRule {
    Fixed(Cost),
    By(Arc<dyn for<'a> Fn(&RequestHead<'a>) -> Cost + Send + Sync>),
}

/// A day at the fastest rate is what a bucket can count token by token.
const LONGEST_BURST: Duration = Duration::from_secs(86_400);
/// How many requests may wait for one resource, if nothing else is said.
const QUEUE: u32 = 1_000;

impl Limit {
    /// So many requests per second as the process's lease on the key's resource says.
    ///
    /// A text is a [constant](Key::constant) key. If nothing else is said, a request costs one, a second's worth may be saved up,
    /// and what goes beyond is refused.
    pub fn rate(key: impl Into<Key>) -> Self {
        Self::new(key.into(), None)
    }

    /// So much of this process alone: nothing is leased for it, and no other process knows of it.
    ///
    /// Each layer that wears it counts by itself; the clones of a layer, and what they serve, count together. It has no lease that could
    /// be missing, so what is said of leases means nothing to it: fallback, wants, priority and the wait for a lease.
    ///
    /// ```
    /// use tower_doorman::{Doorman, Key, Limit, per_second};
    ///
    /// // However large the lease on the fleet's limit grows: this process does not bear more than that.
    /// let limits = Doorman::unlimited().layer([Limit::rate("api"), Limit::local(per_second(500))]);
    /// ```
    pub fn local(quota: Quota) -> Self {
        Self::new(Key::constant("local"), Some(quota))
    }

    /// The same for each key by itself, such as each caller: `Limit::local_per(Key::client_ip(), per_minute(60))`.
    ///
    /// It keeps as many keys as [`Builder::max_keys`](crate::Builder::max_keys) says, besides those of other limits; idle ones are
    /// forgotten as new ones come, and those beyond share one.
    pub fn local_per(key: impl Into<Key>, quota: Quota) -> Self {
        Self::new(key.into(), Some(quota))
    }

    fn new(key: Key, quota: Option<Quota>) -> Self {
        Self {
            name: Arc::clone(key.text()),
            key,
            quota,
            cost: CostRule::Fixed(Cost::ONE),
            settings: LimiterSettings::default(),
            on_limit: OnLimit::default(),
            queue: QUEUE,
            wait_for_lease: Duration::ZERO,
            on_missing_key: MissingKey::default(),
            skip: Skip::default(),
        }
    }

    /// The name that responses give the limit; if nothing else is said, the text of its key, and `local` of a local limit without.
    pub fn named(mut self, name: &str) -> Self {
        if self.quota.is_some() && self.key.as_constant().is_some() {
            // It is no resource that others know: in the snapshot, too, it goes by its name.
            self.key = Key::constant(name);
        }
        self.name = name.into();
        self
    }

    /// What each request costs.
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = CostRule::Fixed(cost);
        self
    }

    /// What a request costs, by its head.
    pub fn cost_by<F>(mut self, cost: F) -> Self
    where
        F: for<'a> Fn(&RequestHead<'a>) -> Cost + Send + Sync + 'static,
    {
        self.cost = CostRule::By(Arc::new(cost));
        self
    }

    /// How much may be saved up, as a time at the limit's rate: always one whole token, and never more than a day's. A request that costs more than all of it
    /// passes when nothing is missing, and what comes after it waits longer.
    ///
    /// Limits on one resource share its tokens: the burst, fallback and wants of the first of them count.
    pub fn burst(mut self, burst: Duration) -> Self {
        self.settings.burst = Burst::new(burst.min(LONGEST_BURST)).into();
        self
    }

    /// What counts while there is no lease. What passes on credit is charged when the lease comes: at most one burst.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.settings.fallback = fallback.into();
        self
    }

    /// How important it is, where the control plane shares by importance: more is more important, and 0 is if nothing is said.
    ///
    /// Limits on one resource share its lease: the highest priority of them counts.
    pub fn priority(mut self, priority: i32) -> Self {
        self.settings.priority = priority.into();
        self
    }

    /// States the demand of this process, in the resource's own unit, instead of measuring it. Who wants 0 is leased nothing.
    pub fn wants(mut self, wants: Capacity) -> Self {
        self.settings.wants = Some(wants);
        self
    }

    /// What becomes of a request for which nothing is left.
    pub fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = on_limit;
        self
    }

    /// How many requests may wait for one resource: 1,000 if nothing else is said, and one at least. The next is refused.
    pub fn queue(mut self, requests: u32) -> Self {
        self.queue = requests.max(1);
        self
    }

    /// How long the first requests for a resource wait for its first lease before the fallback decides: not at all if nothing else
    /// is said. It is counted once for each resource, from its first request, or from when the layer is made if the key is constant:
    /// so that an outage of the control plane delays a resource only once, however often it is asked in vain.
    pub fn wait_for_lease(mut self, max_wait: Duration) -> Self {
        self.wait_for_lease = max_wait;
        self
    }

    /// Requests that the limit does not apply to, by their head, such as health checks. Said several times, it does not apply to those
    /// that any of them names.
    ///
    /// ```
    /// use tower_doorman::Limit;
    ///
    /// let api = Limit::rate("api").skip(|head| head.uri().path() == "/healthz");
    /// ```
    pub fn skip<F>(mut self, applies: F) -> Self
    where
        F: for<'a> Fn(&RequestHead<'a>) -> bool + Send + Sync + 'static,
    {
        self.skip.0.push(Arc::new(applies));
        self
    }

    /// What becomes of a request of which the key cannot be made.
    pub fn on_missing_key(mut self, on_missing_key: MissingKey) -> Self {
        self.on_missing_key = on_missing_key;
        self
    }
}

type Predicate = dyn for<'a> Fn(&RequestHead<'a>) -> bool + Send + Sync;

/// Which requests a limit does not apply to.
#[derive(Clone, Default)]
pub(crate) struct Skip(Vec<Arc<Predicate>>);

impl Skip {
    pub(crate) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.0.iter().any(|skips| skips(head))
    }
}

impl fmt::Debug for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} predicates", self.0.len())
    }
}

impl CostRule {
    pub(crate) fn of(&self, head: &RequestHead<'_>) -> Cost {
        match self {
            Self::Fixed(cost) => *cost,
            Self::By(rule) => rule(head),
        }
    }
}

impl fmt::Debug for CostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => f.debug_tuple("Fixed").field(cost).finish(),
            Self::By(_) => f.write_str("By(..)"),
        }
    }
}
