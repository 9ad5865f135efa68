//! One resource: its books, and the decision what a holder gets.

mod handover;
mod holdings;

pub(super) use self::holdings::Standpoint;

use doorman_openapi::{Band, CLOCK_DRIFT, Capacity, Moment, Reason, Seconds};

use super::{
    alarms::Alarms,
    booking::{Booking, Hold},
    decision::{Decision, TOLERANCE, grant, is_over, keep, reaches, restate, state_to_new_master},
    demands::Demands,
    entries::Entries,
    entry::{Baseline, Decided, Entry},
    order::Order,
    sums::Sums,
    terms::Terms,
    undivided::{Feedback, Reign, Undivided},
};

/// Names a holder within this server.
pub(super) type HolderKey = u32;

/// How many ends a request may clear away: a request makes at most one, so the books cannot fill up, and no request pays for many.
const ENDS_PER_REQUEST: usize = 8;

/// What a holder asks, and what it says of itself.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) order: Order,
    pub(super) bands: &'a [Band],
    pub(super) has: Has,
    pub(super) outstanding: Capacity,
    pub(super) used: Option<Capacity>,
}

/// What a holder says it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Has {
    /// So much.
    Amount(Capacity),
    /// A node's new master does not know.
    Unknown,
}

/// The books of one resource.
#[derive(Debug)]
pub(super) struct Resource {
    terms: Terms,
    learning_until: Moment,
    predecessor: Option<Reign>,
    entries: Entries,
    /// What each holder may be using.
    booked: Sums,
    demands: Demands,
    undivided: Undivided,
    ends: Alarms<HolderKey>,
}

impl Resource {
    /// Without holders. `predecessor`: of a server whose leases may be outstanding, be they learned or not.
    pub(super) fn new(
        terms: Terms,
        learning_until: Moment,
        predecessor: Option<Reign>,
        now: Moment,
    ) -> Self {
        Self {
            undivided: Undivided::new(&terms, predecessor, now),
            terms,
            learning_until,
            predecessor,
            entries: Entries::default(),
            booked: Sums::default(),
            demands: Demands::default(),
            ends: Alarms::default(),
        }
    }

    /// Puts new terms in force. What stands stands until its next refresh or end.
    pub(super) fn set_terms(&mut self, terms: Terms, learning_until: Moment, now: Moment) {
        self.undivided.adopt(&self.terms, &terms, now);
        self.undivided.wanted(self.sum_wants(), now);
        self.terms = terms;
        self.learning_until = learning_until;
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(super) fn in_learning_mode(&self, now: Moment) -> bool {
        now < self.learning_until
    }

    pub(super) fn learning_until(&self) -> Moment {
        self.learning_until
    }

    pub(super) fn knows(&self, holder: HolderKey) -> bool {
        self.entries.contains(holder)
    }

    /// Whether a holder has a lease, be it on nothing, or is said to have one.
    pub(super) fn has_lease(&self, holder: HolderKey, now: Moment) -> bool {
        self.entries
            .get(holder)
            .is_some_and(|entry| now < entry.booking.last_end())
    }

    /// How many entries the books hold, released ones that are kept for their order included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When something ends next.
    pub(super) fn next_end(&self) -> Option<Moment> {
        let spent = self.undivided.is_spent_until(&self.terms);
        self.ends
            .next()
            .or_else(|| self.entries.is_empty().then_some(spent))
    }

    /// Whether to forget it is to give nothing away.
    pub(super) fn is_empty(&self, now: Moment) -> bool {
        self.entries.is_empty() && self.undivided.is_spent_until(&self.terms) <= now
    }

    /// What all holders are told alike.
    pub(super) fn feedback(&self, now: Moment) -> Feedback {
        self.undivided.feedback(&self.terms, now)
    }

    /// The most that all holders together may be using, by the books.
    pub(super) fn sum_has(&self) -> f64 {
        self.booked.total()
    }

    /// Whether that is more than there is.
    pub(super) fn is_over_capacity(&self) -> bool {
        is_over(&self.terms, &self.booked)
    }

    pub(super) fn sum_wants(&self) -> f64 {
        self.demands.total().wants
    }

    /// How many clients there are, those behind nodes included.
    pub(super) fn clients(&self) -> f64 {
        self.demands.total().weight
    }

    /// Decides what a holder gets, and books it.
    pub(super) fn refresh(&mut self, holder: HolderKey, ask: &Ask<'_>, now: Moment) -> Decision {
        let learning = self.in_learning_mode(now);
        let Self {
            terms,
            learning_until,
            entries,
            booked,
            demands,
            undivided,
            predecessor,
            ends,
        } = self;
        let (entry, is_new) = match entries.get_mut(holder) {
            Some(entry) => (entry, false),
            None => (entries.add(holder, ask.order), true),
        };
        if !is_new && !ask.order.follows(entry.order) {
            let stated = match ask.has {
                Has::Amount(_) => restate(entry, terms, now),
                Has::Unknown => state_to_new_master(entry, terms, learning, now),
            };
            entry.told(stated.refresh_interval, now);
            return stated;
        }
        entry.order = ask.order.after(entry.order);
        entry.released_until = Moment::ORIGIN;
        entry.outstanding = ask.outstanding;
        let baseline = if predecessor.is_some_and(|reign| now < reign.outstanding_until) {
            Baseline::Said
        } else {
            Baseline::Zero
        };
        undivided.used(
            entry.says_used(ask.used, baseline, terms.rate()),
            terms,
            now,
        );
        entry.demand(ask.bands, demands);
        undivided.wanted(demands.total().wants, now);

        let before = entry.booking.at(now);
        let others = booked.all_but(entry.slot);
        let room = terms.room_beside(others);
        let mut claimed_too_much = false;
        // While learning the books do not know what it was begun under.
        let overused = !learning && ask.outstanding.get() > before * (1.0 + TOLERANCE);
        if let Has::Amount(has) = ask.has {
            let claim = has.max(ask.outstanding).get();
            // While learning the books cannot tell what is free; later a claim counts at most what the holder was granted,
            // or what nobody else has.
            let most = if learning {
                terms.capacity()
            } else {
                before.max(room)
            };
            claimed_too_much = has.get() > most * (1.0 + TOLERANCE);
            let unknown_end = if learning {
                *learning_until
            } else {
                now.after_seconds(terms.lease_length() * CLOCK_DRIFT)
            };
            entry.booking.claimed(claim.min(most), unknown_end, now);
        } else if ask.outstanding.get() > before {
            // What a node has handed out it has, even if it does not know what it was granted.
            let outstanding = ask.outstanding.get().min(before.max(room));
            let unknown_end = now.after_seconds(terms.lease_length() * CLOCK_DRIFT);
            entry.booking.claimed(outstanding, unknown_end, now);
        }
        let held = match ask.has {
            Has::Amount(_) => entry.booking.claim(now),
            Has::Unknown => before,
        };

        // Who is told that more is to come is not early when it comes for it. While learning, the lease that a late request brought
        // into the books is not one that its holder has because it asks again: it has what it says.
        let early = !learning
            && entry.decided.is_some_and(|decided| {
                decided.reason != Reason::Pending && now < terms.early_until(decided.at)
            });
        if ask.has == Has::Unknown && (learning || before > 0.0) {
            if entry.booking.next_end(now).is_none() {
                // It holds nothing, and its entry must end all the same.
                let nothing = Hold::lease(0.0, terms.lease_length(), now);
                entry.booking.granted(nothing);
            }
            booked.set(entry.slot, entry.booking.at(now));
            wake(entry, holder, ends, now);
            let stated = state_to_new_master(entry, terms, learning, now);
            entry.told(stated.refresh_interval, now);
            return Decision { overused, ..stated };
        }
        if early {
            booked.set(entry.slot, entry.booking.at(now));
            wake(entry, holder, ends, now);
            let stated = restate(entry, terms, now);
            entry.told(stated.refresh_interval, now);
            return Decision {
                claimed_too_much,
                overused,
                ..stated
            };
        }

        let wants = entry
            .demands()
            .map(|placed| placed.demand().wants)
            .sum::<f64>();
        let (capacity, reason) = if terms.is_blocked() {
            (0.0, Reason::Blocked)
        } else if learning {
            let kept = keep(held, others, terms.capacity());
            (
                kept,
                if reaches(kept, wants) {
                    Reason::Granted
                } else {
                    Reason::Pending
                },
            )
        } else {
            grant(
                terms.rule(),
                wants,
                terms.rule().share(demands, entry.demands()),
                held,
                room,
            )
        };
        let refresh_interval = terms.refresh_interval(reason == Reason::Pending);
        let due = now.after_seconds(refresh_interval.get());
        entry.decided = Some(Decided::new(now, reason, due));
        let lease = Hold::lease(capacity, terms.lease_length(), now);
        entry.booking.granted(lease);
        booked.set(entry.slot, entry.booking.at(now));
        wake(entry, holder, ends, now);
        Decision {
            capacity: Capacity::saturating(capacity),
            lease_length: Seconds::saturating(terms.lease_length()),
            refresh_interval,
            reason,
            booked_until: lease.end,
            claimed_too_much,
            overused,
            is_over_capacity: !learning && is_over(terms, booked),
        }
    }

    /// Takes back all that a holder has. A late release changes nothing.
    pub(super) fn release(&mut self, holder: HolderKey, order: Order, now: Moment) {
        let Some(entry) = self.entries.get_mut(holder) else {
            return;
        };
        if !order.follows(entry.order) {
            return;
        }
        entry.order = order.after(entry.order);
        entry.withdraw(&mut self.demands);
        self.undivided.wanted(self.demands.total().wants, now);
        entry.booking = Booking::NOTHING;
        // Whoever asks again begins to count anew.
        entry.used = None;
        entry.decided = None;
        self.booked.set(entry.slot, 0.0);
        if entry.order.is_known() {
            entry.released_until = now.after_seconds(self.terms.lease_length() * CLOCK_DRIFT);
            wake(entry, holder, &mut self.ends, now);
        } else {
            self.forget(holder, now);
            let entries = &self.entries;
            self.ends.prune(entries.len(), |at, holder| {
                entries.get(*holder).is_some_and(|entry| entry.alarm == at)
            });
        }
    }

    /// Clears away what has ended, at most `budget` ends; tells of each holder that is gone.
    pub(super) fn expire(&mut self, now: Moment, budget: usize, mut gone: impl FnMut(HolderKey)) {
        for _ in 0..budget {
            let Some((at, holder)) = self.ends.ring(now) else {
                return;
            };
            let Some(entry) = self
                .entries
                .get_mut(holder)
                .filter(|entry| entry.alarm == at)
            else {
                continue;
            };
            entry.alarm = Moment::NEVER;
            self.booked.set(entry.slot, entry.booking.at(now));
            if entry.next_end(now).is_some() {
                wake(entry, holder, &mut self.ends, now);
            } else {
                self.forget(holder, now);
                gone(holder);
            }
        }
    }

    /// As much of [`Self::expire`] as a request can pay for.
    pub(super) fn expire_some(&mut self, now: Moment, gone: impl FnMut(HolderKey)) {
        self.expire(now, ENDS_PER_REQUEST, gone);
    }

    fn forget(&mut self, holder: HolderKey, now: Moment) {
        if let Some(mut entry) = self.entries.remove(holder) {
            entry.withdraw(&mut self.demands);
            self.undivided.wanted(self.demands.total().wants, now);
            self.booked.set(entry.slot, 0.0);
        }
    }
}

/// Sees to it that the entry is looked at when something of it ends. An alarm that rings sooner does as well.
fn wake(entry: &mut Entry, holder: HolderKey, ends: &mut Alarms<HolderKey>, now: Moment) {
    if let Some(end) = entry.next_end(now).filter(|end| *end < entry.alarm) {
        entry.alarm = end;
        ends.set(end, holder);
    }
}
