//! Index of resources: values by id or by a small stable index, and timers by that index.
//!
//! A process may lease for hundreds of thousands of keys, so memory per key decides. `IndexMap`,
//! `priority-queue` and `BTreeSet` need more of it; tokio's `DelayQueue` needs a runtime.

use std::{cmp::Reverse, collections::BinaryHeap, hash::BuildHasher};

use doorman_openapi::{Moment, ResourceId};
use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use slab::Slab;

/// Position of a resource in an [`IndexedMap`]: stable until the resource is removed, then reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceIndex(u32);

impl ResourceIndex {
    fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A value that knows its resource, so that the id is stored once.
pub(super) trait HasResource {
    fn resource(&self) -> &ResourceId;
}

#[derive(Debug)]
pub(super) struct IndexedMap<T> {
    indices: HashTable<ResourceIndex>,
    /// Boxed, so that spare slots cost little.
    values: Slab<Box<T>>,
    hasher: RandomState,
}

impl<T> Default for IndexedMap<T> {
    fn default() -> Self {
        Self {
            indices: HashTable::new(),
            values: Slab::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<T: HasResource> IndexedMap<T> {
    pub(super) fn index_of(&self, id: &ResourceId) -> Option<ResourceIndex> {
        let hash = self.hasher.hash_one(id);
        let is_same =
            |index: &ResourceIndex| self.get(*index).is_some_and(|it| it.resource() == id);
        self.indices.find(hash, is_same).copied()
    }

    pub(super) fn get(&self, index: ResourceIndex) -> Option<&T> {
        self.values.get(index.get()).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, index: ResourceIndex) -> Option<&mut T> {
        self.values.get_mut(index.get()).map(Box::as_mut)
    }

    /// Inserts or replaces the value of a resource. `None` when all indices are in use.
    pub(super) fn insert(&mut self, value: T) -> Option<ResourceIndex> {
        if let Some(index) = self.index_of(value.resource()) {
            *self.get_mut(index)? = value;
            return Some(index);
        }
        let hash = self.hasher.hash_one(value.resource());
        let index = ResourceIndex(u32::try_from(self.values.vacant_key()).ok()?);
        self.values.insert(Box::new(value));
        let (values, hasher) = (&self.values, &self.hasher);
        self.indices.insert_unique(hash, index, |index| {
            let value = values.get(index.get());
            value.map_or(0, |value| hasher.hash_one(value.resource()))
        });
        Some(index)
    }

    pub(super) fn remove(&mut self, index: ResourceIndex) -> Option<Box<T>> {
        let hash = self.hasher.hash_one(self.get(index)?.resource());
        if let Ok(found) = self.indices.find_entry(hash, |known| *known == index) {
            hash_table::OccupiedEntry::remove(found);
        }
        self.values.try_remove(index.get())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| value.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Timers in lanes, each a binary heap with the position of each timer, so that one moves without a
/// search. A resource has a timer in at most one lane.
#[derive(Debug)]
pub(super) struct TimerHeap<const LANES: usize> {
    /// No timer is earlier than its parent.
    lanes: [Vec<ResourceIndex>; LANES],
    /// By resource index, as separate arrays so that there is no padding.
    times: Vec<Moment>,
    positions: Vec<u32>,
    lane_of: Vec<u8>,
}

/// A lane and a time.
pub(super) type Timer = (u8, Moment);

/// The position of a resource without a timer.
const UNSET: u32 = u32::MAX;

impl<const LANES: usize> Default for TimerHeap<LANES> {
    fn default() -> Self {
        Self {
            lanes: [const { Vec::new() }; LANES],
            times: Vec::new(),
            positions: Vec::new(),
            lane_of: Vec::new(),
        }
    }
}

impl<const LANES: usize> TimerHeap<LANES> {
    /// Sets, moves or, with `None`, removes the timer of a resource.
    pub(super) fn set(&mut self, index: ResourceIndex, timer: Option<Timer>) {
        let current = self.get(index);
        if current == timer {
            return;
        }
        match (current, timer) {
            (Some((from, _)), Some((to, time))) if from == to => {
                self.set_time(index, time);
                self.restore_order(to, self.position(index).unwrap_or_default());
            }
            (current, timer) => {
                if let Some((lane, _)) = current {
                    self.remove(lane, index);
                }
                if let Some((lane, time)) = timer {
                    self.push(lane, index, time);
                }
            }
        }
    }

    pub(super) fn get(&self, index: ResourceIndex) -> Option<Timer> {
        self.position(index)?;
        Some((*self.lane_of.get(index.get())?, self.time(index)))
    }

    pub(super) fn first(&self, lane: u8) -> Option<(Moment, ResourceIndex)> {
        self.at(lane, 0)
    }

    /// The timers of a lane in order. The cost grows with the timers taken, not with all.
    pub(super) fn iter(&self, lane: u8) -> impl Iterator<Item = (Moment, ResourceIndex)> {
        let mut next = BinaryHeap::new();
        next.extend(self.at(lane, 0).map(|first| Reverse((first, 0))));
        std::iter::from_fn(move || {
            let Reverse((earliest, position)) = next.pop()?;
            let children = children(position).into_iter();
            next.extend(children.filter_map(|it| Some(Reverse((self.at(lane, it)?, it)))));
            Some(earliest)
        })
    }

    pub(super) fn len(&self, lane: u8) -> usize {
        self.lane(lane).len()
    }

    fn push(&mut self, lane: u8, index: ResourceIndex, time: Moment) {
        let position = self.len(lane);
        let Some(heap) = self.lanes.get_mut(usize::from(lane)) else {
            return;
        };
        heap.push(index);
        self.set_time(index, time);
        if let Some(lane_of) = self.lane_of.get_mut(index.get()) {
            *lane_of = lane;
        }
        self.set_position(index, position);
        self.restore_order(lane, position);
    }

    fn remove(&mut self, lane: u8, index: ResourceIndex) {
        let (Some(position), Some(heap)) =
            (self.position(index), self.lanes.get_mut(usize::from(lane)))
        else {
            return;
        };
        heap.swap_remove(position);
        let moved = heap.get(position).copied();
        self.set_position(index, usize::MAX);
        if let Some(moved) = moved {
            self.set_position(moved, position);
            self.restore_order(lane, position);
        }
    }

    /// Moves the timer at a position up or down to where it belongs.
    fn restore_order(&mut self, lane: u8, mut position: usize) {
        while let Some(parent) = parent(position)
            && self.at(lane, position) < self.at(lane, parent)
        {
            self.swap(lane, position, parent);
            position = parent;
        }
        while let Some((earliest, child)) = children(position)
            .into_iter()
            .filter_map(|child| Some((self.at(lane, child)?, child)))
            .min()
            && Some(earliest) < self.at(lane, position)
        {
            self.swap(lane, position, child);
            position = child;
        }
    }

    fn swap(&mut self, lane: u8, one: usize, other: usize) {
        if let Some(heap) = self.lanes.get_mut(usize::from(lane)) {
            heap.swap(one, other);
        }
        for position in [one, other] {
            if let Some(index) = self.lane(lane).get(position) {
                self.set_position(*index, position);
            }
        }
    }

    fn lane(&self, lane: u8) -> &[ResourceIndex] {
        self.lanes.get(usize::from(lane)).map_or(&[], Vec::as_slice)
    }

    fn at(&self, lane: u8, position: usize) -> Option<(Moment, ResourceIndex)> {
        let index = *self.lane(lane).get(position)?;
        Some((self.time(index), index))
    }

    fn position(&self, index: ResourceIndex) -> Option<usize> {
        let position = *self.positions.get(index.get())?;
        (position != UNSET).then(|| usize::try_from(position).unwrap_or(usize::MAX))
    }

    fn time(&self, index: ResourceIndex) -> Moment {
        self.times
            .get(index.get())
            .copied()
            .unwrap_or(Moment::NEVER)
    }

    fn set_time(&mut self, index: ResourceIndex, time: Moment) {
        let len = index.get().saturating_add(1);
        if len > self.times.len() {
            self.times.resize(len, Moment::NEVER);
            self.positions.resize(len, UNSET);
            self.lane_of.resize(len, 0);
        }
        if let Some(known) = self.times.get_mut(index.get()) {
            *known = time;
        }
    }

    fn set_position(&mut self, index: ResourceIndex, position: usize) {
        if let Some(known) = self.positions.get_mut(index.get()) {
            *known = u32::try_from(position).unwrap_or(UNSET);
        }
    }
}

fn parent(position: usize) -> Option<usize> {
    Some(position.checked_sub(1)? / 2)
}

fn children(position: usize) -> [usize; 2] {
    let first = position.saturating_mul(2).saturating_add(1);
    [first, first.saturating_add(1)]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use proptest::prelude::*;

    use super::*;

    impl HasResource for (ResourceId, u32) {
        fn resource(&self) -> &ResourceId {
            &self.0
        }
    }

    proptest! {
        #[test]
        fn map_returns_last_value_of_each_resource(
            changes in prop::collection::vec((0..40_u8, prop::option::of(0..9_u32)), 0..200)
        ) {
            let mut map = IndexedMap::default();
            let mut model = HashMap::new();
            for (name, value) in changes {
                let id = ResourceId::new(format!("k/{name}")).unwrap();
                match value {
                    Some(value) => {
                        prop_assert!(map.insert((id.clone(), value)).is_some());
                        model.insert(id, value);
                    }
                    None => {
                        let removed = map.index_of(&id).and_then(|index| map.remove(index));
                        prop_assert_eq!(removed.map(|value| value.1), model.remove(&id));
                    }
                }
                for (id, value) in &model {
                    let index = map.index_of(id).unwrap();
                    prop_assert_eq!(map.get(index), Some(&(id.clone(), *value)));
                }
                prop_assert_eq!((map.len(), map.iter().count()), (model.len(), model.len()));
            }
        }

        #[test]
        fn heap_stays_ordered_as_timers_move(
            changes in prop::collection::vec(
                (0..40_u32, prop::option::of((0..3_u8, 0..20_u64))),
                0..200,
            )
        ) {
            let mut heap = TimerHeap::<3>::default();
            let mut model = BTreeMap::new();
            for (index, timer) in changes {
                let index = ResourceIndex(index);
                let timer = timer.map(|(lane, time)| (lane, Moment::from_nanos(time)));
                heap.set(index, timer);
                match timer {
                    Some(timer) => model.insert(index, timer),
                    None => model.remove(&index),
                };
                prop_assert_eq!(heap.get(index), timer);
                for lane in 0..3 {
                    let timers = model.iter().filter(|(_, (of, _))| *of == lane);
                    let mut expected: Vec<_> =
                        timers.map(|(index, (_, time))| (*time, *index)).collect();
                    expected.sort();
                    prop_assert_eq!(heap.first(lane), expected.first().copied());
                    prop_assert_eq!(heap.len(lane), expected.len());
                    prop_assert_eq!(heap.iter(lane).collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
