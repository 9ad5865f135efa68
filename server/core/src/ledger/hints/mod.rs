//! Hints: which holders should refresh a lease now.
//!
//! A hint carries no capacity and changes no decision, so it may be lost, late, duplicate or wrong.
//! `plan` chooses the holders of a resource from its `hint_state`. `poll` keeps the hints of one
//! holder until it acts on them.

pub(in crate::ledger) mod pending;
pub(in crate::ledger) mod plan;

use doorman_openapi::{Hint, HolderKind, MAX_HINTS, Moment};

use crate::ledger::{
    hints::plan::Occasion,
    holders::HolderId,
    holders::poll::{OverdueHint, Poll, PollTicket},
    keys::{HolderKey, ResourceKey},
    resource::Ask,
    resource::decision::Decision,
    state::Ledger,
};

/// For at least so many seconds after its last poll a holder counts as polling.
const MIN_GRACE: f64 = 5.0;

/// Holders that want more than this part of their wants beyond their lease wait for others.
const UNMET: f64 = 0.05;

/// Parts of rounds per turn, each of a few hundred holders.
const MAX_CHANGE_STEPS: usize = 16;

/// The response to a poll.
#[derive(Debug, Clone, PartialEq)]
pub struct HintBatch {
    /// The `after` of the next poll, which confirms these hints.
    pub after: u64,
    /// The leases to refresh; none if a later poll has replaced this one.
    pub refresh: Vec<Hint>,
    /// Whether to refresh all leases, because too many are due to list them.
    pub all: bool,
}

impl Ledger {
    /// Opens a poll, which replaces the holder's earlier one and confirms its hints up to `after`.
    /// [`Self::take_hints`] answers it, at once if hints wait. A holder without leases may poll.
    pub fn open_poll(&mut self, holder: &HolderId, after: u64, now: Moment) -> PollTicket {
        let key = self.holders.find_or_add(holder);
        let ticket = self.polls.next_ticket(key);
        if !self.holders.polls(key) {
            self.holders.set_poll(key, Some(Poll::new(holder.kind())));
            self.start_polling(key, now);
        }
        if let Some(poll) = self.holders.poll_mut(key) {
            if let Some(replaced) = poll.open(ticket, after) {
                self.polls.replaced.push((replaced, poll.confirmed()));
            }
            self.polls.update(key, poll);
        }
        ticket
    }

    /// Counts a holder without leases as polling before its poll arrives: the two are sent at once.
    pub(in crate::ledger) fn await_poll(&mut self, key: HolderKey, kind: HolderKind, now: Moment) {
        if self.holders.polls(key) || self.holders.has_leases(key) {
            return;
        }
        let poll = Poll::awaited(kind, now.after_seconds(MIN_GRACE));
        self.holders.set_poll(key, Some(poll));
        if let Some(poll) = self.holders.poll_mut(key) {
            self.polls.update(key, poll);
        }
    }

    /// Stops awaiting the poll of a holder that got no entry, so that such calls leave nothing.
    pub(super) fn end_poll_without_leases(&mut self, key: HolderKey, now: Moment) {
        if self.holders.has_leases(key) {
            return;
        }
        if let Some(poll) = self.holders.poll_mut(key) {
            poll.end_unless_open(now);
            self.polls.update(key, poll);
        }
    }

    /// Ends a poll without hints: after its wait, or because the connection was closed. A ticket
    /// that has ended already is ignored.
    pub fn close_poll(&mut self, ticket: PollTicket, now: Moment) {
        let key = HolderKey::of_ticket(ticket.0);
        let ends = self.grace_end(key, now);
        if let Some(poll) = self.holders.poll_mut(key)
            && poll.close(ticket, ends)
        {
            self.polls.update(key, poll);
        }
    }

    /// Takes the polls to answer now, which end. Those that a later poll has replaced get no hints.
    pub fn take_hints(&mut self, now: Moment) -> Vec<(PollTicket, HintBatch)> {
        let replaced = self.polls.replaced.drain(..);
        let mut answers: Vec<_> = replaced
            .map(|(ticket, after)| {
                let batch = HintBatch {
                    after,
                    refresh: Vec::new(),
                    all: false,
                };
                (ticket, batch)
            })
            .collect();
        while let Some((_, key)) = self.polls.ready.first().filter(|(at, _)| *at <= now) {
            let key = *key;
            let ends = self.grace_end(key, now);
            let Some(poll) = self.holders.poll_mut(key) else {
                self.polls.ready.pop_first();
                continue;
            };
            let spacing = match poll.kind() {
                HolderKind::Client => self.tuning.hint_spacing,
                HolderKind::Node => self.tuning.hint_spacing_of_nodes,
            };
            let batch = poll.take_batch(spacing, now, ends);
            self.polls.update(key, poll);
            if let Some(batch) = batch {
                let all = batch.resources.len() > MAX_HINTS;
                let listed = batch.resources.iter().filter(|_| !all);
                let refresh = listed.filter_map(|resource| self.hint_for(key, *resource));
                let hints = HintBatch {
                    after: batch.number,
                    refresh: refresh.collect(),
                    all,
                };
                answers.push((batch.ticket, hints));
            }
        }
        answers
    }

    /// Whether [`Self::take_hints`] has polls to answer now.
    #[must_use]
    pub fn has_hints(&self, now: Moment) -> bool {
        self.polls.has_due(now)
    }

    /// When [`Self::has_hints`] may become true, or [`Self::sweep`] has work on hints.
    #[must_use]
    pub fn hints_due(&self) -> Option<Moment> {
        let due = [self.polls.next_at(), self.hinting.next_at()];
        due.into_iter().flatten().min()
    }

    /// Polls that are due now are not for [`Self::sweep`].
    pub(in crate::ledger) fn next_hint_work(&self, now: Moment) -> Option<Moment> {
        let due = [self.polls.next_after(now), self.hinting.next_at()];
        due.into_iter().flatten().min()
    }

    /// The leases of a holder that has begun to poll count as those of a polling one. Beyond the
    /// first ones, this waits for the next refresh.
    fn start_polling(&mut self, holder: HolderKey, now: Moment) {
        let leases = self.holders.resources(holder, ResourceKey::new(0));
        let leases: Vec<_> = leases.take(MAX_HINTS).collect();
        for key in leases {
            let live = self.live.get_mut(key.index());
            if live.is_some_and(|live| live.resource.start_polling(holder, now)) {
                self.polls.hint(&mut self.holders, holder, key);
            }
            self.plan_hints(key, Occasion::Other, now);
        }
    }

    /// A holder has reported: its hint is settled, and others may get one.
    pub(in crate::ledger) fn hint_after_report(
        &mut self,
        holder: HolderKey,
        key: ResourceKey,
        ask: &Ask<'_>,
        decision: &Decision,
        now: Moment,
    ) {
        if decision.lacks.is_some() {
            self.polls.withdraw(&mut self.holders, holder, key);
            let wants: f64 = ask.bands.iter().map(|band| band.wants.get()).sum();
            let is_unmet = decision.capacity.get() < wants * (1.0 - UNMET);
            let occasion = if is_unmet {
                Occasion::Unmet
            } else {
                Occasion::Other
            };
            self.plan_hints(key, occasion, now);
        }
    }

    /// Hints the holders of a resource whose refresh others wait for, or that wait themselves.
    pub(in crate::ledger) fn plan_hints(
        &mut self,
        key: ResourceKey,
        occasion: Occasion,
        now: Moment,
    ) {
        let Some(live) = self.live.get_mut(key.index()) else {
            return;
        };
        if live.resource.hints.is_none() {
            return;
        }
        let polls = |holder| self.holders.polls(holder);
        let chosen = live.resource.plan_hints(occasion, polls, now);
        for holder in chosen {
            self.polls.hint(&mut self.holders, holder, key);
        }
        let next = live.resource.hints.as_ref().and_then(|it| it.next_at);
        let old = std::mem::replace(&mut live.plan_at, next);
        self.hinting.reschedule(key, old, next);
    }

    /// Works on hints that are due without a request, in bounded steps.
    pub(in crate::ledger) fn sweep_hints(&mut self, now: Moment, budget: usize) {
        for _ in 0..budget {
            let Some((holder, overdue)) = self.polls.pop_timer(&mut self.holders, now) else {
                break;
            };
            for OverdueHint {
                resource,
                is_given_up,
            } in overdue
            {
                if let Some(live) = self.live.get_mut(resource.index()) {
                    live.resource.lapse_hint(holder, is_given_up, now);
                    self.plan_hints(resource, Occasion::Other, now);
                }
            }
        }
        for _ in 0..budget {
            let Some(key) = self.hinting.due(now) else {
                break;
            };
            self.plan_hints(key, Occasion::Other, now);
        }
        self.walk_changes(now, budget);
        self.hint_changes(now);
    }

    /// Finds resources with polling holders whose terms have changed.
    fn walk_changes(&mut self, now: Moment, budget: usize) {
        for _ in 0..budget {
            let Some(slot) = self.hinting.walk else {
                return;
            };
            self.hinting.walk = (slot < self.live.end()).then(|| slot.saturating_add(1));
            let live = self.live.get(slot);
            if live.is_some_and(|live| live.resource.hints.is_some()) {
                self.adopt_document(ResourceKey::new(slot), now);
            }
        }
    }

    /// Hints the holders whose terms have changed, at a bounded pace.
    fn hint_changes(&mut self, now: Moment) {
        let Some(mut budget) = self.hinting.change_budget(now) else {
            return;
        };
        let mut steps = MAX_CHANGE_STEPS;
        while let Some(key) = self.hinting.changed.front().copied() {
            if budget == 0 || steps == 0 {
                return;
            }
            steps = steps.saturating_sub(1);
            let polls = |holder| self.holders.polls(holder);
            let live = self.live.get_mut(key.index());
            let hinted = live.and_then(|live| live.resource.hint_change(budget, polls, now));
            let Some(hinted) = hinted else {
                self.hinting.changed.pop_front();
                continue;
            };
            budget = budget.saturating_sub(hinted.len());
            self.hinting.spend(hinted.len());
            for holder in hinted {
                self.polls.hint(&mut self.holders, holder, key);
            }
        }
    }

    /// A holder without leases ends with its poll, so that polls cannot bloat the ledger.
    fn grace_end(&self, holder: HolderKey, now: Moment) -> Moment {
        if self.holders.has_leases(holder) {
            now.after_seconds(MIN_GRACE.max(self.longest_refresh_interval))
        } else {
            now
        }
    }

    fn hint_for(&self, holder: HolderKey, resource: ResourceKey) -> Option<Hint> {
        let live = self.live.get(resource.index())?;
        Some(Hint {
            resource_id: live.id.clone(),
            seq: live.resource.entries.get(holder)?.order.seq(),
        })
    }
}
