//! Units of amounts, and conversion between them.

use doorman_openapi::{Seconds, Unit};

/// The shortest period, in seconds.
const MIN_PERIOD: f64 = 0.001;

/// The unit of an amount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AmountUnit {
    /// Per so many seconds.
    Rate(f64),
    /// In use at any one time.
    Gauge,
    /// Of a resource without a template, whose amounts are taken as they are.
    Unstated,
}

impl AmountUnit {
    pub(super) fn new(unit: Unit, per: Seconds) -> Self {
        match unit {
            Unit::Rate => Self::Rate(per.get().max(MIN_PERIOD)),
            Unit::Gauge => Self::Gauge,
        }
    }

    /// The factor that converts amounts in another unit to this one: 0 if they are of another kind,
    /// because an amount of one kind is none of the other.
    pub(super) fn factor_from(self, other: Self) -> f64 {
        match (other, self) {
            (Self::Rate(from), Self::Rate(to)) => to / from,
            (Self::Rate(from), Self::Unstated) => 1.0 / from,
            (Self::Unstated, Self::Rate(to)) => to,
            (Self::Gauge | Self::Unstated, Self::Gauge | Self::Unstated) => 1.0,
            (Self::Rate(_), Self::Gauge) | (Self::Gauge, Self::Rate(_)) => 0.0,
        }
    }
}
