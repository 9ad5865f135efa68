//! The decision on a request by all limits of a layer: all of them admit it, or none is spent.

mod check;
mod compiled;
mod headers;
mod named;
mod pending;
mod scope;
#[cfg(test)]
mod tests;

use std::{future::Future, pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use doorman_openapi::Moment;
use http::Extensions;

use self::{
    check::{LimitCheck, LimitChecks, add_check, commit},
    compiled::TokenRequest,
    pending::PendingChecks,
};
pub(crate) use self::{
    compiled::CompiledLimit,
    headers::{HeaderPolicy, RateLimitHeaders},
    named::{NamedLimits, NotTaken},
    scope::{RequestPattern, RequestScope},
};
use crate::{
    charge::{Charge, ResponseCharges},
    clock,
    key::{Callers, RequestHead},
    limit::{Limit, SettleRule},
    limiter::{Acquired, Limiter, Registry, WaitPolicy},
    permit::Permit,
    refusal::Refusal,
};

/// The compiled limits of a layer, shared by its clones and connections.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    callers: Callers,
    limits: Box<[Arc<CompiledLimit>]>,
    /// Whether the handler finds a charge in a request that these limits decided.
    settles_in_handler: bool,
}

pub(crate) enum Decision {
    Admitted,
    /// With headers that the response must have, under [`HeaderPolicy::Send`].
    AdmittedWith(RateLimitHeaders),
    /// With units of gauges, which are in use until the response ends, or with costs that may be
    /// corrected.
    Holding(Box<Admitted>),
    Refused(Refusal, RateLimitHeaders),
    /// The request waits. Dropping the future returns what it has taken.
    Pending(PendingDecision),
}

pub(crate) type PendingDecision = Pin<Box<dyn Future<Output = Result<Admitted, Refused>> + Send>>;

/// An admission that is not one of the fast path.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) headers: RateLimitHeaders,
    pub(crate) permit: Permit,
    /// For the handler.
    pub(crate) charge: Option<Charge>,
    /// For its response.
    pub(crate) by_response: ResponseCharges,
}

impl Admitted {
    /// Whether only headers are to be appended.
    pub(crate) fn is_plain(&self) -> bool {
        self.permit.is_empty() && self.charge.is_none() && self.by_response.is_empty()
    }

    /// Gives the handler its permit and its charge.
    pub(crate) fn add_to(&mut self, extensions: &mut Extensions) {
        if !self.permit.is_empty() {
            let outer = extensions.remove();
            extensions.insert(self.permit.and(outer));
        }
        if let Some(mut charge) = self.charge.take() {
            if let Some(outer) = extensions.get() {
                charge.extend(outer);
            }
            extensions.insert(charge);
        }
    }
}

/// A refusal and the headers of its response.
pub(crate) type Refused = (Refusal, RateLimitHeaders);

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
            Self::WithRules(dynamic) => dynamic.decide(head, headers),
        }
    }

    pub(crate) fn decide_now(&self, head: &RequestHead<'_>) -> Result<Permit, Refusal> {
        match self {
            Self::Code(admission) => admission.decide_now(head),
            Self::WithRules(dynamic) => dynamic.decide_now(head),
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

    #[inline(never)]
    fn decide(&self, head: &RequestHead<'_>, headers: HeaderPolicy) -> Decision {
        self.current.load().decide(head, headers)
    }

    #[inline(never)]
    fn decide_now(&self, head: &RequestHead<'_>) -> Result<Permit, Refusal> {
        self.current.load().decide_now(head)
    }

    pub(crate) fn set_rules(&self, rules: &[Arc<CompiledLimit>]) {
        self.in_code.callers.warn_unverified(rules);
        self.current.store(Arc::new(self.in_code.with(rules)));
    }
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
        let mut settle_rules = limits.iter().map(|limit| limit.settle());
        Self {
            registry,
            callers,
            settles_in_handler: settle_rules.any(|it| matches!(it, SettleRule::InHandler)),
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
        let [limit] = &*self.limits else {
            return self.decide_all(head, headers);
        };
        let admitted = |limiter: Limiter<'_>, acquired: &Acquired, recent| {
            if headers == HeaderPolicy::Omit || limit.is_shadow() {
                return None;
            }
            let mut list = RateLimitHeaders::default();
            list.add(&limit.item, &limiter.reading_after(acquired), recent);
            Some(list)
        };
        match self.decide_one(limit, head, admitted) {
            FastDecision::Admitted(Some(headers)) => Decision::AdmittedWith(headers),
            FastDecision::Admitted(None) => Decision::Admitted,
            FastDecision::Refused(refusal) => {
                Decision::Refused(refusal, RateLimitHeaders::default())
            }
            FastDecision::Unclear(check) => self.decide_slow(&[check], headers),
        }
    }

    #[inline(never)]
    fn decide_all(self: &Arc<Self>, head: &RequestHead<'_>, headers: HeaderPolicy) -> Decision {
        let mut checks = LimitChecks::new();
        if let Err(refusal) = self.collect_checks(head, &mut checks) {
            return Decision::Refused(refusal, RateLimitHeaders::default());
        }
        let recent = clock::coarse_now();
        if self.try_admit_fast(&mut checks, recent) {
            return match headers {
                HeaderPolicy::Send => Decision::AdmittedWith(admitted_headers(&checks, recent)),
                HeaderPolicy::Omit => Decision::Admitted,
            };
        }
        self.decide_slow(&checks, headers)
    }

    /// Decides by the only limit, as most layers have it: nothing has to be undone or merged. Calls
    /// `admitted` with the tokens taken; its result is the default where the limit does not apply.
    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    fn decide_one<'r, T: Default>(
        &'r self,
        limit: &'r Arc<CompiledLimit>,
        head: &RequestHead<'_>,
        admitted: impl FnOnce(Limiter<'r>, &Acquired, Moment) -> T,
    ) -> FastDecision<'r, T> {
        let registry = limit.registry(&self.registry);
        let mut known = None;
        if let Some(cost) = limit.uniform_cost {
            known = limit.find_known(registry, head, &self.callers);
            // Read now, since a closure of the key may have taken its time.
            let recent = clock::coarse_now();
            if let Some(limiter) = known
                && let Some(acquired) = limiter.try_acquire_leased(&limit.settings, cost, recent)
            {
                commit(limit, limiter, &acquired, registry, recent);
                return FastDecision::Admitted(admitted(limiter, &acquired, recent));
            }
        }
        match self.check_one(limit, known, head) {
            Ok(Some(check)) => match check.acquired {
                Some(acquired) => {
                    let recent = clock::coarse_now();
                    check.commit(&self.registry, recent);
                    FastDecision::Admitted(admitted(check.limiter, &acquired, recent))
                }
                None => FastDecision::Unclear(check),
            },
            Ok(None) => FastDecision::Admitted(T::default()),
            Err(refusal) => FastDecision::Refused(refusal),
        }
    }

    /// Checks the only limit, of which the limiter may be known.
    #[inline(never)]
    fn check_one<'r>(
        &'r self,
        limit: &'r Arc<CompiledLimit>,
        known: Option<Limiter<'r>>,
        head: &RequestHead<'_>,
    ) -> Result<Option<LimitCheck<'r>>, Refusal> {
        let head = head.with_callers(&self.callers);
        let registry = limit.registry(&self.registry);
        let found = match limit.uniform_cost {
            Some(_) => limit.find_unless_known(known, registry, &head)?,
            None => limit.find(registry, &head)?,
        };
        let mut check = found.map(|limiter| LimitCheck::new(limit, limiter, &head));
        if let Some(check) = &mut check
            && check.charge.is_none()
        {
            check.try_acquire(clock::coarse_now());
        }
        Ok(check)
    }

    #[inline(never)]
    fn decide_slow(self: &Arc<Self>, checks: &[LimitCheck<'_>], headers: HeaderPolicy) -> Decision {
        let mut pending = PendingChecks::new(checks);
        let now = clock::now();
        if pending.awaits_first_lease(&self.registry, now) {
            return Decision::Pending(Box::pin(Arc::clone(self).after_first_leases(pending)));
        }
        let policy = move |request: &TokenRequest| request.wait_policy(now);
        if let Err((refusal, headers)) = pending.reserve(&self.registry, policy, now) {
            return Decision::Refused(refusal, headers);
        }
        if pending.is_delayed() {
            let own = Arc::clone(self);
            return Decision::Pending(Box::pin(async move {
                let admitted = pending.wait_turns(&own.registry, policy).await?;
                Ok(own.with_charge(admitted))
            }));
        }
        let admitted = self.with_charge(pending.commit(&self.registry, now));
        match headers {
            _ if !admitted.is_plain() => Decision::Holding(Box::new(admitted)),
            HeaderPolicy::Send => Decision::AdmittedWith(admitted.headers),
            HeaderPolicy::Omit => Decision::Admitted,
        }
    }

    async fn after_first_leases(
        self: Arc<Self>,
        mut pending: PendingChecks,
    ) -> Result<Admitted, Refused> {
        pending.wait_first_leases().await;
        let now = clock::now();
        let policy = move |request: &TokenRequest| request.wait_policy(now);
        pending.reserve(&self.registry, policy, now)?;
        let admitted = pending.wait_turns(&self.registry, policy).await?;
        Ok(self.with_charge(admitted))
    }

    /// Gives the handler a charge also where nothing was charged, as by an exceeded shadow limit.
    fn with_charge(&self, mut admitted: Admitted) -> Admitted {
        if self.settles_in_handler {
            admitted.charge.get_or_insert_default();
        }
        admitted
    }

    /// Decides on a request that cannot wait. A refusal spends nothing.
    fn decide_now(&self, head: &RequestHead<'_>) -> Result<Permit, Refusal> {
        let [limit] = &*self.limits else {
            return self.decide_all_now(head);
        };
        match self.decide_one(limit, head, |_, _, _| ()) {
            FastDecision::Admitted(()) => Ok(Permit::default()),
            FastDecision::Refused(refusal) => Err(refusal),
            FastDecision::Unclear(check) => self.decide_slow_now(&[check]),
        }
    }

    #[inline(never)]
    fn decide_all_now(&self, head: &RequestHead<'_>) -> Result<Permit, Refusal> {
        let mut checks = LimitChecks::new();
        self.collect_checks(head, &mut checks)?;
        if self.try_admit_fast(&mut checks, clock::coarse_now()) {
            return Ok(Permit::default());
        }
        self.decide_slow_now(&checks)
    }

    #[inline(never)]
    fn decide_slow_now(&self, checks: &[LimitCheck<'_>]) -> Result<Permit, Refusal> {
        let mut pending = PendingChecks::new(checks);
        let now = clock::now();
        pending
            .reserve(&self.registry, |_| WaitPolicy::Never, now)
            .map_err(|(refusal, _)| refusal)?;
        Ok(pending.commit(&self.registry, now).permit)
    }

    /// Finds the limiters of the limits that apply to a request. Writes into `checks`, as moving
    /// them would be measurable.
    fn collect_checks<'r>(
        &'r self,
        head: &RequestHead<'_>,
        checks: &mut LimitChecks<'r>,
    ) -> Result<(), Refusal> {
        let head = head.with_callers(&self.callers);
        for limit in &self.limits {
            if let Some(limiter) = limit.find(limit.registry(&self.registry), &head)? {
                add_check(checks, LimitCheck::new(limit, limiter, &head));
            }
        }
        Ok(())
    }

    /// Admits a request whose tokens are all available, and whose costs are final. Otherwise takes
    /// nothing.
    fn try_admit_fast(&self, checks: &mut LimitChecks<'_>, recent: Moment) -> bool {
        if checks.iter().any(|check| check.charge.is_some()) {
            return false;
        }
        for index in 0..checks.len() {
            if let Some(check) = checks.get_mut(index)
                && !check.try_acquire(recent)
            {
                for check in checks.iter_mut().take(index) {
                    check.undo(recent);
                }
                return false;
            }
        }
        for check in checks.iter() {
            check.commit(&self.registry, recent);
        }
        true
    }
}

impl Callers {
    fn warn_unverified(&self, rules: &[Arc<CompiledLimit>]) {
        if self.verifies_tokens() {
            return;
        }
        for rule in rules.iter().filter_map(|rule| rule.by_claims()) {
            tracing::warn!(
                rule,
                "rule by token claims, but this process verifies no tokens; \
                 requests lack its key unless an outer layer verifies them"
            );
        }
    }
}

/// The decision by the only limit of a layer.
enum FastDecision<'r, T> {
    Admitted(T),
    Refused(Refusal),
    /// The slow path decides.
    Unclear(LimitCheck<'r>),
}

fn admitted_headers(checks: &LimitChecks<'_>, recent: Moment) -> RateLimitHeaders {
    let mut headers = RateLimitHeaders::default();
    for check in checks {
        if !check.limit.is_shadow() {
            headers.add(&check.limit.item, &check.reading(recent), recent);
        }
    }
    headers
}
