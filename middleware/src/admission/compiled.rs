//! A limit with its limiter, or with what finds its limiter.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use doorman_openapi::{Moment, OnMissingKey, ResourceId, TargetHeaders, Unit};
use http::response::Parts;

use super::{headers::LimitItem, scope::RequestScope};
use crate::{
    cost::Cost,
    key::{Callers, Placeholder, RequestHead},
    limit::{COUNTED_WAIT, Limit, OnLimit, SettleRule, Traffic},
    limiter::{
        Limiter, LimiterHandle, LimiterSettings, NamePrefix, PinnedLimiter, RegisteredSettings,
        Registry, Rejected, WaitLimit,
    },
    meter::{LimitMeter, NotAdmitted},
    outcome::Outcome,
    refusal::{Refusal, RefusalReason},
};

#[derive(Debug)]
pub(crate) struct CompiledLimit {
    limit: Limit,
    /// The registry of a local limit.
    local: Option<Arc<Registry>>,
    /// `None`: every request.
    scope: Option<RequestScope>,
    /// The final cost of every request; `None` if some have another one, or none.
    pub(super) uniform_cost: Option<Cost>,
    /// The name in the response headers.
    pub(super) item: LimitItem,
    pub(super) meter: LimitMeter,
    /// Other limits on the resource refer to their priority.
    pub(super) settings: RegisteredSettings,
    target: Target,
    /// Keeps the limiter of a constant key; `None` for a rule, whose worker keeps it.
    _pinned: Option<PinnedLimiter>,
}

#[derive(Debug)]
enum Target {
    Constant(LimiterHandle),
    Keyed(Box<KeyedTarget>),
}

#[derive(Debug)]
struct KeyedTarget {
    /// The text before the value and the value, of a key with one value.
    single: Option<(NamePrefix, Placeholder)>,
    /// The resource of the keys without a slot.
    overflow: ResourceId,
    warned_unverified: AtomicBool,
    warned_no_address: AtomicBool,
}

thread_local! {
    /// The buffer for resource ids: a known key allocates nothing.
    static ID: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// State that the limits of all checks for one unit share.
#[derive(Debug)]
pub(crate) struct CheckTemplate {
    limit: Limit,
    settings: RegisteredSettings,
    meter: LimitMeter,
    /// The resource of the keys without a slot.
    overflow: ResourceId,
}

impl CheckTemplate {
    pub(crate) fn new(registry: &Registry, limit: Limit) -> Self {
        Self {
            settings: registry.register(&Arc::new(limit.settings.clone())),
            meter: registry.meter(&limit.name),
            overflow: limit.key.overflow(),
            limit,
        }
    }

    pub(crate) fn meter(&self) -> &LimitMeter {
        &self.meter
    }

    /// The limit of a check on one resource. Responses name the resource, and metrics the template,
    /// since callers choose resources.
    pub(crate) fn limit(&self, registry: &Registry, resource: &ResourceId) -> CompiledLimit {
        let id = resource.as_str().as_bytes();
        let limiter = registry.keyed(id, &self.settings, &self.overflow);
        if limiter.unit() == self.limit.settings.unit {
            limiter.attach(&self.settings, &self.limit.name);
        }
        CompiledLimit {
            uniform_cost: None,
            item: LimitItem::new(resource.as_str(), self.limit.settings.unit),
            limit: self.limit.clone().named(resource.as_str()),
            local: None,
            scope: None,
            meter: self.meter.clone(),
            settings: self.settings.clone(),
            target: Target::Constant(limiter.handle()),
            _pinned: None,
        }
    }
}

impl CompiledLimit {
    /// A limit in code.
    pub(crate) fn new(registry: &Registry, limit: Limit) -> Self {
        let settings = Arc::new(limit.settings.clone());
        let local = limit.quota.map(|quota| registry.local(quota));
        let home = local.as_deref().unwrap_or(registry);
        let mut pinned = None;
        let settings = home.register(&settings);
        let pin = |resource: &_| {
            let limiter = pinned.insert(home.pin_for_code(resource, &settings, home.now()));
            limiter.limiter().clone()
        };
        let compiled = Self::with(registry, limit, &settings, None, pin);
        Self {
            local,
            _pinned: pinned,
            ..compiled
        }
    }

    /// The limit of a rule. `settings` outlive it if the next rules limit the same resource.
    pub(crate) fn for_rule(
        registry: &Registry,
        limit: Limit,
        settings: &Arc<LimiterSettings>,
        scope: RequestScope,
    ) -> Self {
        let settings = registry.register(settings);
        let pinned = |resource: &_| registry.pin_for_rule(resource, &settings);
        Self::with(registry, limit, &settings, Some(scope), pinned)
    }

    fn with(
        registry: &Registry,
        limit: Limit,
        settings: &RegisteredSettings,
        scope: Option<RequestScope>,
        find: impl FnOnce(&ResourceId) -> LimiterHandle,
    ) -> Self {
        let target = match limit.key.as_constant() {
            Some(resource) => {
                let limiter = find(&resource);
                limiter.get().attach(settings, &limit.name);
                if limit.settings.unit == Unit::Gauge
                    && let Some(cost) = limit.cost.fixed()
                {
                    // So that the first lease has room for a request.
                    limiter.get().note_cost(cost.whole().get());
                }
                Target::Constant(limiter)
            }
            None => Target::Keyed(Box::new(KeyedTarget {
                single: limit
                    .key
                    .prefix()
                    .map(|(text, value)| (NamePrefix::new(text), value.clone())),
                overflow: limit.key.overflow(),
                warned_unverified: AtomicBool::new(false),
                warned_no_address: AtomicBool::new(false),
            })),
        };
        let applies_to_all = scope.is_none() && limit.skip.is_empty();
        let is_final = matches!(limit.settle, SettleRule::Final);
        Self {
            uniform_cost: limit.cost.fixed().filter(|_| applies_to_all && is_final),
            item: LimitItem::new(&limit.name, limit.settings.unit),
            meter: registry.meter(&limit.name),
            limit,
            local: None,
            scope,
            settings: settings.clone(),
            target,
            _pinned: None,
        }
    }

    /// The name, if the key is made of token claims.
    pub(super) fn by_claims(&self) -> Option<&str> {
        self.limit.key.needs_claims().then_some(&*self.limit.name)
    }

    pub(crate) fn constant_limiter(&self) -> Option<&LimiterHandle> {
        match &self.target {
            Target::Constant(limiter) => Some(limiter),
            Target::Keyed(_) => None,
        }
    }

    pub(super) fn registry<'a>(&'a self, shared: &'a Arc<Registry>) -> &'a Arc<Registry> {
        self.local.as_ref().unwrap_or(shared)
    }

    /// The outcome of a response by the program's own rule; `None` without one.
    pub(super) fn classify(&self, response: Option<&Parts>) -> Option<Outcome> {
        self.limit.classify.as_ref().map(|it| it(response))
    }

    pub(super) fn classifies(&self) -> bool {
        self.limit.classify.is_some()
    }

    /// The headers by which the target tells of its own limit.
    #[inline]
    pub(super) fn target_headers(&self) -> Option<TargetHeaders> {
        self.limit.target_headers
    }

    pub(super) fn is_shadow(&self) -> bool {
        matches!(self.limit.on_limit, OnLimit::Shadow)
    }

    /// The limiter for a request; `None` when the limit does not apply to it.
    pub(super) fn find<'r>(
        &'r self,
        registry: &'r Registry,
        head: &RequestHead<'_>,
    ) -> Result<Option<Limiter<'r>>, Refusal> {
        if self
            .scope
            .as_ref()
            .is_some_and(|scope| !scope.contains(head))
        {
            return Ok(None);
        }
        if self.limit.skip.iter().any(|skips| skips(head)) {
            self.meter.count(NotAdmitted::Skipped);
            return Ok(None);
        }
        let known = self.find_known(registry, head, head.callers());
        self.find_unless_known(known, registry, head)
    }

    /// The same for a limit that applies, after [`find_known`](Self::find_known).
    pub(super) fn find_unless_known<'r>(
        &'r self,
        known: Option<Limiter<'r>>,
        registry: &'r Registry,
        head: &RequestHead<'_>,
    ) -> Result<Option<Limiter<'r>>, Refusal> {
        let Target::Keyed(target) = &self.target else {
            return Ok(known);
        };
        let limiter = match known {
            Some(limiter) if limiter.is_current() => limiter,
            Some(_) | None => match self.find_written(target, registry, head)? {
                Some(limiter) => limiter,
                None => return Ok(None),
            },
        };
        limiter.attach(&self.settings, &self.limit.name);
        Ok(Some(limiter))
    }

    /// The limiter of a constant key, or of a known one with one value that need not be written.
    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    pub(super) fn find_known<'r>(
        &'r self,
        registry: &'r Registry,
        head: &RequestHead<'_>,
        callers: &Callers,
    ) -> Option<Limiter<'r>> {
        match &self.target {
            Target::Constant(limiter) => Some(limiter.get()),
            Target::Keyed(target) => {
                let (prefix, value) = target.single.as_ref()?;
                registry.find_value(prefix, &value.raw(head, callers)?)
            }
        }
    }

    /// The limiter of a key that is new, has several values, or one that has to be written.
    #[inline(never)]
    fn find_written<'r>(
        &'r self,
        target: &'r KeyedTarget,
        registry: &'r Registry,
        head: &RequestHead<'_>,
    ) -> Result<Option<Limiter<'r>>, Refusal> {
        // The buffer is taken, as a closure of the key may decide another request.
        let mut id = ID.take();
        let written = self.limit.key.write(head, &mut id);
        // Rules are checked when they arrive.
        if written == Err(RefusalReason::MissingToken)
            && self.scope.is_none()
            && !head.verifies_tokens()
            && !target.warned_unverified.swap(true, Ordering::Relaxed)
        {
            warn_unverified(&self.limit.name);
        }
        if written == Err(RefusalReason::MissingKey)
            && !target.warned_no_address.load(Ordering::Relaxed)
            && self.limit.key.lacks_address(head)
            && !target.warned_no_address.swap(true, Ordering::Relaxed)
        {
            self.warn_no_address();
        }
        let found = match (written, self.limit.on_missing_key) {
            (Ok(()), _) | (Err(_), OnMissingKey::Shared) => {
                Ok(Some(registry.keyed(&id, &self.settings, &target.overflow)))
            }
            (Err(_), OnMissingKey::Skip) => {
                self.meter.count(NotAdmitted::Skipped);
                Ok(None)
            }
            (Err(_), OnMissingKey::Reject) if self.is_shadow() => {
                self.meter.count(NotAdmitted::Shadow);
                Ok(None)
            }
            (Err(reason), OnMissingKey::Reject) => {
                self.meter.count(NotAdmitted::Refused(reason));
                Err(self.refuse_without_key(reason, head))
            }
        };
        ID.set(id);
        found
    }

    #[cold]
    fn warn_no_address(&self) {
        let outcome = match self.limit.on_missing_key {
            OnMissingKey::Shared => "all callers share one key",
            OnMissingKey::Reject if !self.is_shadow() => "they are rejected with 400",
            OnMissingKey::Skip | OnMissingKey::Reject => "the limit does not apply",
        };
        tracing::warn!(
            limit = &*self.limit.name,
            "limit by address, but requests have no peer address; {outcome}; serve axum with \
             `into_make_service_with_connect_info::<SocketAddr>`, or add `PeerAddr` to request \
             extensions"
        );
    }

    #[cold]
    fn refuse_without_key(&self, reason: RefusalReason, head: &RequestHead<'_>) -> Refusal {
        let missing = self.limit.key.missing_value(head);
        Refusal::without_key(&self.limit.name, reason, missing)
    }

    #[inline]
    pub(super) fn cost(&self, head: &RequestHead<'_>) -> Cost {
        self.limit.cost.of(head)
    }

    /// How the cost is corrected.
    #[inline]
    pub(super) fn settle(&self) -> &SettleRule {
        &self.limit.settle
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.limit.name
    }

    #[inline]
    pub(super) fn wait_for_lease(&self, traffic: Traffic) -> Duration {
        match self.limit.on_limit {
            OnLimit::Reject | OnLimit::Delay { .. } => self.limit.first_lease_wait(traffic),
            OnLimit::Shadow => Duration::ZERO,
        }
    }

    pub(super) fn token_request(&self, traffic: Traffic, cost: Cost) -> TokenRequest {
        let limit = &self.limit;
        TokenRequest {
            cost,
            priority: self.settings.priority(),
            wait_for_lease: self.wait_for_lease(traffic),
            max_delay: match limit.on_limit {
                OnLimit::Reject | OnLimit::Shadow => None,
                OnLimit::Delay { max_delay } => Some(max_delay),
            },
            queue: limit.queue,
        }
    }

    /// Counts and describes a rejection by the limiter.
    pub(super) fn refuse(&self, limiter: Limiter<'_>, rejected: Rejected, now: Moment) -> Refusal {
        let Rejected { reason, retry_at } = rejected;
        self.meter.count(NotAdmitted::Refused(reason));
        Refusal::new(&self.limit.name, limiter.resource(), reason, retry_at, now)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRequest {
    pub(super) cost: Cost,
    pub(super) priority: i32,
    pub(super) wait_for_lease: Duration,
    /// `None`: the request does not wait.
    pub(super) max_delay: Option<Duration>,
    /// How many requests may wait.
    pub(super) queue: u32,
}

impl TokenRequest {
    /// The tokens of two limits together, with the higher priority and the stricter wait.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            cost: self.cost.plus(other.cost),
            priority: self.priority.max(other.priority),
            wait_for_lease: self.wait_for_lease.max(other.wait_for_lease),
            // `None` is less than any delay.
            max_delay: self.max_delay.min(other.max_delay),
            queue: self.queue.min(other.queue),
        }
    }

    /// A request that is not delayed waits as for the first lease, if a larger one of a gauge or of
    /// counted tokens may come.
    pub(super) fn wait_limit(&self, limiter: Limiter<'_>, now: Moment) -> WaitLimit {
        // A request with a deadline, however late, does not wait for ever.
        const LATEST: Moment = Moment::from_nanos(Moment::NEVER.as_nanos() - 1);
        let wait = match limiter.unit() {
            // A share of few tokens is none of one.
            Unit::Rate if limiter.is_counted() => self.wait_for_lease.max(COUNTED_WAIT),
            Unit::Rate => Duration::ZERO,
            Unit::Gauge => self.wait_for_lease,
        };
        match self.max_delay {
            None if !wait.is_zero() => WaitLimit::LargerLease {
                deadline: now.after(wait).min(LATEST),
                queue: self.queue,
            },
            None => WaitLimit::NoWait,
            Some(max_delay) => WaitLimit::Until {
                deadline: now.after(max_delay).min(LATEST),
                queue: self.queue,
            },
        }
    }
}

fn warn_unverified(limit: &str) {
    tracing::warn!(
        limit,
        "limit by token claims, but this process verifies no tokens; requests lack its key; give \
         `Callers` a `JwtVerifier`, or add `VerifiedClaims` to request extensions in an outer layer"
    );
}
