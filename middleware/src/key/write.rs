//! From a request to the id of its resource.

use std::sync::Once;

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

    /// Writes the resource of a request into `id`, as UTF-8, and says whether it could be made. What is missing is written as `(missing)`.
    pub(crate) fn write(&self, head: &RequestHead<'_>, id: &mut Vec<u8>) -> Made {
        let made = self.write_with(head, id, encode::push);
        if id.len() > encode::MAX_ID {
            self.write_with(head, id, encode::push_short);
        }
        made
    }

    fn write_with(
        &self,
        head: &RequestHead<'_>,
        id: &mut Vec<u8>,
        push: fn(&mut Vec<u8>, &[u8]),
    ) -> Made {
        id.clear();
        let mut made = Made::Whole;
        for part in &*self.parts {
            match part {
                Part::Text(text) => id.extend_from_slice(text.as_bytes()),
                Part::Value(value) => {
                    if value.take(head, |value| push(id, value)).is_some() {
                        continue;
                    }
                    match value.absent(head) {
                        Some(absent) => {
                            made = made.or_missing(absent);
                            id.extend_from_slice(b"(missing)");
                        }
                        None => id.extend_from_slice(b"(unmatched)"),
                    }
                }
            }
        }
        made
    }
}

impl Value {
    /// What a request lacks that has no value; `None` when nothing is wrong with it.
    fn absent(&self, head: &RequestHead<'_>) -> Option<Absent> {
        match self {
            // It is one that no route matched.
            Self::Route => None,
            Self::Jwt(_) => Some(head.claims().err().unwrap_or(Absent::Value)),
            Self::ClientIp | Self::Peer => {
                warn_of_no_address();
                Some(Absent::Value)
            }
            Self::Header(_) | Self::ApiKey(_) | Self::Host | Self::Method | Self::Made(_) => {
                Some(Absent::Value)
            }
        }
    }
}

/// Says once that the server does not tell who calls: all callers would share what is meant for each.
fn warn_of_no_address() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            "a limit by address meets requests without one: serve axum with `into_make_service_with_connect_info::<SocketAddr>`, or put \
             `PeerAddr` into each request's extensions"
        );
    });
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
