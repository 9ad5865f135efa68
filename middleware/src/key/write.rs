//! From a request to the id of its resource.

use doorman_openapi::ResourceId;

use super::{Key, Part, RequestHead, constant, encode, value::Value};

impl Key {
    /// The resource that all keys share for which there is no room.
    pub(crate) fn overflow(&self) -> ResourceId {
        let mut id = String::new();
        for part in &*self.parts {
            id.push_str(match part {
                Part::Text(text) => text,
                Part::Value(_) => "(overflow)",
            });
        }
        constant(&id)
    }

    /// Writes the resource of a request into `id`, and says whether it could be made. What is missing is written as `(missing)`.
    pub(crate) fn write(&self, head: &RequestHead<'_>, id: &mut String) -> Made {
        let made = self.write_with(head, id, encode::push);
        if id.len() > encode::MAX_ID {
            self.write_with(head, id, encode::push_short);
        }
        made
    }

    fn write_with(
        &self,
        head: &RequestHead<'_>,
        id: &mut String,
        push: fn(&mut String, &[u8]),
    ) -> Made {
        id.clear();
        let mut made = Made::Whole;
        for part in &*self.parts {
            match part {
                Part::Text(text) => id.push_str(text),
                Part::Value(value) => {
                    if value.take(head, |value| push(id, value)).is_none() {
                        match value {
                            // A request without a route is not wrong: it is one that no route matched.
                            Value::Route => id.push_str("(unmatched)"),
                            Value::Jwt(_) => {
                                let absent = head.claims().err();
                                made = made.or_missing(absent.unwrap_or(Absent::Value));
                                id.push_str("(missing)");
                            }
                            Value::Header(_)
                            | Value::ApiKey(_)
                            | Value::ClientIp
                            | Value::Peer
                            | Value::Host
                            | Value::Method
                            | Value::Made(_) => {
                                made = made.or_missing(Absent::Value);
                                id.push_str("(missing)");
                            }
                        }
                    }
                }
            }
        }
        made
    }
}

/// Whether a request had all that a key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Whole,
    /// It lacks this, and perhaps more.
    Missing(Absent),
}

/// What a request lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    Value,
    /// It has no token.
    Token,
    /// The token that it has does not count.
    #[cfg_attr(
        not(feature = "jwt"),
        expect(dead_code, reason = "without a verifier no token is bad")
    )]
    GoodToken,
}

impl Made {
    fn or_missing(self, absent: Absent) -> Self {
        match self {
            Self::Whole => Self::Missing(absent),
            Self::Missing(_) => self,
        }
    }
}
