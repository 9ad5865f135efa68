//! A request that the fast path did not admit: it has tokens of all of its limits, or of none.

use std::{future::pending, sync::Arc};

use doorman_openapi::Moment;
use futures_util::future::try_join_all;
use smallvec::SmallVec;

use super::{
    Admission, Admitted, AdmittedBy, CompiledLimit, RateLimitHeaders, Refused,
    admitted_by::AdmittingLimit, check::LimitCheck, compiled::TokenRequest,
};
use crate::{
    charge::Charge,
    cost::Cost,
    limit::SettleRule,
    limiter::{
        Acquisition, Committed, Limiter, LimiterHandle, Reading, Registry, Rejected, SpentTokens,
        WaitLimit,
    },
    meter::NotAdmitted,
    permit::PermitBuilder,
    refusal::Refusal,
};

/// The limits of one request. If it is dropped while the request waits, the caller is gone: its
/// reservations are released.
#[derive(Debug)]
pub(super) struct PendingChecks {
    /// Rates, then gauges in one order for all requests. Each gauge is reserved when the request
    /// waits nowhere else, so that requests never wait for each other at two gauges, and none has
    /// a unit while it waits for tokens.
    checks: SmallVec<[PendingCheck; 2]>,
    /// How many of the checks have reserved.
    reserved: usize,
}

#[derive(Debug)]
struct PendingCheck {
    /// Where headers name the limit.
    position: usize,
    /// The position of the limit in its layer.
    index: usize,
    limit: Arc<CompiledLimit>,
    /// The cost, if it may be corrected.
    charge: Option<Cost>,
    tokens: Tokens,
    /// Those of a rate, once the request is admitted.
    spent: Option<SpentTokens>,
}

#[derive(Debug)]
enum Tokens {
    Own(Acquisition, TokenRequest),
    /// Another check of the request acquires them at the same limiter.
    Shared(LimiterHandle),
}

impl PendingChecks {
    pub(super) fn new(checks: &[LimitCheck<'_>]) -> Self {
        let checks = checks.iter().enumerate();
        let mut checks: SmallVec<[_; 2]> = checks
            .map(|(position, check)| PendingCheck::new(position, check))
            .collect();
        checks.sort_by_key(|check| check.limiter().gauge_order());
        Self {
            checks,
            reserved: 0,
        }
    }

    /// Whether the request waits for the first lease of a resource before it is decided.
    pub(super) fn awaits_first_lease(&self, registry: &Arc<Registry>, now: Moment) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.awaits_first_lease(registry, now))
    }

    pub(super) async fn wait_first_leases(&mut self) -> Result<(), Refused> {
        for check in &mut self.checks {
            if let Tokens::Own(acquisition, request) = &mut check.tokens
                && !request.wait_for_lease.is_zero()
            {
                acquisition.mark_pending();
            }
        }
        for check in &self.checks {
            if let Tokens::Own(acquisition, request) = &check.tokens
                && !request.wait_for_lease.is_zero()
            {
                let (timeout, queue) = (request.wait_for_lease, request.queue);
                let waited = acquisition.wait_first_lease(timeout, queue).await;
                if let Err(rejected) = waited {
                    let now = acquisition.limiter().now();
                    let (limiter, refusal) = check.refuse(rejected, now);
                    return Err(self.refuse(&limiter, refusal, now));
                }
            }
        }
        Ok(())
    }

    /// Reserves tokens of every limit, or of none; of gauges only until the request has to wait. It
    /// may wait from `since` on.
    pub(super) fn reserve(
        &mut self,
        registry: &Arc<Registry>,
        since: Option<Moment>,
        now: Moment,
    ) -> Result<(), Refused> {
        // Limiters that rejected a shadow limit.
        let mut exceeded: SmallVec<[LimiterHandle; 1]> = SmallVec::new();
        let mut waits = false;
        while let Some(check) = self.checks.get_mut(self.reserved) {
            if waits && check.limiter().gauge_order().is_some() {
                break;
            }
            match check.reserve(registry, since, now) {
                Ok(()) if !exceeded.iter().any(|it| it.get() == check.limiter()) => {
                    self.reserved = self.reserved.saturating_add(1);
                    waits |= check.is_waiting();
                    continue;
                }
                // Another shadow limit reserves for this one, as enforcing limits reserve first.
                Ok(()) => {}
                Err(_) if check.limit.is_shadow() => exceeded.push(check.limiter().handle()),
                Err(rejected) => {
                    let (limiter, refusal) = check.refuse(rejected, now);
                    return Err(self.refuse(&limiter, refusal, now));
                }
            }
            check.limit.meter.count(NotAdmitted::Shadow);
            self.checks.remove(self.reserved);
        }
        Ok(())
    }

    pub(super) fn is_delayed(&self) -> bool {
        self.checks.iter().any(PendingCheck::is_delayed)
    }

    /// Waits for the turns of what is reserved, and reserves the rest.
    pub(super) async fn wait_turns(
        mut self,
        admission: &Arc<Admission>,
        since: Moment,
    ) -> Result<Admitted, Refused> {
        let registry = &admission.registry;
        // The limits at which the request has its tokens wait for the others.
        for acquisition in self
            .checks
            .iter_mut()
            .filter_map(PendingCheck::acquisition_mut)
        {
            acquisition.mark_pending();
        }
        loop {
            let mut rejection = None;
            // At the same time, as a request that does not take its turn at a gauge holds up
            // others.
            let checks = self.checks.iter_mut().enumerate();
            let turns = checks.map(async |(index, check)| match check.acquisition_mut() {
                // A delay has a deadline, so it needs no other end.
                Some(acquisition) => {
                    let turn = acquisition.wait_turn(pending()).await;
                    turn.map_err(|rejected| (index, rejected))
                }
                None => Ok(()),
            });
            if let Err((index, rejected)) = try_join_all(turns).await
                && let Some(check) = self.checks.get(index)
            {
                rejection = Some(check.refuse(rejected, registry.now()));
            }
            let now = registry.now();
            if let Some((limiter, refusal)) = rejection {
                return Err(self.refuse(&limiter, refusal, now));
            }
            if self.reserved == self.checks.len() {
                return Ok(self.commit(admission, now));
            }
            self.reserve(registry, Some(since), now)?;
        }
    }

    pub(super) fn commit(mut self, admission: &Arc<Admission>, now: Moment) -> Admitted {
        let registry = &admission.registry;
        self.sort_by_position();
        for check in &self.checks {
            let limiter = check.limiter();
            let delayed = self.is_delayed_at(limiter);
            let meter = &check.limit.meter;
            meter.admitted(delayed, || limiter.fallback_at(now));
        }
        let mut headers = RateLimitHeaders::default();
        let mut permit = PermitBuilder::default();
        for check in &mut self.checks {
            match check.acquisition_mut().and_then(Acquisition::commit) {
                Some(Committed::Rate(tokens)) => check.spent = Some(tokens),
                Some(Committed::Gauge(units)) => {
                    let registry = check.limit.registry(registry);
                    let limiter = check.limiter().handle();
                    permit.add(registry, limiter, units, &check.limit.meter, registry.now());
                }
                None => {}
            }
            if !check.limit.is_shadow() {
                headers.add(&check.limit.item, &check.reading(now), now);
            }
        }
        let limits = self.checks.iter().map(PendingCheck::admitting);
        let mut admitted = Admitted {
            by: Some(AdmittedBy::all(admission, limits)),
            headers,
            permit: permit.build(),
            ..Admitted::default()
        };
        self.open_charges(registry, &mut admitted);
        admitted
    }

    /// Lets the costs of an admitted request be corrected, where its limits say so.
    fn open_charges(&self, registry: &Arc<Registry>, admitted: &mut Admitted) {
        for check in &self.checks {
            let Some(cost) = check.charge else {
                continue;
            };
            // Limits on one limiter spend together, and are corrected one by one.
            let limiter = check.limiter();
            let mut there = self.checks.iter().filter(|it| it.limiter() == limiter);
            let spent = there.find_map(|it| it.spent.as_ref());
            let Some(open) = spent.and_then(|spent| limiter.open_charge(spent, cost)) else {
                continue;
            };
            let (limit, registry) = (&check.limit, check.limit.registry(registry));
            match limit.settle() {
                SettleRule::Final => {}
                SettleRule::InHandler => {
                    let charge = admitted.charge.get_or_insert_default();
                    charge.add(registry, limit.name(), &limit.meter, open);
                }
                SettleRule::ByResponse(settle) => {
                    let mut charge = Charge::default();
                    charge.add(registry, limit.name(), &limit.meter, open);
                    admitted.by_response.add(settle, charge);
                }
            }
        }
    }

    /// In the order in which headers name the limits.
    fn sort_by_position(&mut self) {
        self.checks.sort_by_key(|check| check.position);
    }

    /// Releases all reservations. The refusal waits for all limits, not only for the rejecting one.
    fn refuse(&mut self, limiter: &LimiterHandle, mut refusal: Refusal, now: Moment) -> Refused {
        self.sort_by_position();
        for check in &mut self.checks {
            if let Some(acquisition) = check.acquisition_mut() {
                acquisition.release(now);
            }
        }
        let own_wait = refusal.retry_after_seconds();
        let mut headers = RateLimitHeaders::default();
        for check in self.checks.iter().filter(|check| !check.limit.is_shadow()) {
            let item = &check.limit.item;
            let reading = check.reading(now);
            if check.limiter() == limiter.get() {
                headers.add_exceeded(item, &reading, own_wait);
                continue;
            }
            if let Tokens::Own(acquisition, _) = &check.tokens {
                refusal.extend_to(acquisition.retry_at(now), now);
            }
            headers.add(item, &reading, now);
        }
        (refusal, headers)
    }

    fn is_delayed_at(&self, limiter: Limiter<'_>) -> bool {
        let mut there = self
            .checks
            .iter()
            .filter(|check| check.limiter() == limiter);
        there.any(PendingCheck::is_delayed)
    }
}

impl Drop for PendingChecks {
    fn drop(&mut self) {
        for check in &self.checks {
            if self.is_delayed_at(check.limiter()) {
                check.limit.meter.count(NotAdmitted::Gone);
            }
        }
    }
}

impl PendingCheck {
    fn new(position: usize, check: &LimitCheck<'_>) -> Self {
        let LimitCheck {
            limit,
            index,
            limiter,
            request,
            charge,
            ..
        } = *check;
        Self {
            position,
            index,
            limit: Arc::clone(limit),
            charge,
            tokens: match request {
                Some(request) => {
                    let (priority, cost) = (request.priority, request.cost);
                    Tokens::Own(Acquisition::new(limiter.handle(), priority, cost), request)
                }
                None => Tokens::Shared(limiter.handle()),
            },
            spent: None,
        }
    }

    fn limiter(&self) -> Limiter<'_> {
        match &self.tokens {
            Tokens::Own(acquisition, _) => acquisition.limiter(),
            Tokens::Shared(limiter) => limiter.get(),
        }
    }

    fn acquisition_mut(&mut self) -> Option<&mut Acquisition> {
        match &mut self.tokens {
            Tokens::Own(acquisition, _) => Some(acquisition),
            Tokens::Shared(_) => None,
        }
    }

    fn reading(&self, now: Moment) -> Reading {
        let priority = self.limit.settings.priority();
        self.limiter().reading_of(priority, now)
    }

    fn admitting(&self) -> AdmittingLimit {
        let is_counted = matches!(&self.tokens, Tokens::Own(..));
        AdmittingLimit::new(self.index, self.limiter(), is_counted)
    }

    fn is_waiting(&self) -> bool {
        matches!(&self.tokens, Tokens::Own(acquisition, _) if acquisition.is_waiting())
    }

    fn is_delayed(&self) -> bool {
        matches!(&self.tokens, Tokens::Own(acquisition, _) if acquisition.is_delayed())
    }

    fn awaits_first_lease(&self, shared: &Arc<Registry>, now: Moment) -> bool {
        let Tokens::Own(acquisition, request) = &self.tokens else {
            return false;
        };
        if request.wait_for_lease.is_zero() {
            return false;
        }
        self.limit.registry(shared).wake(acquisition.limiter(), now);
        let deadline = acquisition.first_lease_deadline(request.wait_for_lease);
        deadline.is_some_and(|deadline| now < deadline)
    }

    fn reserve(
        &mut self,
        shared: &Arc<Registry>,
        since: Option<Moment>,
        now: Moment,
    ) -> Result<(), Rejected> {
        let Tokens::Own(acquisition, request) = &mut self.tokens else {
            return Ok(());
        };
        let limiter = acquisition.limiter();
        let limit = since.map_or(WaitLimit::NoWait, |since| {
            request.wait_limit(limiter, since)
        });
        let reserved = acquisition.reserve(limit, now);
        let registry = self.limit.registry(shared);
        registry.record_attempt(acquisition.limiter(), acquisition.shortage(), now);
        reserved
    }

    fn refuse(&self, rejected: Rejected, now: Moment) -> (LimiterHandle, Refusal) {
        let limiter = self.limiter();
        let refusal = self.limit.refuse(limiter, rejected, now);
        (limiter.handle(), refusal)
    }
}
