//! Verified claims, and the selection of one claim as a key.

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value};

/// Claims of a token whose signature was verified. Cheap to clone.
///
/// A service that verifies tokens in an outer layer adds this to the extensions of each request,
/// for keys by [claim](crate::Key::jwt). It takes precedence over the layer's own verifier. Never
/// add claims of an unverified token: every caller could choose its key.
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

/// A value that does not serialize to a JSON object.
#[derive(thiserror::Error)]
#[error("claims must be a JSON object")]
pub struct InvalidClaims(#[source] Option<serde_json::Error>);

crate::error::debug_as_text!(InvalidClaims);

impl VerifiedClaims {
    /// Claims of any type that serializes to a JSON object.
    ///
    /// # Errors
    /// [`InvalidClaims`] if they do not.
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
    /// Names only: values are personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("VerifiedClaims")
            .field(&self.0.keys().collect::<Vec<_>>())
            .finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimPath {
    /// A top-level claim, whatever characters its name has.
    Name(Box<str>),
    /// A JSON Pointer, RFC 6901, as its unescaped tokens.
    Pointer(Arc<[Box<str>]>),
}

impl fmt::Display for ClaimPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Pointer(names) => names
                .iter()
                .try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1"))),
        }
    }
}

impl ClaimPath {
    /// A text that begins with a slash is a JSON Pointer. `None` if the text is empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('/') {
            Some(pointer) => {
                let names = pointer.split('/');
                let names = names.map(|name| name.replace("~1", "/").replace("~0", "~").into());
                Some(Self::Pointer(names.collect()))
            }
            None => (!text.is_empty()).then(|| Self::Name(text.into())),
        }
    }

    /// Calls `use_text` with a string, integer or boolean claim; `None` for any other.
    pub(super) fn with_text<R>(
        &self,
        claims: &VerifiedClaims,
        use_text: impl FnOnce(&[u8]) -> Option<R>,
    ) -> Option<R> {
        match self.find(claims)? {
            Value::String(text) => use_text(text.as_bytes()),
            Value::Bool(value) => use_text(if *value { b"true" } else { b"false" }),
            Value::Number(number) => {
                let mut buffer = itoa::Buffer::new();
                let text = match (number.as_u64(), number.as_i64()) {
                    (Some(number), _) => buffer.format(number),
                    (None, Some(number)) => buffer.format(number),
                    (None, None) => return None,
                };
                use_text(text.as_bytes())
            }
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn find<'c>(&self, VerifiedClaims(claims): &'c VerifiedClaims) -> Option<&'c Value> {
        match self {
            Self::Name(name) => claims.get(&**name),
            Self::Pointer(names) => {
                let (first, inner) = names.split_first()?;
                let outermost = claims.get(&**first)?;
                inner.iter().try_fold(outermost, |value, name| match value {
                    Value::Object(claims) => claims.get(&**name),
                    Value::Array(list) => list.get(array_index(name)?),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
                })
            }
        }
    }
}

/// Digits without a leading zero, RFC 6901 section 4.
fn array_index(name: &str) -> Option<usize> {
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = name.len() > 1 && name.starts_with('0');
    (digits && !leading_zero).then(|| name.parse().ok())?
}
