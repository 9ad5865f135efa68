//! The caller of a request and its permissions.

use std::{
    hash::{BuildHasher, DefaultHasher, Hash as _, Hasher as _, RandomState},
    sync::{Arc, LazyLock},
};

use doorman_config::Restrictions;
use doorman_openapi::{Scope, Scopes};

use doorman_core::ledger::{Tenant, TenantId};

/// SipHash with a seed of this process: no caller can choose a name that collides with another.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The subject of a token and its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) issuer: Arc<str>,
    pub(crate) subject: Arc<str>,
    pub(crate) scopes: Scopes,
    /// Shared by all tokens of one grant.
    pub(crate) restrictions: Arc<Restrictions>,
}

/// The sender of a request: the bearer of a valid token, or anonymous where no tokens are required.
///
/// Only authentication makes one, so a handler with a `Caller` runs behind it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Authenticated>>);

/// An identity with what is derived from it once per token.
#[derive(Debug)]
struct Authenticated {
    identity: Identity,
    identity_hash: u64,
    tenant: Option<Tenant>,
}

impl Caller {
    pub(crate) const ANONYMOUS: Self = Self(None);

    pub(super) fn new(identity: Identity) -> Self {
        let identity_hash = SEED.hash_one((&identity.issuer, &identity.subject));
        let restrictions = &*identity.restrictions;
        let has_globs = restrictions.clients.is_some() || restrictions.resources.is_some();
        let is_tenant = has_globs || restrictions.max_clients.is_some();
        let tenant = is_tenant.then(|| Tenant {
            id: tenant_id(restrictions),
            max_clients: restrictions.max_clients,
        });
        Self(Some(Arc::new(Authenticated {
            identity,
            identity_hash,
            tenant,
        })))
    }

    /// Whether the caller has one of these scopes.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.identity()
            .is_none_or(|it| any_of.iter().any(|scope| it.scopes.contains(*scope)))
    }

    /// The clients, resources and services that the caller may access.
    pub(crate) fn restrictions(&self) -> &Restrictions {
        static UNBOUNDED: Restrictions = Restrictions {
            clients: None,
            resources: None,
            services: None,
            max_priority: None,
            max_capacity: None,
            max_clients: None,
        };
        self.identity()
            .map_or(&UNBOUNDED, |it| it.restrictions.as_ref())
    }

    /// The author of a change, as the history of the document names it.
    pub(crate) fn name(&self) -> String {
        self.identity().map_or_else(
            || "anonymous".to_owned(),
            |it| format!("{} of {}", it.subject, it.issuer),
        )
    }

    /// `None` for an anonymous caller.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.0.as_ref().map(|it| &it.identity)
    }

    /// A hash of issuer and subject, seeded per process; `None` for an anonymous caller.
    pub(crate) fn identity_hash(&self) -> Option<u64> {
        self.0.as_ref().map(|it| it.identity_hash)
    }

    /// The tenant that the caller leases for, if it is restricted to some clients or resources, or to
    /// a number of clients. Callers with equal restrictions are one tenant.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        self.0.as_ref().and_then(|it| it.tenant)
    }
}

/// Without a seed, since the next master finds the same tenants in the ledger. Issuers choose
/// restrictions, and callers do not.
fn tenant_id(restrictions: &Restrictions) -> TenantId {
    let mut hasher = DefaultHasher::new();
    restrictions.hash(&mut hasher);
    TenantId(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_differ_by_issuer_and_subject() {
        let hash = |issuer: &str, subject: &str| {
            Caller::new(Identity {
                issuer: issuer.into(),
                subject: subject.into(),
                scopes: Scopes::NONE,
                restrictions: Arc::default(),
            })
            .identity_hash()
        };
        assert_eq!(hash("issuer", "a"), hash("issuer", "a"));
        assert_ne!(hash("issuer", "a"), hash("issuera", ""));
        assert_ne!(hash("issuer", "a"), hash("other", "a"));
        assert_eq!(Caller::ANONYMOUS.identity_hash(), None);
    }
}
