//! Snapshot of the ledger, from a server that stops cleanly to its successor.

use doorman_openapi::{Balance, Capacity, ClientId, HolderKind, InvalidId, Moment, NodeId};

use crate::ledger::{
    algorithm::{RecentDemand, SharedBucket},
    holders::HolderId,
    keys::HolderKey,
    records::{
        DecisionRecord, HoldRecord, HolderRecord, LearningRecord, ResourceRecord, SetAsideRecord,
        SignalRecord, UnitChangeRecord, nanos_between,
    },
    resource::booking::{Booking, Hold},
    resource::entry::{Entry, LastDecision},
    resource::order::RequestOrder,
    resource::signal::{SharedSignal, bucket_terms},
    resource::unit_change::{SetAside, UnitChange},
    resource::{Resource, schedule_expiry},
    settings::Predecessor,
    state::Ledger,
    store::packed::OptionalCapacity,
    terms::ResourceTerms,
    terms::unit::AmountUnit,
};

/// The most holders per record.
const MAX_HOLDERS: usize = 1000;

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
                let spent = resource.spent_of(entry.slot, now);
                let tenant = self.holders.tenant(entry.holder);
                let outcomes = resource.outcomes.as_ref();
                let outcomes = outcomes.and_then(|it| it.of_holder(entry.slot));
                Some(HolderRecord {
                    tenant,
                    spent,
                    outcomes: outcomes.map(|it| it.totals),
                    ..entry.snapshot(holder, now)
                })
            });
            let mut signal = resource.signal.snapshot(&resource.terms, now);
            let learning_left = nanos_between(now, resource.learning_until);
            let parent = resource.parent.as_ref();
            let mut spent = resource.spent_of_free(now);
            let mut parent = parent.and_then(|it| it.snapshot(resource.unit, learning_left, now));
            let (unit, per) = resource.unit.map_or((None, None), AmountUnit::to_record);
            let effective = resource.effective.as_ref();
            let mut control = effective.and_then(|it| it.record(now));
            let mut outcomes = resource.outcomes.as_ref().map(|it| it.total());
            std::iter::from_fn(move || {
                let holders: Vec<_> = holders.by_ref().take(MAX_HOLDERS).collect();
                // A debt remains when there are no holders.
                let signal = signal.take();
                let parent = parent.take().map(Box::new);
                let spent = spent.take();
                let control = control.take();
                let is_needed =
                    !holders.is_empty() || signal.is_some() || spent.is_some() || control.is_some();
                is_needed.then(|| ResourceRecord {
                    resource_id: id.clone(),
                    holders,
                    signal,
                    parent,
                    unit,
                    per,
                    spent,
                    outcomes: outcomes.take(),
                    control,
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
        if let Some(parent) = &record.parent {
            self.restore_parent(key, parent, stopped);
        }
        let unit = AmountUnit::of_record(record.unit, record.per);
        if let Some(live) = self.live.get_mut(key.index()) {
            // A node whose parent told no unit yet.
            live.resource.unit = live.resource.unit.or(unit);
            if let Some(signal) = &record.signal {
                live.resource.restore_signal(signal, unit, stopped);
            }
            if let Some(spent) = record.spent {
                live.resource.restore_spent_of_free(spent, stopped);
            }
            // Levels in another unit say nothing.
            let is_same_unit = live.resource.unit == unit;
            if let Some(control) = record.control.as_ref().filter(|_| is_same_unit) {
                live.resource.restore_effective(control, stopped);
            }
            if let Some(total) = &record.outcomes {
                (live.resource.outcomes.get_or_insert_default()).restore_total(total);
            }
        }
        for holder in &record.holders {
            let id = match holder.kind {
                HolderKind::Client => HolderId::Client(ClientId::new(&*holder.id)?, holder.run),
                HolderKind::Node => HolderId::Node(NodeId::new(&*holder.id)?),
            };
            let holder_key = self.holders.find_or_add(&id, stopped);
            let Some(live) = self.live.get_mut(key.index()) else {
                continue;
            };
            let resource = &mut live.resource;
            if resource.restore_holder(holder_key, holder, unit, stopped) {
                if let Some(tenant) = holder.tenant {
                    self.holders.restore_tenant(holder_key, tenant);
                }
                self.holders.add_lease(holder_key, key);
                if holder.bands.is_empty() {
                    self.holders.retain_released(holder_key, key);
                }
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
    /// Without the tenant, the spent tokens and the outcomes, which are kept elsewhere.
    fn snapshot(&self, holder: &HolderId, now: Moment) -> HolderRecord {
        let record = |hold| HoldRecord::of(hold, now);
        HolderRecord {
            kind: holder.kind(),
            id: holder.as_str().to_owned(),
            run: holder.run(),
            epoch: self.order.epoch,
            seq: self.order.seq(),
            bands: self.bands(),
            lease: self.booking.lease(now).map(record),
            claim: self.booking.claim(now).map(record),
            outstanding: self.outstanding,
            used: self.used.get(),
            spent: None,
            outcomes: None,
            tenant: None,
            is_unconfirmed: self.is_unconfirmed,
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
    pub(in crate::ledger) fn of(hold: Hold, now: Moment) -> Self {
        Self {
            amount: Capacity::saturating(hold.amount),
            left: nanos_between(now, hold.end),
        }
    }

    pub(in crate::ledger) fn restore(self, stopped: Moment) -> Hold {
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
    fn restore_signal(&mut self, record: &SignalRecord, unit: Option<AmountUnit>, stopped: Moment) {
        self.signal.restore(record, &self.terms, stopped);
        if let (SharedSignal::Demand(demand), Some((from, to))) =
            (&mut self.signal, unit.zip(self.unit))
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
        // Safety rule: such a lease is not stated to a new master of a node.
        entry.is_unconfirmed = record.is_unconfirmed;
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
        self.signal
            .restore_demand(&self.demands, &self.terms, stopped);
        self.booked
            .set(entry.slot.index(), entry.booking.amount(stopped));
        schedule_expiry(entry, &mut self.expiries, stopped);
        if entry.next_end(stopped).is_none() {
            // Nothing of it is left: the next sweep removes it.
            self.expiries.set(entry.slot.index(), stopped);
        }
        let slot = entry.slot;
        self.restore_spent_of(slot, record, stopped);
        if let Some(outcomes) = &record.outcomes {
            (self.outcomes.get_or_insert_default()).restore(slot, outcomes);
        }
        true
    }
}

impl SharedSignal {
    fn snapshot(&self, terms: &ResourceTerms, now: Moment) -> Option<SignalRecord> {
        match self {
            Self::None | Self::FromParent(_) => None,
            Self::Demand(demand) => {
                let (slots, began_ago) = demand.clone().into_slots(now);
                Some(SignalRecord::Demand { slots, began_ago })
            }
            Self::Bucket(bucket) => {
                let mut bucket = *bucket;
                bucket.refill(bucket_terms(terms), now);
                Some(SignalRecord::Bucket {
                    balance: Balance::saturating(bucket.balance(terms.rate(), now)),
                    overflowed: Capacity::saturating(bucket.overflowed()),
                    unexplained: Capacity::saturating(bucket.unexplained()),
                })
            }
        }
    }

    /// Ignores the record of another algorithm.
    fn restore(&mut self, record: &SignalRecord, terms: &ResourceTerms, stopped: Moment) {
        match (self, record) {
            (
                Self::Bucket(bucket),
                SignalRecord::Bucket {
                    balance,
                    overflowed,
                    unexplained,
                },
            ) => {
                *bucket = SharedBucket::with_balance(balance.get(), terms.rate(), stopped)
                    .with_overflowed(overflowed.get(), unexplained.get());
            }
            (Self::Demand(demand), SignalRecord::Demand { slots, began_ago }) => {
                **demand = RecentDemand::from_slots(slots, *began_ago, stopped);
            }
            (Self::None | Self::Bucket(_) | Self::Demand(_) | Self::FromParent(_), _) => {}
        }
    }
}

fn after(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_add(nanos))
}

fn before(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_sub(nanos))
}
