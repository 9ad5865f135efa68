//! Claims that are known to be true, and the one of them that a key is made of.

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value};

/// What is known of a caller because somebody has verified it: the claims of a token whose signature was checked. Cheap to clone.
///
/// A service that verifies tokens itself, further out than the layer, puts this into the extensions of each request, for keys by
/// [claim](crate::Key::jwt). It counts before what the layer's own verifier would say. What stands in a token that nobody has
/// verified does not belong here: every caller could choose its key.
///
/// ```
/// use tower_doorman::VerifiedClaims;
///
/// # let mut request = http::Request::new(());
/// let claims = std::collections::HashMap::from([("sub", "alice")]);
/// request.extensions_mut().insert(VerifiedClaims::new(&claims)?);
/// # Ok::<(), tower_doorman::InvalidClaims>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct VerifiedClaims(Arc<Map<String, Value>>);

/// Why a value is no set of claims.
#[derive(Debug, thiserror::Error)]
#[error("claims must be an object of JSON")]
pub struct InvalidClaims(#[source] Option<serde_json::Error>);

impl VerifiedClaims {
    /// Claims in any form that serde makes an object of JSON of.
    ///
    /// # Errors
    /// [`InvalidClaims`] when they come to something else.
    pub fn new(claims: &impl Serialize) -> Result<Self, InvalidClaims> {
        match serde_json::to_value(claims) {
            Ok(Value::Object(claims)) => Ok(Self(Arc::new(claims))),
            Ok(_) => Err(InvalidClaims(None)),
            Err(error) => Err(InvalidClaims(Some(error))),
        }
    }
}

#[cfg(feature = "jwt")]
impl From<Map<String, Value>> for VerifiedClaims {
    fn from(claims: Map<String, Value>) -> Self {
        Self(Arc::new(claims))
    }
}

impl fmt::Debug for VerifiedClaims {
    /// Names of claims only: who somebody is belongs in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VerifiedClaims")
            .field(&self.0.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Where in the claims a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    /// The claim of that name, whatever characters it is made of.
    Named(Box<str>),
    /// A JSON Pointer, RFC 6901, into claims that have others in them: the names from the outermost in.
    At(Arc<[Box<str>]>),
}

impl Claim {
    /// A text that begins with a slash is a JSON Pointer, every other one a name; `None` when it is empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('/') {
            Some(pointer) => {
                let names = pointer.split('/');
                let names = names.map(|name| name.replace("~1", "/").replace("~0", "~").into());
                Some(Self::At(names.collect()))
            }
            None => (!text.is_empty()).then(|| Self::Named(text.into())),
        }
    }

    /// Hands the claim to `found` as text: a string, a whole number, `true` or `false`. Others make no key, and are none.
    pub(super) fn take<R>(
        &self,
        claims: &VerifiedClaims,
        found: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Option<R> {
        match self.find(claims)? {
            Value::String(text) => found(text.as_bytes()),
            Value::Bool(truth) => found(if *truth { b"true" } else { b"false" }),
            Value::Number(number) => {
                let mut buffer = itoa::Buffer::new();
                let text = match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => buffer.format(number),
                    (None, Some(number)) => buffer.format(number),
                    (None, None) => return None,
                };
                found(text.as_bytes())
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn find<'c>(&self, VerifiedClaims(claims): &'c VerifiedClaims) -> Option<&'c Value> {
        match self {
            Self::Named(name) => claims.get(&**name),
            Self::At(names) => {
                let (first, inner) = names.split_first()?;
                let outermost = claims.get(&**first)?;
                inner.iter().try_fold(outermost, |value, name| match value {
                    Value::Object(claims) => claims.get(&**name),
                    Value::Array(list) => list.get(index(name)?),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
                })
            }
        }
    }
}

/// A place in a list, RFC 6901 section 4: digits without a zero before them.
fn index(name: &str) -> Option<usize> {
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    let leads = name.len() > 1 && name.starts_with('0');
    (digits && !leads).then(|| name.parse().ok())?
}
