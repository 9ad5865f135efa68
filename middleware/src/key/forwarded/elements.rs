//! The elements of a header line, and what an element of `Forwarded` says.

use std::net::IpAddr;

use super::address;

/// The elements of a line from the last to the first, split at commas outside of quotes.
///
/// They are found from the right, for it is only there that what is written can be relied upon: a quote that a caller leaves open
/// must not swallow what a proxy has written behind it.
pub(super) fn from_the_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (before, element) = match last_comma(line) {
            Some(comma) => (line.get(..comma), line.get(comma.saturating_add(1)..)?),
            None => (None, line),
        };
        rest = before;
        Some(element)
    })
}

fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rev().find_map(|(at, byte)| {
        match byte {
            b',' if !quoted => return Some(at),
            b'"' if !quoted => quoted = true,
            b'"' => quoted = is_escaped(line, at),
            _ => {}
        }
        None
    })
}

/// Whether the byte there follows an odd number of backslashes.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.iter().take(at).rev();
    before.take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address that an element of `Forwarded` is `for`; `None` when it says none, two, or is broken.
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    loop {
        let end = end_of_pair(rest)?;
        let (pair, tail) = rest.split_at_checked(end)?;
        let mut sides = pair.splitn(2, |&byte| byte == b'=');
        let (name, value) = (sides.next()?.trim_ascii(), sides.next());
        if name.eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(address::parse(unquoted(value?.trim_ascii())?)?);
        }
        match tail.split_first() {
            Some((_, tail)) => rest = tail,
            None => return found,
        }
    }
}

/// Where the next semicolon outside of quotes is, or the end; `None` when a quote is left open.
fn end_of_pair(text: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(text.len())
}

/// What stands between quotes, or a text without any. No address needs a backslash, and nobody writes one.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value.strip_prefix(b"\"") {
        Some(value) => value.strip_suffix(b"\""),
        None => Some(value),
    }
}
