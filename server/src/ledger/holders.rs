//! Who holds what: each holder's identifier once, and where it is booked.

use std::collections::{BTreeSet, HashMap};

use doorman_openapi::{ClientId, HolderKind, NodeId};
use slab::Slab;

use super::{resource::HolderKey, steady_map::SteadyMap};

/// A client or a node: two clients' identifiers may be equal to two nodes'.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum HolderId {
    Client(ClientId),
    Node(NodeId),
}

impl HolderId {
    pub(super) fn kind(&self) -> HolderKind {
        match self {
            Self::Client(_) => HolderKind::Client,
            Self::Node(_) => HolderKind::Node,
        }
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Client(id) => id.as_str(),
            Self::Node(id) => id.as_str(),
        }
    }
}

/// Whoever leases in a part of the whole, and in no other: named by a number that the books make nothing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantId(pub u64);

#[derive(Debug)]
struct Holder {
    id: HolderId,
    /// Whose it is, as it last asked.
    tenant: Option<TenantId>,
    /// The keys of the resources that have it in their books, in an order in which a long walk can be broken off and taken up again.
    resources: BTreeSet<u32>,
}

/// The holders in the books.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Identifiers come from clients: hashed with a seed of this process.
    by_id: SteadyMap<HolderId, HolderKey, foldhash::quality::RandomState>,
    holders: Slab<Holder>,
    /// How many leases the holders of each tenant have; who has none is not here.
    tenants: HashMap<TenantId, usize>,
    /// Who asks just now is known, though it may be in no books yet, or no longer.
    asks: Option<HolderKey>,
}

impl Holders {
    pub(super) fn find(&self, id: &HolderId) -> Option<HolderKey> {
        self.by_id.get(id).copied()
    }

    pub(super) fn id(&self, key: HolderKey) -> Option<&HolderId> {
        self.holders.get(key as usize).map(|holder| &holder.id)
    }

    /// The holder of a tenant begins to ask: its key, a new one if need be, is good until [`Self::has_asked`].
    pub(super) fn asks(&mut self, id: &HolderId, tenant: Option<TenantId>) -> HolderKey {
        let key = self.find_or_add(id);
        if let Some(holder) = self.holders.get_mut(key as usize)
            && holder.tenant != tenant
        {
            let leases = holder.resources.len();
            let before = std::mem::replace(&mut holder.tenant, tenant);
            self.count(before, |all| all.saturating_sub(leases));
            self.count(tenant, |all| all.saturating_add(leases));
        }
        self.asks = Some(key);
        key
    }

    /// How many leases the holder's tenant has, the holder's own included; `None` when it has no tenant.
    pub(super) fn leases_of_tenant(&self, key: HolderKey) -> Option<usize> {
        let tenant = self.holders.get(key as usize)?.tenant?;
        Some(self.tenants.get(&tenant).copied().unwrap_or(0))
    }

    fn count(&mut self, tenant: Option<TenantId>, change: impl FnOnce(usize) -> usize) {
        let Some(tenant) = tenant else { return };
        let leases = change(self.tenants.remove(&tenant).unwrap_or(0));
        if leases > 0 {
            self.tenants.insert(tenant, leases);
        }
    }

    /// Nobody asks any longer; a holder that did and is in no books is forgotten.
    pub(super) fn has_asked(&mut self) {
        if let Some(key) = self.asks.take() {
            self.forget_if_idle(key);
        }
    }

    /// The holder's key, a new one if need be.
    pub(super) fn find_or_add(&mut self, id: &HolderId) -> HolderKey {
        self.find(id).unwrap_or_else(|| {
            let holder = Holder {
                id: id.clone(),
                tenant: None,
                resources: BTreeSet::new(),
            };
            // The books are bounded far below this many holders.
            let key = HolderKey::try_from(self.holders.insert(holder)).unwrap_or(HolderKey::MAX);
            self.by_id.insert(id.clone(), key);
            key
        })
    }

    /// The resource has the holder in its books.
    pub(super) fn joined(&mut self, key: HolderKey, resource: u32) {
        if let Some(holder) = self.holders.get_mut(key as usize)
            && holder.resources.insert(resource)
        {
            let tenant = holder.tenant;
            self.count(tenant, |all| all.saturating_add(1));
        }
    }

    /// The resource has the holder no longer; one that is in no books, and does not ask, is forgotten.
    pub(super) fn left(&mut self, key: HolderKey, resource: u32) {
        let Some(holder) = self.holders.get_mut(key as usize) else {
            return;
        };
        if holder.resources.remove(&resource) {
            let tenant = holder.tenant;
            self.count(tenant, |all| all.saturating_sub(1));
        }
        if self.asks != Some(key) {
            self.forget_if_idle(key);
        }
    }

    /// Forgets a holder that is in no books.
    fn forget_if_idle(&mut self, key: HolderKey) {
        if let Some(holder) = self.holders.get(key as usize)
            && holder.resources.is_empty()
        {
            self.by_id.remove(&holder.id);
            self.holders.remove(key as usize);
        }
    }

    /// The keys of the resources that have the holder in their books, in order, from `from` on.
    pub(super) fn resources(&self, key: HolderKey, from: usize) -> impl Iterator<Item = u32> {
        let holder = self.holders.get(key as usize);
        let from = u32::try_from(from).ok();
        let rest = holder
            .zip(from)
            .map(|(holder, from)| holder.resources.range(from..));
        rest.into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_known_until_it_has_asked() {
        let mut holders = Holders::default();
        let id = HolderId::Client(ClientId::new("a").unwrap());
        let key = holders.asks(&id, None);
        assert_eq!(holders.find(&id), Some(key));
        holders.has_asked();
        assert_eq!(holders.find(&id), None);

        let key = holders.asks(&id, None);
        holders.joined(key, 7);
        holders.has_asked();
        assert_eq!(holders.asks(&id, None), key);
        holders.left(key, 7);
        // Another comes, and takes no key that is in use.
        let other = HolderId::Client(ClientId::new("b").unwrap());
        assert_ne!(holders.find_or_add(&other), key);
        assert_eq!(holders.id(key), Some(&id));
        holders.has_asked();
        assert_eq!(holders.find(&id), None);
    }

    #[test]
    fn the_leases_of_a_tenant_are_those_of_its_holders() {
        let mut holders = Holders::default();
        let client = |name: &str| HolderId::Client(ClientId::new(name).unwrap());
        let (one, other) = (Some(TenantId(1)), Some(TenantId(2)));
        let a = holders.asks(&client("a"), one);
        holders.joined(a, 7);
        holders.joined(a, 7);
        holders.joined(a, 8);
        let b = holders.asks(&client("b"), one);
        holders.joined(b, 7);
        assert_eq!(holders.leases_of_tenant(a), Some(3));
        // It asks with the token of another.
        holders.asks(&client("a"), other);
        assert_eq!(holders.leases_of_tenant(a), Some(2));
        assert_eq!(holders.leases_of_tenant(b), Some(1));
        holders.asks(&client("a"), None);
        assert_eq!(holders.leases_of_tenant(a), None);
        holders.left(b, 7);
        holders.left(b, 7);
        holders.has_asked();
        assert!(holders.tenants.is_empty());
    }
}
