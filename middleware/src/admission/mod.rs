//! The decision on a request by all limits of a layer: all of them admit it, or none is spent.

mod admitted_by;
mod check;
mod compiled;
mod headers;
mod mode;
mod pending;
mod scope;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use doorman_openapi::Moment;
use http::Extensions;

pub(crate) use self::{
    admitted_by::AdmittedBy,
    check::{LimitCheck, LimitChecks, add_check},
    compiled::{CheckTemplate, CompiledLimit},
    headers::{HeaderPolicy, RateLimitHeaders},
    mode::{CanWait, CannotWait, Decision, PendingDecision, Refused},
    scope::{RequestPattern, RequestScope},
};
use self::{admitted_by::AdmittingLimit, check::commit, mode::Mode};
use crate::{
    charge::{Charge, ResponseCharges},
    key::{Callers, RequestHead},
    limit::{Limit, SettleRule, Traffic},
    limiter::{Acquired, Limiter, Registry},
    permit::Permit,
    refusal::Refusal,
};

/// The compiled limits of a layer, shared by its clones and connections.
#[derive(Debug)]
pub(crate) struct Admission {
    registry: Arc<Registry>,
    callers: Callers,
    limits: Box<[Arc<CompiledLimit>]>,
    traffic: Traffic,
    /// Whether the handler finds a charge in a request that these limits decided.
    settles_in_handler: bool,
    /// Whether a limit has an own rule for outcomes.
    classifies: bool,
}

/// An admission that is not one of the fast path.
#[derive(Default)]
pub(crate) struct Admitted {
    pub(crate) headers: RateLimitHeaders,
    pub(crate) permit: Permit,
    /// For the handler.
    pub(crate) charge: Option<Charge>,
    /// For its response.
    pub(crate) by_response: ResponseCharges,
    /// `None` if no limit applied.
    pub(crate) by: Option<AdmittedBy>,
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

/// The limits of a layer: those in code, with or without rules.
#[derive(Debug, Clone)]
pub(crate) enum AdmissionSource {
    Code(Arc<Admission>),
    WithRules(Arc<DynamicAdmission>),
}

impl AdmissionSource {
    pub(crate) fn decide<M: Mode>(&self, head: &RequestHead<'_>, mode: M) -> M::Decision {
        match self {
            Self::Code(admission) => admission.decide(head, mode),
            Self::WithRules(dynamic) => dynamic.decide(head, mode),
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
    fn decide<M: Mode>(&self, head: &RequestHead<'_>, mode: M) -> M::Decision {
        self.current.load().decide(head, mode)
    }

    /// For the code limits of another kind of traffic, without rules.
    pub(crate) fn outbound(&self) -> Arc<Self> {
        Self::new(Arc::new(self.in_code.outbound()))
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
        Self::of(registry, callers, limits, Traffic::Inbound)
    }

    fn of(
        registry: Arc<Registry>,
        callers: Callers,
        limits: Box<[Arc<CompiledLimit>]>,
        traffic: Traffic,
    ) -> Self {
        let mut settle_rules = limits.iter().map(|limit| limit.settle());
        Self {
            registry,
            callers,
            settles_in_handler: settle_rules.any(|it| matches!(it, SettleRule::InHandler)),
            classifies: limits.iter().any(|limit| limit.classifies()),
            limits,
            traffic,
        }
    }

    /// These limits, followed by others.
    fn with(&self, others: &[Arc<CompiledLimit>]) -> Self {
        self.of_limits(self.limits.iter().chain(others).cloned(), self.traffic)
    }

    /// The same limits for the requests of this process to others.
    pub(crate) fn outbound(&self) -> Self {
        self.of_limits(self.limits.iter().cloned(), Traffic::Outbound)
    }

    fn of_limits(
        &self,
        limits: impl Iterator<Item = Arc<CompiledLimit>>,
        traffic: Traffic,
    ) -> Self {
        let (registry, callers) = (Arc::clone(&self.registry), self.callers.clone());
        Self::of(registry, callers, limits.collect(), traffic)
    }

    /// Decides on a request. A refusal spends nothing. Most layers have one limit: nothing has to
    /// be undone or merged.
    #[inline]
    fn decide<M: Mode>(self: &Arc<Self>, head: &RequestHead<'_>, mode: M) -> M::Decision {
        let [limit] = &*self.limits else {
            return self.decide_all(head, mode);
        };
        let by = |limiter: Limiter<'_>| {
            let limit = AdmittingLimit::new(0, limiter, true);
            Some(AdmittedBy::one(self, limit))
        };
        let headers = |limiter: Limiter<'_>, acquired: &Acquired, recent| {
            let mut headers = RateLimitHeaders::default();
            headers.add(&limit.item, &limiter.reading_after(acquired), recent);
            Some(headers).filter(|_| !limit.is_shadow())
        };
        let registry = limit.registry(&self.registry);
        let mut known = None;
        if let Some(cost) = limit.uniform_cost {
            known = limit.find_known(registry, head, &self.callers);
            // Read now, since a closure of the key may have taken its time.
            let recent = registry.coarse_now();
            if let Some(limiter) = known
                && let Some(acquired) = limiter.try_acquire_leased(&limit.settings, cost, recent)
            {
                commit(limit, limiter, &acquired, registry, recent);
                return mode.admitted(|| by(limiter), || headers(limiter, &acquired, recent));
            }
        }
        match self.check_one(limit, known, head) {
            Ok(Some(check)) => match check.acquired {
                Some(acquired) => {
                    let recent = self.registry.coarse_now();
                    check.commit(&self.registry, recent);
                    let limiter = check.limiter;
                    mode.admitted(|| by(limiter), || headers(limiter, &acquired, recent))
                }
                None => mode.decide_slow(self, &[check]),
            },
            Ok(None) => mode.admitted(|| None, || None),
            Err(refusal) => mode.refused(refusal),
        }
    }

    #[inline(never)]
    fn decide_all<M: Mode>(self: &Arc<Self>, head: &RequestHead<'_>, mode: M) -> M::Decision {
        let mut checks = LimitChecks::new();
        match self.collect_checks(head, &mut checks) {
            Ok(()) => self.decide_checks(&mut checks, mode),
            Err(refusal) => mode.refused(refusal),
        }
    }

    pub(crate) fn decide_checks<M: Mode>(
        self: &Arc<Self>,
        checks: &mut LimitChecks<'_>,
        mode: M,
    ) -> M::Decision {
        let recent = self.registry.coarse_now();
        if self.try_admit_fast(checks, recent) {
            let limits = checks.iter().map(AdmittingLimit::of_check);
            let by = || Some(AdmittedBy::all(self, limits));
            return mode.admitted(by, || Some(admitted_headers(checks, recent)));
        }
        mode.decide_slow(self, checks)
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
        let mut check = found
            .map(|limiter| LimitCheck::new(limit, 0, limiter, self.traffic, limit.cost(&head)));
        if let Some(check) = &mut check
            && check.charge.is_none()
        {
            check.try_acquire(registry.coarse_now());
        }
        Ok(check)
    }

    /// Gives the handler a charge also where nothing was charged, as by an exceeded shadow limit.
    fn with_charge(&self, mut admitted: Admitted) -> Admitted {
        if self.settles_in_handler {
            admitted.charge.get_or_insert_default();
        }
        admitted
    }

    /// Finds the limiters of the limits that apply to a request. Writes into `checks`, as moving
    /// them would be measurable.
    fn collect_checks<'r>(
        &'r self,
        head: &RequestHead<'_>,
        checks: &mut LimitChecks<'r>,
    ) -> Result<(), Refusal> {
        let head = head.with_callers(&self.callers);
        for (index, limit) in self.limits.iter().enumerate() {
            if let Some(limiter) = limit.find(limit.registry(&self.registry), &head)? {
                let cost = limit.cost(&head);
                let check = LimitCheck::new(limit, index, limiter, self.traffic, cost);
                add_check(checks, check);
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

fn admitted_headers(checks: &LimitChecks<'_>, recent: Moment) -> RateLimitHeaders {
    let mut headers = RateLimitHeaders::default();
    for check in checks {
        if !check.limit.is_shadow() {
            headers.add(&check.limit.item, &check.reading(recent), recent);
        }
    }
    headers
}
