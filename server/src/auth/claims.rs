//! What tokens say: their claims, and what those come to.

use std::sync::Arc;

use doorman_config::{Grants, Restrictions};
use doorman_openapi::{GlobSet, Scopes};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::caller::Identity;

/// The most bytes of a subject, which stands in logs.
const LONGEST_SUBJECT: usize = 512;

/// The claims that are ours to read. A claim of these that stands twice makes the token unreadable. What a token may do is only looked
/// at where no grant says it: claims of these names may mean something else to an issuer that knows nothing of us.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    iss: String,
    sub: String,
    /// Unix seconds.
    pub(super) exp: f64,
    #[serde(default, deserialize_with = "given")]
    scope: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    client_id: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    resources: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    services: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    max_priority: Option<Value>,
}

/// A claim that is there, `null` included: a bound of `null` must not become no bound.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A claim does not have the form it should have; the token does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mistyped;

/// What the tokens of an issuer come to that no grant speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutGrant {
    /// What they say.
    Own,
    /// Nothing: where grants bind an issuer's tokens, to take one away must not let its tokens say what they please.
    Nothing,
}

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Claims {
    /// Who the bearer is, and what it may do: what the first grant for it says, and nothing else; without one, what its issuer's tokens
    /// come to by themselves.
    pub(super) fn identity(
        self,
        grants: &Grants,
        without_grant: WithoutGrant,
    ) -> Result<Identity, Mistyped> {
        let named = (1..=LONGEST_SUBJECT).contains(&self.sub.len());
        if !named || self.sub.chars().any(char::is_control) {
            return Err(Mistyped);
        }
        let (scopes, restrictions) = match (grants.find(&self.iss, &self.sub), without_grant) {
            (Some(grant), _) => (grant.scopes, Arc::clone(&grant.restrictions)),
            (None, WithoutGrant::Own) => (self.scopes()?, Arc::new(self.restrictions()?)),
            (None, WithoutGrant::Nothing) => (Scopes::NONE, Arc::default()),
        };
        Ok(Identity {
            issuer: self.iss.into(),
            subject: self.sub.into(),
            scopes,
            restrictions,
        })
    }

    fn scopes(&self) -> Result<Scopes, Mistyped> {
        Ok(match read(self.scope.as_ref())? {
            None => Scopes::NONE,
            Some(Texts::One(text)) => Scopes::from_claim(&text),
            Some(Texts::Several(names)) => Scopes::from_claim(&names.join(" ")),
        })
    }

    fn restrictions(&self) -> Result<Restrictions, Mistyped> {
        Ok(Restrictions {
            clients: globs(self.client_id.as_ref())?,
            resources: globs(self.resources.as_ref())?,
            services: globs(self.services.as_ref())?,
            max_priority: read(self.max_priority.as_ref())?,
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(claim: Option<&Value>) -> Result<Option<T>, Mistyped> {
    claim
        .map(|claim| T::deserialize(claim).map_err(|_| Mistyped))
        .transpose()
}

fn globs(claim: Option<&Value>) -> Result<Option<GlobSet>, Mistyped> {
    let globs = match read(claim)? {
        None => return Ok(None),
        Some(Texts::One(text)) => GlobSet::new([text]),
        Some(Texts::Several(texts)) => GlobSet::new(texts),
    };
    globs.map(Some).map_err(|_| Mistyped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(other: &Value, grants: &str) -> Result<Identity, Mistyped> {
        let mut claims = json!({"iss": "issuer", "sub": "web", "exp": 5});
        for (name, value) in other.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let claims: Claims = serde_json::from_value(claims).map_err(|_| Mistyped)?;
        claims.identity(&Grants::parse(grants).unwrap(), WithoutGrant::Own)
    }

    const NONE: &str = "grants: []";

    #[test]
    fn claims_come_to_scopes_and_bounds() {
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
    fn a_list_of_scopes_is_as_good_and_none_is_none() {
        let several = identity(&json!({"scope": ["capacity", "server"]}), NONE).unwrap();
        assert_eq!(several.scopes.to_string(), "capacity server");
        let none = identity(&json!({}), NONE).unwrap();
        assert_eq!(
            (none.scopes, none.restrictions.as_ref()),
            (Scopes::NONE, &Restrictions::default())
        );
    }

    #[test]
    fn a_bound_that_cannot_be_read_is_not_no_bound() {
        for claim in ["scope", "client_id", "resources", "services"] {
            for wrong in [json!(null), json!(5), json!({}), json!([1]), json!([null])] {
                let refused = identity(&json!({claim: wrong}), NONE);
                assert_eq!(refused.unwrap_err(), Mistyped, "{claim}: {wrong}");
            }
        }
        for wrong in [
            json!({"resources": "["}),
            json!({"client_id": ""}),
            json!({"max_priority": null}),
            json!({"max_priority": "5"}),
            json!({"max_priority": 1.5}),
            json!({"max_priority": 1u64 << 40}),
            json!({"sub": ""}),
            json!({"sub": "a\nb"}),
            json!({"sub": "x".repeat(513)}),
            json!({"sub": 5}),
            json!({"iss": ["issuer"]}),
            json!({"exp": "5"}),
        ] {
            assert_eq!(identity(&wrong, NONE).unwrap_err(), Mistyped, "{wrong}");
        }
    }

    #[test]
    fn a_claim_that_stands_twice_is_not_read() {
        for text in [
            r#"{"iss":"a","sub":"b","exp":5,"sub":"c"}"#,
            r#"{"iss":"a","sub":"b","exp":5,"scope":"capacity","scope":"server"}"#,
            r#"{"iss":"a","sub":"b","exp":5,"resources":"a","resources":"b"}"#,
        ] {
            assert!(serde_json::from_str::<Claims>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn where_a_grant_speaks_the_token_does_not() {
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
    fn all_whom_a_grant_speaks_for_share_its_bounds() {
        let grants = "grants: [{iss: issuer, sub: '*', scope: [capacity], resources: db}]";
        let grants = Grants::parse(grants).unwrap();
        let [a, b] = ["a", "b"].map(|sub| {
            let claims = json!({"iss": "issuer", "sub": sub, "exp": 5});
            let claims: Claims = serde_json::from_value(claims).unwrap();
            claims.identity(&grants, WithoutGrant::Nothing).unwrap()
        });
        assert!(Arc::ptr_eq(&a.restrictions, &b.restrictions));
    }
}
