//! What callers write into the headers of proxies: whatever it is, the client is whom the first trusted proxy was called from.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Request};
use tower_doorman::{Callers, Doorman, ForwardedHeader, Key, Limit, PeerAddr, TrustedProxies};

use crate::fuzz::refusal::refusal;

const CALLER: &str = "192.0.2.1";
const PROXY: [u8; 4] = [10, 0, 0, 1];

/// Takes every line for one of the header that the caller sends.
///
/// # Panics
/// When the caller is taken for another than it is.
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
            // The proxy writes whom it was called from, in a line of its own or at the end of the last.
            let own_line = [&lines[..], &[value(seen.as_bytes())]].concat();
            let mut joined = lines.clone();
            let last = joined.pop().unwrap_or_else(|| value(b""));
            joined.push(value(&[last.as_bytes(), b", ", seen.as_bytes()].concat()));
            for lines in [own_line, joined] {
                let client = client(&callers, name, &lines);
                assert_eq!(client.as_deref(), Some("client_ip/192.0.2.1"), "{lines:?}");
            }
            // Without a word of a proxy anything may come of it, but nothing breaks.
            client(&callers, name, &lines);
        }
        // Who trusts nobody believes nobody.
        let peer = client(&Callers::new(), name, &lines);
        assert_eq!(peer.as_deref(), Some("client_ip/10.0.0.1"), "{lines:?}");
    }
}

fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).expect("made of such")
}

/// The resource of the client that a request of the proxy speaks for; `None` when it cannot be told.
fn client(callers: &Callers, header: &'static str, lines: &[HeaderValue]) -> Option<String> {
    let mut request = Request::new(());
    for line in lines {
        let name = HeaderName::from_static(header);
        request.headers_mut().append(name, line.clone());
    }
    let peer = SocketAddr::from((PROXY, 4711));
    request.extensions_mut().insert(PeerAddr(peer));
    // Nothing is allowed, so that each request is refused and says by what.
    let nothing = Doorman::fixed([("", 0.0); 0]).with_callers(callers.clone());
    let refusal = refusal(&nothing, Limit::rate(Key::client_ip()), request);
    refusal.resource().map(ToString::to_string)
}
