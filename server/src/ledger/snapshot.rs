//! Snapshot of the ledger, from a server that stops cleanly to its successor. Records hold
//! durations relative to the stop, because another process cannot interpret a [`Moment`].

use doorman_openapi::{
    Balance, Band, Capacity, ClientId, HolderKind, InvalidId, Moment, NodeId, Reason, ResourceId,
    Seconds, Seq, ServerResourceResponse,
};
use serde::{Deserialize, Serialize};

use super::{
    Ledger, Predecessor,
    algorithm::{RecentDemand, SharedBucket},
    booking::{Booking, Hold},
    call::HolderId,
    entry::{Entry, LastDecision},
    feedback::{SharedFeedback, bucket_terms},
    keys::HolderKey,
    order::RequestOrder,
    packed::OptionalCapacity,
    resource::{Resource, schedule_expiry},
    terms::ResourceTerms,
    units::{AmountUnit, SetAside, UnitChange},
};

/// The most holders per record.
const MAX_HOLDERS: usize = 1000;

/// A resource, or a part of its holders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRecord {
    /// Its identifier.
    pub resource_id: ResourceId,
    /// Its holders, including those that have released their lease recently.
    pub holders: Vec<HolderRecord>,
    /// The state behind its feedback.
    #[serde(rename = "undivided", default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<FeedbackRecord>,
    /// The leases from the parent node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<ParentRecord>>,
    /// The unit of all amounts but `used` and those of `parent`. Absent in records of earlier
    /// releases: the unit of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<RecordedUnit>,
    /// The period of a rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<Seconds>,
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
    /// Set by earlier servers only: the node had claimed what its holders claimed, so this is no
    /// lease of its own.
    #[serde(default)]
    pub is_claimed: bool,
    /// The holding of the node that the parent stated at first.
    pub stated: Capacity,
    /// When the master stops to learn, in nanoseconds after the stop.
    pub learning_left: u64,
    /// The unit of all amounts but `used`. Absent in records of earlier releases: that of
    /// `response`.
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

/// The state behind the feedback of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackRecord {
    /// SHARED_BUCKET.
    Bucket {
        /// The balance of the bucket.
        balance: Balance,
        /// Tokens that overflowed and pay for reports to come.
        #[serde(default)]
        overflowed: Capacity,
        /// Tokens that overflowed, and that nobody is known to have wanted.
        #[serde(default)]
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
    /// The epoch of its newest request; 0 for a client.
    pub epoch: u64,
    /// The number of its newest request.
    pub seq: Option<Seq>,
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
    /// Whether the lease was granted in learning mode on a claim that was not confirmed; absent for
    /// a client if not. Earlier servers do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_unconfirmed: Option<bool>,
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
    #[serde(default)]
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

impl Ledger {
    /// Records of all resources. A resource with many holders takes several.
    pub fn snapshot(&self, now: Moment) -> impl Iterator<Item = ResourceRecord> {
        let live = self.by_id.iter().filter_map(|(id, key)| {
            let live = self.live.get(key.index())?;
            Some((id, &live.resource))
        });
        live.flat_map(move |(id, resource)| {
            let entries = resource.entries.iter();
            let mut holders = entries.filter_map(move |entry| {
                let holder = self.holders.id(entry.holder)?;
                Some(entry.snapshot(holder, now))
            });
            let mut feedback = resource.feedback.snapshot(&resource.terms, now);
            let learning_left = nanos_between(now, resource.learning_until);
            let parent = resource.parent.as_ref();
            let mut parent = parent.and_then(|it| it.snapshot(resource.unit, learning_left, now));
            let (unit, per) = resource.unit.map_or((None, None), AmountUnit::to_record);
            std::iter::from_fn(move || {
                let holders: Vec<_> = holders.by_ref().take(MAX_HOLDERS).collect();
                // A debt remains when there are no holders.
                let feedback = feedback.take();
                let parent = parent.take().map(Box::new);
                (!holders.is_empty() || feedback.is_some()).then(|| ResourceRecord {
                    resource_id: id.clone(),
                    holders,
                    feedback,
                    parent,
                    unit,
                    per,
                })
            })
        })
    }

    /// Learning mode, if this server had a predecessor itself.
    #[must_use]
    pub fn learning_snapshot(&self, now: Moment) -> Option<LearningRecord> {
        self.outstanding_until().map(|outstanding| LearningRecord {
            ago: nanos_between(self.started, now),
            left: nanos_between(now, outstanding),
        })
    }

    /// Restores a record of a server that stopped at `stopped`.
    ///
    /// # Errors
    /// [`InvalidId`] when a holder's identifier is invalid. Holders before it are restored.
    pub fn restore(&mut self, record: &ResourceRecord, stopped: Moment) -> Result<(), InvalidId> {
        let key = self.find_or_add(&record.resource_id, stopped);
        if let Some(parent) = record.parent.as_ref().filter(|it| !it.is_claimed) {
            self.restore_parent(key, parent, stopped);
        }
        let unit = AmountUnit::of_record(record.unit, record.per);
        if let Some(live) = self.live.get_mut(key.index()) {
            // A node whose parent told no unit yet.
            live.resource.unit = live.resource.unit.or(unit);
            if let Some(feedback) = &record.feedback {
                live.resource.restore_feedback(feedback, unit, stopped);
            }
        }
        let was_learning = self.settings.predecessor != Predecessor::None;
        for holder in &record.holders {
            let id = match holder.kind {
                HolderKind::Client => HolderId::Client(ClientId::new(&*holder.id)?),
                HolderKind::Node => HolderId::Node(NodeId::new(&*holder.id)?),
            };
            let holder_key = self.holders.find_or_add(&id);
            let Some(live) = self.live.get_mut(key.index()) else {
                continue;
            };
            let resource = &mut live.resource;
            if resource.restore_holder(holder_key, holder, unit, was_learning, stopped) {
                self.holders.add_lease(holder_key, key);
                self.stats.leases += 1;
            }
        }
        self.note_unknown_leases(key);
        self.note_parent_update(key, stopped);
        self.schedule_expiry(key);
        self.drop_if_empty(key, stopped);
        Ok(())
    }

    /// Continues the learning mode of a server that stopped at `stopped`. Holders confirm their
    /// claims again, with the epoch of this ledger.
    pub fn restore_learning(&mut self, learning: LearningRecord, stopped: Moment) {
        self.started = before(stopped, learning.ago);
        self.settings.predecessor = Predecessor::Until(after(stopped, learning.left));
        self.set_learning_until();
    }
}

impl Entry {
    fn snapshot(&self, holder: &HolderId, now: Moment) -> HolderRecord {
        let record = |hold| HoldRecord::of(hold, now);
        HolderRecord {
            kind: holder.kind(),
            id: holder.as_str().to_owned(),
            epoch: self.order.epoch,
            seq: self.order.seq(),
            bands: self.bands(),
            lease: self.booking.lease(now).map(record),
            claim: self.booking.claim(now).map(record),
            outstanding: self.outstanding,
            used: self.used.get(),
            is_unconfirmed: (self.is_unconfirmed || self.kind == HolderKind::Node)
                .then_some(self.is_unconfirmed),
            decided: self.last_decision.map(|last| DecisionRecord {
                ago: nanos_between(last.at, now),
                reason: last.reason,
                due_after: nanos_between(last.at, last.due()),
            }),
            retained: nanos_between(now, self.retained_until),
            unit_change: self.unit_change.as_ref().and_then(|it| it.snapshot(now)),
        }
    }
}

impl HoldRecord {
    fn of(hold: Hold, now: Moment) -> Self {
        Self {
            amount: Capacity::saturating(hold.amount),
            left: nanos_between(now, hold.end),
        }
    }

    fn restore(self, stopped: Moment) -> Hold {
        Hold {
            amount: self.amount.get(),
            end: after(stopped, self.left),
        }
    }
}

impl UnitChange {
    fn snapshot(&self, now: Moment) -> Option<Box<UnitChangeRecord>> {
        let (told, per) = self.told.to_record();
        let set_aside = self.set_aside.as_ref().and_then(|it| {
            let (unit, per) = it.unit.to_record();
            Some(SetAsideRecord {
                unit: unit?,
                per,
                lease: it.booking.lease(now).map(|hold| HoldRecord::of(hold, now)),
                claim: it.booking.claim(now).map(|hold| HoldRecord::of(hold, now)),
            })
        });
        Some(Box::new(UnitChangeRecord {
            told: told?,
            per,
            missed_left: nanos_between(now, self.missed_until),
            set_aside,
            restored: (now < self.restored.end).then(|| HoldRecord::of(self.restored, now)),
        }))
    }

    fn restore(record: &UnitChangeRecord, stopped: Moment) -> Option<Box<Self>> {
        let set_aside = record.set_aside.and_then(|it| {
            let hold = |record: HoldRecord| record.restore(stopped);
            Some(Box::new(SetAside {
                unit: AmountUnit::of_record(Some(it.unit), it.per)?,
                booking: Booking::new(it.lease.map(hold), it.claim.map(hold)),
            }))
        });
        Some(Box::new(Self {
            told: AmountUnit::of_record(Some(record.told), record.per)?,
            missed_until: after(stopped, record.missed_left),
            set_aside,
            restored: record
                .restored
                .map_or(Hold::NONE, |hold| hold.restore(stopped)),
        }))
    }
}

impl Resource {
    /// The amounts of the record are in `unit`; `None`: in that of the resource.
    fn restore_feedback(
        &mut self,
        record: &FeedbackRecord,
        unit: Option<AmountUnit>,
        stopped: Moment,
    ) {
        self.feedback.restore(record, &self.terms, stopped);
        if let (SharedFeedback::Demand(demand), Some((from, to))) =
            (&mut self.feedback, unit.zip(self.unit))
        {
            demand.scale(to.factor_from(from), stopped);
        }
    }

    /// Returns `false` if the holder has an entry already. The amounts of the record are in `unit`;
    /// `None`: in that of the resource.
    fn restore_holder(
        &mut self,
        holder: HolderKey,
        record: &HolderRecord,
        unit: Option<AmountUnit>,
        was_learning: bool,
        stopped: Moment,
    ) -> bool {
        if self.entries.contains(holder) {
            return false;
        }
        let order = RequestOrder::new(record.epoch, record.seq);
        let entry = self.entries.add(holder, record.kind, order);
        let hold = |record: HoldRecord| record.restore(stopped);
        entry.booking = Booking::new(record.lease.map(hold), record.claim.map(hold));
        if record.kind == HolderKind::Node {
            entry.predecessor_until = entry.booking.last_end();
        }
        // Safety rule: such a lease is not stated to a new master of a node. Where it is not
        // recorded, any lease of a node from a server that learned may be one.
        let may_be_unconfirmed = was_learning && record.kind == HolderKind::Node;
        entry.is_unconfirmed = record.is_unconfirmed.unwrap_or(may_be_unconfirmed);
        entry.outstanding = record.outstanding;
        entry.used = OptionalCapacity::new(record.used);
        entry.last_decision = record.decided.map(|last| {
            let at = before(stopped, last.ago);
            LastDecision::new(at, last.reason, after(at, last.due_after))
        });
        if record.retained > 0 {
            entry.retained_until = after(stopped, record.retained);
        }
        entry.set_demand(&record.bands, &mut self.demands);
        entry.is_told = record.decided.is_some();
        let change = record.unit_change.as_deref();
        entry.unit_change = change.and_then(|it| UnitChange::restore(it, stopped));
        if let Some((from, to)) = unit.zip(self.unit).filter(|(from, to)| from != to) {
            entry.change_unit(from, to, &mut self.demands, stopped);
        }
        if entry.unit_change.is_some() {
            self.unit_changed_until = self.unit_changed_until.max(entry.last_lease_end());
        }
        self.feedback
            .restore_demand(self.demands.total().wants, &self.terms, stopped);
        self.booked
            .set(entry.slot.index(), entry.booking.amount(stopped));
        schedule_expiry(entry, &mut self.expiries, stopped);
        if entry.next_end(stopped).is_none() {
            // Nothing of it is left: the next sweep removes it.
            entry.deadline = stopped;
            self.expiries.push(stopped, holder);
        }
        true
    }
}

impl SharedFeedback {
    fn snapshot(&self, terms: &ResourceTerms, now: Moment) -> Option<FeedbackRecord> {
        match self {
            Self::None | Self::FromParent(_) => None,
            Self::Demand(demand) => {
                let (slots, began_ago) = demand.clone().into_slots(now);
                Some(FeedbackRecord::Demand { slots, began_ago })
            }
            Self::Bucket(bucket) => {
                let mut bucket = *bucket;
                bucket.refill(bucket_terms(terms), now);
                Some(FeedbackRecord::Bucket {
                    balance: Balance::saturating(bucket.balance(terms.rate(), now)),
                    overflowed: Capacity::saturating(bucket.overflowed()),
                    unexplained: Capacity::saturating(bucket.unexplained()),
                })
            }
        }
    }

    /// Ignores the record of another algorithm.
    fn restore(&mut self, record: &FeedbackRecord, terms: &ResourceTerms, stopped: Moment) {
        match (self, record) {
            (
                Self::Bucket(bucket),
                FeedbackRecord::Bucket {
                    balance,
                    overflowed,
                    unexplained,
                },
            ) => {
                *bucket = SharedBucket::with_balance(balance.get(), terms.rate(), stopped)
                    .with_overflowed(overflowed.get(), unexplained.get());
            }
            (Self::Demand(demand), FeedbackRecord::Demand { slots, began_ago }) => {
                **demand = RecentDemand::from_slots(slots, *began_ago, stopped);
            }
            (Self::None | Self::Bucket(_) | Self::Demand(_) | Self::FromParent(_), _) => {}
        }
    }
}

fn nanos_between(earlier: Moment, later: Moment) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}

fn after(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_add(nanos))
}

fn before(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_sub(nanos))
}
