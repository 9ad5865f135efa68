//! What is kept of each resource: found by the resource's name, or by a number that costs less to remember.

use std::hash::BuildHasher;

use doorman_openapi::ResourceId;
use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table};
use slab::Slab;

/// What knows which resource it is kept of.
pub(super) trait Named {
    fn resource(&self) -> &ResourceId;
}

/// Stands for a resource as long as something is kept of it; then perhaps for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u32);

/// The name of each is kept once, in the record itself.
#[derive(Debug)]
pub(super) struct Roll<T> {
    numbers: HashTable<Number>,
    /// Boxed, so that room for more, of which there is always a good deal, costs little.
    kept: Slab<Box<T>>,
    hasher: RandomState,
}

impl Number {
    pub(super) fn index(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl<T> Default for Roll<T> {
    fn default() -> Self {
        Self {
            numbers: HashTable::new(),
            kept: Slab::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<T: Named> Roll<T> {
    pub(super) fn number(&self, id: &ResourceId) -> Option<Number> {
        let hash = self.hasher.hash_one(id);
        let found = self.numbers.find(hash, |number| self.is(*number, id));
        found.copied()
    }

    pub(super) fn get(&self, number: Number) -> Option<&T> {
        self.kept.get(number.index()).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut T> {
        self.kept.get_mut(number.index()).map(Box::as_mut)
    }

    /// Keeps it, in the place of what was kept of the same resource. `None` when there is no room: past four thousand million.
    pub(super) fn insert(&mut self, new: T) -> Option<Number> {
        let known = self.number(new.resource());
        if let Some(number) = known {
            *self.get_mut(number)? = new;
            return known;
        }
        let hash = self.hasher.hash_one(new.resource());
        let number = Number(u32::try_from(self.kept.vacant_key()).ok()?);
        self.kept.insert(Box::new(new));
        let (kept, hasher) = (&self.kept, &self.hasher);
        self.numbers.insert_unique(hash, number, |number| {
            let kept = kept.get(number.index());
            kept.map_or(0, |kept| hasher.hash_one(kept.resource()))
        });
        Some(number)
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Box<T>> {
        let removed = self.kept.get(number.index())?;
        let hash = self.hasher.hash_one(removed.resource());
        if let Ok(found) = self.numbers.find_entry(hash, |known| *known == number) {
            hash_table::OccupiedEntry::remove(found);
        }
        self.kept.try_remove(number.index())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, kept)| kept.as_ref())
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    fn is(&self, number: Number, id: &ResourceId) -> bool {
        self.get(number).is_some_and(|kept| kept.resource() == id)
    }
}

#[cfg(test)]
impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    impl Named for (ResourceId, u32) {
        fn resource(&self) -> &ResourceId {
            &self.0
        }
    }

    proptest! {
        #[test]
        fn finds_what_was_last_kept_of_each(
            changes in prop::collection::vec((0..40_u8, prop::option::of(0..9_u32)), 0..200)
        ) {
            let mut roll = Roll::default();
            let mut known = HashMap::new();
            for (name, value) in changes {
                let id = ResourceId::new(format!("k/{name}")).unwrap();
                match value {
                    Some(value) => {
                        prop_assert!(roll.insert((id.clone(), value)).is_some());
                        known.insert(id, value);
                    }
                    None => {
                        let removed = roll.number(&id).and_then(|number| roll.remove(number));
                        prop_assert_eq!(removed.map(|kept| kept.1), known.remove(&id));
                    }
                }
                for (id, value) in &known {
                    let number = roll.number(id).unwrap();
                    prop_assert_eq!(roll.get(number), Some(&(id.clone(), *value)));
                }
                prop_assert_eq!((roll.len(), roll.iter().count()), (known.len(), known.len()));
            }
        }
    }
}
