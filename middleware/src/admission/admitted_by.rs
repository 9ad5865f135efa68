//! The limits that admitted a request, so that its outcome is counted.

use std::sync::Arc;

use http::response::Parts;
use smallvec::SmallVec;

use super::{Admission, CompiledLimit, check::LimitCheck};
use crate::{
    charge::Charge,
    limiter::{Limiter, Registry},
    outcome::{Outcome, ResponseHead, paused_until, seen},
    permit::Permit,
};

/// The limits that admitted a request. Dropped without a response, the caller is gone, and nothing
/// is counted.
pub(crate) struct AdmittedBy {
    admission: Arc<Admission>,
    limits: SmallVec<[AdmittingLimit; 2]>,
}

/// A limit of an [`Admission`], and the limiter that admitted the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdmittingLimit {
    index: u32,
    /// The number and the generation of the limiter.
    limiter: u32,
    generation: u16,
    /// Whether the request is counted there: another limit may count it for both.
    is_counted: bool,
}

impl AdmittingLimit {
    #[inline]
    pub(super) fn new(index: usize, limiter: Limiter<'_>, is_counted: bool) -> Self {
        Self {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            limiter: limiter.number(),
            generation: limiter.generation(),
            is_counted,
        }
    }

    pub(super) fn of_check(check: &LimitCheck<'_>) -> Self {
        Self::new(check.index, check.limiter, check.request.is_some())
    }
}

impl AdmittedBy {
    #[inline]
    pub(super) fn one(admission: &Arc<Admission>, limit: AdmittingLimit) -> Self {
        let mut limits = SmallVec::new();
        limits.push(limit);
        Self {
            admission: Arc::clone(admission),
            limits,
        }
    }

    pub(super) fn all(
        admission: &Arc<Admission>,
        limits: impl Iterator<Item = AdmittingLimit>,
    ) -> Self {
        Self {
            admission: Arc::clone(admission),
            limits: limits.collect(),
        }
    }

    /// Whether [`record`](Self::record) needs the response as [`Parts`].
    #[inline]
    pub(crate) fn classifies(&self) -> bool {
        self.admission.classifies
    }

    /// Counts the outcome of a request that holds nothing, by its response; `None` if the service
    /// failed.
    #[inline]
    pub(crate) fn record(&self, response: Option<ResponseHead<'_>>) {
        self.record_all(response, |_| None, |_, _| false);
    }

    /// The same where a limit has a rule of its own.
    pub(crate) fn record_classified(&self, response: Option<&Parts>) {
        let head = response.map(ResponseHead::from);
        self.record_all(head, |limit| limit.classify(response), |_, _| false);
    }

    /// The same of a request that holds units or charges, whose handler may have stated the outcome.
    pub(crate) fn record_held(&self, response: Option<&Parts>, permit: &Permit, charge: &Charge) {
        let head = response.map(ResponseHead::from);
        self.record_all(
            head,
            |limit| limit.classify(response),
            |limiter, outcome| permit.record(limiter, outcome) || charge.record(limiter, outcome),
        );
    }

    /// Counts it at each limit, unless `is_held` does. `classify` is the limit's own rule.
    #[inline]
    fn record_all(
        &self,
        response: Option<ResponseHead<'_>>,
        classify: impl Fn(&CompiledLimit) -> Option<Outcome>,
        is_held: impl Fn(Limiter<'_>, Outcome) -> bool,
    ) {
        let default = Outcome::of_head(response);
        if default == Outcome::None {
            // Another layer refused it.
            return;
        }
        for it in &self.limits {
            let Some(limit) = self.admission.limits.get(it.index as usize) else {
                continue;
            };
            let outcome = classify(limit).unwrap_or(default);
            let registry = limit.registry(&self.admission.registry);
            let limiter = registry.limiter(it.limiter, it.generation);
            if outcome == Outcome::Overloaded || limit.target_headers().is_some() {
                note_target(limit, limiter, response, outcome, registry);
            }
            if it.is_counted && is_held(limiter, outcome) {
                continue;
            }
            limit.meter.ended(outcome, 1);
            if it.is_counted {
                registry.count_outcome(limiter, outcome, 1);
            }
        }
    }
}

/// Notes what a response tells of the target.
#[cold]
#[inline(never)]
fn note_target(
    limit: &CompiledLimit,
    limiter: Limiter<'_>,
    response: Option<ResponseHead<'_>>,
    outcome: Outcome,
    registry: &Registry,
) {
    let Some(ResponseHead { headers, .. }) = response else {
        return;
    };
    let now = registry.coarse_now();
    if outcome == Outcome::Overloaded
        && let Some(end) = paused_until(headers, now)
    {
        limiter.pause_until(end);
    }
    if let Some(family) = limit.target_headers() {
        match seen(headers, family, now) {
            Ok(Some(seen)) => limiter.see(&seen),
            Ok(None) => {}
            Err(_) => limit.meter.invalid_headers(),
        }
    }
}
