//! API keys, hashed before they become part of an id: ids are seen by the control plane, in its views and in logs.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::presented::Presented;

/// Stands in for a secret; it keeps these hashes apart from all others.
const NO_SECRET: &[u8] = b"doorman api key";

/// 128 bits in lower-case hexadecimal digits.
pub(super) type Hashed = [u8; 32];

pub(super) fn hash(key: &Presented<'_>, secret: Option<&[u8]>) -> Hashed {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.unwrap_or(NO_SECRET))
        .expect("a secret may have any length");
    if !key.scheme.is_empty() {
        // It is the same in any case, RFC 9110 section 11.1: so must be the id.
        for byte in key.scheme {
            mac.update(&[byte.to_ascii_lowercase()]);
        }
        mac.update(b" ");
    }
    mac.update(key.secret);
    let mut digits = [0; 32];
    let bytes = mac.finalize().into_bytes();
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&hex(byte));
    }
    digits
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|nibble| match nibble {
        0..10 => b'0' | nibble,
        _ => (b'a' - 10).wrapping_add(nibble),
    })
}
