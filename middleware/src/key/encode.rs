//! Values of requests, made fit to stand in a resource id.

use std::iter;

use doorman_openapi::{MAX_VALUE_BYTES, ResourceId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

/// The most bytes that a resource id may have.
pub(super) const MAX_ID: usize = 256;

/// All but the unreserved characters of RFC 3986. Parentheses are among what is encoded: what stands in parentheses in an id is
/// our own word, never a value.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Whether a byte stands for itself.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() | matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends a value, percent-encoded; stops soon after the id has become too long.
pub(super) fn push(id: &mut Vec<u8>, value: &[u8]) {
    // Most values need no encoding. No byte is looked for, so that many are looked at in one step.
    let as_it_is = value
        .iter()
        .fold(true, |all, byte| all & is_unreserved(*byte));
    if as_it_is && value.len() <= MAX_ID {
        id.extend_from_slice(value);
        return;
    }
    for piece in percent_encode(value, RESERVED) {
        id.extend_from_slice(piece.as_bytes());
        if id.len() > MAX_ID {
            return;
        }
    }
}

/// Appends a value, percent-encoded, or its hash where that is shorter than a long value.
pub(super) fn push_short(id: &mut Vec<u8>, value: &[u8]) {
    let encoded: usize = percent_encode(value, RESERVED).map(str::len).sum();
    if encoded <= MAX_VALUE_BYTES {
        push(id, value);
    } else {
        id.extend(hashed(value));
    }
}

/// 34 bytes in place of any number. All instances of a fleet must come to the same id, so the hash is one that never
/// changes; and as callers choose the values, one in which they find no two that collide.
fn hashed(value: &[u8]) -> impl Iterator<Item = u8> {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied();
    let digits = Sha256::digest(value)
        .into_iter()
        .take(16)
        .flat_map(move |byte| [digit(byte >> 4), digit(byte & 15)])
        .flatten();
    iter::once(b'(').chain(digits).chain(iter::once(b')'))
}

/// A text of the program, made a resource id: control characters are percent-encoded, too long a text is hashed, and the empty
/// one is `(empty)`.
pub(crate) fn constant(text: &str) -> ResourceId {
    let mut id = String::with_capacity(text.len());
    push_text(&mut id, text);
    if id.len() > MAX_ID {
        id = hashed(text.as_bytes()).map(char::from).collect();
    }
    if id.is_empty() {
        id.push_str("(empty)");
    }
    ResourceId::new(id).expect("1 to 256 bytes without control characters are an id")
}

/// Appends a text of the program: only control characters are encoded.
pub(super) fn push_text(id: &mut String, text: &str) {
    let mut buffer = [0; 4];
    for character in text.chars() {
        if character.is_control() {
            id.extend(percent_encode(
                character.encode_utf8(&mut buffer).as_bytes(),
                RESERVED,
            ));
        } else {
            id.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_itself_is_what_is_not_encoded() {
        for byte in 0..=u8::MAX {
            let encoded = percent_encode(&[byte], RESERVED).to_string();
            assert_eq!(is_unreserved(byte), encoded.len() == 1, "{encoded}");
        }
    }
}
