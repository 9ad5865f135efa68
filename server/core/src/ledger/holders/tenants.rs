//! Tenants: their leases and clients, and the bounds of both.

use std::{collections::HashMap, num::NonZeroU32};

use serde::{Deserialize, Serialize};

/// Callers that share the bounds of a tenant. The ledger only compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TenantId(pub u64);

/// A tenant, and the most clients that it may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// The tenant.
    pub id: TenantId,
    /// Clients and nodes that have a lease, or ask for one; absent: no bound.
    pub max_clients: Option<NonZeroU32>,
}

/// Leases and clients that count for a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub(super) leases: usize,
    /// Holders that have a lease, or ask for one.
    pub(super) clients: usize,
}

/// The usage of all tenants, without those that use nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Tenants(HashMap<TenantId, Usage>);

impl Tenants {
    /// Whether a tenant has room for more.
    pub(super) fn has_room(&self, tenant: Tenant, more: Usage, max_leases: usize) -> bool {
        let usage = self.0.get(&tenant.id).copied().unwrap_or_default();
        let max_clients = tenant.max_clients.map_or(usize::MAX, |max| {
            usize::try_from(max.get()).unwrap_or(usize::MAX)
        });
        let fits = |used: usize, more: usize, max| more == 0 || used.saturating_add(more) <= max;
        fits(usage.leases, more.leases, max_leases)
            && fits(usage.clients, more.clients, max_clients)
    }

    /// Counts the usage of a holder.
    pub(super) fn add(&mut self, tenant: Option<TenantId>, usage: Usage) {
        if let Some(tenant) = tenant.filter(|_| usage != Usage::default()) {
            let all = self.0.entry(tenant).or_default();
            all.leases = all.leases.saturating_add(usage.leases);
            all.clients = all.clients.saturating_add(usage.clients);
        }
    }

    /// No longer counts the usage of a holder.
    pub(super) fn subtract(&mut self, tenant: Option<TenantId>, usage: Usage) {
        let Some((tenant, all)) = tenant.and_then(|it| Some((it, self.0.get_mut(&it)?))) else {
            return;
        };
        all.leases = all.leases.saturating_sub(usage.leases);
        all.clients = all.clients.saturating_sub(usage.clients);
        if *all == Usage::default() {
            self.0.remove(&tenant);
        }
    }
}
