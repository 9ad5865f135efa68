//! Charges of admitted requests whose cost may be corrected afterwards.
//!
//! A correction makes the bucket as full as if the cost had been right from the beginning, as far
//! as the admissions since then allow. A refund does not return tokens that would have overflowed:
//! then the corrected costs of any time stay below the rate and one burst. So each charge keeps the
//! least room that the bucket has had since its admission. Returning tokens is a change of that
//! past, and lowers the room of the others.

use doorman_openapi::{Moment, Unit};
use smallvec::SmallVec;

use super::{Limiter, LimiterHandle, Shortage, wait_queue::unlock_and_wake};
use crate::Cost;

/// The room is kept for groups of charges, so that very many cost no more.
const MAX_GROUPS: usize = 32;

/// The charges of one limiter that may be corrected, in the order of their admission.
#[derive(Debug, Default)]
pub(super) struct OpenCharges {
    groups: SmallVec<[Group; 2]>,
    next: u64,
    /// *Spent* by admitted requests when the room was last looked at. It has not fallen since.
    taken: f64,
}

#[derive(Debug)]
struct Group {
    /// The number of its first charge.
    first: u64,
    charges: usize,
    /// The most that may be returned.
    room: f64,
}

impl OpenCharges {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Notes the room of the bucket since the last look. `floor` is the minimum of *spent*.
    fn look(&mut self, taken: f64, floor: f64) {
        let room = (self.taken - floor).max(0.0);
        for group in &mut self.groups {
            group.room = group.room.min(room);
        }
        self.taken = taken;
    }

    /// Adds a charge of which the tokens end at `end`. Returns its number.
    fn open(&mut self, end: f64, taken: f64, floor: f64) -> u64 {
        self.look(taken, floor);
        let number = self.next;
        self.next = number.saturating_add(1);
        let room = (end.min(taken) - floor).max(0.0);
        match self.groups.last_mut() {
            Some(last) if room <= last.room => {
                last.charges = last.charges.saturating_add(1);
                last.room = room;
            }
            Some(_) | None => self.groups.push(Group {
                first: number,
                charges: 1,
                room,
            }),
        }
        if self.groups.len() > MAX_GROUPS {
            self.merge_most_similar();
        }
        number
    }

    /// Merges two groups in a row, of which the less room counts.
    fn merge_most_similar(&mut self) {
        let pairs = self.groups.windows(2).enumerate();
        let gaps = pairs.filter_map(|(index, pair)| match pair {
            [one, next] => Some((index, next.room - one.room)),
            _ => None,
        });
        let Some((index, _)) = gaps.min_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            return;
        };
        let next = self.groups.remove(index.saturating_add(1));
        if let Some(group) = self.groups.get_mut(index) {
            group.charges = group.charges.saturating_add(next.charges);
            group.room = group.room.min(next.room);
        }
    }

    /// The group of a charge.
    fn position(&self, number: u64) -> Option<usize> {
        self.groups.iter().rposition(|it| it.first <= number)
    }

    /// How much of a refund the bucket gets.
    fn refund(&mut self, number: u64, tokens: f64) -> f64 {
        let Some(own) = self.position(number) else {
            return 0.0;
        };
        let room = self.groups.get(own).map_or(0.0, |group| group.room);
        let returned = tokens.min(room);
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.room = if index < own {
                group.room.min(room - returned)
            } else {
                (group.room - returned).max(0.0)
            };
        }
        self.taken -= returned;
        returned
    }

    /// Tokens were returned that were not admitted.
    pub(super) fn lower(&mut self, taken: f64) {
        self.taken = self.taken.min(taken);
    }

    /// A part of *spent* was forgiven: what would be refunded may be a part of it.
    pub(super) fn forgive(&mut self, taken: f64) {
        self.taken = taken;
        for group in &mut self.groups {
            group.room = 0.0;
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(index) = self.position(number)
            && let Some(group) = self.groups.get_mut(index)
        {
            group.charges = group.charges.saturating_sub(1);
            if group.charges == 0 {
                self.groups.remove(index);
            }
        }
    }
}

/// A charge that may be corrected until this is dropped. Its limiter is not forgotten meanwhile.
#[derive(Debug)]
pub(crate) struct OpenCharge {
    limiter: LimiterHandle,
    first: Part,
    /// The part that was charged later, and is refunded first.
    late: Option<Part>,
}

/// Tokens that were charged at one time.
#[derive(Debug)]
struct Part {
    number: u64,
    tokens: f64,
}

impl Part {
    /// Takes off up to so many tokens. Returns how many, and how many of them the bucket gets.
    fn refund(&mut self, charges: &mut OpenCharges, tokens: f64) -> (f64, f64) {
        let tokens = tokens.min(self.tokens);
        self.tokens -= tokens;
        (tokens, charges.refund(self.number, tokens))
    }
}

impl Limiter<'_> {
    /// `end` is that of the tokens of the request.
    pub(super) fn open_charge(self, end: f64, cost: Cost, now: Moment) -> Option<OpenCharge> {
        let mut queue = self.queue();
        if !self.is_current() || self.unit() == Unit::Gauge {
            return None;
        }
        let floor = self.view(now).view.floor;
        let taken = self.record.spent.load() - queue.cost();
        Some(OpenCharge {
            limiter: self.handle(),
            first: Part {
                number: queue.charges().open(end, taken, floor),
                tokens: cost.get(),
            },
            late: None,
        })
    }
}

impl OpenCharge {
    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.limiter.get()
    }

    fn cost(&self) -> f64 {
        self.first.tokens + self.late.as_ref().map_or(0.0, |late| late.tokens)
    }

    /// Corrects the cost: a lower one returns tokens, first to the requests in the queue, and a
    /// higher one leaves debt, which delays them. Returns the shortage that it causes.
    pub(crate) fn correct(&mut self, cost: f64, now: Moment) -> Option<Shortage> {
        let more = cost - self.cost();
        if more == 0.0 {
            return None;
        }
        let limiter = self.limiter.get();
        let record = limiter.record;
        let mut queue = limiter.queue();
        let view = limiter.view(now).view;
        let taken = record.spent.load() - queue.cost();
        let charges = queue.charges();
        charges.look(taken, view.floor);
        let change = if more > 0.0 {
            let end = taken.max(view.floor) + more;
            let late = self.late.get_or_insert_with(|| Part {
                number: charges.open(end, end, view.floor),
                tokens: 0.0,
            });
            late.tokens += more;
            charges.taken = end;
            more
        } else {
            let late = self.late.as_mut();
            let (fewer, returned) = late.map_or((0.0, 0.0), |it| it.refund(charges, -more));
            let (_, others) = self.first.refund(charges, -more - fewer);
            -(returned + others)
        };
        record.spent.update(|spent| spent.max(view.floor) + change);
        queue.advance(None, -change);
        // This total may fall: the worker reports its maximum.
        record.admitted.update(|total| total + more);
        if change < 0.0 {
            unlock_and_wake(queue);
        }
        let runs_low = more > 0.0 && view.runs_low(record.spent.load());
        runs_low.then_some(Shortage::RunningLow)
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        let mut queue = self.limiter.get().queue();
        let charges = queue.charges();
        charges.close(self.first.number);
        if let Some(late) = &self.late {
            charges.close(late.number);
        }
    }
}
