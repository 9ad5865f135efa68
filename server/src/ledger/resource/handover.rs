//! The books of a resource as one server hands them over to the next.

use doorman_openapi::{Capacity, HolderKind, Moment};

use super::{
    super::{
        booking::{Booking, Hold},
        entry::Decided,
        handover::{DecisionRecord, FeedbackRecord, HoldRecord, HolderRecord},
        order::Order,
    },
    HolderKey, Resource, wake,
};

impl Resource {
    /// All entries, with what is left of them at `now`.
    pub(in crate::ledger) fn hand_over(
        &self,
        name: impl Fn(HolderKey) -> Option<(HolderKind, String)>,
        now: Moment,
    ) -> impl Iterator<Item = HolderRecord> {
        self.entries.iter().filter_map(move |entry| {
            let (kind, id) = name(entry.holder)?;
            let (epoch, seq) = entry.order.record();
            Some(HolderRecord {
                kind,
                id,
                epoch,
                seq,
                bands: entry.bands(),
                lease: entry.booking.lease(now).map(|hold| left_of(hold, now)),
                claim: entry
                    .booking
                    .claimed_hold(now)
                    .map(|hold| left_of(hold, now)),
                outstanding: entry.outstanding,
                used: entry.used,
                decided: entry.decided.map(|decided| DecisionRecord {
                    ago: nanos_between(decided.at, now),
                    reason: decided.reason,
                    due_after: nanos_between(decided.at, decided.due()),
                }),
                kept: nanos_between(now, entry.released_until),
            })
        })
    }

    /// What is kept of it if it is not divided, at `now`.
    pub(in crate::ledger) fn feedback_snapshot(&self, now: Moment) -> Option<FeedbackRecord> {
        self.undivided.hand_over(&self.terms, now)
    }

    /// Takes that over.
    pub(in crate::ledger) fn restore_feedback(&mut self, record: &FeedbackRecord, stopped: Moment) {
        self.undivided.take_over(record, &self.terms, stopped);
    }

    /// Takes an entry over; `false` when the holder is in the books already.
    pub(in crate::ledger) fn take_over(
        &mut self,
        holder: HolderKey,
        record: &HolderRecord,
        stopped: Moment,
    ) -> bool {
        if self.entries.contains(holder) {
            return false;
        }
        let order = Order::of_record(record.epoch, record.seq);
        let entry = self.entries.add(holder, order);
        let hold = |record: HoldRecord| Hold {
            amount: record.amount.get(),
            end: later(stopped, record.left),
        };
        entry.booking = Booking::of(record.lease.map(hold), record.claim.map(hold));
        entry.outstanding = record.outstanding;
        entry.used = record.used;
        entry.decided = record.decided.map(|decided| {
            let at = Moment::from_nanos(stopped.as_nanos().saturating_sub(decided.ago));
            Decided::new(at, decided.reason, later(at, decided.due_after))
        });
        if record.kept > 0 {
            entry.released_until = later(stopped, record.kept);
        }
        entry.demand(&record.bands, &mut self.demands);
        self.undivided.wanted(self.demands.total().wants, stopped);
        self.booked.set(entry.slot, entry.booking.at(stopped));
        wake(entry, holder, &mut self.ends, stopped);
        if entry.next_end(stopped).is_none() {
            // Nothing of it lasts: it is looked at, and forgotten, at once.
            entry.alarm = stopped;
            self.ends.set(stopped, holder);
        }
        true
    }
}

fn left_of(hold: Hold, now: Moment) -> HoldRecord {
    HoldRecord {
        amount: Capacity::saturating(hold.amount),
        left: nanos_between(now, hold.end),
    }
}

fn nanos_between(earlier: Moment, later: Moment) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}

fn later(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_add(nanos))
}
