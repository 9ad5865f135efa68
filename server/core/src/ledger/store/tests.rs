//! Properties of the collections.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
};

use doorman_openapi::Moment;
use proptest::prelude::*;

use super::{
    group_tree::GroupTree,
    hash_index::HashIndex,
    ranked_slots::{Place, Rank, RankedSlots},
    timers::Timers,
};

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().sum()
}

/// Of which several have the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u8);

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0 % 5).hash(state);
    }
}

proptest! {
    #[test]
    fn summaries_agree_with_a_list(
        changes in prop::collection::vec((0usize..5000, 0u64..9), 1..200)
    ) {
        let mut tree = GroupTree::default();
        let mut list = [0; 5000];
        for (slot, number) in changes {
            tree.set(slot, number, 0, sum);
            list[slot] = number;
            prop_assert_eq!(tree.get(slot).unwrap_or(0), number);
            prop_assert_eq!(sum(tree.top()), sum(&list));
            if tree.get(slot).is_some() {
                // All but one are those beside it on the way up.
                let others = tree.ascend(slot).map(|(group, at)| sum(group) - group[at]);
                prop_assert_eq!(others.sum::<u64>(), sum(&list) - number);
            }
            let last = list.iter().rposition(|number| *number > 0);
            let found = tree.descend(|group| group.iter().rposition(|sum| *sum > 0));
            prop_assert_eq!(found, last);
        }
    }

    #[test]
    fn timers_agree_with_a_list(
        changes in prop::collection::vec((0usize..700, 0u64..200), 1..300)
    ) {
        let mut timers = Timers::default();
        let mut list = [Moment::NEVER; 700];
        for (slot, at) in changes {
            let at = if at == 0 { Moment::NEVER } else { Moment::from_nanos(at) };
            timers.set(slot, at);
            list[slot] = at;
            let earliest = list.iter().min().copied().filter(|at| *at < Moment::NEVER);
            prop_assert_eq!((timers.get(slot), timers.next_at()), (at, earliest));
        }
        for now in [50, 100, 200].map(Moment::from_nanos) {
            while let Some(slot) = timers.pop_due(now) {
                prop_assert_eq!(list.iter().min(), Some(&list[slot]));
                prop_assert!(list[slot] <= now);
                list[slot] = Moment::NEVER;
            }
            prop_assert!(list.iter().all(|at| *at > now));
        }
    }

    #[test]
    fn ranked_slots_agree_with_sorting(
        changes in prop::collection::vec((0usize..50, any::<bool>(), -2i32..3, -9i8..9), 0..200)
    ) {
        let mut slots = RankedSlots::default();
        let mut list = [None; 50];
        for (slot, is_in, band, number) in changes {
            let number = f64::from(number);
            slots.set(slot, is_in.then(|| Rank::new(band, number)));
            list[slot] = is_in.then_some((band, number));
        }
        let mut sorted: Vec<_> = (0..50).filter(|slot| list[*slot].is_some()).collect();
        sorted.sort_by(|a, b| list[*a].partial_cmp(&list[*b]).unwrap());
        let next = |after: &Option<Place>| slots.next(*after).map(Some);
        let places = std::iter::successors(slots.next(None).map(Some), next).flatten();
        let places: Vec<_> = places.collect();
        prop_assert_eq!(places.iter().map(|it| it.slot()).collect::<Vec<_>>(), sorted);
        for place in &places {
            let next = places.iter().find(|it| it.band() > place.band());
            prop_assert_eq!(slots.next(Some(place.after_band())), next.copied());
        }
    }

    #[test]
    fn hash_index_agrees_with_a_map(changes in prop::collection::vec((any::<bool>(), 0u8..20), 0..100)) {
        let mut index = HashIndex::default();
        let mut map = BTreeMap::new();
        let mut ids = Vec::new();
        for (is_insertion, id) in changes {
            let id = Id(id);
            if let Some(key) = map.remove(&id) {
                index.remove(&id, key);
            }
            if is_insertion {
                map.insert(id, ids.len());
                index.insert(&id, ids.len());
                ids.push(id);
            }
            for id in (0..20).map(Id) {
                let found = index.find(&id, |key| ids[key] == id);
                prop_assert_eq!(found, map.get(&id).copied());
            }
        }
    }
}
