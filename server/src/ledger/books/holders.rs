//! Who holds a resource, and why no more: a page at a time.

use doorman_openapi::{ClientId, Moment, NodeId, ResourceId, ResourceView};

use super::{Feedback, HolderId, HolderKey, Ledger, Live, PageQuery};
use crate::ledger::{HolderStatus, entry::Entry, resource::Standpoint};

/// A place in the list of a resource's holders. They keep theirs while they stay; it means nothing for another resource, nor for one of
/// the same name that was forgotten meanwhile, nor in the books of another start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderCursor {
    /// Which resource of its name.
    pub incarnation: u64,
    /// Where in its books.
    pub slot: u32,
}

/// Some holders of a resource, and the resource as it was then.
#[derive(Debug, Clone, PartialEq)]
pub struct HolderPage {
    /// The resource.
    pub resource: ResourceView,
    /// The holders: none, maybe, although others follow.
    pub holders: Vec<HolderStatus>,
    /// Where to go on; `None` when nobody follows.
    pub next: Option<HolderCursor>,
}

/// Why there is no page of holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListError {
    /// Nobody holds the resource, waits for it, or gave it back less than a lease length ago.
    NotLive,
    /// The place is in the list of a resource that has been forgotten; who goes on there would miss holders of this one.
    StaleCursor,
}

impl Ledger {
    /// The holders of a live resource, in an order that does not change while they stay, from a place on: as many as one look finds.
    /// Where many holders have gone, or may not be seen, these may be few, or none, although others follow.
    ///
    /// # Errors
    /// [`ListError`] when there is no such list.
    pub fn holders(
        &self,
        id: &ResourceId,
        look: &PageQuery<'_>,
        from: Option<HolderCursor>,
        now: Moment,
    ) -> Result<HolderPage, ListError> {
        let (key, live) = self.find(id)?;
        let from = match from {
            None => 0,
            Some(place) if place.incarnation == live.incarnation => place.slot,
            Some(_) => return Err(ListError::StaleCursor),
        };
        let place = |slot| HolderCursor {
            incarnation: live.incarnation,
            slot,
        };
        let mut holders = Vec::new();
        let mut next = None;
        self.on_the_newest_terms(live, now, |on| {
            for (seen, (slot, entry)) in live.resource.slots_from(from).enumerate() {
                if seen >= look.places() {
                    next = Some(place(slot));
                    break;
                }
                let holder = entry.and_then(|entry| Some((entry, self.holders.id(entry.holder)?)));
                let Some((entry, holder)) =
                    holder.filter(|(_, holder)| look.finds(holder.as_str()))
                else {
                    continue;
                };
                if holders.len() >= look.limit {
                    next = Some(place(slot));
                    break;
                }
                holders.push(holding(live, entry, holder, on));
            }
        });
        Ok(HolderPage {
            resource: self.view(key, now).ok_or(ListError::NotLive)?,
            holders,
            next,
        })
    }

    /// The holders of this name: a client, a node, both or none.
    ///
    /// # Errors
    /// [`ListError::NotLive`].
    pub fn holders_named(
        &self,
        id: &ResourceId,
        name: &ClientId,
        now: Moment,
    ) -> Result<HolderPage, ListError> {
        let (key, live) = self.find(id)?;
        let client = HolderId::Client(name.clone());
        let node = NodeId::new(name.as_str()).ok().map(HolderId::Node);
        let mut holders = Vec::new();
        self.on_the_newest_terms(live, now, |on| {
            for holder in std::iter::once(client).chain(node) {
                let key: Option<HolderKey> = self.holders.find(&holder);
                if let Some(entry) = key.and_then(|key| live.resource.entry(key)) {
                    holders.push(holding(live, entry, &holder, on));
                }
            }
        });
        Ok(HolderPage {
            resource: self.view(key, now).ok_or(ListError::NotLive)?,
            holders,
            next: None,
        })
    }

    fn find(&self, id: &ResourceId) -> Result<(u32, &Live), ListError> {
        let key = *self.keys.get(id).ok_or(ListError::NotLive)?;
        let live = self.live.get(key as usize).ok_or(ListError::NotLive)?;
        Ok((key, live))
    }

    /// Looks at a resource by the terms that its holders will meet when they come back.
    pub(super) fn on_the_newest_terms<T>(
        &self,
        live: &Live,
        now: Moment,
        look: impl FnOnce(&Standpoint<'_>) -> T,
    ) -> T {
        let resource = &live.resource;
        match self.newer_terms(live) {
            None => look(&Standpoint {
                terms: resource.terms(),
                learning_until: resource.learning_until(),
                feedback: resource.feedback(now),
                now,
            }),
            Some((terms, learning_until)) => look(&Standpoint {
                terms: &terms,
                learning_until,
                // It is told as soon as the resource is next asked for.
                feedback: Feedback::None,
                now,
            }),
        }
    }
}

fn holding(live: &Live, entry: &Entry, holder: &HolderId, on: &Standpoint<'_>) -> HolderStatus {
    let name = (holder.kind(), holder.as_str().to_owned());
    live.resource.holding(entry, name, on)
}
