//! Resources by number: values in dense chunks, and timers.
//!
//! A process may lease for hundreds of thousands of keys, so memory per key decides. The worker
//! uses the numbers of the limiters, whose records have the names. `IndexMap`, `priority-queue` and
//! `BTreeSet` need more memory; tokio's `DelayQueue` needs a runtime.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    iter::repeat_with,
};

use doorman_openapi::{Moment, ResourceId};
use slab::Slab;

/// The number of a resource: stable until the resource is removed, then reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceIndex(u32);

impl ResourceIndex {
    /// A resource by the number that its [`Names`] gave it. Numbers are small: memory grows with
    /// the largest.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// The numbers of resources, by id. Each wanted resource has another number.
///
/// A program that has numbers for its resources anyway implements this, so that a holder keeps no
/// ids of its own.
pub trait Names {
    /// The number of a resource; `None` if it has none.
    fn find(&self, id: &ResourceId) -> Option<ResourceIndex>;

    /// The number of a resource that is wanted from now on; `None` if it cannot have one.
    fn insert(&mut self, id: &ResourceId) -> Option<ResourceIndex>;

    /// The resource is no longer wanted: another one may get its number.
    fn remove(&mut self, index: ResourceIndex);

    /// The resource with a number.
    fn id(&self, index: ResourceIndex) -> Option<ResourceId>;
}

/// Numbers that the holder gives to resources by itself.
#[derive(Debug, Clone, Default)]
pub struct OwnNames {
    ids: Slab<ResourceId>,
    numbers: HashMap<ResourceId, ResourceIndex>,
}

impl Names for OwnNames {
    fn find(&self, id: &ResourceId) -> Option<ResourceIndex> {
        self.numbers.get(id).copied()
    }

    fn insert(&mut self, id: &ResourceId) -> Option<ResourceIndex> {
        if let Some(index) = self.find(id) {
            return Some(index);
        }
        let index = ResourceIndex(u32::try_from(self.ids.vacant_key()).ok()?);
        self.ids.insert(id.clone());
        self.numbers.insert(id.clone(), index);
        Some(index)
    }

    fn remove(&mut self, index: ResourceIndex) {
        if let Some(id) = self.ids.try_remove(index.get()) {
            self.numbers.remove(&id);
        }
    }

    fn id(&self, index: ResourceIndex) -> Option<ResourceId> {
        self.ids.get(index.get()).cloned()
    }
}

/// Values in a chunk.
const CHUNK: usize = 64;

/// Values by number. A chunk without values is freed.
#[derive(Debug, Clone)]
pub struct Dense<T> {
    chunks: Vec<Option<Box<Chunk<T>>>>,
    len: usize,
}

#[derive(Debug, Clone)]
struct Chunk<T> {
    len: usize,
    values: Box<[Option<T>]>,
}

impl<T> Default for Dense<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Dense<T> {
    /// The value with a number.
    #[must_use]
    pub fn get(&self, index: ResourceIndex) -> Option<&T> {
        let chunk = self.chunks.get(index.get() / CHUNK)?.as_ref()?;
        chunk.values.get(index.get() % CHUNK)?.as_ref()
    }

    /// As [`get`](Self::get), to change it.
    pub fn get_mut(&mut self, index: ResourceIndex) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index.get() / CHUNK)?.as_mut()?;
        chunk.values.get_mut(index.get() % CHUNK)?.as_mut()
    }

    /// Inserts or replaces a value.
    pub fn insert(&mut self, index: ResourceIndex, value: T) {
        let number = index.get() / CHUNK;
        if number >= self.chunks.len() {
            self.chunks.resize_with(number.saturating_add(1), || None);
        }
        let Some(chunk) = self.chunks.get_mut(number) else {
            return;
        };
        let chunk = chunk.get_or_insert_with(|| {
            Box::new(Chunk {
                len: 0,
                values: repeat_with(|| None).take(CHUNK).collect(),
            })
        });
        if let Some(slot) = chunk.values.get_mut(index.get() % CHUNK)
            && slot.replace(value).is_none()
        {
            chunk.len = chunk.len.saturating_add(1);
            self.len = self.len.saturating_add(1);
        }
    }

    /// Removes a value.
    pub fn remove(&mut self, index: ResourceIndex) -> Option<T> {
        let place = self.chunks.get_mut(index.get() / CHUNK)?;
        let chunk = place.as_mut()?;
        let value = chunk.values.get_mut(index.get() % CHUNK)?.take()?;
        chunk.len = chunk.len.saturating_sub(1);
        if chunk.len == 0 {
            *place = None;
        }
        self.len = self.len.saturating_sub(1);
        Some(value)
    }

    /// All values, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceIndex, &T)> {
        let chunks = self.chunks.iter().zip((0..).step_by(CHUNK));
        chunks.flat_map(|(chunk, first)| {
            let values = chunk.iter().flat_map(|chunk| &chunk.values);
            let numbered = values.zip(first..);
            numbered.filter_map(|(value, number)| Some((ResourceIndex(number), value.as_ref()?)))
        })
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Timers in lanes, each a binary heap with the position of each timer, so that one moves without a
/// search. A resource has a timer in at most one lane.
#[derive(Debug, Clone)]
pub struct TimerHeap<const LANES: usize> {
    /// No timer is earlier than its parent.
    lanes: [Vec<ResourceIndex>; LANES],
    /// By resource index, as separate arrays so that there is no padding.
    times: Vec<Moment>,
    positions: Vec<u32>,
    /// Empty if there is only one lane.
    lane_of: Vec<u8>,
}

/// A lane and a time.
pub type Timer = (u8, Moment);

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
    pub fn set(&mut self, index: ResourceIndex, timer: Option<Timer>) {
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

    /// The timer of a resource.
    #[must_use]
    pub fn get(&self, index: ResourceIndex) -> Option<Timer> {
        self.position(index)?;
        let lane = self.lane_of.get(index.get()).copied();
        Some((lane.unwrap_or_default(), self.time(index)))
    }

    /// The earliest timer of a lane.
    #[must_use]
    pub fn first(&self, lane: u8) -> Option<(Moment, ResourceIndex)> {
        self.at(lane, 0)
    }

    /// The timers of a lane in order. The cost grows with the timers taken, not with all.
    pub fn iter(&self, lane: u8) -> impl Iterator<Item = (Moment, ResourceIndex)> {
        let mut next = BinaryHeap::new();
        next.extend(self.at(lane, 0).map(|first| Reverse((first, 0))));
        std::iter::from_fn(move || {
            let Reverse((earliest, position)) = next.pop()?;
            let children = children(position).into_iter();
            next.extend(children.filter_map(|it| Some(Reverse((self.at(lane, it)?, it)))));
            Some(earliest)
        })
    }

    /// The number of timers in a lane.
    #[must_use]
    pub fn len(&self, lane: u8) -> usize {
        self.lane(lane).len()
    }

    fn push(&mut self, lane: u8, index: ResourceIndex, time: Moment) {
        let position = self.len(lane);
        let Some(heap) = self.lanes.get_mut(usize::from(lane)) else {
            return;
        };
        reserve(heap, 1);
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
        if let Some(more) = len.checked_sub(self.times.len()) {
            reserve(&mut self.times, more);
            reserve(&mut self.positions, more);
            self.times.resize(len, Moment::NEVER);
            self.positions.resize(len, UNSET);
            if LANES > 1 {
                reserve(&mut self.lane_of, more);
                self.lane_of.resize(len, 0);
            }
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

/// Makes room for more values, with an eighth to spare: memory counts more than copies.
fn reserve<T>(values: &mut Vec<T>, more: usize) {
    if values.capacity().saturating_sub(values.len()) < more {
        values.reserve_exact(more.max(values.len() / 8));
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_found_by_the_id_of_their_resource(
            changes in prop::collection::vec((0..200_u8, prop::option::of(0..9_u32)), 0..300)
        ) {
            let mut names = OwnNames::default();
            let mut values = Dense::default();
            let mut model = BTreeMap::new();
            for (name, value) in changes {
                let id = ResourceId::new(format!("k/{name}")).unwrap();
                match value {
                    Some(value) => {
                        values.insert(names.insert(&id).unwrap(), value);
                        model.insert(id, value);
                    }
                    None => {
                        let index = names.find(&id);
                        let removed = index.and_then(|index| values.remove(index));
                        index.inspect(|index| names.remove(*index));
                        prop_assert_eq!(removed, model.remove(&id));
                    }
                }
                for (id, value) in &model {
                    let index = names.find(id).unwrap();
                    prop_assert_eq!(values.get(index), Some(value));
                    prop_assert_eq!(names.id(index), Some(id.clone()));
                }
                let found = values.iter().map(|(index, value)| (names.id(index).unwrap(), *value));
                prop_assert_eq!(&found.collect::<BTreeMap<_, _>>(), &model);
                prop_assert_eq!(values.len(), model.len());
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
