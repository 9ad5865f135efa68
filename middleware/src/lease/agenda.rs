//! Resources in the order of a moment: when one is due, or when its lease ends.

use std::collections::BTreeSet;

use doorman_openapi::{Moment, ResourceId};

#[derive(Debug, Default)]
pub(super) struct Agenda {
    order: BTreeSet<(Moment, ResourceId)>,
}

impl Agenda {
    /// Takes the resource down for `to` instead of `from`; `None` is not at all.
    pub(super) fn shift(
        &mut self,
        resource: &ResourceId,
        from: Option<Moment>,
        to: Option<Moment>,
    ) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.order.remove(&(from, resource.clone()));
        }
        if let Some(to) = to {
            self.order.insert((to, resource.clone()));
        }
    }

    /// The earliest moment.
    pub(super) fn first(&self) -> Option<Moment> {
        self.order.first().map(|(moment, _)| *moment)
    }

    /// All, the earliest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Moment, &ResourceId)> {
        self.order
            .iter()
            .map(|(moment, resource)| (*moment, resource))
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
