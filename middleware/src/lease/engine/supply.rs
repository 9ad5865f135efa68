//! How much of the wanted capacity the last answers granted.

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

/// Whether the demands of all holders fit into the limit, as far as the answers tell.
#[derive(Debug)]
pub(super) struct Fit {
    /// They do, by the last answer.
    now: bool,
    /// They did before the shortage that is measured.
    before: bool,
    /// A lease was above the wants. Without that one of as much as the wants tells that they fit.
    had_surplus: bool,
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            now: true,
            before: false,
            had_surplus: false,
        }
    }
}

impl Fit {
    /// Notes an answer. A surplus is granted only while all demands fit.
    pub(super) fn note(&mut self, supply: Supply, leased: f64, requested: f64) {
        self.had_surplus |= leased > requested;
        let is_met = leased > requested || leased >= requested && !self.had_surplus;
        self.now = supply == Supply::Whole || is_met;
    }

    pub(super) fn begin_shortage(&mut self) {
        self.before = self.now;
    }

    pub(super) fn end_shortage(&mut self) {
        self.before = false;
    }

    /// Whether they may fit. A rise that began while they did goes on although it exceeds the limit
    /// at first: others yield soon.
    pub(super) fn is_possible(&self) -> bool {
        self.now || self.before
    }
}
