//! Who sends a request, and what it may do.

use std::sync::Arc;

use doorman_config::Restrictions;
use doorman_openapi::{Scope, Scopes};

use crate::{ledger::TenantId, quota::Payer};

/// Whom a token speaks of, and what it lets its bearer do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) scopes: Scopes,
    /// Those of a grant are shared by all whom it speaks for, and not copied for each token that is remembered.
    pub(crate) restrictions: Arc<Restrictions>,
}

/// Who sends a request: somebody with a token that counts, or anybody, where nobody is asked. Having one proves that it was asked.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Known>>);

/// What is made of an identity once, and not for each request.
#[derive(Debug)]
struct Known {
    identity: Identity,
    payer: Payer,
    tenant: Option<TenantId>,
}

impl Caller {
    /// Whoever it is, where nobody is asked.
    pub(crate) const ANYBODY: Self = Self(None);

    pub(super) fn new(identity: Identity) -> Self {
        let payer = Payer::of_token(&identity.issuer, &identity.subject);
        let Restrictions {
            clients, resources, ..
        } = &*identity.restrictions;
        let leases_in_a_part = clients.is_some() || resources.is_some();
        let tenant = leases_in_a_part.then(|| Payer::tenant(&identity.restrictions));
        Self(Some(Arc::new(Known {
            identity,
            payer,
            tenant,
        })))
    }

    /// Whether it may do one of these things at all.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.identity()
            .is_none_or(|it| any_of.iter().any(|scope| it.scopes.contains(*scope)))
    }

    /// Whose, and of what.
    pub(crate) fn restrictions(&self) -> &Restrictions {
        static FREE: Restrictions = Restrictions {
            clients: None,
            resources: None,
            services: None,
            max_priority: None,
        };
        self.identity().map_or(&FREE, |it| it.restrictions.as_ref())
    }

    /// Who it is, as the history of the document names it.
    pub(crate) fn name(&self) -> String {
        self.identity().map_or_else(
            || "anonymous".to_owned(),
            |it| format!("{} of {}", it.subject, it.issuer),
        )
    }

    /// Its issuer and subject, where it was asked.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.0.as_ref().map(|known| &known.identity)
    }

    /// For whom it leases, where it is bound: all that are bound alike are one.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.0.as_ref().and_then(|known| known.tenant)
    }

    /// On whose account it asks, where it was asked.
    pub(crate) fn payer(&self) -> Option<Payer> {
        self.0.as_ref().map(|known| known.payer)
    }
}
