//! The spellings of a request path.

use std::{borrow::Cow, fmt::Write as _};

/// The canonical spelling of a path.
///
/// - Encoded characters that a segment may have as they are (RFC 3986, section 3.3) are decoded,
///   braces too. All others are encoded, with digits in upper case (section 6.2.2). An encoded slash
///   stays encoded: it separates nothing.
/// - Several slashes in a row are one, and dot segments are removed (section 5.2.4).
/// - A percent sign that encodes nothing is `%25`.
///
/// The canonical spelling of a canonical path is itself.
///
/// ```
/// # use doorman_openapi::canonical_path;
/// assert_eq!(canonical_path("/v1//models/./a%3ab%c3%a9"), "/v1/models/a:b%C3%A9");
/// ```
#[must_use]
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    if is_plain(path) {
        return Cow::Borrowed(path);
    }
    let canonical = resolve(&spell(path), Slashes::Merged);
    if canonical == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(canonical)
    }
}

/// The spellings under which a server may read the path of a request: servers differ in whether
/// they decode it, in which order they remove dot segments and empty ones, and whether they cut off
/// what follows a semicolon in a segment.
#[derive(Debug, Clone)]
pub struct PathSpellings {
    /// Those beside the path as it was sent. Empty for nearly all paths.
    others: Vec<String>,
    /// It has a dot segment, an empty one or an encoded slash.
    is_ambiguous: bool,
}

impl PathSpellings {
    /// The spellings of a path as it was sent.
    #[must_use]
    pub fn of(sent: &str) -> Self {
        let mut it = Self {
            others: Vec::new(),
            is_ambiguous: false,
        };
        if is_plain(sent) {
            return it;
        }
        let spelled = spell(sent);
        let split = spelled.replace("%2F", "/").replace("%5C", "/");
        let cut = without_parameters(&split);
        it.is_ambiguous = split != spelled || has_empty_or_dots(&cut);
        for path in [&spelled, &split, &cut] {
            for slashes in [Slashes::Merged, Slashes::Kept] {
                let resolved = resolve(path, slashes);
                // Some servers leave no slash for dots at the end.
                if path.ends_with("/.") || path.ends_with("/..") {
                    it.add(sent, resolved.trim_end_matches('/'));
                }
                it.add(sent, &resolved);
            }
        }
        it
    }

    fn add(&mut self, sent: &str, path: &str) {
        if !path.is_empty() && path != sent && !self.others.iter().any(|it| it == path) {
            self.others.push(path.to_owned());
        }
    }

    /// Whether any spelling matches.
    pub fn any(&self, sent: &str, matches: impl Fn(&str) -> bool) -> bool {
        matches(sent) || self.others.iter().any(|path| matches(path))
    }

    /// Whether the path is read in one way, and all spellings match.
    pub fn all(&self, sent: &str, matches: impl Fn(&str) -> bool) -> bool {
        !self.is_ambiguous && matches(sent) && self.others.iter().all(|path| matches(path))
    }
}

/// When several slashes in a row become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slashes {
    /// Before dot segments are removed.
    Merged,
    /// Afterwards, as by RFC 3986: `..` may remove an empty segment.
    Kept,
}

/// Removes dot segments and empty ones.
fn resolve(path: &str, slashes: Slashes) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut ends_with_slash = false;
    for segment in path.split('/').skip(1) {
        ends_with_slash = matches!(segment, "" | "." | "..");
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            "" if slashes == Slashes::Merged => {}
            _ => segments.push(segment),
        }
    }
    let mut resolved = String::with_capacity(path.len());
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        resolved.push('/');
        resolved.push_str(segment);
    }
    if ends_with_slash || resolved.is_empty() {
        resolved.push('/');
    }
    resolved
}

/// Without the parameters of segments, which some servers cut off before they remove dot segments
/// (RFC 3986, section 3.3).
fn without_parameters(path: &str) -> String {
    let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    let names: Vec<_> = path.split('/').map(name).collect();
    names.join("/")
}

fn has_empty_or_dots(path: &str) -> bool {
    let mut inner = path.split('/').skip(1).peekable();
    while let Some(segment) = inner.next() {
        // The last one is empty after a slash at the end.
        if matches!(segment, "." | "..") || segment.is_empty() && inner.peek().is_some() {
            return true;
        }
    }
    false
}

/// Whether a path has one spelling, as nearly all have, by a look at its bytes. False if that does
/// not tell.
fn is_plain(path: &str) -> bool {
    // Such as the `*` of `OPTIONS *`.
    if !path.starts_with('/') {
        return true;
    }
    let mut before = 0;
    path.bytes().all(|byte| {
        let follows_slash = std::mem::replace(&mut before, byte) == b'/';
        match byte {
            b'/' | b'.' => !follows_slash,
            b';' => false,
            _ => is_plain_byte(byte),
        }
    })
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
        if is_plain_byte(byte) || (byte == b'/' && encoded.is_none()) {
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
            ("/%7bid%7D", "/{id}"),
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

    #[test]
    fn servers_read_a_path_in_several_ways() {
        for (sent, others) in [
            ("/a/b", &[][..]),
            ("/a//../b", &["/b", "/a/b"]),
            ("/a/..%2fb", &["/a/..%2Fb", "/b"]),
            ("/a/b/..", &["/a", "/a/"]),
            ("/a/%2e", &["/a", "/a/"]),
            ("/..", &["/"]),
            ("/%61", &["/a"]),
        ] {
            assert_eq!(PathSpellings::of(sent).others, others, "{sent}");
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
