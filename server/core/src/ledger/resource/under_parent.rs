//! A resource of a node below a parent: what it asks the parent for, and how it takes the answer.

use doorman_openapi::{
    Band, Capacity, ClientCount, FillLevel, HeldLease, Moment, Reason, ResourceId, Seconds,
    ServerResourceRequest,
};

use crate::ledger::{
    demands::{DemandSum, DemandTree},
    resource::Resource,
    resource::booking::Hold,
    resource::decision::{Reporting, TOLERANCE},
    resource::parent::{EarlierLeases, Knowledge, ParentAnswer, Reported, amount},
    resource::signal::{SharedSignal, Signal},
    terms::unit::AmountUnit,
};

/// Changes below this part of an amount are reported at the next refresh only.
const NOTABLE: f64 = 0.005;

/// Seconds between reports of overloads.
const REPORT_INTERVAL: f64 = 0.5;

/// The same for the demand of algorithms that do not divide, as a part of the capacity.
const NOTABLE_DEMAND: f64 = 0.05;

impl Resource {
    /// The request to the parent, which is recorded as sent.
    pub(in crate::ledger) fn request_of_parent(
        &mut self,
        resource_id: ResourceId,
        now: Moment,
    ) -> Option<ServerResourceRequest> {
        let outstanding = self.outstanding_of_parent(now);
        let unheard = self.unheard(now);
        let wants = self.sum_wants() + unheard;
        let (unit, per) = self.unit.map_or((None, None), AmountUnit::to_request);
        let outcomes = self.outcomes.as_ref().map(|it| it.evidence());
        let parent = self.parent.as_mut()?;
        let overloaded = outcomes.map_or(0, |it| it.overloaded.get());
        let has_new_overloads = overloaded > parent.reported.overloaded;
        let Reporting {
            is_early,
            effective,
            ..
        } = parent.reporting();
        // The parent frees what the request does not name.
        let current = parent.current(now);
        let named = outstanding.max(amount(current, now));
        parent.older.amount = parent.older.amount.min(named);
        let (has, outstanding) = match parent.knowledge {
            Knowledge::None => (None, 0.0),
            Knowledge::NoLease | Knowledge::Leases => (Some(amount(current, now)), outstanding),
        };
        parent.reported = Reported {
            is_asked: true,
            wants,
            outstanding,
            claim_ends: match has {
                Some(has) if has > 0.0 => current.end,
                Some(_) | None => Moment::NEVER,
            },
            used: parent.used,
            overloaded,
            report_at: if has_new_overloads && is_early {
                now.after_seconds(REPORT_INTERVAL)
            } else {
                Moment::NEVER
            },
        };
        let mut entries = entries(&self.demands, parent.levels());
        if unheard > 0.0 || entries.is_empty() {
            add_unheard(&mut entries, unheard, parent.levels());
        }
        Some(ServerResourceRequest {
            resource_id,
            wants: within_sum(entries),
            has: has.map(|has| HeldLease {
                capacity: Capacity::saturating(has),
                effective,
            }),
            outstanding: Capacity::saturating(outstanding),
            used: Some(Capacity::saturating(parent.used)),
            unit,
            per,
            outcomes,
            pause: parent.target.pause(now),
            seen: parent.target.take_seen(parent.used, now),
        })
    }

    /// While this master learns: the part of what the parent stated that no holder has claimed.
    fn unheard(&self, now: Moment) -> f64 {
        let parent = self.parent.as_ref().filter(|_| self.is_learning(now));
        let stated = parent.map_or(0.0, |it| it.stated);
        let unheard = self.learning.as_ref().map_or(0.0, |it| {
            it.unheard(stated) - it.unconfirmed(self.booked.total())
        });
        if unheard > stated * TOLERANCE {
            unheard
        } else {
            0.0
        }
    }

    /// Safety rule (`late-claim`): whether an answer to the last request to the parent must be
    /// ignored. The lease that the request named, the newest or an older one, has ended since: a
    /// restarted parent may only repeat the claim, and others may have the capacity.
    pub(in crate::ledger) fn is_parent_answer_late(&self, now: Moment) -> bool {
        let parent = self.parent.as_ref();
        parent.is_some_and(|it| it.reported.claim_ends <= now)
    }

    /// The capacity that holders may use, and that cannot be given back at once.
    fn outstanding_of_parent(&self, now: Moment) -> f64 {
        let booked = self.booked.total();
        self.parent.as_ref().map_or(booked, |parent| {
            parent.most_of_all(booked, self.is_learning(now), self.learning.as_deref())
        })
    }

    /// Whether the parent should hear of a change before the next refresh.
    pub(in crate::ledger) fn has_parent_update(&self, now: Moment) -> bool {
        let Some(parent) = &self.parent else {
            return false;
        };
        let Reported {
            is_asked,
            wants: reported_wants,
            outstanding: reported_outstanding,
            claim_ends: _,
            used: _,
            overloaded: _,
            report_at: _,
        } = parent.reported;
        if !is_asked {
            return !self.entries.is_empty();
        }
        if self.has_overloads_to_report() {
            return true;
        }
        let wants = self.sum_wants() + self.unheard(now);
        let outstanding = self.outstanding_of_parent(now);
        let capacity = parent.capacity(now);
        if !self.terms.rule().divides() {
            let limit = self.terms.capacity().min(wants.max(reported_wants));
            return (wants - reported_wants).abs() > limit * NOTABLE_DEMAND;
        }
        let has_grown = wants > capacity && wants > reported_wants * (1.0 + NOTABLE);
        let returned = reported_outstanding - outstanding;
        let has_returned = reported_outstanding > capacity * (1.0 + TOLERANCE)
            && (returned > reported_outstanding * NOTABLE
                || returned > 0.0 && outstanding <= capacity * (1.0 + TOLERANCE));
        // Others lack what this node gives up.
        let is_awaited = now < parent.hinted_until && wants < capacity || parent.is_short();
        let has_fallen = is_awaited && wants < reported_wants * (1.0 - NOTABLE);
        has_grown || has_returned || has_fallen
    }

    /// Whether a report of overloads to the parent is due; once.
    pub(in crate::ledger) fn take_due_report(&mut self, now: Moment) -> bool {
        let parent = self.parent.as_mut();
        parent.is_some_and(|parent| {
            let is_due = parent.reported.report_at <= now;
            if is_due {
                parent.reported.report_at = Moment::NEVER;
            }
            is_due
        })
    }

    /// Whether the parent should hear of a first overload, if it wants early reports.
    fn has_overloads_to_report(&self) -> bool {
        let (Some(parent), Some(outcomes)) = (&self.parent, &self.outcomes) else {
            return false;
        };
        parent.reported.report_at == Moment::NEVER
            && parent.reporting().is_early
            && outcomes.evidence().overloaded.get() > parent.reported.overloaded
    }

    /// Records a response of the parent, except for the terms. Returns what it shows of leases of a
    /// previous master.
    pub(in crate::ledger) fn record_parent_answer(
        &mut self,
        answer: &ParentAnswer<'_>,
        now: Moment,
    ) -> EarlierLeases {
        let outstanding = self.outstanding_of_parent(now);
        let Some(parent) = &mut self.parent else {
            return EarlierLeases::Unknown;
        };
        let response = &answer.response.answer;
        let lease = response.gets;
        let length = lease.lease_length;
        let capacity = lease.capacity.get();
        let mut earlier = EarlierLeases::Unknown;
        parent.is_rejected = response.reason == Reason::Full;
        if parent.knowledge == Knowledge::None {
            let is_pending = response.reason == Reason::Pending;
            parent.knowledge = match (length > Seconds::ZERO, is_pending, capacity > 0.0) {
                // The parent learns. It is asked again.
                (false, ..) => Knowledge::None,
                (true, true, false) => Knowledge::NoLease,
                (true, true, true) | (true, false, _) => Knowledge::Leases,
            };
            parent.reported.is_asked = parent.knowledge != Knowledge::NoLease;
            earlier = match parent.knowledge {
                Knowledge::None => EarlierLeases::Unknown,
                Knowledge::Leases if is_pending => {
                    parent.stated = capacity;
                    let drift = doorman_openapi::CLOCK_DRIFT * doorman_openapi::CLOCK_DRIFT;
                    EarlierLeases::Until(now.after_seconds(length.get() * drift))
                }
                // The earlier lease from the parent has ended, and so have all leases of the node.
                Knowledge::Leases | Knowledge::NoLease => EarlierLeases::None,
            };
        } else if parent.knowledge == Knowledge::NoLease {
            parent.knowledge = Knowledge::Leases;
        }
        let hold = if length > Seconds::ZERO {
            Hold {
                amount: capacity,
                end: answer.sent.after(length.duration()),
            }
        } else {
            Hold::NONE
        };
        parent.record(hold, outstanding, now);
        parent.last = Some(Box::new(answer.response.clone()));
        earlier
    }

    /// Takes over the signal of a parent's response.
    pub(in crate::ledger) fn record_parent_signal(
        &mut self,
        answer: &ParentAnswer<'_>,
        now: Moment,
    ) {
        let Some(parent) = &self.parent else { return };
        let unreported = parent.used - parent.reported.used;
        let response = &answer.response.answer;
        let signal = match (response.admission_probability, response.balance) {
            (Some(probability), _) => Signal::AdmissionProbability(probability),
            (None, Some(balance)) => Signal::Balance(balance),
            (None, None) => return,
        };
        self.signal = SharedSignal::from_parent(signal, unreported, &self.terms, now);
        self.signal.set_demand(&self.demands, &self.terms, now);
    }
}

/// Adds the demand of holders that are not known yet, which is what they have, as far as one can
/// tell. Each counts as one client with at most the level up to which demand is met, so that the
/// parent leaves them what they have.
fn add_unheard(entries: &mut Vec<Band>, unheard: f64, levels: &[FillLevel]) {
    let priority = entries.last().map_or(0, |last| last.priority);
    let is_of_priority = |it: &&FillLevel| it.priority.is_none_or(|it| it == priority);
    let level = levels.iter().find(is_of_priority);
    let level = level.map_or(f64::INFINITY, |it| it.level.get());
    let clients = (unheard / level).ceil().max(1.0);
    let clients = if clients.is_finite() { clients } else { 1.0 };
    let each = unheard / clients;
    let distance = |band: &Band| (band.wants.get() / band.num_clients.get() as f64 - each).abs();
    let last = entries
        .iter_mut()
        .filter(|band| band.priority == priority)
        .min_by(|a, b| distance(a).total_cmp(&distance(b)));
    match last {
        Some(band) => {
            let clients = band.num_clients.get().saturating_add(clients as u64);
            band.num_clients = ClientCount::new(clients).unwrap_or(band.num_clients);
            band.wants = Capacity::saturating(band.wants.get() + unheard);
        }
        // An empty list is invalid, so no demand is stated as a demand of 0.
        None => entries.push(Band {
            priority,
            num_clients: ClientCount::new(clients as u64).unwrap_or(ClientCount::ONE),
            wants: Capacity::saturating(unheard),
        }),
    }
}

/// Scales demands so that the parent accepts their sum.
fn within_sum(mut entries: Vec<Band>) -> Vec<Band> {
    let sum: f64 = entries.iter().map(|it| it.wants.get()).sum();
    if sum > Capacity::MAX.get() {
        // Beyond rounding.
        let factor = Capacity::MAX.get() / sum * (1.0 - TOLERANCE);
        for entry in &mut entries {
            entry.wants = Capacity::saturating(entry.wants.get() * factor);
        }
    }
    entries
}

/// The demand of all holders by priority, split at `levels`.
fn entries(demands: &DemandTree, levels: &[FillLevel]) -> Vec<Band> {
    let mut entries = Vec::new();
    let mut push = |priority: i32, sum: DemandSum| {
        if let Ok(num_clients) = ClientCount::new(sum.weight as u64) {
            entries.push(Band {
                priority,
                num_clients,
                wants: Capacity::saturating(sum.wants),
            });
        }
    };
    if !demands.is_by_priority() {
        let level = levels.first().map(|it| it.level.get());
        for sum in demands.all().split_in_levels(level) {
            push(0, sum);
        }
        return entries;
    }
    let mut band = demands.highest_band(None);
    while let Some(priority) = band {
        let level = levels.iter().find(|it| it.priority == Some(priority));
        let level = level.map(|it| it.level.get());
        for sum in demands.band(priority).split_in_levels(level) {
            push(priority, sum);
        }
        band = demands.highest_band(Some(priority));
    }
    entries
}
