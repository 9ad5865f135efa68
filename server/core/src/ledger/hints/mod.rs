//! Hints: which holders should refresh a lease now.
//!
//! A hint carries no capacity and changes no decision, so it may be lost, late, duplicate or wrong.
//! `plan` chooses the holders of a resource from its `hint_state`. `poll` keeps the hints of one
//! holder until it acts on them.

pub(in crate::ledger) mod pending;
pub(in crate::ledger) mod plan;

use doorman_openapi::{Hint, HolderKind, MAX_HINTS, Moment};

use crate::ledger::{
    hints::plan::Chosen,
    holders::HolderId,
    holders::poll::{OverdueHint, Poll, PollTicket},
    keys::{HolderKey, ResourceKey},
    resource::Resource,
    state::Ledger,
};

/// For at least so many seconds after its last poll a holder counts as polling.
const MIN_GRACE: f64 = 5.0;

/// Parts of rounds per turn, each of a few hundred holders.
const MAX_ROUND_STEPS: usize = 16;

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
        let key = self.holders.find_or_add(holder, now);
        self.holders.hear_by_poll(key, now);
        let ticket = self.polls.next_ticket(key);
        if !self.holders.polls(key) {
            self.holders.set_poll(key, Some(Poll::new()));
            self.start_polling(key, now);
        }
        let replaced = self.polls.change(&mut self.holders, key, |poll| {
            let replaced = poll.open(ticket, after)?;
            Some((replaced, poll.confirmed()))
        });
        self.polls.replaced.extend(replaced.flatten());
        ticket
    }

    /// Counts a holder without leases as polling before its poll arrives: the two are sent at once.
    pub(in crate::ledger) fn await_poll(&mut self, key: HolderKey, now: Moment) {
        if self.holders.polls(key) || self.holders.has_leases(key) {
            return;
        }
        let poll = Poll::awaited(now.after_seconds(MIN_GRACE));
        self.holders.set_poll(key, Some(poll));
        // To end it in time.
        self.polls.change(&mut self.holders, key, |_| ());
    }

    /// Stops awaiting the poll of a holder that got no entry, so that such calls leave nothing.
    pub(super) fn end_poll_without_leases(&mut self, key: HolderKey, now: Moment) {
        if !self.holders.has_leases(key) {
            let end = |poll: &mut Poll| poll.end_unless_open(now);
            self.polls.change(&mut self.holders, key, end);
        }
    }

    /// Ends a poll without hints: after its wait, or because the connection was closed. A ticket
    /// that has ended already is ignored.
    pub fn close_poll(&mut self, ticket: PollTicket, now: Moment) {
        let key = HolderKey::of_ticket(ticket.0);
        let ends = self.grace_end(key, now);
        let close = |poll: &mut Poll| poll.close(ticket, ends);
        if self.polls.change(&mut self.holders, key, close) == Some(true) {
            self.holders.hear_by_poll(key, now);
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
        while let Some(slot) = self.polls.ready.due(now) {
            let key = HolderKey::new(slot);
            let ends = self.grace_end(key, now);
            let spacing = match self.holders.id(key).map(HolderId::kind) {
                Some(HolderKind::Node) => self.tuning.hint_spacing_of_nodes,
                Some(HolderKind::Client) | None => self.tuning.hint_spacing,
            };
            let take = |poll: &mut Poll| poll.take_batch(spacing, now, ends);
            let Some(batch) = self.polls.change(&mut self.holders, key, take) else {
                self.polls.ready.pop_due(now);
                continue;
            };
            if let Some(batch) = batch {
                self.holders.hear_by_poll(key, now);
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
        !self.polls.replaced.is_empty() || self.polls.ready.due(now).is_some()
    }

    /// When [`Self::has_hints`] may become true, or [`Self::sweep`] has work on hints.
    #[must_use]
    pub fn hints_due(&self) -> Option<Moment> {
        let due = [self.polls.ready.next_at(), self.next_hint_work()];
        due.into_iter().flatten().min()
    }

    /// When [`Self::has_hints`] may become true, or [`Self::sweep`] has work.
    #[must_use]
    pub fn work_due(&self) -> Option<Moment> {
        let due = [self.hints_due(), self.expiries.next_at()];
        due.into_iter().flatten().min()
    }

    /// When [`Self::sweep`] has work on hints.
    pub(in crate::ledger) fn next_hint_work(&self) -> Option<Moment> {
        let due = [self.polls.timers.next_at(), self.hinting.next_at()];
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
            self.plan_hints(key, now);
        }
    }

    /// Drops a hint that the holder has acted on.
    pub(in crate::ledger) fn withdraw_hint(&mut self, holder: HolderKey, key: ResourceKey) {
        let withdraw = |poll: &mut Poll| poll.withdraw(key);
        self.polls.change(&mut self.holders, holder, withdraw);
    }

    /// Hints the holders of a resource whose refresh others wait for, or that wait themselves.
    pub(in crate::ledger) fn plan_hints(&mut self, key: ResourceKey, now: Moment) {
        self.hint_chosen(key, |resource, polls| Some(resource.plan_hints(polls, now)));
        let Some(live) = self.live.get_mut(key.index()) else {
            return;
        };
        let hints = live.resource.hints.as_ref();
        if hints.is_some_and(|it| it.round.slots_left > 0) {
            self.hinting.rounds.insert(key);
        }
        let next = hints.map_or(Moment::NEVER, |it| it.next_at);
        self.hinting.plans.set(key.index(), next);
    }

    /// Hints the holders that are chosen of those that poll. Returns how many; `None` if there is
    /// nothing to choose.
    pub(in crate::ledger) fn hint_chosen(
        &mut self,
        key: ResourceKey,
        choose: impl FnOnce(&mut Resource, &dyn Fn(HolderKey) -> bool) -> Option<Chosen>,
    ) -> Option<usize> {
        let live = self.live.get_mut(key.index())?;
        let chosen = choose(&mut live.resource, &|holder| self.holders.polls(holder))?;
        for holder in &chosen {
            self.polls.hint(&mut self.holders, *holder, key);
        }
        Some(chosen.len())
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
                    self.plan_hints(resource, now);
                }
            }
        }
        for _ in 0..budget {
            let Some(slot) = self.hinting.plans.pop_due(now) else {
                break;
            };
            self.plan_hints(ResourceKey::new(slot), now);
        }
        self.walk_changes(now, budget);
        self.hint_rounds(now);
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

    /// Hints all holders of resources whose terms or signal have changed, at a bounded pace.
    fn hint_rounds(&mut self, now: Moment) {
        let Some(mut budget) = self.hinting.round_budget(now) else {
            return;
        };
        for _ in 0..MAX_ROUND_STEPS {
            if budget == 0 {
                break;
            }
            let Some(key) = self.hinting.next_round() else {
                break;
            };
            let hint = |resource: &mut Resource, polls: &dyn Fn(HolderKey) -> bool| {
                resource.hint_round(budget, polls, now)
            };
            if let Some(hinted) = self.hint_chosen(key, hint) {
                budget = budget.saturating_sub(hinted);
            } else {
                self.hinting.rounds.remove(&key);
            }
        }
        self.hinting.spend(budget, now);
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
