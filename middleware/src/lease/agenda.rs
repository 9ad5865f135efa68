//! What has a moment, in the order of the moments: when one is due, or when its lease ends.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

use super::roll::Number;

/// A heap, and where in it everyone stands, so that one can be moved without a search. It costs each fewer bytes than a tree.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// The earliest first: none comes before its parent.
    heap: Vec<Number>,
    /// By number.
    entries: Entries,
}

/// Apart from each other, so that no room is left between them.
#[derive(Debug, Default)]
struct Entries {
    moments: Vec<Moment>,
    places: Vec<u32>,
}

/// Where those stand who are not in the heap.
const NOWHERE: u32 = u32::MAX;

impl Agenda {
    /// Takes it down for this moment and no other; `None` is not at all.
    pub(super) fn set(&mut self, number: Number, at: Option<Moment>) {
        match (self.entries.place(number), at) {
            (Some(place), Some(at)) => {
                if self.entries.moment(number) != at {
                    self.entries.put(number, at);
                    self.settle(place);
                }
            }
            (None, Some(at)) => {
                self.entries.put(number, at);
                let place = self.heap.len();
                self.heap.push(number);
                self.entries.stands(number, place);
                self.settle(place);
            }
            (Some(place), None) => {
                self.heap.swap_remove(place);
                self.entries.leaves(number);
                if let Some(moved) = self.heap.get(place) {
                    self.entries.stands(*moved, place);
                    self.settle(place);
                }
            }
            (None, None) => {}
        }
    }

    /// What it is taken down for.
    pub(super) fn of(&self, number: Number) -> Option<Moment> {
        self.entries.place(number)?;
        Some(self.entries.moment(number))
    }

    /// The earliest.
    pub(super) fn first(&self) -> Option<(Moment, Number)> {
        self.at(0)
    }

    /// All, the earliest first. Whoever looks at a few pays for a few.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Moment, Number)> {
        let mut next = BinaryHeap::new();
        next.extend(self.at(0).map(|first| Reverse((first, 0))));
        std::iter::from_fn(move || {
            let Reverse((earliest, place)) = next.pop()?;
            let children = children(place).into_iter();
            next.extend(children.filter_map(|child| Some(Reverse((self.at(child)?, child)))));
            Some(earliest)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    fn at(&self, place: usize) -> Option<(Moment, Number)> {
        let number = *self.heap.get(place)?;
        Some((self.entries.moment(number), number))
    }

    /// Moves what stands at a place up or down to where it belongs.
    fn settle(&mut self, mut place: usize) {
        while let Some(parent) = parent(place)
            && self.at(place) < self.at(parent)
        {
            self.swap(place, parent);
            place = parent;
        }
        while let Some((earliest, child)) = children(place)
            .into_iter()
            .filter_map(|child| Some((self.at(child)?, child)))
            .min()
            && Some(earliest) < self.at(place)
        {
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            if let Some(number) = self.heap.get(place) {
                self.entries.stands(*number, place);
            }
        }
    }
}

fn parent(place: usize) -> Option<usize> {
    Some(place.checked_sub(1)? / 2)
}

fn children(place: usize) -> [usize; 2] {
    let first = place.saturating_mul(2).saturating_add(1);
    [first, first.saturating_add(1)]
}

impl Entries {
    fn place(&self, number: Number) -> Option<usize> {
        let place = self.places.get(number.index())?;
        (*place != NOWHERE).then(|| usize::try_from(*place).unwrap_or(usize::MAX))
    }

    fn moment(&self, number: Number) -> Moment {
        let moment = self.moments.get(number.index());
        moment.copied().unwrap_or(Moment::NEVER)
    }

    fn put(&mut self, number: Number, at: Moment) {
        let index = number.index();
        if index >= self.moments.len() {
            let len = index.saturating_add(1);
            self.moments.resize(len, Moment::NEVER);
            self.places.resize(len, NOWHERE);
        }
        if let Some(moment) = self.moments.get_mut(index) {
            *moment = at;
        }
    }

    fn stands(&mut self, number: Number, place: usize) {
        if let Some(stands) = self.places.get_mut(number.index()) {
            // There are no more places than numbers.
            *stands = u32::try_from(place).unwrap_or(NOWHERE);
        }
    }

    fn leaves(&mut self, number: Number) {
        if let Some(stands) = self.places.get_mut(number.index()) {
            *stands = NOWHERE;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_in_order_whatever_is_moved_and_taken_off(
            changes in prop::collection::vec((0..40_u32, prop::option::of(0..20_u64)), 0..200)
        ) {
            let mut agenda = Agenda::default();
            let mut known = BTreeMap::new();
            for (number, at) in changes {
                let (number, at) = (Number::from(number), at.map(Moment::from_nanos));
                agenda.set(number, at);
                match at {
                    Some(at) => known.insert(number, at),
                    None => known.remove(&number),
                };
                let mut expected: Vec<_> = known.iter().map(|(number, at)| (*at, *number)).collect();
                expected.sort();
                prop_assert_eq!(agenda.first(), expected.first().copied());
                prop_assert_eq!(agenda.len(), expected.len());
                prop_assert_eq!(agenda.iter().collect::<Vec<_>>(), expected);
            }
        }
    }
}
