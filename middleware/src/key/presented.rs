//! A secret as a request presents it: a token or an API key in a header.

use http::{HeaderMap, HeaderName, header};

/// What a header presents.
pub(super) struct Presented<'a> {
    /// What stands before the secret in `Authorization`; empty in other headers.
    pub(super) scheme: &'a [u8],
    pub(super) secret: &'a [u8],
}

/// The secret in a header; `None` when the header is missing, empty or there twice. Of two, the service might take the other one than
/// the limit, and a caller could spend with a key of its own what is counted under made-up ones.
pub(super) fn find<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Presented<'a>> {
    let mut lines = headers.get_all(name).into_iter();
    let (Some(value), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let value = value.as_bytes().trim_ascii();
    let (scheme, secret) = match *name == header::AUTHORIZATION {
        true => {
            // A scheme and a space, or several: RFC 9110 section 11.4.
            let end = value.iter().position(|&byte| byte == b' ')?;
            let (scheme, secret) = value.split_at_checked(end)?;
            (scheme, secret.trim_ascii_start())
        }
        false => (&[][..], value),
    };
    (!secret.is_empty()).then_some(Presented { scheme, secret })
}
