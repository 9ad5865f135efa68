//! Registry of all holders: identifiers, tenants, and the resources that each holds.

pub(in crate::ledger) mod poll;
pub(in crate::ledger) mod poll_queue;
mod replaced;
mod runs;
mod tenants;

use std::collections::{BTreeSet, HashMap};

use doorman_openapi::{ClientId, HolderKind, Moment, NodeId, Run, ServerUrl};

pub use tenants::{Tenant, TenantId};

use crate::ledger::{
    holders::poll::Poll,
    holders::replaced::NewestFirst,
    holders::runs::CountedDuplicates,
    holders::tenants::{Tenants, Usage},
    keys::{HolderKey, ResourceKey},
    store::hash_index::HashIndex,
    store::paged_slab::PagedSlab,
};

/// A run of a client, or a node. The two may have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HolderId {
    /// A client, and the run of its process if it states one.
    Client(ClientId, Option<Run>),
    /// A node below this one.
    Node(NodeId),
}

impl HolderId {
    /// Which of the two it is.
    #[must_use]
    pub fn kind(&self) -> HolderKind {
        match self {
            Self::Client(..) => HolderKind::Client,
            Self::Node(_) => HolderKind::Node,
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Client(id, _) => id.as_str(),
            Self::Node(id) => id.as_str(),
        }
    }

    /// The run of a client.
    #[must_use]
    pub fn run(&self) -> Option<Run> {
        match self {
            Self::Client(_, run) => *run,
            Self::Node(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
struct Registration {
    id: HolderId,
    /// The tenant of its requests.
    tenant: Option<TenantId>,
    /// When its last request for leases was handled, or a poll of it began or ended.
    heard_at: Moment,
    /// That was a poll.
    heard_by_poll: bool,
    /// Order of registration, counted down, so that an index lists the newest first.
    rank: u64,
    /// The clients that it replaces.
    replaces: Box<[ClientId]>,
    /// The resources with an entry of the holder. Sorted, so that a long walk can be resumed.
    resources: BTreeSet<ResourceKey>,
    /// The resources of which its lease is retained although it has ended.
    released: BTreeSet<ResourceKey>,
    poll: Option<Box<Poll>>,
}

impl Registration {
    fn usage(&self) -> Usage {
        let leases = self.resources.len();
        Usage {
            leases,
            clients: usize::from(leases > self.released.len()),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Holders {
    by_id: HashIndex<HolderKey>,
    by_name: HashIndex<NewestFirst>,
    /// Holders that have a lease, or ask for one, by name.
    leasing: HashIndex<HolderKey>,
    holders: PagedSlab<Registration>,
    tenants: Tenants,
    /// The addresses of nodes, for operators.
    addresses: HashMap<HolderKey, ServerUrl>,
    by_replaced: HashIndex<NewestFirst>,
    counted_duplicates: CountedDuplicates,
    registered: u64,
    /// When this reign began. Holders that were heard before count as heard then.
    began: Moment,
    /// The holder whose request is being handled, and the tenant of the request. The holder is
    /// kept even without a lease.
    active: Option<(HolderKey, Option<Tenant>)>,
}

impl Holders {
    pub(in crate::ledger) fn new(began: Moment) -> Self {
        Self {
            began,
            ..Self::default()
        }
    }

    /// Counts all holders as heard now.
    pub(in crate::ledger) fn begin_reign(&mut self, now: Moment) {
        self.began = now;
    }

    pub(in crate::ledger) fn find(&self, id: &HolderId) -> Option<HolderKey> {
        self.by_id.find(id, |key| self.id(key) == Some(id))
    }

    pub(in crate::ledger) fn id(&self, key: HolderKey) -> Option<&HolderId> {
        self.holders.get(key.index()).map(|holder| &holder.id)
    }

    /// Beyond the last slot of a holder.
    pub(in crate::ledger) fn end(&self) -> usize {
        self.holders.end()
    }

    /// Registers the sender of a request. Its key is valid until [`Self::end_request`].
    ///
    /// A holder moves to the tenant of its request if that has room for it, with `max_leases` for
    /// each tenant. Otherwise it keeps what it has, and gets no more.
    pub(in crate::ledger) fn begin_request(
        &mut self,
        id: &HolderId,
        tenant: Option<Tenant>,
        max_leases: usize,
        now: Moment,
    ) -> HolderKey {
        let key = self.find_or_add(id, now);
        if let Some(holder) = self.holders.get_mut(key.index()) {
            (holder.heard_at, holder.heard_by_poll) = (now, false);
            let to = tenant.map(|it| it.id);
            let usage = holder.usage();
            let has_room = |to: Tenant| self.tenants.has_room(to, usage, max_leases);
            if holder.tenant != to && tenant.is_none_or(has_room) {
                self.tenants.subtract(holder.tenant, usage);
                self.tenants.add(to, usage);
                holder.tenant = to;
            }
        }
        self.active = Some((key, tenant));
        key
    }

    /// Notes the address that a node states.
    pub(in crate::ledger) fn set_address(&mut self, key: HolderKey, address: Option<&ServerUrl>) {
        match address {
            Some(address) if self.addresses.get(&key) == Some(address) => {}
            Some(address) => drop(self.addresses.insert(key, address.clone())),
            None => drop(self.addresses.remove(&key)),
        }
    }

    /// The address of a node.
    pub(in crate::ledger) fn address(&self, key: HolderKey) -> Option<&ServerUrl> {
        self.addresses.get(&key)
    }

    pub(in crate::ledger) fn end_request(&mut self) {
        if let Some((key, _)) = self.active.take() {
            self.remove_if_unused(key);
        }
    }

    /// Whether the tenant of the request has room for so many leases more of its sender.
    pub(in crate::ledger) fn has_room(
        &self,
        key: HolderKey,
        leases: usize,
        max_leases: usize,
    ) -> bool {
        let Some((holder, tenant)) = self.holder_of_tenant(key) else {
            return true;
        };
        let counted = if holder.tenant == Some(tenant.id) {
            holder.usage().clients
        } else {
            0
        };
        let clients = 1 - counted;
        self.tenants
            .has_room(tenant, Usage { leases, clients }, max_leases)
    }

    /// Whether the sender of the request would be one more client of a tenant with a bound.
    pub(in crate::ledger) fn is_bounded_newcomer(&self, key: HolderKey) -> bool {
        let holder = self.holder_of_tenant(key);
        holder.is_some_and(|(holder, tenant)| {
            tenant.max_clients.is_some() && holder.usage().clients == 0
        })
    }

    fn holder_of_tenant(&self, key: HolderKey) -> Option<(&Registration, Tenant)> {
        let (_, tenant) = self.active.filter(|(active, _)| *active == key)?;
        Some((self.holders.get(key.index())?, tenant?))
    }

    /// The tenant of a holder.
    pub(in crate::ledger) fn tenant(&self, key: HolderKey) -> Option<TenantId> {
        self.holders.get(key.index())?.tenant
    }

    /// Restores the tenant of a holder.
    pub(in crate::ledger) fn restore_tenant(&mut self, key: HolderKey, tenant: TenantId) {
        if let Some(holder) = self.holders.get_mut(key.index()) {
            self.tenants.subtract(holder.tenant, holder.usage());
            holder.tenant = Some(tenant);
            self.tenants.add(holder.tenant, holder.usage());
        }
    }

    /// A new holder counts as heard at `now`.
    pub(in crate::ledger) fn find_or_add(&mut self, id: &HolderId, now: Moment) -> HolderKey {
        self.find(id).unwrap_or_else(|| {
            self.registered += 1;
            let key = HolderKey::new(self.holders.insert(Registration {
                id: id.clone(),
                tenant: None,
                heard_at: now,
                heard_by_poll: false,
                rank: u64::MAX - self.registered,
                replaces: Box::default(),
                resources: BTreeSet::new(),
                released: BTreeSet::new(),
                poll: None,
            }));
            self.by_id.insert(id, key);
            if let Some(newest) = self.newest(key) {
                self.by_name.insert(&id.as_str(), newest);
            }
            key
        })
    }

    /// Counts a lease, or counts the holder of a released one again.
    pub(in crate::ledger) fn add_lease(&mut self, key: HolderKey, resource: ResourceKey) {
        self.change_leases(key, |holder| {
            holder.resources.insert(resource);
            holder.released.remove(&resource);
        });
    }

    /// The lease has ended, and is retained.
    pub(in crate::ledger) fn retain_released(&mut self, key: HolderKey, resource: ResourceKey) {
        self.change_leases(key, |holder| {
            if holder.resources.contains(&resource) {
                holder.released.insert(resource);
            }
        });
    }

    fn change_leases(&mut self, key: HolderKey, change: impl FnOnce(&mut Registration)) {
        if let Some(holder) = self.holders.get_mut(key.index()) {
            let before = holder.usage();
            change(holder);
            let after = holder.usage();
            if before != after {
                self.tenants.subtract(holder.tenant, before);
                self.tenants.add(holder.tenant, after);
            }
            if before.clients < after.clients {
                self.leasing.insert(&holder.id.as_str(), key);
            } else if before.clients > after.clients {
                self.leasing.remove(&holder.id.as_str(), key);
            }
        }
    }

    /// Drops the holder with its last lease, unless its request is being handled.
    pub(in crate::ledger) fn remove_lease(&mut self, key: HolderKey, resource: ResourceKey) {
        self.change_leases(key, |holder| {
            holder.resources.remove(&resource);
            holder.released.remove(&resource);
        });
        if !self.is_active(key) {
            self.remove_if_unused(key);
        }
    }

    pub(in crate::ledger) fn has_leases(&self, key: HolderKey) -> bool {
        let holder = self.holders.get(key.index());
        holder.is_some_and(|holder| !holder.resources.is_empty())
    }

    /// When the holder was last heard; `None` while its poll is open.
    pub(in crate::ledger) fn silent_since(&self, key: HolderKey) -> Option<Moment> {
        let holder = self.holders.get(key.index())?;
        let is_open = holder.poll.as_ref().is_some_and(|poll| poll.is_open());
        (!is_open).then_some(holder.heard_at.max(self.began))
    }

    /// Notes that a poll of the holder has begun or ended.
    pub(in crate::ledger) fn hear_by_poll(&mut self, key: HolderKey, now: Moment) {
        if let Some(holder) = self.holders.get_mut(key.index()) {
            (holder.heard_at, holder.heard_by_poll) = (now, true);
        }
    }

    /// Whether the holder was last heard by a poll, whose end tells that its connection has ended.
    pub(in crate::ledger) fn was_heard_by_poll(&self, key: HolderKey) -> bool {
        let holder = self.holders.get(key.index());
        holder.is_some_and(|holder| holder.heard_by_poll)
    }

    /// Whether the holder polls for hints.
    pub(in crate::ledger) fn polls(&self, key: HolderKey) -> bool {
        let holder = self.holders.get(key.index());
        holder.is_some_and(|holder| holder.poll.is_some())
    }

    pub(in crate::ledger) fn poll_mut(&mut self, key: HolderKey) -> Option<&mut Poll> {
        self.holders.get_mut(key.index())?.poll.as_deref_mut()
    }

    /// Begins or ends the polling of a holder.
    pub(in crate::ledger) fn set_poll(&mut self, key: HolderKey, poll: Option<Poll>) {
        if let Some(holder) = self.holders.get_mut(key.index()) {
            holder.poll = poll.map(Box::new);
        }
        if !self.is_active(key) {
            self.remove_if_unused(key);
        }
    }

    pub(in crate::ledger) fn resources(
        &self,
        key: HolderKey,
        from: ResourceKey,
    ) -> impl Iterator<Item = ResourceKey> {
        let holder = self.holders.get(key.index());
        let rest = holder.map(|holder| holder.resources.range(from..));
        rest.into_iter().flatten().copied()
    }

    fn is_active(&self, key: HolderKey) -> bool {
        self.active.is_some_and(|(active, _)| active == key)
    }

    fn remove_if_unused(&mut self, key: HolderKey) {
        let holder = self.holders.get(key.index());
        if holder.is_some_and(|holder| holder.resources.is_empty() && holder.poll.is_none()) {
            self.set_replaced(key, &[]);
        } else {
            return;
        }
        if let Some(holder) = self.holders.get(key.index()) {
            self.by_id.remove(&holder.id, key);
            let newest = NewestFirst(holder.rank, key);
            self.by_name.remove(&holder.id.as_str(), newest);
            self.holders.remove(key.index());
            self.addresses.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str) -> HolderId {
        HolderId::Client(ClientId::new(name).unwrap(), None)
    }

    fn resource(index: usize) -> ResourceKey {
        ResourceKey::new(index)
    }

    #[test]
    fn sender_is_known_during_its_request() {
        let mut holders = Holders::default();
        let id = client("a");
        let key = holders.begin_request(&id, None, 9, Moment::ORIGIN);
        assert_eq!(holders.find(&id), Some(key));
        holders.end_request();
        assert_eq!(holders.find(&id), None);

        let key = holders.begin_request(&id, None, 9, Moment::ORIGIN);
        holders.add_lease(key, resource(7));
        holders.end_request();
        assert_eq!(holders.begin_request(&id, None, 9, Moment::ORIGIN), key);
        holders.remove_lease(key, resource(7));
        // The key in use is not given to another holder.
        assert_ne!(holders.find_or_add(&client("b"), Moment::ORIGIN), key);
        assert_eq!(holders.id(key), Some(&id));
        holders.end_request();
        assert_eq!(holders.find(&id), None);
    }

    #[test]
    fn holder_is_found_without_a_walk_over_all_runs_of_its_name() {
        let mut holders = Holders::default();
        let name = ClientId::new("a").unwrap();
        let of_run = |run| HolderId::Client(name.clone(), Run::new(run).ok());
        for run in 0..10_000 {
            let key = holders.find_or_add(&of_run(run), Moment::ORIGIN);
            holders.add_lease(key, resource(7));
        }
        for run in [0, 5_000, 9_999] {
            let id = of_run(run);
            let found = holders.find(&id).unwrap();
            assert_eq!(holders.id(found), Some(&id));
            let examined = holders
                .by_id
                .of_hash(holders.by_id.hash(&id), HolderKey::default());
            assert_eq!(examined.collect::<Vec<_>>(), [found]);
            // Nor is the walk begun anew to find the next one.
            let (position, _) = holders.runs_of("a", 0).nth(100).unwrap();
            let next = holders.runs_of("a", position + 1).next();
            assert_eq!(next, holders.runs_of("a", 0).nth(101));
            holders.remove_lease(found, resource(7));
            assert_eq!(holders.find(&id), None);
        }
        assert_eq!(holders.runs_of("a", 0).count(), 9_997);
    }

    #[test]
    fn address_of_a_node_ends_with_its_last_lease() {
        let mut holders = Holders::default();
        let node = HolderId::Node(NodeId::new("eu").unwrap());
        let address: ServerUrl = "http://eu:7300".parse().unwrap();
        let key = holders.begin_request(&node, None, 9, Moment::ORIGIN);
        holders.add_lease(key, resource(7));
        holders.set_address(key, Some(&address));
        holders.end_request();
        assert_eq!(holders.address(key), Some(&address));
        holders.remove_lease(key, resource(7));
        let other = holders.find_or_add(&client("eu"), Moment::ORIGIN);
        assert_eq!((other, holders.address(other)), (key, None));
        assert!(holders.addresses.is_empty());
    }
}
