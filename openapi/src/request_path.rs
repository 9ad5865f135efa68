//! The canonical spelling of a request path.

use std::{borrow::Cow, fmt::Write as _};

/// A path in one spelling, however the caller wrote it.
///
/// - Encoded characters that a segment may have as they are (RFC 3986, section 3.3) are decoded. All
///   others are encoded, with digits in upper case (section 6.2.2). An encoded slash stays encoded:
///   it separates nothing.
/// - Dot segments are removed (section 5.2.4), and several slashes in a row are one.
/// - A percent sign that encodes nothing is `%25`, and braces stay as they are.
///
/// The canonical spelling of a canonical path is itself.
///
/// ```
/// # use doorman_openapi::canonical_path;
/// assert_eq!(canonical_path("/v1//models/./a%3ab%c3%a9"), "/v1/models/a:b%C3%A9");
/// ```
#[must_use]
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    // Such as the `*` of `OPTIONS *`.
    if !path.starts_with('/') || is_plain(path) {
        return Cow::Borrowed(path);
    }
    let spelled = spell(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_with_slash = false;
    for segment in spelled.split('/') {
        ends_with_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    let mut canonical = String::with_capacity(spelled.len());
    for segment in &segments {
        canonical.push('/');
        canonical.push_str(segment);
    }
    if ends_with_slash || segments.is_empty() {
        canonical.push('/');
    }
    if canonical == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(canonical)
    }
}

/// Whether a path is canonical, as nearly all are, by a look at its bytes. False if that does not
/// tell.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let mut pairs = bytes.windows(2);
    bytes
        .iter()
        .all(|byte| *byte == b'/' || is_plain_byte(*byte))
        && !pairs.any(|pair| matches!(pair, b"//" | b"/."))
}

/// Whether a segment may have the byte as it is.
fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@{}".contains(&byte)
}

/// Decodes and encodes.
fn spell(path: &str) -> String {
    let mut spelled = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let encoded = (first == b'%').then(|| decode(others)).flatten();
        rest = if encoded.is_some() {
            others.get(2..).unwrap_or_default()
        } else {
            others
        };
        let byte = encoded.unwrap_or(first);
        let is_braced = encoded.is_some() && matches!(byte, b'{' | b'}');
        if (is_plain_byte(byte) && !is_braced) || (byte == b'/' && encoded.is_none()) {
            spelled.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            write!(spelled, "%{byte:02X}").ok();
        }
    }
    spelled
}

/// The octet of two hexadecimal digits at the beginning.
fn decode(digits: &[u8]) -> Option<u8> {
    let digit = |index: usize| char::from(*digits.get(index)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_path_has_one_spelling() {
        for (path, canonical) in [
            ("/", "/"),
            ("*", "*"),
            ("//", "/"),
            ("/a/b", "/a/b"),
            ("/a//b/", "/a/b/"),
            ("/%61%2D%5f/b%3Ac%40", "/a-_/b:c@"),
            ("/a%2fb%3f%23", "/a%2Fb%3F%23"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a b", "/a%20b"),
            ("/%", "/%25"),
            ("/%zz%2", "/%25zz%252"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/../c", "/a/c"),
            ("/a/%2e%2E/../../b/..", "/"),
            ("/..a/.b/c..", "/..a/.b/c.."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/..%2fb", "/a/..%2Fb"),
            ("/orders/{id}/{*rest}", "/orders/{id}/{*rest}"),
            ("/%7bid%7D", "/%7Bid%7D"),
        ] {
            assert_eq!(canonical_path(path), canonical, "{path}");
        }
    }

    #[test]
    fn canonical_paths_are_borrowed() {
        for path in ["/a/b:c", "/.well-known/x", "/a%2Fb", "*"] {
            assert!(matches!(canonical_path(path), Cow::Borrowed(_)), "{path}");
        }
    }

    proptest! {
        #[test]
        fn canonical_path_is_its_own(path in "/([a-c./%2eEfF{}é ]|%2[0-9a-fA-F]){0,12}") {
            let canonical = canonical_path(&path).into_owned();
            prop_assert_eq!(&canonical_path(&canonical), &canonical);
            prop_assert!(canonical.starts_with('/'));
        }
    }
}
