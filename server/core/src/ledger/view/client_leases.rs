//! The leases of one client, over all resources.

use doorman_openapi::{ClientId, Moment, NodeId, ResourceView};

use crate::ledger::{
    holders::HolderId, keys::ResourceKey, state::Ledger, view::explain::HolderStatus,
    view::listing::PageQuery,
};

/// A position in the leases of a client, and of the node of the same name after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCursor {
    /// Whether the leases of the client are done.
    pub at_node: bool,
    /// The slot of the next resource.
    pub slot: u32,
}

/// Leases of a client, each with its resource.
#[derive(Debug)]
pub struct ClientListing {
    /// The leases.
    pub leases: Vec<(ResourceView, HolderStatus)>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<ClientCursor>,
}

impl Ledger {
    /// The leases of the client and the node with this name, from a position on: at most
    /// `query.limit`, of resources that it does not hide. The work is bounded: a part may be short
    /// or empty although more follow.
    #[must_use]
    pub fn leases_of_client(
        &self,
        name: &ClientId,
        query: &PageQuery<'_>,
        from: ClientCursor,
        now: Moment,
    ) -> ClientListing {
        let client = HolderId::Client(name.clone());
        let node = NodeId::new(name.as_str()).ok().map(HolderId::Node);
        let holders = [(false, Some(client)), (true, node)];
        // Each view may look through many templates.
        let limit = query.limit.min(self.max_part());
        let mut leases = Vec::new();
        let mut scanned: usize = 0;
        for (at_node, holder) in holders.into_iter().skip(usize::from(from.at_node)) {
            let Some((holder, holder_key)) =
                holder.and_then(|it| self.holders.find(&it).map(|key| (it, key)))
            else {
                continue;
            };
            let slot = if at_node == from.at_node {
                from.slot
            } else {
                0
            };
            let first = ResourceKey::new(slot as usize);
            for key in self.holders.resources(holder_key, first) {
                if leases.len() >= limit || scanned >= query.max_scanned() {
                    let slot = u32::try_from(key.index()).unwrap_or(u32::MAX);
                    let next = Some(ClientCursor { at_node, slot });
                    return ClientListing { leases, next };
                }
                scanned = scanned.saturating_add(1);
                let live = self.live.get(key.index());
                let Some(live) = live.filter(|live| query.shows(live.id.as_str())) else {
                    continue;
                };
                let entry = live.resource.entries.get(holder_key);
                let Some(entry) = entry.filter(|entry| !entry.is_cleared()) else {
                    continue;
                };
                leases.push(self.with_current_terms(live, now, |current| {
                    let status = self.holder_status(live, entry, &holder, current);
                    (live.view(current), status)
                }));
            }
        }
        ClientListing { leases, next: None }
    }
}
