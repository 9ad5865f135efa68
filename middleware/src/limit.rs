//! Settings of one limit: key, cost, burst, fallback and response to excess.

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Fallback, OnMissingKey, TargetHeaders, Unit};
use http::response::Parts;

use crate::{
    charge::SettleFn,
    cost::Cost,
    key::{InvalidKey, Key, RequestHead},
    limiter::{Burst, LimiterSettings},
    outcome::Outcome,
    quota::Quota,
};

const QUEUE: u32 = 1_000;
/// How long a request waits for the first lease of a gauge, without which nothing is admitted.
pub(crate) const COUNTED_WAIT: Duration = Duration::from_secs(1);
/// The same for requests to others, of whose limit nothing is known.
const OUTBOUND_WAIT: Duration = Duration::from_secs(5);

/// A limit that a layer enforces.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Cost, Limit, OnLimit};
///
/// let fleet = Limit::rate("api");
/// let tenant = Limit::rate("tenant/{header:x-tenant}")
///     .named("per-tenant")
///     .cost_by(|head| if head.method() == "POST" { Cost::new(5.0).unwrap_or_default() } else { Cost::ONE })
///     .burst(Duration::from_secs(2))
///     .on_limit(OnLimit::Delay { max_delay: Duration::from_millis(500) });
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until a layer enforces it"]
pub struct Limit {
    pub(crate) key: Key,
    /// `None`: the capacity is leased.
    pub(crate) quota: Option<Quota>,
    pub(crate) name: Arc<str>,
    pub(crate) cost: CostRule,
    pub(crate) settle: SettleRule,
    pub(crate) settings: LimiterSettings,
    pub(crate) on_limit: OnLimit,
    pub(crate) queue: u32,
    pub(crate) wait_for_lease: Option<Duration>,
    pub(crate) on_missing_key: OnMissingKey,
    pub(crate) skip: Vec<Arc<Predicate>>,
    /// `None`: [`Outcome::of`].
    pub(crate) classify: Option<Arc<ClassifyFn>>,
    pub(crate) target_headers: Option<TargetHeaders>,
}

pub(crate) type ClassifyFn = dyn Fn(Option<&Parts>) -> Outcome + Send + Sync;

/// The requests that a layer limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Traffic {
    /// Those of callers.
    #[default]
    Inbound,
    /// Its own to others.
    Outbound,
}

type Predicate = dyn for<'a> Fn(&RequestHead<'a>) -> bool + Send + Sync;

/// How a limit treats a request that exceeds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLimit {
    /// It is rejected immediately.
    #[default]
    Reject,
    /// It is queued. It is rejected immediately if its turn would come too late, the queue is full,
    /// or the resource is suppressed and chance rejects it. If the lease is small only because
    /// demand was low, it waits outside of the queue for a larger lease. A caller that disconnects
    /// leaves the queue. Requests of higher [priorities](Limit::priority) come first.
    Delay {
        /// The longest wait. 0 is the same as [`Reject`](OnLimit::Reject).
        max_delay: Duration,
    },
    /// It passes, spends nothing, and its response does not mention the limit, so that a limit can
    /// be tried out. The [snapshot](crate::Doorman::snapshot) counts it as refused. Requests that
    /// the limit admits do spend tokens of the resource, unless an enforcing limit of the same
    /// layer spends them. Use a separate resource if other layers or enforcing limits use this one.
    Shadow,
}

#[derive(Clone)]
pub(crate) enum CostRule {
    Fixed(Cost),
    By(Arc<dyn for<'a> Fn(&RequestHead<'a>) -> Cost + Send + Sync>),
}

/// How the cost of a request is corrected.
#[derive(Clone)]
pub(crate) enum SettleRule {
    Final,
    ByResponse(Arc<SettleFn>),
    InHandler,
}

impl Limit {
    /// A rate limit on the key's resource: the process's lease, in cost per second. A text
    /// with braces is a [template](Key::template), any other a [constant](Key::constant) key. By
    /// default a request costs one, the burst is one second, and excess is rejected.
    pub fn rate(key: impl Into<Key>) -> Self {
        Self::new(key.into(), None)
    }

    /// A limit on what is in flight at once, over the whole fleet: the process's lease of the key's
    /// resource, in whole units. A request uses its units until its response body ends, is dropped,
    /// or the connection dies; a handler may keep them longer with the [`Permit`](crate::Permit) in
    /// the extensions of the request, as for an upgraded connection. By default a request uses one,
    /// excess is rejected, requests wait up to a second for the first lease, and without a lease
    /// nothing is admitted: [`Fallback::Pessimistic`].
    ///
    /// A cost is rounded up to whole units; [`burst`](Self::burst) has no effect. A lease that
    /// shrinks below what is in flight admits nothing until it fits, and nobody gets the rest
    /// before.
    ///
    /// ```
    /// use tower_doorman::{Doorman, Limit};
    ///
    /// let limits = Doorman::fixed([("reports", 4.0)]).layer(Limit::gauge("reports"))?;
    /// # Ok::<(), tower_doorman::InvalidLimit>(())
    /// ```
    pub fn gauge(key: impl Into<Key>) -> Self {
        let mut limit = Self::new(key.into(), None).fallback(Fallback::Pessimistic);
        limit.settings.unit = Unit::Gauge;
        limit
    }

    /// A limit of this process alone, without lease: fallback, wants, priority and the wait for a
    /// lease have no effect. Each layer has its own bucket, which its clones share.
    ///
    /// ```
    /// use tower_doorman::{Doorman, Key, Limit, per_second};
    ///
    /// // Protects this process even if its lease on the fleet's limit is larger.
    /// let limits = Doorman::unlimited().layer([Limit::rate("api"), Limit::local(per_second(500))])?;
    /// # Ok::<(), tower_doorman::InvalidLimit>(())
    /// ```
    pub fn local(quota: Quota) -> Self {
        Self::new(Key::constant("local"), Some(quota))
    }

    /// A limit of this process for each key: `Limit::local_per(Key::client_ip(), per_minute(60))`.
    /// It retains up to [`Builder::max_keys`](crate::Builder::max_keys) keys of its own. New keys
    /// evict idle ones; keys beyond that share one limit.
    pub fn local_per(key: impl Into<Key>, quota: Quota) -> Self {
        Self::new(key.into(), Some(quota))
    }

    fn new(key: Key, quota: Option<Quota>) -> Self {
        Self {
            name: Arc::clone(key.text()),
            key,
            quota,
            cost: CostRule::Fixed(Cost::ONE),
            settle: SettleRule::Final,
            settings: LimiterSettings::default(),
            on_limit: OnLimit::default(),
            queue: QUEUE,
            wait_for_lease: None,
            on_missing_key: OnMissingKey::default(),
            skip: Vec::new(),
            classify: None,
            target_headers: None,
        }
    }

    /// The name in responses, metrics and logs. By default the text of the key, and `local` for a
    /// local limit without key.
    pub fn named(mut self, name: &str) -> Self {
        let is_constant = self.key.as_constant().is_some() && self.key.invalid().is_none();
        if self.quota.is_some() && is_constant {
            // The snapshot shows the key, and no other process has this resource.
            self.key = Key::constant(name);
        }
        self.name = name.into();
        self
    }

    /// The cost of each request, by default one.
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = CostRule::Fixed(cost);
        self
    }

    /// The cost of a request as a function of its head.
    pub fn cost_by<F>(mut self, cost: F) -> Self
    where
        F: for<'a> Fn(&RequestHead<'a>) -> Cost + Send + Sync + 'static,
    {
        self.cost = CostRule::By(Arc::new(cost));
        self
    }

    /// The actual cost of a request as a function of the head of its response, where it is known
    /// only afterwards: [`cost`](Self::cost) or [`cost_by`](Self::cost_by) is charged until then.
    /// It is in the resource's own unit, from 0 to 1e15; with `None` the charge stays, as it does
    /// when the service fails or the caller disconnects before. See [`Charge::settle`] for its
    /// effect. It has none at a gauge, or by [`try_admit`](crate::LimitLayer::try_admit).
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_doorman::Limit;
    ///
    /// // A response from the cache of the client costs nothing.
    /// let limit = Limit::rate("api")
    ///     .settle_by(|response| (response.status == StatusCode::NOT_MODIFIED).then_some(0.0));
    /// ```
    ///
    /// [`Charge::settle`]: crate::Charge::settle
    pub fn settle_by<F>(mut self, settle: F) -> Self
    where
        F: Fn(&Parts) -> Option<f64> + Send + Sync + 'static,
    {
        self.settle = SettleRule::ByResponse(Arc::new(settle));
        self
    }

    /// Lets the handler correct the cost, also after its response: a [`Charge`](crate::Charge) is
    /// in the extensions of the request. One charge corrects all such limits of a request. It is
    /// empty where nothing was charged, as at a gauge or by a shadow limit that is exceeded; a
    /// request to which no such limit applies ([`skip`](Self::skip), a missing key) may have none.
    /// This replaces [`settle_by`](Self::settle_by), and has no effect by
    /// [`try_admit`](crate::LimitLayer::try_admit).
    pub fn settle_in_handler(mut self) -> Self {
        self.settle = SettleRule::InHandler;
        self
    }

    /// The size of the token bucket, as a time at the limit's rate: by default a second, at most a
    /// day, and always at least one token. A request that costs more is admitted when the bucket is
    /// full; later requests wait longer. Limits on one resource share its bucket, with the burst,
    /// fallback and wants of the first.
    pub fn burst(mut self, burst: Duration) -> Self {
        self.settings.burst = Burst::new(burst).into();
        self
    }

    /// The decision without a lease, by default [`Fallback::Safe`], and for a gauge
    /// [`Fallback::Pessimistic`]. Cost admitted without a lease
    /// is charged to the next one, up to one burst.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.settings.fallback = fallback.into();
        self
    }

    /// The priority of this limit's requests, by default 0: more is more important. With
    /// PRIORITY_SHARE the control plane serves the demand of higher priorities first. Where limits
    /// of this process on one resource have several priorities, lower ones are rejected first: they
    /// leave tokens for the measured demand of higher ones.
    pub fn priority(mut self, priority: i32) -> Self {
        self.settings.priority = priority.into();
        self
    }

    /// A fixed demand in the resource's own unit, instead of the measured one. 0 leases nothing.
    pub fn wants(mut self, wants: Capacity) -> Self {
        self.settings.wants = Some(wants).into();
        self
    }

    /// How a request that exceeds the limit is treated, by default [`OnLimit::Reject`].
    pub fn on_limit(mut self, on_limit: OnLimit) -> Self {
        self.on_limit = on_limit;
        self
    }

    /// The length of the queue per resource: by default 1,000, at least one. Excess is rejected.
    pub fn queue(mut self, requests: u32) -> Self {
        self.queue = requests.max(1);
        self
    }

    /// The longest wait of a request for the first lease of a resource, before the fallback applies.
    /// By default 0, a second for a gauge or a [burst](Self::burst) of more than ten seconds, and
    /// five for [outbound](crate::LimitLayer::outbound) requests. The time runs once per resource:
    /// from its first request, or for a constant key from the construction of the layer. A request
    /// of a gauge also waits for so long for a larger lease, while more units may be free, and one
    /// of a limit of less than a token in ten seconds for a second at least.
    pub fn wait_for_lease(mut self, max_wait: Duration) -> Self {
        self.wait_for_lease = Some(max_wait);
        self
    }

    /// The longest wait of a request for the first lease.
    pub(crate) fn first_lease_wait(&self, traffic: Traffic) -> Duration {
        let by_default = match (traffic, self.settings.unit) {
            (Traffic::Outbound, _) => OUTBOUND_WAIT,
            (Traffic::Inbound, Unit::Gauge) => COUNTED_WAIT,
            // Its tokens count for long.
            (Traffic::Inbound, Unit::Rate) if self.settings.burst.load().is_long() => COUNTED_WAIT,
            (Traffic::Inbound, Unit::Rate) => Duration::ZERO,
        };
        self.wait_for_lease.unwrap_or(by_default)
    }

    /// Skips requests, such as health checks: those for which `skips` returns true pass this limit
    /// and spend nothing. With several calls, those that any of them returns true for. For example:
    /// `Limit::rate("api").skip(|head| head.uri().path() == "/healthz")`.
    pub fn skip<F>(mut self, skips: F) -> Self
    where
        F: for<'a> Fn(&RequestHead<'a>) -> bool + Send + Sync + 'static,
    {
        self.skip.push(Arc::new(skips));
        self
    }

    /// The outcome of a request that the limit admitted, as a function of the head of its response,
    /// instead of [`Outcome::of`]; `None` is an error of the service. The control plane is told of
    /// it. Where limits of a request share a resource, the first one counts it. Refusals by a layer
    /// of this process have no outcome, and are not passed to the function.
    ///
    /// ```
    /// use tower_doorman::{Limit, Outcome};
    ///
    /// // This partner refuses requests beyond its limit by a 403 with a header of its own.
    /// let limit = Limit::rate("partner").classify_by(|response| match response {
    ///     Some(head) if head.headers.contains_key("x-quota-exceeded") => Outcome::Overloaded,
    ///     other => Outcome::of(other),
    /// });
    /// ```
    pub fn classify_by<F>(mut self, classify: F) -> Self
    where
        F: Fn(Option<&Parts>) -> Outcome + Send + Sync + 'static,
    {
        self.classify = Some(Arc::new(classify));
        self
    }

    /// The response headers by which the target tells of its own limit, for the control plane. By
    /// default none: only the program knows which header belongs to which limit. Headers that do
    /// not parse are counted and ignored.
    pub fn headers_from(mut self, headers: TargetHeaders) -> Self {
        self.target_headers = Some(headers);
        self
    }

    /// How a request without a key is treated, by default [`OnMissingKey::Shared`].
    pub fn on_missing_key(mut self, on_missing_key: OnMissingKey) -> Self {
        self.on_missing_key = on_missing_key;
        self
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("quota", &self.quota)
            .field("settings", &self.settings)
            .field("on_limit", &self.on_limit)
            .finish_non_exhaustive()
    }
}

/// Limits that [`Doorman::layer`](crate::Doorman::layer) takes: one limit, an array or vector of
/// limits, or an `Option` or tuple of any of these.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of limits",
    note = "a layer takes a `Limit`, an array, vector or tuple of them, or an `Option`; collect an \
            iterator into a `Vec`"
)]
pub trait IntoLimits {
    /// The limits, in their order.
    fn into_limits(self) -> Vec<Limit>;
}

impl IntoLimits for Limit {
    fn into_limits(self) -> Vec<Limit> {
        vec![self]
    }
}

impl IntoLimits for Vec<Limit> {
    fn into_limits(self) -> Vec<Limit> {
        self
    }
}

impl<const N: usize> IntoLimits for [Limit; N] {
    fn into_limits(self) -> Vec<Limit> {
        self.into()
    }
}

impl<L: IntoLimits> IntoLimits for Option<L> {
    fn into_limits(self) -> Vec<Limit> {
        self.map(L::into_limits).unwrap_or_default()
    }
}

macro_rules! tuples_into_limits {
    ($($limits:ident),+) => {
        impl<$($limits: IntoLimits),+> IntoLimits for ($($limits,)+) {
            #[expect(non_snake_case, reason = "the values are named like their types")]
            fn into_limits(self) -> Vec<Limit> {
                let ($($limits,)+) = self;
                [$($limits.into_limits()),+].concat()
            }
        }
    };
}

tuples_into_limits!(A);
tuples_into_limits!(A, B);
tuples_into_limits!(A, B, C);
tuples_into_limits!(A, B, C, D);
tuples_into_limits!(A, B, C, D, E);
tuples_into_limits!(A, B, C, D, E, F);
tuples_into_limits!(A, B, C, D, E, F, G);
tuples_into_limits!(A, B, C, D, E, F, G, H);

/// A text that is empty, or has braces and is not a valid template.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("limit `{limit}`: invalid key {text:?}: {reason}{}", self.hint())]
pub struct InvalidLimit {
    limit: Arc<str>,
    text: Arc<str>,
    reason: InvalidKey,
}

crate::error::debug_as_text!(InvalidLimit);

impl InvalidLimit {
    /// Braces around an unknown name may be meant literally.
    fn hint(&self) -> String {
        match self.reason {
            InvalidKey::UnknownPlaceholder(_) => {
                let text = &self.text;
                format!("; if its braces are literal, use Key::constant({text:?})")
            }
            InvalidKey::InvalidHeader(_) | InvalidKey::Malformed(_) => String::new(),
        }
    }

    /// Checks a limit when a layer is built with it, and logs what may be a mistake.
    pub(crate) fn check(limit: &Limit) -> Result<(), Self> {
        limit.key.warn_like_placeholder();
        match limit.key.invalid() {
            None => Ok(()),
            Some(reason) => Err(Self {
                limit: Arc::clone(&limit.name),
                text: Arc::clone(limit.key.text()),
                reason: reason.clone(),
            }),
        }
    }

    /// The name of the limit.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// Why its key is no template.
    #[must_use]
    pub fn reason(&self) -> &InvalidKey {
        &self.reason
    }
}

impl CostRule {
    pub(crate) fn fixed(&self) -> Option<Cost> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::By(_) => None,
        }
    }

    pub(crate) fn of(&self, head: &RequestHead<'_>) -> Cost {
        match self {
            Self::Fixed(cost) => *cost,
            Self::By(rule) => rule(head),
        }
    }
}
