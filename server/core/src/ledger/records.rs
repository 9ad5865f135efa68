//! Records that a server which stops cleanly writes for its successor. They hold durations relative
//! to the stop, because another process cannot interpret a [`Moment`].

use doorman_openapi::{
    Balance, Band, Capacity, HolderKind, Moment, Outcomes, Reason, ResourceId, Run, Seconds, Seq,
    ServerResourceResponse,
};
use serde::{Deserialize, Serialize};

use super::{feedback::record::ControlRecord, holders::TenantId};

/// A resource, or a part of its holders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRecord {
    /// Its identifier.
    pub resource_id: ResourceId,
    /// Its holders, including those that have released their lease recently.
    pub holders: Vec<HolderRecord>,
    /// The state behind its signal.
    #[serde(rename = "undivided", default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalRecord>,
    /// The leases from the parent node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ParentRecord>>,
    /// The unit of all amounts but `used` and those of `parent`; absent in a node that was told
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<RecordedUnit>,
    /// The period of a rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Seconds>,
    /// The tokens that the bucket of the free capacity lacks to be full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Capacity>,
    /// The outcomes of all holders' requests, in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Outcomes>,
    /// The law of feedback, if it holds the resource back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlRecord>,
}

/// The unit of the amounts of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedUnit {
    /// An amount per period.
    Rate,
    /// An amount in use at any one time.
    Gauge,
    /// The resource had no template.
    Unstated,
}

/// Leases that a node has from its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParentRecord {
    /// The parent's last response.
    pub response: ServerResourceResponse,
    /// Its newest lease.
    pub newest: HoldRecord,
    /// An older lease that covers what was granted before the newest one.
    pub older: HoldRecord,
    /// The total that holders have used.
    pub used: Capacity,
    /// The holding of the node that the parent stated at first.
    pub stated: Capacity,
    /// When the master stops to learn, in nanoseconds after the stop.
    pub learning_left: u64,
    /// The unit of all amounts but `used`; absent if the node was told none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<RecordedUnit>,
    /// The period of a rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Seconds>,
}

impl ResourceRecord {
    /// Safety rule: where the time of the stop is not known, leases of holders count from the
    /// latest time, `stopped`, and leases from the parent from the `earliest` one; without one they
    /// do not count.
    pub fn shorten_parent(&mut self, earliest: Option<Moment>, stopped: Moment) {
        let Some(earliest) = earliest else {
            self.parent = None;
            return;
        };
        let Some(parent) = &mut self.parent else {
            return;
        };
        let by = nanos_between(earliest, stopped);
        for lease in [&mut parent.newest, &mut parent.older] {
            lease.left = lease.left.saturating_sub(by);
        }
    }
}

/// The state behind the signal of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalRecord {
    /// SHARED_BUCKET.
    Bucket {
        /// The balance of the bucket.
        balance: Balance,
        /// Tokens that overflowed and pay for reports to come.
        overflowed: Capacity,
        /// Tokens that overflowed, and that nobody is known to have wanted.
        unexplained: Capacity,
    },
    /// SUPPRESSION.
    Demand {
        /// The demand in each of the last seconds, newest first.
        #[serde(rename = "asked")]
        slots: Vec<f64>,
        /// When the newest second began, in nanoseconds before the stop.
        began_ago: u64,
    },
}

/// A holder of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// Whether it is a client or a node.
    pub kind: HolderKind,
    /// Its identifier.
    pub id: String,
    /// The run of a client, if it states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// The epoch of its newest request; 0 for a client.
    pub epoch: u64,
    /// The number of its newest request.
    pub seq: Option<Seq>,
    /// Its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Its demand by priority; empty after a release.
    pub bands: Vec<Band>,
    /// Its last lease.
    pub lease: Option<HoldRecord>,
    /// Its claim from an older lease.
    pub claim: Option<HoldRecord>,
    /// The amount that it cannot release immediately.
    pub outstanding: Capacity,
    /// The total that it reported as used.
    pub used: Option<Capacity>,
    /// The tokens that its bucket lacks, if it saves up for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Capacity>,
    /// The outcomes that it reported, in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Outcomes>,
    /// Whether the lease was granted in learning mode on a claim that was not confirmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unconfirmed: bool,
    /// Its last decision.
    pub decided: Option<DecisionRecord>,
    /// How long the entry is retained without a lease, in nanoseconds.
    #[serde(rename = "kept")]
    pub retained: u64,
    /// Present if the holder may not have heard of the unit of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_change: Option<Box<UnitChangeRecord>>,
}

/// A holder that may not have heard of a change of the unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitChangeRecord {
    /// The unit that it was last told.
    pub told: RecordedUnit,
    /// The period of a rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Seconds>,
    /// For how long it may have missed that, in nanoseconds.
    pub missed_left: u64,
    /// Its leases in a unit of another kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAsideRecord>,
    /// Leases below a node that count again since the unit was changed back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<HoldRecord>,
}

/// Leases in a unit of another kind than that of the record.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SetAsideRecord {
    /// Their unit.
    pub unit: RecordedUnit,
    /// The period of a rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Seconds>,
    /// The last lease.
    pub lease: Option<HoldRecord>,
    /// The claim from an older lease.
    pub claim: Option<HoldRecord>,
}

/// A lease or claim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The amount.
    pub amount: Capacity,
    /// The remaining time, in nanoseconds.
    pub left: u64,
}

/// The last decision for a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Nanoseconds before the stop.
    pub ago: u64,
    /// Why it got this capacity.
    pub reason: Reason,
    /// Nanoseconds from the decision until the refresh was due.
    pub due_after: u64,
}

/// Learning mode of a server that stops during it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearningRecord {
    /// When it began, in nanoseconds before the stop.
    pub ago: u64,
    /// When the last lease of the predecessor ends, in nanoseconds after the stop.
    pub left: u64,
}

impl HolderRecord {
    /// When its last lease or claim ends, in any unit, in nanoseconds after the stop.
    #[must_use]
    pub fn left(&self) -> u64 {
        let change = self.unit_change.as_ref();
        let set_aside = change.and_then(|it| it.set_aside);
        let set_aside = set_aside.map_or([None; 2], |it| [it.lease, it.claim]);
        let holds = [self.lease, self.claim]
            .into_iter()
            .chain(set_aside)
            .flatten();
        holds.map(|hold| hold.left).max().unwrap_or(0)
    }
}

pub(in crate::ledger) fn nanos_between(earlier: Moment, later: Moment) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}
