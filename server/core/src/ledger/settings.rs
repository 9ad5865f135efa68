//! Settings of the ledger.

use doorman_openapi::{Epoch, Moment};

/// Ledger settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The most leases of all resources together. Beyond it new holders are rejected as `full`;
    /// renewals are not.
    pub max_leases: usize,
    /// The policy for resources without a template.
    pub unmatched: UnmatchedPolicy,
    /// Whether leases of a previous server may be outstanding.
    pub predecessor: Predecessor,
    /// The epoch of this server. In learning mode a claim counts once its request carries it.
    pub epoch: Epoch,
}

impl Settings {
    /// The most leases of one tenant: a quarter, so that no tenant fills the ledger.
    #[must_use]
    pub fn max_leases_per_tenant(&self) -> usize {
        (self.max_leases / 4).max(1)
    }
}

/// Policy for resources without a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnmatchedPolicy {
    /// Whatever it wants.
    #[default]
    Grant,
    /// Nothing.
    Refuse,
}

/// Whether leases of a previous server may be outstanding at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// None are.
    None,
    /// The last one ends then. Until then the ledger is in learning mode.
    Until(Moment),
}
