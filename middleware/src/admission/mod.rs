//! The decision on a request by all limits of a layer: all of them admit it, or none is spent.

mod check;
mod compiled;
mod headers;
mod pending;
mod scope;
#[cfg(test)]
mod tests;

use std::{future::Future, iter::zip, pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use doorman_openapi::Moment;
use smallvec::SmallVec;

use self::{
    check::{LimitCheck, LimitChecks, add_check, with_tokens},
    compiled::TokenRequest,
    pending::PendingChecks,
};
pub(crate) use self::{
    compiled::CompiledLimit,
    headers::{HeaderPolicy, RateLimitHeaders},
    scope::{RequestPattern, RequestScope},
};
use crate::{
    Callers, Limit, Refusal, RequestHead, clock,
    limiter::{Acquired, Registry, RegistryLookup, WaitPolicy},
};

/// The compiled limits of a layer, shared by its clones and connections.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    callers: Callers,
    limits: Box<[Arc<CompiledLimit>]>,
    has_local: bool,
}

pub(crate) enum Decision {
    /// The headers are empty under [`HeaderPolicy::Omit`].
    Admitted(RateLimitHeaders),
    Refused(Box<Refusal>, RateLimitHeaders),
    /// The request waits. Dropping the future returns what it has taken.
    Pending(PendingDecision),
}

pub(crate) type PendingDecision =
    Pin<Box<dyn Future<Output = Result<RateLimitHeaders, Refused>> + Send>>;
/// A refusal and the headers of its response.
pub(crate) type Refused = (Box<Refusal>, RateLimitHeaders);

/// The limits of a layer: those in code, with or without rules.
#[derive(Debug, Clone)]
pub(crate) enum AdmissionSource {
    Code(Arc<Admission>),
    WithRules(Arc<DynamicAdmission>),
}

impl AdmissionSource {
    pub(crate) fn decide(&self, head: &RequestHead<'_>, headers: HeaderPolicy) -> Decision {
        match self {
            Self::Code(admission) => admission.decide(head, headers),
            Self::WithRules(dynamic) => dynamic.current.load().decide(head, headers),
        }
    }

    pub(crate) fn decide_now(&self, head: &RequestHead<'_>) -> Result<(), Box<Refusal>> {
        match self {
            Self::Code(admission) => admission.decide_now(head),
            Self::WithRules(dynamic) => dynamic.current.load().decide_now(head),
        }
    }
}

/// The limits in code, followed by those of the current rules. New rules replace the whole
/// [`Admission`], so that one set decides a request to its end.
#[derive(Debug)]
pub(crate) struct DynamicAdmission {
    in_code: Arc<Admission>,
    current: ArcSwap<Admission>,
}

impl DynamicAdmission {
    /// Without rules.
    pub(crate) fn new(in_code: Arc<Admission>) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::new(Arc::clone(&in_code)),
            in_code,
        })
    }

    pub(crate) fn set_rules(&self, rules: &[Arc<CompiledLimit>]) {
        if !self.in_code.callers.verifies_tokens() {
            for rule in rules.iter().filter_map(|rule| rule.by_claims()) {
                tracing::warn!(
                    rule,
                    "rule by token claims, but this process verifies no tokens; \
                     requests lack its key unless an outer layer verifies them"
                );
            }
        }
        self.current.store(Arc::new(self.in_code.with(rules)));
    }
}

/// Where the limiters of one request are looked up.
struct Lookups<'r> {
    shared: RegistryLookup<'r>,
    /// One for each local limit.
    local: SmallVec<[RegistryLookup<'r>; 1]>,
}

impl Admission {
    pub(crate) fn new(
        registry: Arc<Registry>,
        callers: Callers,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Self {
        let limits = limits
            .into_iter()
            .map(|limit| Arc::new(CompiledLimit::new(&registry, limit)))
            .collect();
        Self::of(registry, callers, limits)
    }

    fn of(registry: Arc<Registry>, callers: Callers, limits: Box<[Arc<CompiledLimit>]>) -> Self {
        Self {
            has_local: limits.iter().any(|limit| limit.is_local()),
            registry,
            callers,
            limits,
        }
    }

    /// These limits, followed by others.
    fn with(&self, others: &[Arc<CompiledLimit>]) -> Self {
        let limits = self.limits.iter().chain(others).cloned().collect();
        Self::of(Arc::clone(&self.registry), self.callers.clone(), limits)
    }

    /// Decides on a request. A refusal spends nothing.
    fn decide(self: &Arc<Self>, head: &RequestHead<'_>, headers: HeaderPolicy) -> Decision {
        let lookups = self.lookups();
        let mut checks = LimitChecks::new();
        if let Err(refusal) = self.collect_checks(&lookups, head, &mut checks) {
            return Decision::Refused(refusal, RateLimitHeaders::default());
        }
        let recent = clock::coarse_now();
        if self.try_admit_fast(&checks, recent) {
            return Decision::Admitted(match headers {
                HeaderPolicy::Send => admitted_headers(&checks, recent),
                HeaderPolicy::Omit => RateLimitHeaders::default(),
            });
        }
        self.decide_slow(&checks)
    }

    #[inline(never)]
    fn decide_slow(self: &Arc<Self>, checks: &LimitChecks<'_>) -> Decision {
        let mut pending = PendingChecks::new(checks);
        let now = clock::now();
        if pending.awaits_first_lease(&self.registry, now) {
            return Decision::Pending(Box::pin(Arc::clone(self).after_first_leases(pending)));
        }
        let policy = |request: &TokenRequest| request.wait_policy(now);
        if let Err((refusal, headers)) = pending.reserve(&self.registry, policy, now) {
            return Decision::Refused(refusal, headers);
        }
        if pending.is_delayed() {
            return Decision::Pending(Box::pin(pending.wait_turns()));
        }
        Decision::Admitted(pending.commit(now))
    }

    async fn after_first_leases(
        self: Arc<Self>,
        mut pending: PendingChecks,
    ) -> Result<RateLimitHeaders, Refused> {
        pending.wait_first_leases().await;
        let now = clock::now();
        let policy = |request: &TokenRequest| request.wait_policy(now);
        pending.reserve(&self.registry, policy, now)?;
        pending.wait_turns().await
    }

    /// Decides on a request that cannot wait. A refusal spends nothing.
    fn decide_now(&self, head: &RequestHead<'_>) -> Result<(), Box<Refusal>> {
        let lookups = self.lookups();
        let mut checks = LimitChecks::new();
        self.collect_checks(&lookups, head, &mut checks)?;
        if self.try_admit_fast(&checks, clock::coarse_now()) {
            return Ok(());
        }
        let mut pending = PendingChecks::new(&checks);
        let now = clock::now();
        pending
            .reserve(&self.registry, |_| WaitPolicy::Never, now)
            .map_err(|(refusal, _)| refusal)?;
        pending.commit(now);
        Ok(())
    }

    #[expect(
        clippy::inline_always,
        reason = "measured: a tenth of a decision on a hot key"
    )]
    #[inline(always)]
    fn lookups(&self) -> Lookups<'_> {
        let mut lookups = Lookups {
            shared: self.registry.lookup(),
            local: SmallVec::new(),
        };
        if self.has_local {
            let local = self.limits.iter().filter(|limit| limit.is_local());
            lookups
                .local
                .extend(local.map(|limit| limit.registry(&self.registry).lookup()));
        }
        lookups
    }

    /// Finds the limiters of the limits that apply to a request. Writes into `checks`, as moving
    /// them would be measurable.
    fn collect_checks<'r: 'f, 'f>(
        &'r self,
        lookups: &'f Lookups<'r>,
        head: &RequestHead<'_>,
        checks: &mut LimitChecks<'f>,
    ) -> Result<(), Box<Refusal>> {
        let head = head.with_callers(&self.callers);
        let mut local = lookups.local.iter();
        for limit in &self.limits {
            let lookup = if limit.is_local() { local.next() } else { None };
            if let Some(limiter) = limit.find(lookup.unwrap_or(&lookups.shared), &head)? {
                let request = Some(limit.token_request(&head));
                let check = LimitCheck {
                    limit,
                    limiter,
                    request,
                };
                add_check(checks, check);
            }
        }
        Ok(())
    }

    /// Admits a request whose tokens are all available. Otherwise takes nothing.
    fn try_admit_fast(&self, checks: &LimitChecks<'_>, recent: Moment) -> bool {
        if let [check] = checks.as_slice()
            && let Some(request) = &check.request
        {
            // One limit, as in most layers, has nothing to undo.
            let limiter = check.limiter;
            let Some(acquired) = limiter.try_acquire(request.cost, request.first_lease(), recent)
            else {
                return false;
            };
            self.commit(check, &acquired, recent);
            return true;
        }
        let mut all = SmallVec::<[Acquired; 2]>::new();
        for (LimitCheck { limiter, .. }, request) in with_tokens(checks) {
            let Some(acquired) = limiter.try_acquire(request.cost, request.first_lease(), recent)
            else {
                for ((check, _), acquired) in zip(with_tokens(checks), &all) {
                    check.limiter.undo(acquired, recent);
                }
                return false;
            };
            all.push(acquired);
        }
        for ((check, _), acquired) in zip(with_tokens(checks), &all) {
            self.commit(check, acquired, recent);
        }
        for check in checks.iter().filter(|it| it.request.is_none()) {
            check.count_admitted(recent);
        }
        true
    }

    #[expect(
        clippy::inline_always,
        reason = "measured: a tenth of a decision on a hot key"
    )]
    #[inline(always)]
    fn commit(&self, check: &LimitCheck<'_>, acquired: &Acquired, recent: Moment) {
        check.limiter.commit(acquired);
        let registry = check.limit.registry(&self.registry);
        registry.record_attempt(check.limiter, acquired.shortage(), recent);
        check.count_admitted(recent);
    }
}

fn admitted_headers(checks: &LimitChecks<'_>, recent: Moment) -> RateLimitHeaders {
    let mut headers = RateLimitHeaders::default();
    for LimitCheck { limit, limiter, .. } in checks {
        if !limit.is_shadow() {
            headers.add(&limit.item, &limiter.reading(recent), recent);
        }
    }
    headers
}
