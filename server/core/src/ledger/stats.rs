//! Counters of the ledger, and its events for the log.

use std::time::Duration;

use doorman_openapi::{AlgorithmKind, Capacity, ClientId, NodeId, ResourceId, Unit};

use crate::ledger::{
    feedback::control::{Change, Cut},
    resource::decision::{Anomalies, Grant},
    resource::outcomes::{Ignored, Tally},
    resource::unmet::UnmetChange,
    resource::users::Usage,
};

/// Events that wait to be taken. Further ones are only counted.
const MAX_EVENTS: usize = 256;

/// The same for ended holders.
const MAX_USAGE: usize = 65_536;

/// The size of the ledger, and counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerStats {
    /// Live resources.
    pub resources: usize,
    /// Leases of all resources, including released ones that are retained for their `seq`.
    pub leases: usize,
    /// Grants of unmatched resources.
    pub unmatched: u64,
    /// Holders that were rejected because the ledger has its most leases.
    pub full: u64,
    /// Holders that were rejected because their tenant has its most leases or clients.
    pub tenant_full: u64,
    /// Claims that exceeded what the holder can have, and first confirmed claims that exceeded,
    /// with those before, what a predecessor can have granted.
    pub excess_claims: u64,
    /// Requests of holders that use more than is leased to them, such as for long operations.
    pub overused: u64,
    /// Grants of resources with NO_ALGORITHM, or without a template.
    pub no_algorithm_grants: u64,
    /// Grants of resources with STATIC.
    pub static_grants: u64,
    /// Grants of resources with SUPPRESSION.
    pub suppression_grants: u64,
    /// Grants of resources with SHARED_BUCKET.
    pub shared_bucket_grants: u64,
    /// Leases that ended because another client replaces their holder.
    pub replaced: u64,
    /// Clients that asked for a first lease while another run of the same client had one, or asked
    /// for one.
    pub duplicate_clients: u64,
    /// Decisions while more than the capacity was booked, after an operator lowered it.
    pub decisions_during_cut: u64,
    /// Resources whose template ends learning mode before the predecessor's leases have ended.
    pub short_learning: u64,
}

impl LedgerStats {
    pub(in crate::ledger) fn count(&mut self, grant: &Grant, anomalies: Anomalies) {
        let unlimited = match grant.algorithm.kind {
            AlgorithmKind::NoAlgorithm => Some(&mut self.no_algorithm_grants),
            AlgorithmKind::Static => Some(&mut self.static_grants),
            AlgorithmKind::Suppression => Some(&mut self.suppression_grants),
            AlgorithmKind::SharedBucket => Some(&mut self.shared_bucket_grants),
            AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare
            | AlgorithmKind::PriorityShare => None,
        };
        if let Some(grants) = unlimited {
            *grants += u64::from(grant.capacity > Capacity::ZERO);
        }
        self.unmatched += u64::from(grant.is_unmatched());
        self.excess_claims += u64::from(anomalies.excess_claim || anomalies.claims_exceed);
        self.overused += u64::from(anomalies.overused);
        self.decisions_during_cut += u64::from(anomalies.over_capacity);
    }
}

/// Counters of the resources of one template.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TemplateCounts {
    /// Outcomes of requests.
    pub outcomes: Tally,
    /// Cuts of the effective capacity.
    pub cuts: u64,
    /// Raises of it.
    pub raises: u64,
    /// Pauses that the target asked for.
    pub pauses: u64,
    /// Levels that were tried again, since less load had not helped.
    pub trials: u64,
    /// Reports that moved no capacity: the caller lacks the scope.
    pub ignored_scope: u64,
    /// The same: they begin a count.
    pub ignored_baselines: u64,
    /// The same: the holder suffers alone.
    pub ignored_suffering: u64,
}

impl TemplateCounts {
    pub(in crate::ledger) fn count_ignored(&mut self, ignored: Ignored) {
        let counter = match ignored {
            Ignored::Scope => &mut self.ignored_scope,
            Ignored::Baseline => &mut self.ignored_baselines,
            Ignored::Suffers => &mut self.ignored_suffering,
        };
        *counter += 1;
    }

    pub(in crate::ledger) fn count(&mut self, change: &Change) {
        let counter = match change {
            Change::Cut(_) => &mut self.cuts,
            Change::Raise => &mut self.raises,
            Change::Pause { .. } => &mut self.pauses,
            Change::Trial => &mut self.trials,
            Change::Resume | Change::Pace => return,
        };
        *counter += 1;
    }
}

/// Something that an operator should read. Reported once per resource, unmet demand each time.
#[derive(Debug, Clone, PartialEq)]
pub enum LedgerEvent {
    /// No template matches the resource.
    Unmatched(ResourceId),
    /// An equal share of the resource is less than one request per refresh interval.
    SharesBelowOne(ResourceId),
    /// A client claims more than it was granted and than is free. The excess is ignored.
    ExcessClaimOfClient(ResourceId, ClientId),
    /// A node claims more than it was granted and than is free. The excess is ignored.
    ExcessClaimOfNode(ResourceId, NodeId),
    /// The first confirmed claims of all holders are together more than the capacity under which
    /// a predecessor granted: some are false.
    ClaimsAboveCapacity(ResourceId),
    /// Leases of the client have ended, because another client replaces it.
    Replaced(ClientId),
    /// Another run of the client asks for leases while one has some.
    DuplicateClient(ClientId),
    /// A client limits the resource in this unit, which is not that of the resource.
    OtherUnit(ResourceId, ClientId, Unit),
    /// A holder uses more of the resource than is leased to it.
    Overused(ResourceId),
    /// The target refuses requests for its load, and less is leased.
    Cut(ResourceId, Cut),
    /// The demand for the resource has been unmet for a minute.
    Unmet(ResourceId),
    /// The demand for the resource, which was reported as unmet, is met again, after so long.
    MetAgain(ResourceId, Duration),
}

impl LedgerEvent {
    /// Whether it is about demand, which may change often and for any number of resources.
    #[must_use]
    pub fn is_of_demand(&self) -> bool {
        matches!(self, Self::Unmet(_) | Self::MetAgain(..))
    }
}

/// Events since they were last taken, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LedgerEvents {
    /// The first events.
    pub events: Vec<LedgerEvent>,
    /// How many more there were.
    pub dropped: u64,
    /// The use of holders that have ended, if that is logged.
    pub usage: Vec<(ResourceId, Usage)>,
    /// How many more there were.
    pub dropped_usage: u64,
    /// Learning mode has ended for the last template.
    pub learning_ended: bool,
    /// Holders that were rejected because the ledger has its most leases.
    pub full: u64,
    /// Holders that were rejected because their tenant has its most leases or clients.
    pub tenant_full: u64,
}

impl LedgerEvents {
    pub(in crate::ledger) fn push(&mut self, event: LedgerEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }

    /// Leaves room for events of other kinds.
    pub(in crate::ledger) fn push_duplicate(&mut self, client: &ClientId) {
        self.push_frequent(LedgerEvent::DuplicateClient(client.clone()));
    }

    /// Leaves room for events of other kinds.
    pub(in crate::ledger) fn push_unmet(&mut self, id: &ResourceId, change: Option<UnmetChange>) {
        let event = match change {
            None => return,
            Some(UnmetChange::Lasts) => LedgerEvent::Unmet(id.clone()),
            Some(UnmetChange::Ended(lasted)) => LedgerEvent::MetAgain(id.clone(), lasted),
        };
        self.push_frequent(event);
    }

    /// Leaves room for events of other kinds.
    pub(in crate::ledger) fn push_change(&mut self, id: &ResourceId, change: &Change) {
        if let Change::Cut(cut) = change {
            self.push_frequent(LedgerEvent::Cut(id.clone(), *cut));
        }
    }

    pub(in crate::ledger) fn push_usage(&mut self, id: &ResourceId, usage: Vec<Usage>) {
        for usage in usage {
            if self.usage.len() < MAX_USAGE {
                self.usage.push((id.clone(), usage));
            } else {
                self.dropped_usage += 1;
            }
        }
    }

    fn push_frequent(&mut self, event: LedgerEvent) {
        if self.events.len() < MAX_EVENTS / 2 {
            self.events.push(event);
        } else {
            self.dropped += 1;
        }
    }
}
