//! Uses of resources that are named at run time.

use doorman_openapi::{ResourceId, Unit};

use crate::{cost::Cost, key::to_resource_id};

/// The amount that a [check](crate::Checks) takes of one resource: by default one token of a rate,
/// or one unit of a gauge.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "nothing is taken before a check"]
pub struct ResourceUse {
    resource: ResourceId,
    unit: Unit,
    cost: Cost,
}

impl ResourceUse {
    /// A use of a rate: of a resource as of [`Key::constant`](crate::Key::constant).
    pub fn rate(resource: impl AsRef<str>) -> Self {
        Self {
            resource: to_resource_id(resource.as_ref()),
            unit: Unit::Rate,
            cost: Cost::ONE,
        }
    }

    /// A use of a gauge, until its [`Permit`](crate::Permit) is dropped.
    pub fn gauge(resource: impl AsRef<str>) -> Self {
        Self {
            unit: Unit::Gauge,
            ..Self::rate(resource)
        }
    }

    /// The tokens or units, by default one. Units are rounded up to a whole number.
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    pub(crate) fn resource(&self) -> &ResourceId {
        &self.resource
    }

    pub(crate) fn is_gauge(&self) -> bool {
        self.unit == Unit::Gauge
    }

    pub(crate) fn taken(&self) -> Cost {
        self.cost
    }
}
