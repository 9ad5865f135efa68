//! Leases that a node has from its parent, for one resource.
//!
//! The parent's response gives the capacity and all other terms of the resource. The node keeps the
//! newest lease from the parent, which its own algorithm divides, and an older one that covers what
//! was granted before the newest one was smaller.

use doorman_openapi::{
    Band, Capacity, ClientCount, FillLevel, HeldLease, Moment, ParentLease as ParentLeaseView,
    Reason, ResourceId, Seconds, ServerResourceRequest, ServerResourceResponse,
};

use super::{
    booking::Hold,
    decision::TOLERANCE,
    demands::{DemandSum, DemandTree},
    feedback::{Feedback, SharedFeedback},
    keys::EntrySlot,
    learning::Learning,
    resource::Resource,
    snapshot::{HoldRecord, ParentRecord},
    units::AmountUnit,
};

/// Seconds after a hint in which a lower demand is reported at once.
const HINT_TIME: f64 = 1.0;

/// Changes below this part of an amount are reported at the next refresh only.
const NOTABLE: f64 = 0.005;

/// The same for the demand of algorithms that do not divide, as a part of the capacity.
const NOTABLE_DEMAND: f64 = 0.05;

/// How much this master knows of the node's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Knowledge {
    /// Nothing: the parent has not answered yet, or does not know either, because it learns itself.
    ///
    /// Safety rule: a node asserts only its own leases, never those that its holders claim. A
    /// holder's claim may be late or false, and the parent would lease it to the node as new.
    #[default]
    None,
    /// The node has none. The parent grants a part of the demand to the next request only, so that
    /// its first response is either a statement or all that the node wants.
    NoLease,
    /// All of them.
    Leases,
}

#[derive(Debug, Clone)]
pub(super) struct ParentLease {
    knowledge: Knowledge,
    newest: Hold,
    older: Hold,
    /// The most that a previous master may have granted: the holding that the parent stated at
    /// first, or what the lease of a handed-over ledger covers.
    stated: f64,
    /// The last response.
    last: Option<Box<ServerResourceResponse>>,
    /// The total that holders have used.
    used: f64,
    reported: Reported,
    /// Whether the parent has rejected the last request for it.
    is_rejected: bool,
    /// Until when a lower demand is reported at once, because the parent has hinted.
    hinted_until: Moment,
}

/// The last request to the parent.
#[derive(Debug, Clone, Copy)]
struct Reported {
    /// Whether there was one in this reign.
    is_asked: bool,
    wants: f64,
    outstanding: f64,
    /// When the lease ends that the node said it has; `NEVER` if it named none.
    claim_ends: Moment,
    used: f64,
}

impl Default for Reported {
    fn default() -> Self {
        Self {
            is_asked: false,
            wants: 0.0,
            outstanding: 0.0,
            claim_ends: Moment::NEVER,
            used: 0.0,
        }
    }
}

impl Default for ParentLease {
    fn default() -> Self {
        Self {
            knowledge: Knowledge::None,
            newest: Hold::NONE,
            older: Hold::NONE,
            stated: 0.0,
            last: None,
            used: 0.0,
            reported: Reported::default(),
            is_rejected: false,
            hinted_until: Moment::ORIGIN,
        }
    }
}

impl ParentLease {
    /// The capacity to divide.
    pub(super) fn capacity(&self, now: Moment) -> f64 {
        amount(self.current(now), now)
    }

    /// The view for operators, with the capacity of the whole tree.
    pub(super) fn view(&self, limit: Option<Capacity>, now: Moment) -> ParentLeaseView {
        let current = self.current(now);
        let older = amount(self.older, now);
        ParentLeaseView {
            limit,
            has: Capacity::saturating(amount(current, now)),
            expires_in: current.end.since(now).into(),
            older: (older > amount(current, now)).then(|| Capacity::saturating(older)),
        }
    }

    /// Whether the node may hand out capacity: it has a lease on it, be it 0.
    pub(super) fn is_leased(&self, now: Moment) -> bool {
        now < self.current(now).end
    }

    /// The newest lease, or an older one that lasts longer.
    fn current(&self, now: Moment) -> Hold {
        if now < self.newest.end {
            self.newest
        } else {
            self.older
        }
    }

    /// The most that holders may have.
    pub(super) fn covered(&self, now: Moment) -> f64 {
        amount(self.newest, now).max(amount(self.older, now))
    }

    /// Safety rule: when a lease must end, if `total` is booked with it for all holders. What fits
    /// under the newest lease ends with it; the rest ends with the older one. `None`: no lease
    /// covers it.
    pub(super) fn cover(&self, total: f64, now: Moment) -> Option<Moment> {
        let covers = |hold: Hold| total <= amount(hold, now) * (1.0 + TOLERANCE);
        let hold = [self.newest, self.older];
        let hold = hold
            .into_iter()
            .find(|hold| now < hold.end && covers(*hold));
        hold.map(|hold| hold.end)
    }

    /// The most that a lease covers beside `others`, and when it ends.
    pub(super) fn cover_beside(&self, others: f64, now: Moment) -> Option<Hold> {
        let rest = |hold: Hold| Hold {
            amount: amount(hold, now) - others,
            end: hold.end,
        };
        let holds = [self.newest, self.older].into_iter().map(rest);
        let rest = holds.max_by(|a, b| a.amount.total_cmp(&b.amount));
        rest.filter(|rest| rest.amount > 0.0)
    }

    /// A claim is booked no longer than the leases from the parent last, unless it is a first one.
    pub(super) fn end(&self, end: Moment, now: Moment) -> Moment {
        end.min(self.newest.end.max(self.older.end)).max(now)
    }

    /// Whether more is booked than any lease covers.
    pub(super) fn is_exceeded(&self, booked: f64, now: Moment) -> bool {
        booked > self.covered(now) * (1.0 + TOLERANCE)
    }

    /// Whether the parent said that more will come.
    pub(super) fn is_pending(&self) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|it| it.answer.reason == Reason::Pending)
    }

    /// Whether the parent cannot meet all demands.
    fn is_short(&self) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|it| !it.levels.is_empty() || it.answer.reason != Reason::Granted)
    }

    /// Whether the parent leases more than the node said that it wants.
    pub(super) fn has_surplus(&self, now: Moment) -> bool {
        self.capacity(now) > self.reported.wants * (1.0 + TOLERANCE)
    }

    /// Whether this master knows nothing of the node's leases.
    pub(super) fn is_unknown(&self) -> bool {
        self.knowledge == Knowledge::None
    }

    /// Whether the parent must be asked before a holder gets an answer.
    pub(super) fn awaits(&self, is_learning: bool) -> bool {
        match self.knowledge {
            // Without an answer holders keep the leases of the last master.
            Knowledge::None if self.is_rejected => is_learning,
            _ if self.is_rejected => false,
            Knowledge::None | Knowledge::NoLease => true,
            Knowledge::Leases => false,
        }
    }

    /// Whether the parent has leased 0 only because it knew of no demand, or because more will
    /// come. Holders keep what an older lease covers.
    pub(super) fn has_temporary_zero_lease(&self, now: Moment) -> bool {
        let reason = self.last.as_ref().map(|it| it.answer.reason);
        let is_temporary = matches!(reason, Some(Reason::Granted | Reason::Pending));
        is_temporary && self.is_leased(now) && self.capacity(now) == 0.0
    }

    /// The most that a previous master may have granted.
    pub(super) fn granted_before(&self, now: Moment) -> f64 {
        self.covered(now).max(self.stated)
    }

    /// The amount that the node got in addition to what a previous master may have granted.
    pub(super) fn gained(&self, now: Moment) -> f64 {
        (self.capacity(now) - self.stated).max(0.0)
    }

    /// The amount that a previous master may have granted, as the parent stated it; 0 if nothing,
    /// or unknown.
    pub(super) fn stated(&self) -> f64 {
        match self.knowledge {
            Knowledge::Leases => self.stated,
            Knowledge::None | Knowledge::NoLease => 0.0,
        }
    }

    /// The most that all holders have: what is `booked` for them, or, while this master learns,
    /// what is booked for those that are confirmed, and the rest of what the parent stated.
    pub(super) fn most_of_all(
        &self,
        booked: f64,
        is_learning: bool,
        learning: Option<&Learning>,
    ) -> f64 {
        if !is_learning {
            return booked;
        }
        // Safety rule: holders that have not confirmed their claims have the rest of what the
        // parent stated.
        booked.max(learning.map_or(self.stated, |it| it.most_of_all(self.stated)))
    }

    /// The most that other holders have, where `learning` confirms the claim of this one.
    pub(super) fn most_of_others(
        &self,
        booked: f64,
        learning: Option<&Learning>,
        slot: EntrySlot,
    ) -> f64 {
        match learning.filter(|_| self.stated > 0.0) {
            // Safety rule: also what holders have that are not heard yet. The parent has been told
            // of no more, and may have leased the rest to others.
            Some(learning) => learning.most_of_others(slot, self.stated),
            None => booked,
        }
    }

    pub(super) fn levels(&self) -> &[FillLevel] {
        self.last.as_ref().map_or(&[], |last| &last.levels)
    }

    /// The record for the next master, with the nanoseconds for which this one would learn; `None`
    /// before the parent has answered.
    pub(super) fn snapshot(
        &self,
        unit: Option<AmountUnit>,
        learning_left: u64,
        now: Moment,
    ) -> Option<ParentRecord> {
        let record = |hold: Hold| HoldRecord {
            amount: Capacity::saturating(hold.amount),
            left: hold.end.as_nanos().saturating_sub(now.as_nanos()),
        };
        if self.knowledge != Knowledge::Leases {
            return None;
        }
        let response = self.last.as_ref()?;
        let (unit, per) = unit.map_or((None, None), AmountUnit::to_record);
        Some(ParentRecord {
            response: ServerResourceResponse::clone(response),
            newest: record(self.newest),
            older: record(self.older),
            used: Capacity::saturating(self.used),
            is_claimed: false,
            stated: Capacity::saturating(self.stated),
            learning_left,
            unit,
            per,
        })
    }

    pub(super) fn restore(record: &ParentRecord, stopped: Moment) -> Self {
        let hold = |record: HoldRecord| Hold {
            amount: record.amount.get(),
            end: Moment::from_nanos(stopped.as_nanos().saturating_add(record.left)),
        };
        let mut parent = Self {
            knowledge: Knowledge::Leases,
            newest: hold(record.newest),
            older: hold(record.older),
            stated: record.stated.get(),
            used: record.used.get(),
            last: Some(Box::new(record.response.clone())),
            ..Self::default()
        };
        // Safety rule: if this master learns, holders confirm what they have of the last one, too.
        parent.stated = parent.granted_before(stopped);
        parent
    }

    /// The parent has rejected a request: holders get no lease, without waiting for it.
    pub(super) fn set_rejected(&mut self) {
        self.is_rejected = true;
    }

    pub(super) fn set_older(&mut self, older: Hold) {
        self.older = older;
    }

    /// Converts all amounts to another unit.
    pub(super) fn scale(&mut self, factor: f64) {
        self.newest.amount *= factor;
        self.older.amount *= factor;
        self.stated *= factor;
        self.reported.wants *= factor;
        self.reported.outstanding *= factor;
    }

    pub(super) fn set_hinted(&mut self, now: Moment) {
        self.hinted_until = now.after_seconds(HINT_TIME);
    }

    pub(super) fn add_used(&mut self, used: f64) {
        self.used += used;
    }

    /// Records a lease. An older one is kept if it is larger and holders may have more than this
    /// one, or if it lasts longer.
    ///
    /// Safety rule: `outstanding` includes what holders may have that are not heard yet.
    fn record(&mut self, lease: Hold, outstanding: f64, now: Moment) {
        let before = [self.newest, self.older];
        let before = before.into_iter().filter(|hold| now < hold.end);
        let is_needed = |hold: &Hold| hold.amount > lease.amount || hold.end > lease.end;
        let covers = |hold: &Hold| outstanding <= hold.amount * (1.0 + TOLERANCE);
        let is_covered = outstanding <= amount(lease, now) * (1.0 + TOLERANCE);
        let older = before
            .filter(is_needed)
            .max_by(|a, b| {
                let by_amount = || a.amount.total_cmp(&b.amount);
                covers(a).cmp(&covers(b)).then_with(|| {
                    if covers(a) && covers(b) {
                        a.end.cmp(&b.end)
                    } else {
                        by_amount()
                    }
                })
            })
            .filter(|hold| !is_covered || hold.end > lease.end);
        self.older = older.unwrap_or(Hold::NONE);
        self.newest = lease;
    }
}

fn amount(hold: Hold, now: Moment) -> f64 {
    if now < hold.end { hold.amount } else { 0.0 }
}

/// Leases that a previous master of a node may have granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierLeases {
    /// Nothing new is known of them.
    Unknown,
    /// There are none.
    None,
    /// The last one ends then.
    Until(Moment),
}

/// A response of the parent.
#[derive(Debug)]
pub(super) struct ParentAnswer<'a> {
    pub(super) response: &'a ServerResourceResponse,
    /// When its request was sent: the lease counts from then.
    pub(super) sent: Moment,
}

impl Resource {
    /// The request to the parent, which is recorded as sent.
    pub(super) fn request_of_parent(
        &mut self,
        resource_id: ResourceId,
        now: Moment,
    ) -> Option<ServerResourceRequest> {
        let outstanding = self.outstanding_of_parent(now);
        let unheard = self.unheard(now);
        let wants = self.sum_wants() + unheard;
        let (unit, per) = self.unit.map_or((None, None), AmountUnit::to_request);
        let parent = self.parent.as_mut()?;
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
            }),
            outstanding: Capacity::saturating(outstanding),
            used: Some(Capacity::saturating(parent.used)),
            unit,
            per,
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

    /// Safety rule: whether an answer to the last request to the parent must be ignored. The lease
    /// that the request named, the newest or an older one, has ended since: a restarted parent may
    /// only repeat the claim, and others may have the capacity.
    pub(super) fn is_parent_answer_late(&self, now: Moment) -> bool {
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
    pub(super) fn has_parent_update(&self, now: Moment) -> bool {
        let Some(parent) = &self.parent else {
            return false;
        };
        let Reported {
            is_asked,
            wants: reported_wants,
            outstanding: reported_outstanding,
            claim_ends: _,
            used: _,
        } = parent.reported;
        if !is_asked {
            return !self.entries.is_empty();
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

    /// Records a response of the parent, except for the terms. Returns what it shows of leases of a
    /// previous master.
    pub(super) fn record_parent_answer(
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

    /// Takes over the feedback of a parent's response.
    pub(super) fn record_parent_feedback(&mut self, answer: &ParentAnswer<'_>, now: Moment) {
        let Some(parent) = &self.parent else { return };
        let unreported = parent.used - parent.reported.used;
        let response = &answer.response.answer;
        let feedback = match (response.admission_probability, response.balance) {
            (Some(probability), _) => Feedback::AdmissionProbability(probability),
            (None, Some(balance)) => Feedback::Balance(balance),
            (None, None) => return,
        };
        self.feedback = SharedFeedback::from_parent(feedback, unreported, &self.terms, now);
        self.feedback
            .set_demand(self.demands.total().wants, &self.terms, now);
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
