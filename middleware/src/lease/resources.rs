//! All resources, and the orders they are kept in.

use doorman_openapi::{Moment, ResourceId};

use super::{
    agenda::Agenda,
    entry::Entry,
    roll::{Number, Roll},
};

/// The only way to change an entry is through here, so that the agendas always tell the truth.
#[derive(Debug, Default)]
pub(super) struct Resources {
    entries: Roll<Entry>,
    /// Those that wait to be renewed, by when they are due. A flood of new ones has to be looked through for none of them.
    renewals: Agenda,
    /// Those that wait for a lease, by when they are due.
    newcomers: Agenda,
    /// Those that have been refused, by when they are asked for again: however many, they stand before none of the others. Those that
    /// still have a lease by themselves, as they can lose it.
    refused_renewals: Agenda,
    refused_newcomers: Agenda,
    /// Those that have a lease, by when it ends.
    ends: Agenda,
}

impl Resources {
    pub(super) fn get(&self, id: &ResourceId) -> Option<&Entry> {
        self.entries.get(self.entries.number(id)?)
    }

    /// Takes a resource up.
    pub(super) fn insert(&mut self, entry: Entry) {
        let order = Order::of(&entry);
        if let Some(number) = self.entries.insert(entry) {
            self.order(number, order);
        }
    }

    pub(super) fn remove(&mut self, id: &ResourceId) -> Option<Box<Entry>> {
        let number = self.entries.number(id)?;
        self.order(number, Order::default());
        self.entries.remove(number)
    }

    /// Changes an entry, if it is there.
    pub(super) fn update<T>(
        &mut self,
        id: &ResourceId,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let number = self.entries.number(id)?;
        let entry = self.entries.get_mut(number)?;
        let result = change(entry);
        let order = Order::of(entry);
        self.order(number, order);
        Some(result)
    }

    fn order(&mut self, number: Number, order: Order) {
        let Order {
            renewal,
            newcomer,
            refused_renewal,
            refused_newcomer,
            ends,
        } = order;
        self.renewals.set(number, renewal);
        self.newcomers.set(number, newcomer);
        self.refused_renewals.set(number, refused_renewal);
        self.refused_newcomers.set(number, refused_newcomer);
        self.ends.set(number, ends);
    }

    /// Those that wait and have not been refused, the first due first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        let mut renewals = self.renewals().peekable();
        let mut newcomers = self.newcomers().peekable();
        std::iter::from_fn(move || {
            let renewal = renewals.peek().map(|(due, _)| *due);
            let newcomer = newcomers.peek().map(|(due, _)| *due);
            match (renewal, newcomer) {
                (Some(renewal), Some(newcomer)) if newcomer < renewal => newcomers.next(),
                (Some(_), _) => renewals.next(),
                (None, _) => newcomers.next(),
            }
        })
    }

    /// Of those that wait, those that have a lease, the first due first.
    pub(super) fn renewals(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        self.entries_of(&self.renewals)
    }

    /// Of those that wait, those that have none, the first due first.
    pub(super) fn newcomers(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        self.entries_of(&self.newcomers)
    }

    /// Of those that wait, those that have been refused and have a lease, the first due first.
    pub(super) fn refused_renewals(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        self.entries_of(&self.refused_renewals)
    }

    /// Of those that wait, those that have been refused and have none, the first due first.
    pub(super) fn refused_newcomers(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        self.entries_of(&self.refused_newcomers)
    }

    fn entries_of<'a>(&'a self, agenda: &'a Agenda) -> impl Iterator<Item = (Moment, &'a Entry)> {
        agenda
            .iter()
            .filter_map(|(due, number)| Some((due, self.entries.get(number)?)))
    }

    /// Those that have a lease, the first to end first.
    pub(super) fn leased(&self) -> impl Iterator<Item = (Moment, &Entry)> {
        self.ends
            .iter()
            .filter_map(|(ends, number)| Some((ends, self.entries.get(number)?)))
    }

    /// When the first is due, if nothing but renewals is before this.
    pub(super) fn first_due(&self, newcomers_from: Moment) -> Option<Moment> {
        let renewals = [self.renewals.first(), self.refused_renewals.first()];
        let renewals = renewals.into_iter().flatten().map(|(due, _)| due);
        let others = [self.newcomers.first(), self.refused_newcomers.first()];
        let others = others.into_iter().flatten();
        let others = others.map(|(due, _)| due.max(newcomers_from));
        renewals.chain(others).min()
    }

    /// When the first lease ends.
    pub(super) fn first_end(&self) -> Option<Moment> {
        self.ends.first().map(|(ends, _)| ends)
    }

    pub(super) fn anything_lapsed(&self) -> bool {
        self.ends.len() < self.entries.len()
    }
}

/// Where an entry stands: while it waits, in one of the first four.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    renewal: Option<Moment>,
    newcomer: Option<Moment>,
    refused_renewal: Option<Moment>,
    refused_newcomer: Option<Moment>,
    ends: Option<Moment>,
}

impl Order {
    fn of(entry: &Entry) -> Self {
        let (due, ends) = (entry.due(), entry.ends());
        let mut order = Self {
            ends,
            ..Self::default()
        };
        match (ends, entry.is_refused()) {
            (Some(_), false) => order.renewal = due,
            (Some(_), true) => order.refused_renewal = due,
            (None, false) => order.newcomer = due,
            (None, true) => order.refused_newcomer = due,
        }
        order
    }
}
