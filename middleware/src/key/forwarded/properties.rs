//! Whatever a caller sends, the address is the one that the first trusted proxy was called from.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

const CALLER: &str = "192.0.2.1";

fn header() -> impl Strategy<Value = ForwardedHeader> {
    prop_oneof![
        Just(ForwardedHeader::Forwarded),
        Just(ForwardedHeader::XForwardedFor)
    ]
}

/// What may stand in a line: pieces of real ones, and any byte that a header can have.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"for=".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\\".to_vec()),
        Just(b",".to_vec()),
        Just(b";".to_vec()),
        Just(b"10.0.0.9".to_vec()),
        Just(b"203.0.113.9".to_vec()),
        Just(b"[2001:db8::1]:80".to_vec()),
        prop::collection::vec(0x20..=0x7e_u8, 0..8),
        prop::collection::vec(0x80..=0xff_u8, 0..4),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Any lines of both headers, and of others.
fn lines() -> impl Strategy<Value = HeaderMap> {
    let name = prop::sample::select(vec!["forwarded", "x-forwarded-for", "x-real-ip", "host"]);
    prop::collection::vec((name, line()), 0..6).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            let line = HeaderValue::from_bytes(&line).unwrap();
            headers.append(HeaderName::from_static(name), line);
        }
        headers
    })
}

/// Does what a proxy does: writes whom it was called from at the end, in a line of its own or in the last.
fn pass(headers: &mut HeaderMap, header: ForwardedHeader, from: &str, own_line: bool) {
    let (name, element) = match header {
        ForwardedHeader::Forwarded => ("forwarded", format!("for=\"{from}\";by=\"a\\\"b,c\"")),
        ForwardedHeader::XForwardedFor => ("x-forwarded-for", from.to_owned()),
    };
    let name = HeaderName::from_static(name);
    let mut lines: Vec<_> = headers.get_all(&name).iter().cloned().collect();
    let element = match lines.pop() {
        Some(last) if own_line => {
            lines.push(last);
            element.into_bytes()
        }
        Some(last) => [last.as_bytes(), b", ", element.as_bytes()].concat(),
        None => element.into_bytes(),
    };
    lines.push(HeaderValue::from_bytes(&element).unwrap());
    headers.remove(&name);
    for line in lines {
        headers.append(&name, line);
    }
}

proptest! {
    #[test]
    fn nothing_that_a_caller_sends_changes_its_address(
        headers in lines(),
        header in header(),
        passes in prop::collection::vec(any::<bool>(), 0..4),
    ) {
        // Each proxy is called by the one before; the first by the caller.
        let mut headers = headers;
        let mut from = CALLER.to_owned();
        for (number, own_line) in passes.iter().enumerate() {
            pass(&mut headers, header, &from, *own_line);
            from = format!("10.0.0.{number}");
        }
        let hops = u8::try_from(passes.len()).unwrap();
        let caller: IpAddr = CALLER.parse().unwrap();
        for proxies in [
            TrustedProxies::networks(["10.0.0.0/8"], header).unwrap(),
            TrustedProxies::hops(hops, header),
        ] {
            let client = proxies.client(Some(from.parse().unwrap()), &headers);
            prop_assert_eq!(client, Some(caller));
        }
    }
}
