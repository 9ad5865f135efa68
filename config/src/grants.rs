//! Grants: what tokens of an issuer that knows nothing of us let their bearers do.

use std::sync::Arc;

use doorman_openapi::Scopes;

use crate::{Glob, Restrictions, ValidationErrors, read};

#[cfg(test)]
mod tests;

/// A checked list of grants.
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

/// What the tokens of some issuers for some subjects let their bearers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub(crate) iss: Glob,
    pub(crate) sub: Glob,
    /// What.
    pub scopes: Scopes,
    /// Whose, and of what; shared by all whom it speaks for.
    pub restrictions: Arc<Restrictions>,
}

impl Grants {
    /// The most grants of a list: each new token is compared with them.
    pub const MAX_LEN: usize = 1_000;

    /// Reads a list of grants, in YAML or in JSON.
    ///
    /// # Errors
    /// [`ValidationErrors`]: everything that is wrong with it, not only the first thing. A wrong list is refused whole.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        read::grants(text).map(Self)
    }

    /// The grant for a token: the first in order whose globs match its issuer and its subject.
    #[must_use]
    pub fn find(&self, iss: &str, sub: &str) -> Option<&Grant> {
        self.0
            .iter()
            .find(|grant| grant.iss.matches(iss) && grant.sub.matches(sub))
    }
}
