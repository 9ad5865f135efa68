//! All resources, and the two orders they are kept in.

use std::collections::{HashMap, hash_map};

use doorman_openapi::{Moment, ResourceId};

use super::{agenda::Agenda, entry::Entry};

/// The only way to change an entry is through here, so that the agendas always tell the truth.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Boxed, so that room for more, of which a map always has a good deal, costs little.
    entries: HashMap<ResourceId, Box<Entry>, foldhash::fast::RandomState>,
    /// Those that wait, by when they are due.
    due: Agenda,
    /// Those that have a lease, by when it ends.
    ends: Agenda,
}

impl Resources {
    pub(super) fn get(&self, id: &ResourceId) -> Option<&Entry> {
        self.entries.get(id).map(Box::as_ref)
    }

    /// Takes a resource up; one that is there stays as it is.
    pub(super) fn insert(&mut self, id: &ResourceId, entry: Entry) {
        if let hash_map::Entry::Vacant(vacant) = self.entries.entry(id.clone()) {
            self.due.shift(id, None, entry.due());
            self.ends.shift(id, None, entry.ends());
            vacant.insert(Box::new(entry));
        }
    }

    pub(super) fn remove(&mut self, id: &ResourceId) -> Option<Box<Entry>> {
        let entry = self.entries.remove(id)?;
        self.due.shift(id, entry.due(), None);
        self.ends.shift(id, entry.ends(), None);
        Some(entry)
    }

    /// Changes an entry, if it is there.
    pub(super) fn update<T>(
        &mut self,
        id: &ResourceId,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(id)?;
        let (due, ends) = (entry.due(), entry.ends());
        let result = change(entry);
        self.due.shift(id, due, entry.due());
        self.ends.shift(id, ends, entry.ends());
        Some(result)
    }

    /// Those that wait, the first due first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Moment, &ResourceId, &Entry)> {
        self.due
            .iter()
            .filter_map(|(due, id)| Some((due, id, self.get(id)?)))
    }

    /// Those that have a lease, the first to end first.
    pub(super) fn leased(&self) -> impl Iterator<Item = (Moment, &ResourceId)> {
        self.ends.iter()
    }

    /// When the first is due.
    pub(super) fn first_due(&self) -> Option<Moment> {
        self.due.first()
    }

    /// When the first lease ends.
    pub(super) fn first_end(&self) -> Option<Moment> {
        self.ends.first()
    }

    pub(super) fn anything_lapsed(&self) -> bool {
        self.ends.len() < self.entries.len()
    }
}
