//! The caller of a request and its permissions.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, LazyLock},
};

use doorman_config::Restrictions;
use doorman_core::ledger::{Tenant, TenantId};
use doorman_openapi::{GlobSet, Scope, Scopes};
use serde_json::json;
use sha2::{Digest as _, Sha256};

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
            id: tenant_id(&identity),
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

    /// The tenant that the caller leases for, if it is restricted to some clients or resources, or
    /// to a number of clients.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        self.0.as_ref().and_then(|it| it.tenant)
    }
}

/// Callers that are restricted to the same clients and resources are one tenant; without such
/// restrictions each subject is one. The id depends on no seed and no release of Rust: the next
/// master finds it in the ledger.
fn tenant_id(identity: &Identity) -> TenantId {
    let Restrictions {
        clients, resources, ..
    } = &*identity.restrictions;
    let texts = |globs: &Option<GlobSet>| {
        let globs = globs.as_ref()?.iter();
        Some(
            globs
                .map(|glob| glob.as_str().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let subject =
        (clients.is_none() && resources.is_none()).then_some((&identity.issuer, &identity.subject));
    let name = json!([texts(clients), texts(resources), subject]).to_string();
    let digest: [u8; 32] = Sha256::digest(name).into();
    let id = digest.first_chunk().copied().unwrap_or_default();
    TenantId(u64::from_be_bytes(id))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

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

    #[test]
    fn tenant_is_its_restrictions_or_else_its_subject() {
        let tenant = |subject: &str, clients: &[&str], max_clients: u32| {
            let clients = Some(GlobSet::new(clients).unwrap());
            let restrictions = Restrictions {
                clients: clients.filter(|it| !it.is_empty()),
                max_clients: NonZeroU32::new(max_clients),
                ..Restrictions::default()
            };
            let caller = Caller::new(Identity {
                issuer: "issuer".into(),
                subject: subject.into(),
                scopes: Scopes::NONE,
                restrictions: Arc::new(restrictions),
            });
            caller.tenant().map(|it| it.id)
        };
        let acme = tenant("acme", &["a*", "b*"], 3);
        assert_eq!(acme, tenant("other", &["b*", "a*", "a*"], 5));
        assert_ne!(acme, tenant("acme", &["a*"], 3));
        assert_ne!(tenant("acme", &[], 3), tenant("other", &[], 3));
        assert_eq!(tenant("acme", &[], 0), None);
        // Another id would be another tenant after an upgrade.
        assert_eq!(acme, Some(TenantId(11_335_257_236_965_358_053)));
    }
}
