//! The leases of one client, or of those whose names begin alike, over all resources.

use doorman_openapi::{ClientId, GlobSet, Moment, ResourceView};

use crate::ledger::{
    holders::HolderId,
    keys::{HolderKey, ResourceKey},
    state::Ledger,
    view::explain::HolderStatus,
    view::listing::PageQuery,
};

/// The clients with all their runs, and nodes of the same names, with the listed leases.
#[derive(Debug, Clone, Copy)]
pub enum ClientNames<'a> {
    /// Of one name.
    One(&'a ClientId),
    /// Of all whose names begin so, and match one of the globs if there are any.
    Prefix(&'a str, Option<&'a GlobSet>),
}

/// A position in the leases of clients. Holders keep theirs while they have leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCursor {
    /// The position of the holder: among those of its name, or in the slots of all.
    pub holder: u64,
    /// The slot of its next resource.
    pub slot: u32,
}

/// Leases of clients, each with its resource.
#[derive(Debug)]
pub struct ClientListing {
    /// The leases.
    pub leases: Vec<(ResourceView, HolderStatus)>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<ClientCursor>,
}

/// Bounds the work for one part of a list.
struct Budget {
    leases: usize,
    scanned: usize,
}

impl Budget {
    fn is_spent(&self, found: usize) -> bool {
        found >= self.leases || self.scanned == 0
    }
}

impl Ledger {
    /// The leases of clients and nodes, from a position on: at most `query.limit`, of resources
    /// that it does not hide. The work is bounded: a part may be short or empty although more
    /// follow.
    #[must_use]
    pub fn leases_of_clients(
        &self,
        names: ClientNames<'_>,
        query: &PageQuery<'_>,
        from: ClientCursor,
        now: Moment,
    ) -> ClientListing {
        let mut budget = Budget {
            // Each view may look through many templates.
            leases: query.limit.min(self.max_part()),
            // At least a holder and one of its leases.
            scanned: query.max_scanned().div_ceil(names.globs()).max(2),
        };
        let mut leases = Vec::new();
        let mut at = from;
        while let Some((holder, key)) = self.holder_from(names, at.holder, &mut budget) {
            if holder != at.holder {
                at = ClientCursor { holder, slot: 0 };
            }
            let next = if budget.is_spent(leases.len()) {
                Some(at)
            } else {
                budget.scanned = budget.scanned.saturating_sub(1);
                self.add_leases_of(key, query, at, now, &mut budget, &mut leases)
            };
            if next.is_some() {
                return ClientListing { leases, next };
            }
            at = ClientCursor {
                holder: holder.saturating_add(1),
                slot: 0,
            };
        }
        ClientListing { leases, next: None }
    }

    /// The first of these holders from a position on, with its position. If the budget is spent
    /// before, the position to go on from.
    fn holder_from(
        &self,
        names: ClientNames<'_>,
        from: u64,
        budget: &mut Budget,
    ) -> Option<(u64, HolderKey)> {
        match names {
            ClientNames::One(name) => self.holders.named(name.as_str(), from).next(),
            ClientNames::Prefix(..) => {
                for slot in from..self.holders.end() as u64 {
                    let key = HolderKey::new(slot as usize);
                    let is_of_names = self.holders.id(key).is_some_and(|id| names.include(id));
                    if is_of_names || budget.scanned == 0 {
                        return Some((slot, key));
                    }
                    budget.scanned = budget.scanned.saturating_sub(1);
                }
                None
            }
        }
    }

    /// Adds the leases of a holder from a position on. Returns where to go on if the budget is
    /// spent.
    fn add_leases_of(
        &self,
        key: HolderKey,
        query: &PageQuery<'_>,
        at: ClientCursor,
        now: Moment,
        budget: &mut Budget,
        leases: &mut Vec<(ResourceView, HolderStatus)>,
    ) -> Option<ClientCursor> {
        let holder = self.holders.id(key)?;
        for resource in (self.holders).resources(key, ResourceKey::new(at.slot as usize)) {
            if budget.is_spent(leases.len()) {
                let slot = u32::try_from(resource.index()).unwrap_or(u32::MAX);
                return Some(ClientCursor { slot, ..at });
            }
            budget.scanned = budget.scanned.saturating_sub(1);
            let live = self.live.get(resource.index());
            let Some(live) = live.filter(|live| query.shows(live.id.as_str())) else {
                continue;
            };
            let entry = live.resource.entries.get(key);
            let Some(entry) = entry.filter(|entry| !entry.is_cleared()) else {
                continue;
            };
            leases.push(self.with_current_terms(live, now, |current| {
                let status = self.holder_status(live, entry, holder, current);
                (live.view(current), status)
            }));
        }
        None
    }
}

impl ClientNames<'_> {
    /// How many globs each name is compared with, at least 1.
    fn globs(&self) -> usize {
        match self {
            Self::Prefix(_, Some(globs)) => globs.len().max(1),
            Self::One(_) | Self::Prefix(_, None) => 1,
        }
    }

    fn include(&self, id: &HolderId) -> bool {
        match self {
            Self::One(name) => name.as_str() == id.as_str(),
            Self::Prefix(prefix, allowed) => {
                let is_allowed = || allowed.is_none_or(|globs| globs.matches(id.as_str()));
                id.as_str().starts_with(prefix) && is_allowed()
            }
        }
    }
}
