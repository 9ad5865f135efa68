//! The name of a request.

use std::fmt;

use axum::http::HeaderValue;

/// The longest that is taken from a caller, in bytes.
const LONGEST: usize = 128;

/// The name of a request: visible ASCII, 1 to 128 bytes. It is kept as the header that it becomes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The one that a caller has given, if it may stand in a log and an answer.
    pub(super) fn taken(value: &HeaderValue) -> Option<Self> {
        let fits = (1..=LONGEST).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic);
        fits.then(|| Self(value.clone()))
    }

    /// One of 128 random bits.
    pub(super) fn made() -> Self {
        let mut text = [0; 32];
        for (pair, byte) in text
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(fastrand::u128(..).to_be_bytes())
        {
            *pair = [digit(byte >> 4), digit(byte & 0xf)];
        }
        // Digits may stand in any header.
        Self(HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("-")))
    }

    pub(crate) fn as_str(&self) -> &str {
        // Visible ASCII is text.
        self.0.to_str().unwrap_or("-")
    }

    pub(super) fn into_header(self) -> HeaderValue {
        self.0
    }
}

/// The digit of a number below 16. Arithmetic and no table: all digits of a name are made at a time.
fn digit(number: u8) -> u8 {
    let from = if number < 10 { b'0' } else { b'a' - 10 };
    from.wrapping_add(number)
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
