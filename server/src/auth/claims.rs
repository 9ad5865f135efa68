//! Claims of a token, and the identity that they or a grant define.

use std::sync::Arc;

use doorman_config::{Grant, Grants, MaxCapacity, Restrictions};
use doorman_openapi::{GlobSet, Scopes};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::caller::Identity;

/// Size limit of a subject in bytes: subjects appear in logs.
const MAX_SUBJECT: usize = 512;

/// The claims that matter. A duplicate makes the token invalid. Permissions stay raw values,
/// because they are ignored where a grant applies: another issuer may use these names for something
/// else.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    iss: String,
    sub: String,
    /// Unix seconds.
    pub(super) exp: f64,
    #[serde(default, deserialize_with = "present")]
    scope: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    client_id: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    resources: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    services: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    max_priority: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    max_capacity: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    max_clients: Option<Value>,
}

/// A present claim, even if it is `null`: a restriction of `null` must not lift the restriction.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A claim has the wrong type or size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedClaim;

/// The permissions of tokens without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UngrantedTokens {
    /// Those that they claim.
    UseClaims,
    /// None. Where grants restrict an issuer's tokens, removing a grant must not free them.
    Deny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Claims {
    /// The identity by the first matching grant, or without one by the claims.
    pub(super) fn into_identity(
        self,
        grants: &Grants,
        ungranted: UngrantedTokens,
    ) -> Result<Identity, MalformedClaim> {
        let has_valid_length = (1..=MAX_SUBJECT).contains(&self.sub.len());
        if !has_valid_length || self.sub.chars().any(char::is_control) {
            return Err(MalformedClaim);
        }
        let (scopes, restrictions) = match (grants.find(&self.iss, &self.sub), ungranted) {
            (Some(grant), _) => (grant.scopes, self.granted(grant)?),
            (None, UngrantedTokens::UseClaims) => (self.scopes()?, Arc::new(self.restrictions()?)),
            (None, UngrantedTokens::Deny) => (Scopes::NONE, Arc::default()),
        };
        Ok(Identity {
            issuer: self.iss.into(),
            subject: self.sub.into(),
            scopes,
            restrictions,
        })
    }

    /// The restrictions of a grant, and those by the claim `client_id` if the grant requires it.
    fn granted(&self, grant: &Grant) -> Result<Arc<Restrictions>, MalformedClaim> {
        if !grant.requires_client_id {
            return Ok(Arc::clone(&grant.restrictions));
        }
        let clients = globs(self.client_id.as_ref())?.ok_or(MalformedClaim)?;
        let granted = grant.restrictions.clients.as_ref();
        if granted.is_some_and(|granted| !granted.covers_all(&clients)) {
            return Err(MalformedClaim);
        }
        Ok(Arc::new(Restrictions {
            clients: Some(clients),
            ..Restrictions::clone(&grant.restrictions)
        }))
    }

    fn scopes(&self) -> Result<Scopes, MalformedClaim> {
        Ok(match read(self.scope.as_ref())? {
            None => Scopes::NONE,
            Some(OneOrMany::One(text)) => Scopes::from_claim(&text),
            Some(OneOrMany::Many(names)) => Scopes::from_claim(&names.join(" ")),
        })
    }

    fn restrictions(&self) -> Result<Restrictions, MalformedClaim> {
        Ok(Restrictions {
            clients: globs(self.client_id.as_ref())?,
            resources: globs(self.resources.as_ref())?,
            services: globs(self.services.as_ref())?,
            max_priority: read(self.max_priority.as_ref())?,
            max_capacity: read(self.max_capacity.as_ref())?.map(MaxCapacity),
            max_clients: read(self.max_clients.as_ref())?,
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(claim: Option<&Value>) -> Result<Option<T>, MalformedClaim> {
    claim
        .map(|claim| T::deserialize(claim).map_err(|_| MalformedClaim))
        .transpose()
}

fn globs(claim: Option<&Value>) -> Result<Option<GlobSet>, MalformedClaim> {
    let globs = match read(claim)? {
        None => return Ok(None),
        Some(OneOrMany::One(text)) => GlobSet::new([text]),
        Some(OneOrMany::Many(texts)) => GlobSet::new(texts),
    };
    globs.map(Some).map_err(|_| MalformedClaim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(other: &Value, grants: &str) -> Result<Identity, MalformedClaim> {
        let mut claims = json!({"iss": "issuer", "sub": "web", "exp": 5});
        for (name, value) in other.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let claims: Claims = serde_json::from_value(claims).map_err(|_| MalformedClaim)?;
        claims.into_identity(&Grants::parse(grants).unwrap(), UngrantedTokens::UseClaims)
    }

    const NONE: &str = "grants: []";

    #[test]
    fn claims_define_scopes_and_restrictions() {
        let all = json!({
            "scope": "openid capacity", "client_id": "web-*", "resources": ["a", "b/*"], "services": [], "max_priority": -1
        });
        let identity = identity(&all, NONE).unwrap();
        assert_eq!(identity.scopes.to_string(), "capacity");
        let restrictions = identity.restrictions;
        assert!(restrictions.allows_client("web-1") && !restrictions.allows_client("web"));
        assert!(restrictions.allows_resource("b/c") && !restrictions.allows_resource("c"));
        assert!(!restrictions.allows_service("web"));
        assert!(restrictions.allows_priority(-1) && !restrictions.allows_priority(0));
    }

    #[test]
    fn scopes_may_be_a_list_or_absent() {
        let several = identity(&json!({"scope": ["capacity", "server"]}), NONE).unwrap();
        assert_eq!(several.scopes.to_string(), "capacity server");
        let none = identity(&json!({}), NONE).unwrap();
        assert_eq!(
            (none.scopes, none.restrictions.as_ref()),
            (Scopes::NONE, &Restrictions::default())
        );
    }

    #[test]
    fn malformed_claim_is_rejected() {
        for claim in ["scope", "client_id", "resources", "services"] {
            for wrong in [json!(null), json!(5), json!({}), json!([1]), json!([null])] {
                let rejected = identity(&json!({claim: wrong}), NONE);
                assert_eq!(rejected.unwrap_err(), MalformedClaim, "{claim}: {wrong}");
            }
        }
        for wrong in [
            json!({"resources": "["}),
            json!({"client_id": ""}),
            json!({"max_priority": null}),
            json!({"max_priority": "5"}),
            json!({"max_priority": 1.5}),
            json!({"max_priority": 1u64 << 40}),
            json!({"max_capacity": null}),
            json!({"max_capacity": -1}),
            json!({"max_capacity": "5"}),
            json!({"max_clients": null}),
            json!({"max_clients": 0}),
            json!({"max_clients": 1.5}),
            json!({"max_clients": "5"}),
            json!({"sub": ""}),
            json!({"sub": "a\nb"}),
            json!({"sub": "x".repeat(513)}),
            json!({"sub": 5}),
            json!({"iss": ["issuer"]}),
            json!({"exp": "5"}),
        ] {
            assert_eq!(
                identity(&wrong, NONE).unwrap_err(),
                MalformedClaim,
                "{wrong}"
            );
        }
    }

    #[test]
    fn duplicate_claim_is_rejected() {
        for text in [
            r#"{"iss":"a","sub":"b","exp":5,"sub":"c"}"#,
            r#"{"iss":"a","sub":"b","exp":5,"scope":"capacity","scope":"server"}"#,
            r#"{"iss":"a","sub":"b","exp":5,"resources":"a","resources":"b"}"#,
        ] {
            assert!(serde_json::from_str::<Claims>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn grant_replaces_claims() {
        let grants = "grants: [{iss: issuer, sub: web, scope: [capacity], resources: db}]";
        let claims = json!({"scope": "templates:write", "client_id": {"not": "ours"}});
        let identity_of_web = identity(&claims, grants).unwrap();
        assert_eq!(identity_of_web.scopes.to_string(), "capacity");
        assert!(!identity_of_web.restrictions.allows_resource("cache"));
        let other = json!({"sub": "other", "scope": "templates:write"});
        let identity_of_other = identity(&other, grants).unwrap();
        assert_eq!(identity_of_other.scopes.to_string(), "templates:write");
    }

    #[test]
    fn grant_may_require_the_claim_of_a_client_id() {
        let grants = "grants: [{iss: issuer, sub: web, scope: [capacity], client_id: 'shop-*', \
                      max_clients: 3, require_client_id: true}]";
        let of_web = identity(&json!({"client_id": "shop-web*"}), grants).unwrap();
        let restrictions = of_web.restrictions;
        assert!(restrictions.allows_client("shop-web-1"));
        assert!(!restrictions.allows_client("shop-db"));
        assert_eq!(restrictions.max_clients.map(u32::from), Some(3));
        for wrong in [
            json!({}),
            json!({"client_id": "*"}),
            json!({"client_id": ["shop-a", "b"]}),
        ] {
            let rejected = identity(&wrong, grants).unwrap_err();
            assert_eq!(rejected, MalformedClaim, "{wrong}");
        }
    }

    #[test]
    fn identities_of_one_grant_share_its_restrictions() {
        let grants = "grants: [{iss: issuer, sub: '*', scope: [capacity], resources: db}]";
        let grants = Grants::parse(grants).unwrap();
        let [a, b] = ["a", "b"].map(|sub| {
            let claims = json!({"iss": "issuer", "sub": sub, "exp": 5});
            let claims: Claims = serde_json::from_value(claims).unwrap();
            claims
                .into_identity(&grants, UngrantedTokens::Deny)
                .unwrap()
        });
        assert!(Arc::ptr_eq(&a.restrictions, &b.restrictions));
    }
}
