//! How much of the wanted capacity the last answer granted.

use doorman_holder::ActiveLease;
use doorman_openapi::{Capacity, Reason};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Supply {
    /// As much as was wanted, or there is no lease.
    #[default]
    Ample,
    /// The whole limit.
    Whole,
    /// Less than was wanted, because others have the rest.
    Scarce,
    /// The same, and more is to come.
    Growing,
}

impl Supply {
    pub(super) fn new(lease: Option<&ActiveLease>, limit: Option<Capacity>) -> Self {
        let Some(lease) = lease else {
            return Self::Ample;
        };
        match lease.reason {
            _ if limit.is_some_and(|limit| lease.capacity >= limit) => Self::Whole,
            Reason::Granted => Self::Ample,
            Reason::Pending => Self::Growing,
            Reason::Share | Reason::Blocked | Reason::Full => Self::Scarce,
        }
    }

    pub(super) fn is_scarce(self) -> bool {
        matches!(self, Self::Scarce | Self::Growing)
    }
}
