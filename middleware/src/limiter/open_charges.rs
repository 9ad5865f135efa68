//! Charges of one limiter that may be corrected, and how much of them the bucket may get back.
//!
//! A refund does not return tokens that would have overflowed: then the corrected costs of any time
//! stay below the rate and one burst. So each charge keeps the least room that the bucket has had
//! since its admission. Returning tokens is a change of that past, and lowers the room of the
//! others.

use smallvec::SmallVec;

/// The room is kept for groups of charges, so that very many cost no more.
const MAX_GROUPS: usize = 32;

/// The charges of one limiter that may be corrected, in the order of their admission.
#[derive(Debug, Default)]
pub(super) struct OpenCharges {
    groups: SmallVec<[Group; 2]>,
    next: u64,
    /// *Spent* by admitted requests when the room was last noted. It has not fallen since.
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

    /// Notes the room of the bucket since the last time. `floor` is the minimum of *spent*.
    pub(super) fn note_room(&mut self, taken: f64, floor: f64) {
        let room = (self.taken - floor).max(0.0);
        for group in &mut self.groups {
            group.room = group.room.min(room);
        }
        self.taken = taken;
    }

    /// Adds a charge of which the tokens end at `end`. Returns its number.
    pub(super) fn open(&mut self, end: f64, taken: f64, floor: f64) -> u64 {
        self.note_room(taken, floor);
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

    /// How many tokens of a charge the bucket can get back.
    pub(super) fn room(&self, number: u64) -> f64 {
        let own = self.position(number).and_then(|own| self.groups.get(own));
        own.map_or(0.0, |group| group.room)
    }

    /// The bucket got so many tokens of a charge back, at most its [room](Self::room).
    pub(super) fn refund(&mut self, number: u64, tokens: f64) {
        let Some(own) = self.position(number) else {
            return;
        };
        let left = self.room(number) - tokens;
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.room = if index < own {
                group.room.min(left)
            } else {
                (group.room - tokens).max(0.0)
            };
        }
        self.taken -= tokens;
    }

    /// Tokens were charged later, up to `end`.
    pub(super) fn raise(&mut self, end: f64) {
        self.taken = self.taken.max(end);
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

    pub(super) fn close(&mut self, number: u64) {
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
