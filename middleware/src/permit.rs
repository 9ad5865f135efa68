//! Units of gauges in use.

use std::{fmt, sync::Arc};

use doorman_openapi::ResourceId;
use smallvec::SmallVec;

use crate::limiter::{LimiterHandle, Registry, TakenUnits};

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
}

impl Permit {
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
    ) {
        self.0.units.push(HeldUnits {
            registry: Arc::clone(registry),
            limiter,
            units,
        });
    }

    pub(crate) fn build(self) -> Permit {
        Permit((!self.0.units.is_empty()).then(|| Arc::new(self.0)))
    }
}

impl Drop for HeldUnits {
    fn drop(&mut self) {
        self.registry.give_back(&self.limiter, &self.units);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}
