//! Forged proxy headers: the client is always the peer of the first trusted proxy.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Request};
use tower_doorman::{Callers, Doorman, ForwardedHeader, Key, Limit, PeerAddr, TrustedProxies};

use crate::fuzz::refusal::refusal;

const CALLER: &str = "192.0.2.1";
const PROXY: [u8; 4] = [10, 0, 0, 1];

/// Reads each line as a header line sent by the caller.
///
/// # Panics
/// When the caller is identified by another address than its own.
pub fn run(data: &[u8]) {
    let lines: Vec<_> = data
        .split(|byte| *byte == b'\n')
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    for header in [ForwardedHeader::Forwarded, ForwardedHeader::XForwardedFor] {
        let networks = TrustedProxies::networks(["10.0.0.0/8"], header);
        let proxies = [
            TrustedProxies::hops(1, header),
            networks.expect("a network"),
        ];
        let (name, seen) = match header {
            ForwardedHeader::Forwarded => ("forwarded", format!("for={CALLER}")),
            ForwardedHeader::XForwardedFor => ("x-forwarded-for", CALLER.to_owned()),
        };
        for proxies in proxies {
            let callers = Callers::new().trusted_proxies(proxies);
            // The proxy appends its peer, as a line of its own or to the last line.
            let own_line = [&lines[..], &[value(seen.as_bytes())]].concat();
            let mut joined = lines.clone();
            let last = joined.pop().unwrap_or_else(|| value(b""));
            joined.push(value(&[last.as_bytes(), b", ", seen.as_bytes()].concat()));
            for lines in [own_line, joined] {
                let client = client(&callers, name, &lines);
                assert_eq!(client.as_deref(), Some("client_ip/192.0.2.1"), "{lines:?}");
            }
            // Without an entry of the proxy any result is possible, but no panic.
            client(&callers, name, &lines);
        }
        // Without trusted proxies the header is ignored.
        let peer = client(&Callers::new(), name, &lines);
        assert_eq!(peer.as_deref(), Some("client_ip/10.0.0.1"), "{lines:?}");
    }
}

fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).expect("a valid value")
}

/// The resource for the client of a request; `None` if it is unknown.
fn client(callers: &Callers, header: &'static str, lines: &[HeaderValue]) -> Option<String> {
    let mut request = Request::new(());
    for line in lines {
        let name = HeaderName::from_static(header);
        request.headers_mut().append(name, line.clone());
    }
    let peer = SocketAddr::from((PROXY, 4711));
    request.extensions_mut().insert(PeerAddr(peer));
    // The limit is zero, so each request is rejected, and its refusal names the resource.
    let closed = Doorman::fixed([("", 0.0); 0]).with_callers(callers.clone());
    let refusal = refusal(&closed, Limit::rate(Key::client_ip()), request);
    refusal.resource().map(ToString::to_string)
}
