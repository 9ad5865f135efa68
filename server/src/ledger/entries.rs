//! The entries of one resource: each in a slot that it keeps while it stays, and found by its holder in one step.

use foldhash::fast::RandomState;
use slab::Slab;

use super::{entry::Entry, order::Order, resource::HolderKey, steady_map::SteadyMap};

/// The entries of one resource, by holder and by slot.
///
/// Entries are large, and a resource may have a million of them: they lie one after the other, without the gaps that the nodes of a
/// tree have, and only the small map from holder to slot is searched.
#[derive(Debug, Default)]
pub(super) struct Entries {
    slots: SteadyMap<HolderKey, u32, RandomState>,
    entries: Slab<Entry>,
    /// Behind the last slot that was ever taken. They are never given back, however many entries leave.
    end: u32,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn contains(&self, holder: HolderKey) -> bool {
        self.slots.contains_key(&holder)
    }

    pub(super) fn get(&self, holder: HolderKey) -> Option<&Entry> {
        let slot = *self.slots.get(&holder)?;
        self.entries.get(slot as usize)
    }

    pub(super) fn get_mut(&mut self, holder: HolderKey) -> Option<&mut Entry> {
        let slot = *self.slots.get(&holder)?;
        self.entries.get_mut(slot as usize)
    }

    /// Adds an entry for a holder that has none.
    pub(super) fn add(&mut self, holder: HolderKey, order: Order) -> &mut Entry {
        let vacant = self.entries.vacant_entry();
        // The books are bounded far below this many entries.
        let slot = u32::try_from(vacant.key()).unwrap_or(u32::MAX);
        self.slots.insert(holder, slot);
        self.end = self.end.max(slot.saturating_add(1));
        vacant.insert(Entry::new(holder, slot, order))
    }

    /// Takes a holder's entry out; its slot is given to the next one that comes.
    pub(super) fn remove(&mut self, holder: HolderKey) -> Option<Entry> {
        let slot = self.slots.remove(&holder)?;
        self.entries.try_remove(slot as usize)
    }

    /// All entries, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// The slots from one on, each with its entry if there is one.
    pub(super) fn slots_from(&self, slot: u32) -> impl Iterator<Item = (u32, Option<&Entry>)> {
        (slot..self.end).map(|slot| (slot, self.entries.get(slot as usize)))
    }
}
