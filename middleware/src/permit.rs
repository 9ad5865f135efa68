//! Units of gauges in use.

use std::{
    fmt, mem,
    sync::{Arc, OnceLock},
};

use doorman_openapi::{Moment, ResourceId};
use smallvec::SmallVec;

use crate::{
    limiter::{Limiter, LimiterHandle, Registry, TakenUnits},
    meter::LimitMeter,
    outcome::Outcome,
};

/// Units of gauges that a request or an operation uses. They are given back when it and all its
/// clones are dropped: the clones share the units. It is empty when no gauge applies.
///
/// A lease that ends meanwhile takes no units away: an operation that outlives its lease may run
/// beside those of other processes.
#[derive(Clone, Default)]
#[must_use = "the units are given back when this is dropped"]
pub struct Permit(Option<Arc<Units>>);

#[derive(Default)]
struct Units {
    /// The units of each gauge, given back in this order.
    units: SmallVec<[HeldUnits; 1]>,
    /// Permits that this one includes.
    others: Vec<Permit>,
}

struct HeldUnits {
    /// Keeps the worker running, which renews the lease.
    registry: Arc<Registry>,
    limiter: LimiterHandle,
    units: TakenUnits,
    since: Moment,
    /// When they are given back in simulated time; `None`: when this is dropped.
    until: Option<Moment>,
    meter: LimitMeter,
    /// The first one that was stated.
    outcome: OnceLock<Outcome>,
}

impl Permit {
    /// States the outcome of the request or operation, for the control plane. The first call counts,
    /// also for clones. A layer states the outcome of a request when it has the response, unless the
    /// handler did before. One that ends without is not counted.
    ///
    /// The units of an overloaded one return a tenth of a second later, while the worker runs: a
    /// target without room refuses at once, and the next request would try again.
    pub fn outcome(&self, outcome: Outcome) {
        if let Some(held) = &self.0 {
            held.units.iter().for_each(|it| it.record(outcome));
            held.others.iter().for_each(|it| it.outcome(outcome));
        }
    }

    /// States the outcome at one gauge. False if it holds no units of it.
    pub(crate) fn record(&self, limiter: Limiter<'_>, outcome: Outcome) -> bool {
        let Some(held) = &self.0 else {
            return false;
        };
        let mut own = held.units.iter();
        let own = own.find(|it| it.limiter.get() == limiter);
        if let Some(units) = own {
            units.record(outcome);
        }
        own.is_some()
    }

    /// Whether it holds no units.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// This permit, and that of an outer layer.
    pub(crate) fn and(&self, outer: Option<Self>) -> Self {
        let Some(outer) = outer else {
            return self.clone();
        };
        Self(Some(Arc::new(Units {
            units: SmallVec::new(),
            others: vec![self.clone(), outer],
        })))
    }

    fn entries(&self) -> Vec<(ResourceId, f64)> {
        let Some(held) = &self.0 else {
            return Vec::new();
        };
        let own = held.units.iter();
        let own = own.map(|it| (it.limiter.get().resource(), it.units.units));
        own.chain(held.others.iter().flat_map(Self::entries))
            .collect()
    }

    /// Ends the use at a simulated time.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn end(self, outcome: Outcome, now: Moment) {
        self.outcome(outcome);
        if let Some(mut held) = self.0.and_then(Arc::into_inner) {
            held.units.iter_mut().for_each(|it| it.until = Some(now));
        }
    }

    /// One permit for each gauge. A permit with clones stays as it is, without the name of a gauge.
    pub(crate) fn split(self) -> Vec<(ResourceId, Self)> {
        let held = self.0.and_then(Arc::into_inner);
        let units = held.into_iter().flat_map(|held| held.units);
        units
            .map(|units| {
                let resource = units.limiter.get().resource();
                let mut permit = PermitBuilder::default();
                permit.0.units.push(units);
                (resource, permit.build())
            })
            .collect()
    }
}

/// A permit in the making.
#[derive(Default)]
pub(crate) struct PermitBuilder(Units);

impl PermitBuilder {
    pub(crate) fn add(
        &mut self,
        registry: &Arc<Registry>,
        limiter: LimiterHandle,
        units: TakenUnits,
        meter: &LimitMeter,
        since: Moment,
    ) {
        self.0.units.push(HeldUnits {
            registry: Arc::clone(registry),
            limiter,
            units,
            since,
            until: None,
            meter: meter.clone(),
            outcome: OnceLock::new(),
        });
    }

    pub(crate) fn build(self) -> Permit {
        Permit((!self.0.units.is_empty()).then(|| Arc::new(self.0)))
    }
}

impl HeldUnits {
    /// Counts the outcome, unless the time of the units counts, too, which is known at their end.
    fn record(&self, outcome: Outcome) {
        if self.outcome.set(outcome).is_ok() && outcome != Outcome::Ok {
            self.meter.ended(outcome, 1);
            self.registry.count_outcome(self.limiter.get(), outcome, 1);
        }
    }
}

impl Drop for HeldUnits {
    fn drop(&mut self) {
        match self.outcome.get() {
            Some(Outcome::Overloaded) => {
                let units = mem::take(&mut self.units);
                self.registry.cool_down(self.limiter.clone(), units);
                return;
            }
            Some(Outcome::Ok) => {
                let until = self.until.unwrap_or_else(|| self.registry.now());
                let unit_seconds = self.units.units * until.seconds_since(self.since);
                self.meter.ended(Outcome::Ok, 1);
                let limiter = self.limiter.get();
                self.registry.count_ok_units(limiter, unit_seconds);
            }
            Some(Outcome::Failed | Outcome::None) | None => {}
        }
        self.registry.give_back(&self.limiter, &self.units);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}
