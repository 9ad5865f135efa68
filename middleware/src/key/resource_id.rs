//! Resource ids of requests: a key's values, encoded and concatenated. Parentheses mark words of
//! this crate, such as `(missing)`; encoded values contain none.

use std::{
    borrow::Cow,
    fmt,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use doorman_openapi::{MAX_VALUE_BYTES, PrefixLengths, ResourceId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

use super::{
    Callers, Key, RequestHead,
    callers::header_credential,
    head::{self, MAX_HOST_BYTES},
    template::{Part, Placeholder, push_literal},
};
use crate::refusal::RefusalReason;

pub(super) const MAX_BYTES: usize = 256;

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl Key {
    /// The resource shared by the keys beyond the bound on keys.
    pub(crate) fn overflow(&self) -> ResourceId {
        let mut id = String::new();
        for part in &*self.parts {
            id.push_str(match part {
                Part::Text(text) => text,
                Part::Value(_) => "(overflow)",
            });
        }
        to_resource_id(&id)
    }

    /// Writes the resource id of a request into `id`, as UTF-8, with `(missing)` for missing
    /// values. The error is the reason why the first of them is missing.
    pub(crate) fn write(
        &self,
        head: &RequestHead<'_>,
        id: &mut Vec<u8>,
    ) -> Result<(), RefusalReason> {
        let written = self.write_with(head, id, push_encoded);
        if id.len() > MAX_BYTES {
            // The same values are missing.
            self.write_with(head, id, push_encoded_or_hash).ok();
        }
        written
    }

    /// The text before the value of a key with one value at its end, and that value.
    pub(crate) fn prefix(&self) -> Option<(&str, &Placeholder)> {
        match &*self.parts {
            [Part::Text(text), Part::Value(value)] => Some((text, value)),
            _ => None,
        }
    }

    /// The part that the request lacks for its key, for people; `None` if nothing is missing, or
    /// only a closure knows.
    pub(crate) fn missing_value(&self, head: &RequestHead<'_>) -> Option<Arc<str>> {
        let missing = self.parts.iter().find_map(|part| match part {
            Part::Value(value) if value.with_value(head, |_| ()).is_none() => {
                value.missing(head).map(|_| value)
            }
            Part::Text(_) | Part::Value(_) => None,
        });
        Some(missing?.describe()?.into())
    }

    /// Whether the key needs an address that the request does not have.
    pub(crate) fn lacks_address(&self, head: &RequestHead<'_>) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Value(value @ (Placeholder::ClientIp(_) | Placeholder::Peer(_))) => {
                value.with_value(head, |_| ()).is_none()
            }
            Part::Text(_) | Part::Value(_) => false,
        })
    }

    fn write_with(
        &self,
        head: &RequestHead<'_>,
        id: &mut Vec<u8>,
        push: fn(&mut Vec<u8>, &[u8]),
    ) -> Result<(), RefusalReason> {
        id.clear();
        let mut written = Ok(());
        for part in &*self.parts {
            match part {
                Part::Text(text) => id.extend_from_slice(text.as_bytes()),
                Part::Value(value) => {
                    if value.with_value(head, |value| push(id, value)).is_some() {
                        continue;
                    }
                    match value.missing(head) {
                        Some(reason) => {
                            written = written.and(Err(reason));
                            id.extend_from_slice(b"(missing)");
                        }
                        None => id.extend_from_slice(b"(unmatched)"),
                    }
                }
            }
        }
        written
    }
}

impl Placeholder {
    /// The value as it is in a request. `None` if it is missing, or has to be written.
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    pub(crate) fn raw<'h>(
        &self,
        head: &'h RequestHead<'_>,
        callers: &'h Callers,
    ) -> Option<Cow<'h, [u8]>> {
        Some(match self {
            Self::Header(name) => Cow::Borrowed(head.header(name)?.as_bytes()),
            Self::Method => Cow::Borrowed(head.method().as_str().as_bytes()),
            Self::Closure(value) => match value(&head.with_callers(callers))? {
                Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
                Cow::Owned(value) => Cow::Owned(value.into_bytes()),
            },
            // A route has slashes.
            Self::Route
            | Self::ApiKey(_)
            | Self::Jwt(_)
            | Self::ClientIp(_)
            | Self::Peer(_)
            | Self::Host => return None,
        })
    }

    /// Calls `use_value` with the value of a request; `None` if it is missing or empty.
    fn with_value<R>(
        &self,
        head: &RequestHead<'_>,
        use_value: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let use_value = |value: &[u8]| (!value.is_empty()).then(|| use_value(value));
        match self {
            Self::Header(name) => use_value(head.header(name)?.as_bytes()),
            Self::ApiKey(name) => {
                let key = header_credential(head.headers(), name)?;
                use_value(&hex(head.callers().hash_api_key(&key)))
            }
            Self::Jwt(claim) => claim.with_text(head.claims().ok()?, use_value),
            Self::ClientIp(lengths) => with_address(head.client_ip()?, *lengths, use_value),
            Self::Peer(lengths) => with_address(head.peer()?, *lengths, use_value),
            Self::Host => {
                let host = head::host(head.uri(), head.headers())?.as_bytes();
                let mut text = [0; MAX_HOST_BYTES];
                let text = text.get_mut(..host.len())?;
                text.copy_from_slice(host);
                text.make_ascii_lowercase();
                use_value(text)
            }
            Self::Method => use_value(head.method().as_str().as_bytes()),
            Self::Route => use_value(head.route()?.as_bytes()),
            Self::Closure(value) => use_value(value(head)?.as_bytes()),
        }
    }

    fn describe(&self) -> Option<String> {
        Some(match self {
            Self::Header(name) => format!("header `{name}`"),
            Self::ApiKey(name) => format!("single API key in header `{name}`"),
            Self::Jwt(claim) => format!("token with the claim `{claim}`"),
            Self::ClientIp(_) | Self::Peer(_) => "peer address".to_owned(),
            Self::Host => "single host".to_owned(),
            Self::Method => "method".to_owned(),
            Self::Route | Self::Closure(_) => return None,
        })
    }

    /// Why a request has no value; `None` if no route matched it, which is not an error.
    fn missing(&self, head: &RequestHead<'_>) -> Option<RefusalReason> {
        match self {
            Self::Route => None,
            Self::Jwt(_) => head.claims().err().or(Some(RefusalReason::MissingKey)),
            Self::Header(_)
            | Self::ApiKey(_)
            | Self::ClientIp(_)
            | Self::Peer(_)
            | Self::Host
            | Self::Method
            | Self::Closure(_) => Some(RefusalReason::MissingKey),
        }
    }
}

impl fmt::Debug for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe().as_deref().unwrap_or("value"))
    }
}

/// The network of an address, or a whole IPv4 address.
fn with_address<R>(
    address: IpAddr,
    lengths: PrefixLengths,
    use_value: impl FnOnce(&[u8]) -> Option<R>,
) -> Option<R> {
    // The longest has eight groups of four digits and `/128`.
    let mut text = [0; 48];
    let mut rest = text.as_mut_slice();
    match address {
        IpAddr::V4(address) if lengths.v4 == 32 => write!(rest, "{address}"),
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(lengths.v4.into()));
            let network = Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or(0));
            write!(rest, "{network}/{}", lengths.v4)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(lengths.v6.into()));
            let network = Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0));
            write!(rest, "{network}/{}", lengths.v6)
        }
    }
    .ok()?;
    let free = rest.len();
    use_value(text.get(..text.len().checked_sub(free)?)?)
}

pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends a value, percent-encoded. Stops soon after the id exceeds [`MAX_BYTES`].
fn push_encoded(id: &mut Vec<u8>, value: &[u8]) {
    // Most values need no encoding. No early exit, so that the check is vectorized.
    let unreserved = value
        .iter()
        .fold(true, |all, byte| all & is_unreserved(*byte));
    if unreserved && value.len() <= MAX_BYTES {
        id.extend_from_slice(value);
        return;
    }
    for piece in percent_encode(value, RESERVED) {
        id.extend_from_slice(piece.as_bytes());
        if id.len() > MAX_BYTES {
            return;
        }
    }
}

/// Appends a value, percent-encoded, or its hash if that is shorter.
fn push_encoded_or_hash(id: &mut Vec<u8>, value: &[u8]) {
    let encoded: usize = percent_encode(value, RESERVED).map(str::len).sum();
    if encoded <= MAX_VALUE_BYTES {
        push_encoded(id, value);
    } else {
        push_hash(id, value);
    }
}

/// Appends 34 bytes: a collision-resistant hash, the same on every instance and in every version.
fn push_hash(id: &mut Vec<u8>, value: &[u8]) {
    id.push(b'(');
    id.extend_from_slice(&hex(Sha256::digest(value)));
    id.push(b')');
}

/// The first 16 bytes as lower-case hexadecimal digits.
fn hex(bytes: impl IntoIterator<Item = u8>) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[byte >> 4, byte & 0xf].map(|nibble| match nibble {
            0..10 => b'0' | nibble,
            _ => (b'a' - 10).wrapping_add(nibble),
        }));
    }
    digits
}

fn hashed(text: &str) -> String {
    let mut hash = Vec::new();
    push_hash(&mut hash, text.as_bytes());
    hash.into_iter().map(char::from).collect()
}

/// The resources `<name>/<key>` of keys that do not come from requests.
#[derive(Debug)]
pub(crate) struct KeyPrefix(Box<str>);

impl KeyPrefix {
    pub(crate) fn new(name: &str) -> Self {
        let mut text = String::new();
        push_literal(&mut text, name);
        if text.len().saturating_add(1 + MAX_VALUE_BYTES) > MAX_BYTES {
            text = hashed(name);
        }
        text.push('/');
        Self(text.into())
    }

    pub(crate) fn id(&self, key: &str) -> Vec<u8> {
        let with = |push: fn(&mut Vec<u8>, &[u8])| {
            let mut id = Vec::from(self.0.as_bytes());
            match key.as_bytes() {
                b"" => id.extend_from_slice(b"(missing)"),
                key => push(&mut id, key),
            }
            id
        };
        let id = with(push_encoded);
        if id.len() > MAX_BYTES {
            return with(push_encoded_or_hash);
        }
        id
    }

    /// The resource shared by the keys beyond the bound on keys.
    pub(crate) fn overflow(&self) -> ResourceId {
        to_resource_id(&format!("{}(overflow)", self.0))
    }
}

/// Makes a valid id of any text, as [`Key::constant`](super::Key::constant) describes.
pub(crate) fn to_resource_id(text: &str) -> ResourceId {
    let mut id = String::with_capacity(text.len());
    push_literal(&mut id, text);
    if id.len() > MAX_BYTES {
        id = hashed(text);
    }
    if id.is_empty() {
        id.push_str("(empty)");
    }
    ResourceId::new(id).expect("1 to 256 bytes without control characters are an id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreserved_bytes_are_exactly_those_not_encoded() {
        for byte in 0..=u8::MAX {
            let encoded = percent_encode(&[byte], RESERVED).to_string();
            assert_eq!(is_unreserved(byte), encoded.len() == 1, "{encoded}");
        }
    }
}
