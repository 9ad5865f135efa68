//! Grants: scopes and restrictions for tokens of issuers that do not know Doorman.

use std::sync::Arc;

use doorman_openapi::{Glob, Scopes};

use crate::Restrictions;

#[cfg(test)]
mod tests;

/// A valid list of grants.
///
/// ```
/// use doorman_config::Grants;
///
/// let grants = Grants::parse(
///     r#"
/// grants:
///   - iss: "https://kubernetes.default.svc*"
///     sub: "system:serviceaccount:shop:*"
///     scope: [capacity]
///     resources: "shop/*"
/// "#,
/// )?;
/// let grant = grants
///     .find("https://kubernetes.default.svc", "system:serviceaccount:shop:web")
///     .unwrap();
/// assert!(grant.restrictions.allows_resource("shop/db"));
/// # Ok::<(), doorman_config::ValidationErrors>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants(pub(crate) Vec<Grant>);

/// The scopes and restrictions of tokens whose issuer and subject match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub(crate) iss: Glob,
    pub(crate) sub: Glob,
    /// The scopes.
    pub scopes: Scopes,
    /// The restrictions.
    pub restrictions: Arc<Restrictions>,
    /// Whether a token needs the claim `client_id`, which restricts it further.
    pub requires_client_id: bool,
}

impl Grants {
    /// The most grants of a list: each new token is compared with them.
    pub const MAX_LEN: usize = 1_000;

    /// The first grant whose globs match the issuer and the subject of a token.
    #[must_use]
    pub fn find(&self, iss: &str, sub: &str) -> Option<&Grant> {
        self.0
            .iter()
            .find(|grant| grant.iss.matches(iss) && grant.sub.matches(sub))
    }
}
