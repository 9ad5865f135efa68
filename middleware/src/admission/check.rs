//! The limits that apply to one request, borrowed for the fast path.

use std::{sync::Arc, time::Duration};

use doorman_openapi::Moment;
use smallvec::SmallVec;

use super::compiled::{CompiledLimit, TokenRequest};
use crate::{
    cost::Cost,
    limit::{SettleRule, Traffic},
    limiter::{Acquired, Limiter, Reading, Registry},
};

pub(crate) type LimitChecks<'f> = SmallVec<[LimitCheck<'f>; 2]>;

/// One limit that applies to a request, and its limiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitCheck<'f> {
    pub(super) limit: &'f Arc<CompiledLimit>,
    /// The position of the limit in its layer.
    pub(super) index: usize,
    pub(super) limiter: Limiter<'f>,
    /// `None` when another check of the request takes the tokens from the same limiter.
    pub(super) request: Option<TokenRequest>,
    /// The cost, if it may be corrected.
    pub(super) charge: Option<Cost>,
    /// The tokens taken on the fast path.
    pub(super) acquired: Option<Acquired>,
}

impl<'f> LimitCheck<'f> {
    pub(crate) fn new(
        limit: &'f Arc<CompiledLimit>,
        index: usize,
        limiter: Limiter<'f>,
        traffic: Traffic,
        cost: Cost,
    ) -> Self {
        let is_final = matches!(limit.settle(), SettleRule::Final);
        Self {
            limit,
            index,
            limiter,
            request: Some(limit.token_request(traffic, cost)),
            charge: (!is_final).then_some(cost),
            acquired: None,
        }
    }

    /// Lets the request wait in the queue, whatever the limit says.
    pub(crate) fn delayed_by(mut self, max_delay: Duration) -> Self {
        if let Some(request) = &mut self.request {
            request.max_delay = (!max_delay.is_zero()).then_some(max_delay);
        }
        self
    }

    /// Takes tokens that are available at once. False if there are not enough.
    #[inline]
    pub(super) fn try_acquire(&mut self, recent: Moment) -> bool {
        let Some(request) = &self.request else {
            return true;
        };
        let settings = &self.limit.settings;
        let (priority, cost) = (request.priority, request.cost);
        let awaits_lease = !request.wait_for_lease.is_zero();
        self.acquired = self
            .limiter
            .try_acquire(settings, priority, cost, awaits_lease, recent);
        self.acquired.is_some()
    }

    /// An enforcing limit takes the tokens.
    fn take_nothing(&mut self) {
        self.request = None;
        self.charge = None;
    }

    #[cold]
    pub(super) fn undo(&mut self, recent: Moment) {
        if let Some(acquired) = self.acquired.take()
            && let Some(request) = &self.request
        {
            self.limiter.undo(&acquired, request.priority, recent);
        }
    }

    /// Counts the request as admitted.
    #[inline]
    pub(super) fn commit(&self, registry: &Arc<Registry>, recent: Moment) {
        let Self { limit, limiter, .. } = self;
        if let Some(acquired) = &self.acquired {
            commit(limit, *limiter, acquired, limit.registry(registry), recent);
        } else {
            limit.meter.admitted(false, || limiter.fallback_at(recent));
        }
    }

    pub(super) fn reading(&self, recent: Moment) -> Reading {
        match &self.acquired {
            Some(acquired) => self.limiter.reading_after(acquired),
            None => {
                let priority = self.limit.settings.priority();
                self.limiter.reading_of(priority, recent)
            }
        }
    }
}

/// Counts a request as admitted with the tokens that it took.
#[inline]
pub(super) fn commit(
    limit: &CompiledLimit,
    limiter: Limiter<'_>,
    acquired: &Acquired,
    registry: &Registry,
    recent: Moment,
) {
    limiter.commit(acquired);
    registry.record_attempt(limiter, acquired.shortage(), recent);
    let fallback = || acquired.is_fallback.then(|| limiter.fallback());
    limit.meter.admitted(false, fallback);
}

/// Adds a check, and merges the tokens of limits that share a limiter into the first of them: one
/// by one, a bucket of one token would never admit at the second. A shadow limit takes nothing when
/// an enforcing limit shares its limiter.
#[inline]
pub(crate) fn add_check<'f>(checks: &mut LimitChecks<'f>, mut check: LimitCheck<'f>) {
    for earlier in checks.iter_mut() {
        if earlier.limiter != check.limiter {
            continue;
        }
        match (earlier.limit.is_shadow(), check.limit.is_shadow()) {
            (true, false) => earlier.take_nothing(),
            (false, true) => check.take_nothing(),
            (true, true) | (false, false) => {
                if let Some(request) = &mut earlier.request
                    && let Some(more) = check.request.take()
                {
                    *request = request.and(more);
                }
            }
        }
    }
    checks.push(check);
}
