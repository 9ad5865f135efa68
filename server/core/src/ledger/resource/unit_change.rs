//! Holders that may not have heard of a change of the unit.

use doorman_openapi::Moment;

use crate::ledger::{
    resource::booking::{Booking, Hold},
    terms::unit::AmountUnit,
};

/// State of a holder after the unit of its resource has changed.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct UnitChange {
    /// The unit that the holder was last told, or that it stated last.
    pub(in crate::ledger) told: AmountUnit,
    /// Until then the holder may have a lease that it was told in another unit, and may have missed
    /// that the unit is another one now.
    pub(in crate::ledger) missed_until: Moment,
    /// The booking of the holder when the unit became one of another kind. It counts again
    /// when the unit is changed back meanwhile.
    pub(in crate::ledger) set_aside: Option<Box<SetAside>>,
    /// Of a node: what counts again since the unit was changed back, in the unit of the resource.
    ///
    /// Safety rule: it stays booked until it ends, whatever the node says. Holders below the node
    /// may use it without having heard of the change, and its master may not know them.
    pub(in crate::ledger) restored: Hold,
}

/// A booking in a unit of another kind.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct SetAside {
    pub(in crate::ledger) unit: AmountUnit,
    pub(in crate::ledger) booking: Booking,
}

impl UnitChange {
    pub(in crate::ledger) fn new(told: AmountUnit) -> Self {
        Self {
            told,
            missed_until: Moment::ORIGIN,
            set_aside: None,
            restored: Hold::NONE,
        }
    }

    /// When a booking that was set aside ends.
    pub(in crate::ledger) fn end(&self, now: Moment) -> Option<Moment> {
        let set_aside = self.set_aside.as_ref()?;
        Some(set_aside.booking.last_end()).filter(|end| now < *end)
    }
}
