//! A slab in pages: it grows without moving its items, and shrinks as they go.

use std::{collections::BTreeSet, fmt};

use slab::Slab;

/// Items per page.
const PAGE: usize = 256;

/// Items by index. An index is reused after its item is removed; lower pages are filled first, so
/// that higher ones become empty and are freed. Every change does a bounded amount of work.
#[derive(Clone)]
pub(in crate::ledger) struct PagedSlab<T> {
    pages: Vec<Slab<T>>,
    with_room: BTreeSet<usize>,
}

/// Shows the items, which a slab does not.
impl<T: fmt::Debug> fmt::Debug for PagedSlab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.pages.iter().enumerate();
        let items = pages.flat_map(|(number, page)| {
            let first = number.saturating_mul(PAGE);
            page.iter()
                .map(move |(index, item)| (first.saturating_add(index), item))
        });
        f.debug_map().entries(items).finish()
    }
}

impl<T> Default for PagedSlab<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            with_room: BTreeSet::new(),
        }
    }
}

impl<T> PagedSlab<T> {
    pub(in crate::ledger) fn get(&self, index: usize) -> Option<&T> {
        self.pages.get(index / PAGE)?.get(index % PAGE)
    }

    pub(in crate::ledger) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.pages.get_mut(index / PAGE)?.get_mut(index % PAGE)
    }

    pub(in crate::ledger) fn insert(&mut self, item: T) -> usize {
        let number = self.with_room.first().copied();
        let number = number.unwrap_or_else(|| {
            self.pages.push(Slab::new());
            let last = self.pages.len().saturating_sub(1);
            self.with_room.insert(last);
            last
        });
        let page = self.pages.get_mut(number);
        let page = page.expect("a page with room is there");
        let index = page.insert(item);
        if page.len() >= PAGE {
            self.with_room.remove(&number);
        }
        number.saturating_mul(PAGE).saturating_add(index)
    }

    pub(in crate::ledger) fn remove(&mut self, index: usize) -> Option<T> {
        let number = index / PAGE;
        let page = self.pages.get_mut(number)?;
        let item = page.try_remove(index % PAGE)?;
        self.with_room.insert(number);
        if page.is_empty() {
            *page = Slab::new();
            // Once for each page, so this is amortized.
            while self.pages.last().is_some_and(Slab::is_empty) {
                self.pages.pop();
                self.with_room.remove(&self.pages.len());
            }
        }
        Some(item)
    }

    /// One past the highest index that may be taken.
    pub(in crate::ledger) fn end(&self) -> usize {
        self.pages.len().saturating_mul(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn emptied_pages_are_freed() {
        let mut slab = PagedSlab::default();
        let indexes: Vec<_> = (0..10 * PAGE).map(|item| slab.insert(item)).collect();
        assert_eq!(slab.end(), 10 * PAGE);
        for index in indexes.iter().skip(5) {
            slab.remove(*index);
        }
        assert_eq!(slab.end(), PAGE);
        for index in &indexes[..5] {
            assert_eq!(slab.remove(*index), Some(*index));
        }
        assert!(slab.pages.is_empty() && slab.with_room.is_empty());
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(changes in prop::collection::vec((0u8..3, 0usize..2000), 1..3000)) {
            let mut slab = PagedSlab::default();
            let mut map = BTreeMap::new();
            for (change, number) in changes {
                if change == 0 {
                    let index = map.keys().nth(number % map.len().max(1)).copied();
                    if let Some(index) = index {
                        prop_assert_eq!(slab.remove(index), map.remove(&index));
                        prop_assert_eq!(slab.get(index), None);
                    }
                } else {
                    let index = slab.insert(number);
                    prop_assert_eq!(map.insert(index, number), None);
                }
                prop_assert!(map.keys().next_back().is_none_or(|last| *last < slab.end()));
            }
            for (index, number) in &mut map {
                prop_assert_eq!(slab.get_mut(*index), Some(number));
            }
        }
    }
}
