//! Costs that are corrected after a request was admitted.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use doorman_holder::LogThrottle;
use http::response::Parts;
use smallvec::SmallVec;

use crate::{
    clock,
    cost::Cost,
    limiter::{Limiter, OpenCharge, Registry},
    meter::LimitMeter,
    outcome::Outcome,
};

/// The charge of a request or an operation, so that it can be corrected: by
/// [`Limit::settle_in_handler`](crate::Limit::settle_in_handler) in the extensions of a request, or
/// by [`Rate::charge`](crate::Rate::charge). Clones share the charge.
///
/// The charge stays as it is when this and all its clones are dropped: an operation that fails or
/// is canceled may have used what it took. [Settle](Self::settle) it for 0 if it did not. Keep it
/// no longer than needed: the worker runs, and a key is not forgotten, meanwhile.
///
/// ```
/// use tower_doorman::{Cost, Doorman};
///
/// # async fn run() -> Result<(), tower_doorman::Refusal> {
/// let messages = Doorman::fixed([("messages", 100.0)]).rate("messages");
/// let charge = messages.charge(Cost::ONE).await?;
/// let subscribers = 40; // one publication is delivered as many times
/// charge.settle(f64::from(subscribers));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "the charge is final when this is dropped"]
pub struct Charge(SmallVec<[Arc<Charged>; 1]>);

/// A charge at one limit.
struct Charged {
    /// Keeps the worker running, which renews the lease.
    registry: Arc<Registry>,
    limit: Arc<str>,
    meter: LimitMeter,
    open: Mutex<OpenCharge>,
    /// The first outcome that was stated.
    outcome: OnceLock<Outcome>,
}

impl Charge {
    /// Sets the actual cost, in the resource's own unit: at least 0 and at most 1e15. Others are
    /// ignored with a warning, at most one a minute. The last call counts.
    ///
    /// A lower cost returns tokens, first to the requests that wait. Those that would have
    /// overflowed the bucket since the admission are lost, so that no refund makes a larger burst.
    /// A higher cost leaves debt, which delays later requests and those that wait.
    pub fn settle(&self, cost: f64) {
        for charged in &self.0 {
            charged.settle(cost);
        }
    }

    /// States the outcome of the request or operation, for the control plane. The first call counts,
    /// also for clones. A layer states the outcome of a request when it has the response, unless the
    /// handler did before.
    pub fn outcome(&self, outcome: Outcome) {
        for charged in &self.0 {
            charged.record(outcome);
        }
    }

    /// States the outcome at one limiter. False if it has no charge there.
    pub(crate) fn record(&self, limiter: Limiter<'_>, outcome: Outcome) -> bool {
        let is_there = |it: &&Arc<Charged>| it.open().limiter() == limiter;
        let own = self.0.iter().find(is_there);
        if let Some(charged) = own {
            charged.record(outcome);
        }
        own.is_some()
    }

    /// Whether no cost can be corrected: the request was not charged, as by a shadow limit that is
    /// exceeded, or at gauges only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(
        &mut self,
        registry: &Arc<Registry>,
        limit: &Arc<str>,
        meter: &LimitMeter,
        open: OpenCharge,
    ) {
        self.0.push(Arc::new(Charged {
            registry: Arc::clone(registry),
            limit: Arc::clone(limit),
            meter: meter.clone(),
            open: Mutex::new(open),
            outcome: OnceLock::new(),
        }));
    }

    /// Adds the charge of an outer layer.
    pub(crate) fn extend(&mut self, outer: &Self) {
        self.0.extend(outer.0.iter().cloned());
    }
}

impl Charged {
    fn settle(&self, cost: f64) {
        let is_valid = (0.0..=Cost::MAX.get()).contains(&cost);
        if !is_valid {
            warn_invalid(&self.limit, cost);
            return;
        }
        let mut open = self.open();
        let shortage = open.correct(cost);
        self.registry
            .record_attempt(open.limiter(), shortage, self.registry.now());
    }

    fn record(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() {
            self.meter.ended(outcome, 1);
            let open = self.open();
            self.registry.count_outcome(open.limiter(), outcome, 1);
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenCharge> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn_invalid(limit: &str, cost: f64) {
    static THROTTLE: Mutex<LogThrottle> = Mutex::new(LogThrottle::new());
    let mut throttle = THROTTLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(suppressed) = throttle.try_log(clock::now()) {
        tracing::warn!(
            limit,
            cost,
            suppressed,
            "actual cost must be a number from 0 to 1e15; the charge stays"
        );
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.0.iter().map(|charged| &charged.limit);
        f.debug_list().entries(limits).finish()
    }
}

pub(crate) type SettleFn = dyn Fn(&Parts) -> Option<f64> + Send + Sync;

/// The charges of a request that its response settles.
#[derive(Default)]
pub(crate) struct ResponseCharges(SmallVec<[(Arc<SettleFn>, Charge); 1]>);

impl ResponseCharges {
    pub(crate) fn add(&mut self, settle: &Arc<SettleFn>, charge: Charge) {
        self.0.push((Arc::clone(settle), charge));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn settle(&self, response: &Parts) {
        for (settle, charge) in &self.0 {
            if let Some(cost) = settle(response) {
                charge.settle(cost);
            }
        }
    }
}

#[cfg(test)]
mod tests;
