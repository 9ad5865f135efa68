//! Leases that a node has from its parent, for one resource.
//!
//! The parent's response gives the capacity and all other terms of the resource. The node keeps the
//! newest lease from the parent, which its own algorithm divides, and an older one that covers what
//! was granted before the newest one was smaller.

use doorman_openapi::{
    Capacity, FillLevel, Moment, ParentLease as ParentLeaseView, Reason, ServerResourceResponse,
};

use crate::ledger::{
    feedback::terms::ControlTerms,
    keys::EntrySlot,
    records::{HoldRecord, ParentRecord},
    resource::booking::Hold,
    resource::decision::{Reporting, TOLERANCE},
    resource::learning::Learning,
    resource::target_says::TargetSays,
    terms::unit::AmountUnit,
    terms::{ResourceTerms, Role},
};

/// Seconds after a hint in which a lower demand is reported at once.
pub(super) const HINT_TIME: f64 = 1.0;

/// How much this master knows of the node's leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Knowledge {
    /// Nothing: the parent has not answered yet, or does not know either, because it learns itself.
    ///
    /// Safety rule (`own-leases-only`): a node asserts only its own leases, never those that its
    /// holders claim. A holder's claim may be late or false, and the parent would lease it to the
    /// node as new.
    #[default]
    None,
    /// The node has none. The parent grants a part of the demand to the next request only, so that
    /// its first response is either a statement or all that the node wants.
    NoLease,
    /// All of them.
    Leases,
}

#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct ParentLease {
    pub(super) knowledge: Knowledge,
    pub(super) newest: Hold,
    pub(in crate::ledger) older: Hold,
    /// The most that a previous master may have granted: the holding that the parent stated at
    /// first, or what the lease of a handed-over ledger covers.
    pub(super) stated: f64,
    /// The last response.
    pub(super) last: Option<Box<ServerResourceResponse>>,
    /// The total that holders have used.
    pub(in crate::ledger) used: f64,
    pub(in crate::ledger) reported: Reported,
    /// Whether the parent has rejected the last request for it: holders get no lease then, without
    /// waiting for it.
    pub(in crate::ledger) is_rejected: bool,
    /// Until when a lower demand is reported at once, because the parent has hinted.
    pub(super) hinted_until: Moment,
    pub(super) target: TargetSays,
}

/// The last request to the parent.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Reported {
    /// Whether there was one in this reign.
    pub(super) is_asked: bool,
    pub(super) wants: f64,
    pub(super) outstanding: f64,
    /// When the lease ends that the node said it has; `NEVER` if it named none.
    pub(super) claim_ends: Moment,
    pub(super) used: f64,
    /// Requests that the target refused for its load, of all that were reported.
    pub(super) overloaded: u64,
    /// When the next one is due, if overloads were new in it: also if there are no new ones then.
    /// An interval that ended with one would overstate them.
    pub(in crate::ledger) report_at: Moment,
}

impl Default for Reported {
    fn default() -> Self {
        Self {
            is_asked: false,
            wants: 0.0,
            outstanding: 0.0,
            claim_ends: Moment::NEVER,
            used: 0.0,
            overloaded: 0,
            report_at: Moment::NEVER,
        }
    }
}

impl ParentLease {
    /// The capacity to divide.
    pub(in crate::ledger) fn capacity(&self, now: Moment) -> f64 {
        amount(self.current(now), now)
    }

    /// The view for operators, with the capacity of the whole tree.
    pub(in crate::ledger) fn view(&self, limit: Option<Capacity>, now: Moment) -> ParentLeaseView {
        let current = self.current(now);
        let older = amount(self.older, now);
        ParentLeaseView {
            limit,
            has: Capacity::saturating(amount(current, now)),
            expires_in: current.end.since(now).into(),
            older: (older > amount(current, now)).then(|| Capacity::saturating(older)),
            // The shell knows it.
            problem: None,
        }
    }

    /// Whether the node may hand out capacity: it has a lease on it, be it 0.
    pub(in crate::ledger) fn is_leased(&self, now: Moment) -> bool {
        now < self.current(now).end
    }

    /// The newest lease, or an older one that lasts longer.
    pub(super) fn current(&self, now: Moment) -> Hold {
        if now < self.newest.end {
            self.newest
        } else {
            self.older
        }
    }

    /// The most that holders may have.
    pub(in crate::ledger) fn covered(&self, now: Moment) -> f64 {
        amount(self.newest, now).max(amount(self.older, now))
    }

    /// Safety rule (`older-parent-lease`): when a lease must end, if `total` is booked with it for
    /// all holders. What fits under the newest lease ends with it; the rest ends with the older
    /// one. `None`: no lease covers it.
    pub(in crate::ledger) fn cover(&self, total: f64, now: Moment) -> Option<Moment> {
        let covers = |hold: Hold| total <= amount(hold, now) * (1.0 + TOLERANCE);
        let hold = [self.newest, self.older];
        let hold = hold
            .into_iter()
            .find(|hold| now < hold.end && covers(*hold));
        hold.map(|hold| hold.end)
    }

    /// The most that a lease covers beside `others`, and when it ends.
    pub(in crate::ledger) fn cover_beside(&self, others: f64, now: Moment) -> Option<Hold> {
        let rest = |hold: Hold| Hold {
            amount: amount(hold, now) - others,
            end: hold.end,
        };
        let holds = [self.newest, self.older].into_iter().map(rest);
        let rest = holds.max_by(|a, b| a.amount.total_cmp(&b.amount));
        rest.filter(|rest| rest.amount > 0.0)
    }

    /// A claim is booked no longer than the leases from the parent last, unless it is a first one.
    pub(in crate::ledger) fn end(&self, end: Moment, now: Moment) -> Moment {
        end.min(self.newest.end.max(self.older.end)).max(now)
    }

    /// Whether more is booked than any lease covers.
    pub(in crate::ledger) fn is_exceeded(&self, booked: f64, now: Moment) -> bool {
        booked > self.covered(now) * (1.0 + TOLERANCE)
    }

    /// Whether the parent said that more will come.
    pub(in crate::ledger) fn is_pending(&self) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|it| it.answer.reason == Reason::Pending)
    }

    /// Whether the parent cannot meet all demands.
    pub(super) fn is_short(&self) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|it| !it.levels.is_empty() || it.answer.reason != Reason::Granted)
    }

    /// Whether the parent leases more than the node said that it wants.
    pub(in crate::ledger) fn has_surplus(&self, now: Moment) -> bool {
        self.capacity(now) > self.reported.wants * (1.0 + TOLERANCE)
    }

    /// Whether this master knows nothing of the node's leases.
    pub(in crate::ledger) fn is_unknown(&self) -> bool {
        self.knowledge == Knowledge::None
    }

    /// Whether the parent must be asked before a holder gets an answer.
    pub(in crate::ledger) fn awaits(&self, is_learning: bool) -> bool {
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
    pub(in crate::ledger) fn has_temporary_zero_lease(&self, now: Moment) -> bool {
        let reason = self.last.as_ref().map(|it| it.answer.reason);
        let is_temporary = matches!(reason, Some(Reason::Granted | Reason::Pending));
        is_temporary && self.is_leased(now) && self.capacity(now) == 0.0
    }

    /// The most that a previous master may have granted.
    pub(in crate::ledger) fn granted_before(&self, now: Moment) -> f64 {
        self.covered(now).max(self.stated)
    }

    /// The amount that the node got in addition to what a previous master may have granted.
    pub(in crate::ledger) fn gained(&self, now: Moment) -> f64 {
        (self.capacity(now) - self.stated).max(0.0)
    }

    /// The amount that a previous master may have granted, as the parent stated it; 0 if nothing,
    /// or unknown.
    pub(in crate::ledger) fn stated(&self) -> f64 {
        match self.knowledge {
            Knowledge::Leases => self.stated,
            Knowledge::None | Knowledge::NoLease => 0.0,
        }
    }

    /// The most that all holders have: what is `booked` for them, or, while this master learns,
    /// what is booked for those that are confirmed, and the rest of what the parent stated.
    pub(in crate::ledger) fn most_of_all(
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
    pub(in crate::ledger) fn most_of_others(
        &self,
        booked: f64,
        learning: Option<&Learning>,
        slot: EntrySlot,
    ) -> f64 {
        match learning.filter(|_| self.stated > 0.0) {
            // Safety rule (`unheard-cover`): also what holders have that are not heard yet. The
            // parent has been told of no more, and may have leased the rest to others.
            Some(learning) => learning.most_of_others(slot, self.stated),
            None => booked,
        }
    }

    pub(in crate::ledger) fn levels(&self) -> &[FillLevel] {
        self.last.as_ref().map_or(&[], |last| &last.levels)
    }

    /// Takes what the target told a holder.
    pub(in crate::ledger) fn record_target(
        &mut self,
        slot: EntrySlot,
        pause: Option<f64>,
        seen: Option<(f64, f64)>,
        now: Moment,
    ) {
        self.target
            .record(slot.index(), pause, seen, self.used, now);
    }

    /// The settings of the law of feedback at a node, while the root acts by it.
    pub(in crate::ledger) fn control(&self, terms: &ResourceTerms) -> Option<(ControlTerms, Role)> {
        let acts = self.reporting().effective.is_some();
        let control = terms.control_of_node().filter(|_| acts)?;
        Some((control, Role::Node))
    }

    /// The parent's answer to holders that report outcomes.
    pub(in crate::ledger) fn reporting(&self) -> Reporting {
        let answer = self.last.as_ref().map(|last| &last.answer);
        Reporting {
            is_early: answer.is_some_and(|it| it.report),
            is_ignored: false,
            effective: answer.and_then(|it| it.gets.effective),
        }
    }

    /// The record for the next master, with the nanoseconds for which this one would learn; `None`
    /// before the parent has answered.
    pub(in crate::ledger) fn snapshot(
        &self,
        unit: Option<AmountUnit>,
        learning_left: u64,
        now: Moment,
    ) -> Option<ParentRecord> {
        if self.knowledge != Knowledge::Leases {
            return None;
        }
        let response = self.last.as_ref()?;
        let (unit, per) = unit.map_or((None, None), AmountUnit::to_record);
        Some(ParentRecord {
            response: ServerResourceResponse::clone(response),
            newest: HoldRecord::of(self.newest, now),
            older: HoldRecord::of(self.older, now),
            used: Capacity::saturating(self.used),
            stated: Capacity::saturating(self.stated),
            learning_left,
            unit,
            per,
        })
    }

    pub(in crate::ledger) fn restore(record: &ParentRecord, stopped: Moment) -> Self {
        let mut parent = Self {
            knowledge: Knowledge::Leases,
            newest: record.newest.restore(stopped),
            older: record.older.restore(stopped),
            stated: record.stated.get(),
            used: record.used.get(),
            last: Some(Box::new(record.response.clone())),
            ..Self::default()
        };
        // Safety rule: if this master learns, holders confirm what they have of the last one, too.
        parent.stated = parent.granted_before(stopped);
        parent
    }

    /// Converts all amounts to another unit.
    pub(in crate::ledger) fn scale(&mut self, factor: f64) {
        self.newest.amount *= factor;
        self.older.amount *= factor;
        self.stated *= factor;
        self.reported.wants *= factor;
        self.reported.outstanding *= factor;
    }

    pub(in crate::ledger) fn set_hinted(&mut self, now: Moment) {
        self.hinted_until = now.after_seconds(HINT_TIME);
    }

    /// Records a lease. An older one is kept if it is larger and holders may have more than this
    /// one, or if it lasts longer.
    ///
    /// Safety rule (`stated-outstanding`): `outstanding` includes what holders may have that are
    /// not heard yet.
    pub(super) fn record(&mut self, lease: Hold, outstanding: f64, now: Moment) {
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

pub(super) fn amount(hold: Hold, now: Moment) -> f64 {
    if now < hold.end { hold.amount } else { 0.0 }
}

/// Leases that a previous master of a node may have granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum EarlierLeases {
    /// Nothing new is known of them.
    Unknown,
    /// There are none.
    None,
    /// The last one ends then.
    Until(Moment),
}

/// A response of the parent.
#[derive(Debug)]
pub(in crate::ledger) struct ParentAnswer<'a> {
    pub(in crate::ledger) response: &'a ServerResourceResponse,
    /// When its request was sent: the lease counts from then.
    pub(in crate::ledger) sent: Moment,
}
