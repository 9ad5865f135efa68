//! Identifiers, validated on construction.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The most bytes of UTF-8 that an identifier may have.
pub(crate) const MAX_BYTES: usize = 256;

/// The text is not an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 256 bytes of UTF-8 without control characters")]
pub struct InvalidId;

fn check(text: &str) -> Result<(), InvalidId> {
    let fits = !text.is_empty() && text.len() <= MAX_BYTES;
    // Fast path: printable ASCII needs no decoding. No early exit, so that it is vectorized.
    let is_plain = || {
        text.bytes()
            .fold(true, |all, byte| all & (b' '..=b'~').contains(&byte))
    };
    if fits && (is_plain() || !text.chars().any(char::is_control)) {
        Ok(())
    } else {
        Err(InvalidId)
    }
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $example:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 256 bytes of UTF-8 without control characters, compared byte by byte. Cheap to
        /// clone.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "schema", schema(value_type = String, min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", example = $example))]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates a text.
            ///
            /// # Errors
            /// [`InvalidId`] if it is empty, longer than 256 bytes, or has a control character.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                let text = text.as_ref();
                check(text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                // Borrows the text, to allocate once.
                impl de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::new(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

identifier!(
    /// The id of a resource, such as `db` or `tenant/acme`. Opaque to Doorman.
    ResourceId,
    "db"
);
identifier!(
    /// The id of a client: a process that holds leases. No two processes share one.
    ClientId,
    "shop-1"
);
identifier!(
    /// The id of a node of the server tree: one or more servers, one of them master.
    NodeId,
    "eu-west"
);
identifier!(
    /// The id of a server of a node.
    ServerId,
    "host-a:7300"
);
identifier!(
    /// The name of a rule.
    RuleName,
    "per-tenant"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_and_control_characters_are_checked() {
        for text in ["a", "tenant/acme", "a b", "..", "*", "ü", &"x".repeat(256)] {
            assert_eq!(ResourceId::new(text).unwrap().as_str(), text);
        }
        for text in [
            "",
            "a\0",
            "a\nb",
            "\u{7f}",
            "\u{85}",
            &"x".repeat(257),
            &"ü".repeat(129),
        ] {
            assert_eq!(ResourceId::new(text), Err(InvalidId), "{text:?}");
        }
    }

    #[test]
    fn escaped_text_is_parsed() {
        let id: ClientId = serde_json::from_str(r#""a\u00fcb""#).unwrap();
        assert_eq!(id.as_str(), "aüb");
        assert!(serde_json::from_str::<ClientId>(r#""a\u0000""#).is_err());
    }
}
