//! API keys, hashed before they become part of an id: ids are seen by the control plane, in its views and in logs.

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;

/// Stands in for a secret; it keeps these hashes apart from all others.
const NO_SECRET: &[u8] = b"doorman api key";

/// An API key as a request presents it.
pub(super) struct Presented<'a> {
    /// What stands before the key in `Authorization`; empty in other headers.
    scheme: &'a [u8],
    key: &'a [u8],
}

/// 128 bits in lower-case hexadecimal digits.
pub(super) type Hashed = [u8; 32];

/// The key in a header; `None` when the header is missing, empty or there twice. Of two, the service might take the other one than
/// the limit, and a caller could spend with a key of its own what is counted under made-up ones.
pub(super) fn find<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Presented<'a>> {
    let mut lines = headers.get_all(name).into_iter();
    let (Some(value), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let value = value.as_bytes().trim_ascii();
    let (scheme, key) = match name {
        &http::header::AUTHORIZATION => {
            // The scheme is the same in any case and with any space behind it, RFC 9110 section 11.4: so must be the id.
            let end = value.iter().position(|&byte| byte == b' ')?;
            let (scheme, key) = value.split_at_checked(end)?;
            (scheme, key.trim_ascii_start())
        }
        _ => (&[][..], value),
    };
    (!key.is_empty()).then_some(Presented { scheme, key })
}

impl Presented<'_> {
    pub(super) fn hash(&self, secret: Option<&[u8]>) -> Hashed {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.unwrap_or(NO_SECRET))
            .expect("a secret may have any length");
        for byte in self.scheme {
            mac.update(&[byte.to_ascii_lowercase()]);
        }
        if !self.scheme.is_empty() {
            mac.update(b" ");
        }
        mac.update(self.key);
        let mut digits = [0; 32];
        let bytes = mac.finalize().into_bytes();
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&hex(byte));
        }
        digits
    }
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|nibble| match nibble {
        0..10 => b'0' | nibble,
        _ => (b'a' - 10).wrapping_add(nibble),
    })
}
