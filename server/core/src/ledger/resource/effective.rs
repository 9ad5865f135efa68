//! The effective capacity of a resource with `feedback`: the law beside the state of its holders.
//!
//! A change of it is a cut or a raise as by an operator, so no rule of booking, granting or order
//! knows of the law. The promise is that of the configured capacity.

use std::{borrow::Cow, collections::BTreeMap};

use doorman_openapi::Moment;

use crate::ledger::{
    feedback::{
        control::{Change, FeedbackControl},
        holder::HolderEvidence,
        record::ControlRecord,
        report::{Bookings, OutcomeReport},
        status::ControlStatus,
        terms::ControlTerms,
    },
    keys::EntrySlot,
    resource::entry::Entries,
    resource::outcomes::Tally,
    store::sum_tree::SumTree,
    terms::Role,
};

/// Levels that are told apart in claims: a fleet has heard of a few.
const MAX_LEVELS: usize = 64;
/// Seconds after its last report that counts in which a holder may suffer alone.
const SUFFERS_FOR: f64 = 10.0;
/// Seconds for which the level of a resource without holders is kept after the last report.
const KEPT_FOR: f64 = 3600.0;

/// Present once a holder whose outcomes count has reported some.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct EffectiveCapacity {
    law: FeedbackControl,
    role: Role,
    is_gauge: bool,
    /// By slot.
    holders: Vec<HolderState>,
    next_tick: Moment,
    /// Holders that suffered alone at their last report.
    suffering_alone: usize,
    /// The sum of the demands that do not count.
    withheld: f64,
    /// When the last report came that counts.
    reported: Moment,
    /// While this master learns: what claims echo.
    echoes: Echoes,
    /// Changes since they were last taken.
    pub(in crate::ledger) changes: Vec<Change>,
}

/// Beside its totals: at most 80 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct HolderState {
    evidence: HolderEvidence,
    /// When its last report came; [`Moment::ORIGIN`] if there was none in this reign.
    reported: Moment,
    suffered_alone: bool,
    /// The part of its demand that does not count since it suffers alone.
    withheld: f32,
}

const _: () = assert!(size_of::<HolderState>() <= 80);

/// Facts of a request beside its outcomes, in the unit of the resource.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct RequestFacts {
    /// The cost that is new.
    pub(in crate::ledger) used: f64,
    pub(in crate::ledger) wants: f64,
    pub(in crate::ledger) has: f64,
    pub(in crate::ledger) pause: Option<f64>,
    pub(in crate::ledger) seen: Option<(f64, f64)>,
}

impl EffectiveCapacity {
    pub(in crate::ledger) fn new(terms: ControlTerms, role: Role, now: Moment) -> Self {
        let is_gauge = terms.unit.is_gauge();
        Self::of(FeedbackControl::new(terms, None, now), role, is_gauge, now)
    }

    /// Continues what a server that stopped at `stopped` has left.
    pub(in crate::ledger) fn restore(
        record: &ControlRecord,
        terms: ControlTerms,
        role: Role,
        stopped: Moment,
    ) -> Self {
        let is_gauge = terms.unit.is_gauge();
        let law = FeedbackControl::restore(record, terms, stopped);
        Self::of(law, role, is_gauge, stopped)
    }

    fn of(law: FeedbackControl, role: Role, is_gauge: bool, now: Moment) -> Self {
        Self {
            next_tick: law.next_tick(now),
            law,
            role,
            is_gauge,
            holders: Vec::new(),
            suffering_alone: 0,
            withheld: 0.0,
            reported: now,
            echoes: Echoes::default(),
            changes: Vec::new(),
        }
    }

    pub(in crate::ledger) fn record(&self, now: Moment) -> Option<ControlRecord> {
        self.law.record(now)
    }

    pub(in crate::ledger) fn set_terms(&mut self, terms: ControlTerms, role: Role, now: Moment) {
        if terms.unit.is_gauge() != self.is_gauge {
            // Windows are counted anew, of which old evidence is none.
            self.is_gauge = terms.unit.is_gauge();
            self.holders.clear();
            self.suffering_alone = 0;
            self.withheld = 0.0;
        }
        self.law.set_terms(terms, now);
        if role == Role::Act && self.role == Role::Observe {
            // Holders have not followed the level so far.
            self.law.tell_level(now);
        }
        self.role = role;
        self.next_tick = self.law.next_tick(now);
    }

    /// Takes what is `new` in a report; `None` for the first one of a count, which is no evidence.
    pub(in crate::ledger) fn report(
        &mut self,
        slot: EntrySlot,
        new: Option<&Tally>,
        told: &RequestFacts,
        now: Moment,
    ) {
        let index = slot.index();
        if index >= self.holders.len() {
            let missing = index + 1 - self.holders.len();
            self.holders.reserve_exact(missing + self.holders.len() / 8);
            self.holders.resize(index + 1, HolderState::default());
        }
        let Some(holder) = self.holders.get_mut(index) else {
            return;
        };
        self.reported = now;
        let before = std::mem::replace(&mut holder.reported, now);
        let (Some(new), true) = (new, before > Moment::ORIGIN) else {
            return;
        };
        let report = OutcomeReport {
            elapsed: now.seconds_since(before),
            used: told.used,
            ok: new.ok as u64,
            overloaded: new.overloaded as u64,
            failed: new.failed as u64,
            ok_seconds: new.ok_seconds.unwrap_or(0.0),
            wants: told.wants,
            has: told.has,
            pause: told.pause,
            seen: told.seen,
        };
        self.law.report(index, &mut holder.evidence, &report, now);
        let cap = self.law.demand_cap(&holder.evidence);
        let before = std::mem::replace(&mut holder.suffered_alone, cap.is_some());
        self.suffering_alone += usize::from(cap.is_some());
        self.suffering_alone -= usize::from(before);
        let withheld = cap.filter(|_| self.role != Role::Observe);
        let withheld = withheld.map_or(0.0, |cap| (told.wants - cap).max(0.0)) as f32;
        let before = std::mem::replace(&mut holder.withheld, withheld);
        self.withheld += f64::from(withheld) - f64::from(before);
        self.next_tick = self.law.next_tick(now);
    }

    pub(in crate::ledger) fn end(&mut self, slot: EntrySlot) {
        if let Some(holder) = self.holders.get_mut(slot.index()) {
            self.suffering_alone -= usize::from(holder.suffered_alone);
            self.withheld -= f64::from(holder.withheld);
            *holder = HolderState::default();
        }
    }

    pub(in crate::ledger) fn next_tick(&self) -> Moment {
        self.next_tick
    }

    /// Applies the law, if it is time.
    pub(in crate::ledger) fn tick(
        &mut self,
        entries: &Entries,
        booked: &SumTree,
        wants: f64,
        learning_until: Moment,
        now: Moment,
    ) {
        if now < self.next_tick {
            return;
        }
        let bookings = Bookings {
            booked: booked.total(),
            wants: wants + self.withheld.max(0.0),
        };
        let holders = entries.iter().filter_map(|entry| {
            let holder = self.holders.get(entry.slot.index())?;
            let has_reported = holder.reported > Moment::ORIGIN;
            let is_silent = now.seconds_since(holder.reported) >= SUFFERS_FOR;
            let evidence = if is_silent {
                holder.evidence.calm()
            } else {
                holder.evidence
            };
            has_reported.then(|| (evidence, booked.get(entry.slot.index())))
        });
        // After a cut the hold is a new one.
        self.law.hold_until(learning_until);
        let change = self.law.tick(bookings, holders, now);
        self.law.hold_until(learning_until);
        self.changes.extend(change);
        self.next_tick = self.law.next_tick(now);
    }

    /// The amount that holders may lease; `None` if feedback does not change it.
    pub(in crate::ledger) fn leased(&self, now: Moment) -> Option<f64> {
        (self.role == Role::Act).then(|| self.law.effective(now))
    }

    /// The capacity that counts for holders without a lease: a pause may outlast this server.
    pub(in crate::ledger) fn level(&self) -> f64 {
        self.law.level()
    }

    /// Until when the level is kept without holders, if the resource is held back.
    pub(in crate::ledger) fn kept_until(&self) -> Moment {
        let is_root = self.role != Role::Node;
        if is_root && self.law.record(self.reported).is_some() {
            self.reported.after_seconds(KEPT_FOR)
        } else {
            Moment::ORIGIN
        }
    }

    pub(in crate::ledger) fn effective(&self, now: Moment) -> f64 {
        self.law.effective(now)
    }

    /// The law under terms that the resource adopts with its next request.
    pub(in crate::ledger) fn law_under(
        &self,
        terms: ControlTerms,
        now: Moment,
    ) -> Cow<'_, FeedbackControl> {
        self.law.under(terms, now)
    }

    pub(in crate::ledger) fn is_at_floor(&self) -> bool {
        self.law.is_at_floor()
    }

    pub(in crate::ledger) fn status(&self, now: Moment) -> ControlStatus {
        self.law.status(now)
    }

    pub(in crate::ledger) fn role(&self) -> Role {
        self.role
    }

    /// The most that the demand of a holder counts, if it suffers alone.
    pub(in crate::ledger) fn demand_cap(&self, slot: EntrySlot, now: Moment) -> Option<f64> {
        let holder = self.holders.get(slot.index())?;
        let is_fresh = now.seconds_since(holder.reported) < SUFFERS_FOR;
        let counts = self.role != Role::Observe && is_fresh;
        counts.then(|| self.law.demand_cap(&holder.evidence))?
    }

    pub(in crate::ledger) fn suffers_alone(&self, slot: EntrySlot, now: Moment) -> bool {
        self.holders.get(slot.index()).is_some_and(|holder| {
            now.seconds_since(holder.reported) < SUFFERS_FOR && holder.suffered_alone
        })
    }

    /// The number of holders that suffered alone at their last report.
    pub(in crate::ledger) fn suffering_alone(&self) -> usize {
        self.suffering_alone
    }

    /// A holder echoes the effective capacity of the predecessor, in its first requests.
    pub(in crate::ledger) fn hear_echo(&mut self, slot: EntrySlot, effective: f64) {
        self.echoes.heard.entry(slot).or_insert(Some(effective));
    }

    /// The claim of a holder is confirmed. Once claims for half of the level are, which is the
    /// lower median of what they echo, and for half of all that is `booked`, that is the level until
    /// the first own cut: the target would be flooded again by a fleet that was held back.
    pub(in crate::ledger) fn count_echo(
        &mut self,
        slot: EntrySlot,
        has: f64,
        booked: f64,
        now: Moment,
    ) {
        let heard = self.echoes.heard.entry(slot).or_insert(None);
        let Some(effective) = heard.take() else {
            return;
        };
        self.echoes.add(effective, has);
        if let Some(level) = self.echoes.level(booked) {
            self.follow_claims(level, now);
        }
    }

    fn follow_claims(&mut self, level: f64, now: Moment) {
        self.echoes.is_known = true;
        if self.law.follow_claims(level, now) {
            // It is leased from the next tick on.
            self.next_tick = now;
        }
    }

    /// Of a fleet with little demand the claims are few.
    pub(in crate::ledger) fn end_learning(&mut self, now: Moment) {
        if let (false, Some(level)) = (self.echoes.is_known, self.echoes.median()) {
            self.follow_claims(level, now);
        }
        self.echoes = Echoes {
            is_known: true,
            ..Echoes::default()
        };
    }

    /// Whether a holder may be told the level, although this master learns.
    pub(in crate::ledger) fn is_level_known(&self) -> bool {
        self.echoes.is_known
    }
}

/// The effective capacity that claims echo.
#[derive(Debug, Clone, Default)]
struct Echoes {
    /// By holder, until its claim is confirmed; `None` after that.
    heard: BTreeMap<EntrySlot, Option<f64>>,
    /// The sum of the confirmed claims by level. Amounts are not negative, so their bits have the
    /// order of amounts.
    claims: BTreeMap<u64, f64>,
    /// Whether it was decided what the level is.
    is_known: bool,
}

impl Echoes {
    /// In a pause holders have nothing, and their levels count all the same.
    fn add(&mut self, effective: f64, has: f64) {
        let has = has.max(f64::MIN_POSITIVE);
        *self.claims.entry(effective.to_bits()).or_insert(0.0) += has;
        if self.claims.len() > MAX_LEVELS {
            let least = self.claims.iter().min_by(|a, b| a.1.total_cmp(b.1));
            let least = least.map(|(level, _)| *level);
            least.map(|level| self.claims.remove(&level));
        }
    }

    /// The median of the levels, if the claims are half of it and of all that is `booked`.
    fn level(&self, booked: f64) -> Option<f64> {
        let all: f64 = self.claims.values().sum();
        self.median().filter(|level| all >= level.max(booked) / 2.0)
    }

    /// The lower median of the levels, by the claims.
    fn median(&self) -> Option<f64> {
        let all: f64 = self.claims.values().sum();
        let mut left = all / 2.0;
        let (bits, _) = self.claims.iter().find(|(_, has)| {
            left -= **has;
            left <= 0.0
        })?;
        (all > 0.0).then(|| f64::from_bits(*bits))
    }
}
