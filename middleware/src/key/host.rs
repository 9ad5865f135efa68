//! The host that a request is for.

use http::{HeaderMap, Uri, header};

/// The longest name of a host, RFC 1035 section 2.3.4; what is longer is none.
pub(super) const LONGEST: usize = 255;

/// The host of a request without its port: that of the target, which a `Host` header does not override (RFC 9112 section 3.2.2), else
/// that of the header. As the header may be there only once, two of them say nothing.
pub(super) fn find<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let host = match uri.host() {
        Some(host) => host,
        None => {
            let mut lines = headers.get_all(header::HOST).into_iter();
            let (Some(value), None) = (lines.next(), lines.next()) else {
                return None;
            };
            without_port(value.to_str().ok()?.trim())?
        }
    };
    // With the root's dot it is the same name.
    let host = host.strip_suffix('.').unwrap_or(host);
    (1..=LONGEST).contains(&host.len()).then_some(host)
}

fn without_port(authority: &str) -> Option<&str> {
    let end = match authority.starts_with('[') {
        true => authority.find(']')?.saturating_add(1),
        false => authority.find(':').unwrap_or(authority.len()),
    };
    authority.get(..end)
}
