//! The core of the control plane: the books of all resources, and the decisions taken on them. No IO; time is an argument.
//!
//! A request walks `Ledger` (which resource, which holder) → `resource` (order, claim, grant) → `algorithm` (the share) → `booking`
//! (what the holder may be using, until when). The rules it keeps, and why:
//!
//! * **Booking.** The books keep for each holder the most it may be using: the lease last granted, and what it said it has until
//!   the end of the older lease. An answer that was lost so costs nothing but a moment of unused capacity.
//! * **Granting.** `grant = min(share, max(held, free))`: never more than the algorithm's share, never more than the holder has
//!   already or the others leave. The sum of the bookings never exceeds the capacity (but after an operator's cut, when it only
//!   falls).
//! * **Order.** A transmission that is not newer than the last one heard of its sender changes nothing.
//! * **Learning.** While a predecessor's leases may be out, a holder keeps what it says it has and a newcomer waits.
//! * **Cost.** One decision is O(log holders): sums in trees, ends in a heap, never a scan.

mod alarms;
mod algorithm;
mod booking;
mod books;
mod decision;
mod demands;
mod entries;
mod entry;
mod granted;
mod handover;
mod held_back;
mod holders;
mod holding;
mod order;
mod recent_demand;
mod resource;
mod shared_bucket;
mod steady_map;
mod sums;
mod terms;
mod undivided;
mod why;

pub use books::{
    HolderCursor, HolderPage, Ledger, ListError, PageQuery, ReleaseProgress, RenewalCheck,
    ResourcePage, Survey,
};
pub use granted::Grant;
pub use handover::{
    DecisionRecord, FeedbackRecord, HoldRecord, HolderRecord, LearningRecord, ResourceRecord,
};
pub use holders::TenantId;
pub use holding::HolderStatus;
pub use undivided::Feedback;

use doorman_openapi::{ClientId, Moment, NodeId, ResourceId};

/// How the core is to behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The most leases that the books hold, of all resources together. Beyond it a new holder gets nothing (`full`); a renewal is
    /// never refused for want of room.
    pub max_leases: usize,
    /// What a resource without a template gets.
    pub unmatched: UnmatchedPolicy,
    /// Whether somebody else may have leased before this server started.
    pub predecessor: Predecessor,
}

impl Settings {
    /// The most leases of one tenant: a quarter of what the books hold, so that none of them fills them up alone.
    #[must_use]
    pub fn max_leases_per_tenant(&self) -> usize {
        (self.max_leases / 4).max(1)
    }
}

/// What a resource without a template gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnmatchedPolicy {
    /// What is asked for.
    #[default]
    Grant,
    /// Nothing.
    Refuse,
}

/// Whether leases of a predecessor may be outstanding when the server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none.
    None,
    /// There may be, and the last of them ends then: learn so long before granting anything new.
    Until(Moment),
}

/// How much the books hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerStats {
    /// Live resources.
    pub resources: usize,
    /// Leases of all resources together, released ones that are kept for their order included.
    pub leases: usize,
    /// Answers given for resources without a template.
    pub unmatched: u64,
    /// Claims of holders that were more than they can have.
    pub excess_claims: u64,
    /// Requests of holders that had more in use than was leased to them, such as operations that outlive a lapsed lease.
    pub overused: u64,
    /// Grants of resources that are not divided, because their template says NO_ALGORITHM or none matched.
    pub no_algorithm_grants: u64,
    /// Grants of resources whose template says STATIC.
    pub static_grants: u64,
    /// Grants of resources whose template says SUPPRESSION.
    pub suppression_grants: u64,
    /// Grants of resources whose template says SHARED_BUCKET.
    pub shared_bucket_grants: u64,
    /// Decisions taken while more was in the holders' hands than there is, after an operator's cut.
    pub decisions_during_cut: u64,
    /// Resources that learn for less long than a predecessor's leases may last, because their template says so.
    pub short_learning: u64,
}

/// Something that an operator should read, told once a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEvent {
    /// No template matches the resource.
    Unmatched(ResourceId),
    /// An equal share of the resource comes to less than one request a refresh interval.
    SharesBelowOne(ResourceId),
    /// A client claims more than it was granted and than is free; what is too much counts as none.
    ExcessClaimOfClient(ResourceId, ClientId),
    /// A node does.
    ExcessClaimOfNode(ResourceId, NodeId),
    /// More of the resource is in use than is leased to who uses it, such as operations that outlive a lapsed lease.
    Overused(ResourceId),
}

/// What an operator should read, as far as there was room for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerEvents {
    /// In the order in which it was noticed.
    pub events: Vec<LedgerEvent>,
    /// How many more there were.
    pub dropped: u64,
}

#[cfg(test)]
mod tests;
