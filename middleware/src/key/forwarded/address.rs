//! An address as proxies write it.

use std::net::IpAddr;

/// An address, alone or with a port, in brackets or without: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. Names that
/// hide an address (`unknown`, `_hidden`) are none.
///
/// This is more than either header's own grammar allows, as proxies are not exact about brackets; it lets nobody say more.
pub(super) fn parse(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let (address, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']')?;
            (IpAddr::V6(address.parse().ok()?), port)
        }
        None => match text.parse() {
            Ok(address) => (address, ""),
            Err(_) => {
                let at = text.find(':')?;
                let (address, port) = text.split_at_checked(at)?;
                (IpAddr::V4(address.parse().ok()?), port)
            }
        },
    };
    (port.is_empty() || is_port(port)).then(|| address.to_canonical())
}

/// Whether a text is a colon and a port, or what RFC 7239 section 6.3 has in place of one that is hidden.
fn is_port(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else {
        return false;
    };
    match port.strip_prefix('_') {
        Some(hidden) => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !hidden.is_empty() && hidden.bytes().all(allowed)
        }
        None => matches!(port.len(), 1..=5) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
