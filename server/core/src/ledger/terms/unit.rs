//! Units of amounts.

use doorman_openapi::{Seconds, Unit};

use crate::ledger::records::RecordedUnit;

/// The shortest period, in seconds.
const MIN_PERIOD: f64 = 0.001;

/// The unit of an amount.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum AmountUnit {
    /// Per so many seconds.
    Rate(f64),
    /// In use at any one time.
    Gauge,
    /// Of a resource without a template, whose amounts are taken as they are.
    Unstated,
}

impl AmountUnit {
    pub(in crate::ledger) fn new(unit: Unit, per: Seconds) -> Self {
        match unit {
            Unit::Rate => Self::Rate(per.get().max(MIN_PERIOD)),
            Unit::Gauge => Self::Gauge,
        }
    }

    /// The unit that a request states, if it does.
    pub(in crate::ledger) fn of_request(unit: Option<Unit>, per: Option<Seconds>) -> Option<Self> {
        if unit.is_none() && per.is_none() {
            return None;
        }
        let per = per.unwrap_or(Seconds::from_whole(1));
        Some(Self::new(unit.unwrap_or_default(), per))
    }

    /// The fields of a request.
    pub(in crate::ledger) fn to_request(self) -> (Option<Unit>, Option<Seconds>) {
        match self {
            Self::Rate(per) => (Some(Unit::Rate), Some(Seconds::saturating(per))),
            Self::Gauge => (Some(Unit::Gauge), None),
            Self::Unstated => (None, None),
        }
    }

    /// The unit in a record, if it has one.
    pub(in crate::ledger) fn of_record(
        unit: Option<RecordedUnit>,
        per: Option<Seconds>,
    ) -> Option<Self> {
        Some(match unit? {
            RecordedUnit::Rate => Self::new(Unit::Rate, per.unwrap_or(Seconds::from_whole(1))),
            RecordedUnit::Gauge => Self::Gauge,
            RecordedUnit::Unstated => Self::Unstated,
        })
    }

    /// The fields of a record.
    pub(in crate::ledger) fn to_record(self) -> (Option<RecordedUnit>, Option<Seconds>) {
        match self {
            Self::Rate(per) => (Some(RecordedUnit::Rate), Some(Seconds::saturating(per))),
            Self::Gauge => (Some(RecordedUnit::Gauge), None),
            Self::Unstated => (Some(RecordedUnit::Unstated), None),
        }
    }

    /// The factor that converts amounts in another unit to this one: 0 if they are of another kind,
    /// because an amount of one kind is none of the other.
    pub(in crate::ledger) fn factor_from(self, other: Self) -> f64 {
        match (other, self) {
            (Self::Rate(from), Self::Rate(to)) => to / from,
            (Self::Rate(from), Self::Unstated) => 1.0 / from,
            (Self::Unstated, Self::Rate(to)) => to,
            (Self::Gauge | Self::Unstated, Self::Gauge | Self::Unstated) => 1.0,
            (Self::Rate(_), Self::Gauge) | (Self::Gauge, Self::Rate(_)) => 0.0,
        }
    }

    pub(in crate::ledger) fn is_of_kind(self, other: Self) -> bool {
        self.factor_from(other) != 0.0
    }
}
