use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

/// Proxies in 10.0.0.0/8 and 2001:db8:ff::/48 are trusted.
fn networks(header: ForwardedHeader) -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8", "2001:db8:ff::/48"], header).unwrap()
}

/// Checks the client of a request from a trusted proxy with these header lines.
#[track_caller]
fn check(proxies: &TrustedProxies, name: &'static str, lines: &[&str], expected: &str) {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    let peer = "10.0.0.1".parse().unwrap();
    let client = proxies.client_ip(Some(peer), &headers).unwrap();
    assert_eq!(client.to_string(), expected, "{lines:?}");
}

const PEER: &str = "10.0.0.1";

#[test]
fn x_forwarded_for_is_read_to_the_first_untrusted_address() {
    for (lines, expected) in [
        (&[][..], PEER),
        (&["192.0.2.1"], "192.0.2.1"),
        (&["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        (&["203.0.113.9,192.0.2.1 , 10.2.3.4"], "192.0.2.1"),
        (&["203.0.113.9", "192.0.2.1", "10.2.3.4"], "192.0.2.1"),
        (
            &["203.0.113.9, 192.0.2.1", "10.2.3.4, 10.9.9.9"],
            "192.0.2.1",
        ),
        // All are trusted: the leftmost one.
        (&["10.3.3.3, 10.2.3.4"], "10.3.3.3"),
        (&["192.0.2.1:4711"], "192.0.2.1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["192.0.2.1, [2001:db8:ff::7]:80"], "192.0.2.1"),
        // A zone means nothing on another machine.
        (&["203.0.113.9, fe80::1%eth0"], "fe80::1"),
        (&["[fe80::1%25eth0]:4711"], "fe80::1"),
        (&["192.0.2.1, 2001:db8:ff::7%2"], "192.0.2.1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.1, ::ffff:10.1.1.1"], "192.0.2.1"),
        // An invalid address ends the search and is not skipped.
        (&["unknown"], PEER),
        (&["203.0.113.9, unknown"], PEER),
        (&["203.0.113.9, unknown, 10.2.3.4"], "10.2.3.4"),
        (&["203.0.113.9, _hidden, 10.2.3.4"], "10.2.3.4"),
        (&["203.0.113.9, , 10.2.3.4"], "10.2.3.4"),
        (&["203.0.113.9,"], PEER),
        (&[""], PEER),
        (&["203.0.113.9", ""], PEER),
        (&["203.0.113.9, 192.0.2.1:port"], PEER),
        (&["203.0.113.9, 192.0.2.1:123456"], PEER),
        (&["203.0.113.9, 192.0.2.256"], PEER),
        (&["203.0.113.9, 192.0.2.01"], PEER),
        (&["203.0.113.9, [2001:db8::1"], PEER),
        (&["203.0.113.9, [192.0.2.1]"], PEER),
        (&["203.0.113.9, \"192.0.2.1\""], PEER),
        (&["203.0.113.9, fe80::1%"], PEER),
        (&["203.0.113.9, %eth0"], PEER),
        (&["203.0.113.9, 192.0.2.1%eth0"], PEER),
        (&["203.0.113.9, \u{fc}"], PEER),
    ] {
        let proxies = networks(ForwardedHeader::XForwardedFor);
        check(&proxies, "x-forwarded-for", lines, expected);
    }
}

#[test]
fn forwarded_is_read_to_the_first_untrusted_address() {
    for (lines, expected) in [
        (&["for=192.0.2.1"][..], "192.0.2.1"),
        (&["For=192.0.2.1;proto=http;by=203.0.113.43"], "192.0.2.1"),
        (&["proto=http ; for = 192.0.2.1"], "192.0.2.1"),
        (&["for=\"192.0.2.1:4711\""], "192.0.2.1"),
        (&["for=192.0.2.1:4711"], "192.0.2.1"),
        (&["for=\"192.0.2.1:_hidden\""], "192.0.2.1"),
        (&["for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (&["for=\"[::ffff:192.0.2.1]\""], "192.0.2.1"),
        (&["for=\"[fe80::1%eth0]:4711\""], "fe80::1"),
        (
            &["for=203.0.113.9, for=192.0.2.1, for=10.2.3.4"],
            "192.0.2.1",
        ),
        (
            &[
                "for=203.0.113.9",
                "for=192.0.2.1",
                "for=\"[2001:db8:ff::1]\"",
            ],
            "192.0.2.1",
        ),
        // Quoted commas, semicolons and quotes are not separators.
        (&["for=192.0.2.1;by=\"a,for=203.0.113.9\""], "192.0.2.1"),
        (&["for=192.0.2.1;by=\"a;for=203.0.113.9\""], "192.0.2.1"),
        (
            &["by=\"a\\\",for=203.0.113.9\\\\\";for=192.0.2.1"],
            "192.0.2.1",
        ),
        // A quote that the caller leaves open hides nothing.
        (&["for=\"203.0.113.9, for=192.0.2.1"], "192.0.2.1"),
        (&["for=\"203.0.113.9\\, for=\"192.0.2.1\""], "192.0.2.1"),
        (
            &["for=203.0.113.9\", for=192.0.2.1, for=10.2.3.4"],
            "192.0.2.1",
        ),
        // An invalid address ends the search.
        (&["for=203.0.113.9, for=unknown"], PEER),
        (&["for=203.0.113.9, for=_hidden, for=10.2.3.4"], "10.2.3.4"),
        (&["for=203.0.113.9, proto=https"], PEER),
        (&["for=203.0.113.9, for=192.0.2.1;for=192.0.2.2"], PEER),
        (&["for=203.0.113.9, for=\"192.0.2.1"], PEER),
        (&["for=203.0.113.9, for=192.0.2.1\""], PEER),
        (&["for=203.0.113.9, for="], PEER),
        (&["for=203.0.113.9, for"], PEER),
        (&["for=203.0.113.9, 192.0.2.1"], PEER),
        (&["for=203.0.113.9,"], PEER),
    ] {
        let proxies = networks(ForwardedHeader::Forwarded);
        check(&proxies, "forwarded", lines, expected);
    }
}

#[test]
fn hops_are_counted_whatever_their_addresses() {
    for (count, line, expected) in [
        (0, "203.0.113.9, 192.0.2.1", PEER),
        (1, "203.0.113.9, 192.0.2.1", "192.0.2.1"),
        (2, "203.0.113.9, 192.0.2.1, 198.51.100.7", "192.0.2.1"),
        (2, "192.0.2.1", "192.0.2.1"),
        (2, "203.0.113.9, unknown", PEER),
        (2, "203.0.113.9, unknown, 198.51.100.7", "198.51.100.7"),
    ] {
        let proxies = TrustedProxies::hops(count, ForwardedHeader::XForwardedFor);
        check(&proxies, "x-forwarded-for", &[line], expected);
    }
}

#[test]
fn other_forwarding_header_is_ignored() {
    for (header, name, line) in [
        (ForwardedHeader::Forwarded, "x-forwarded-for", "203.0.113.9"),
        (
            ForwardedHeader::XForwardedFor,
            "forwarded",
            "for=203.0.113.9",
        ),
    ] {
        check(&networks(header), name, &[line], PEER);
        check(&TrustedProxies::hops(1, header), name, &[line], PEER);
    }
}

#[test]
fn header_of_an_untrusted_peer_is_ignored() {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
    let peer = Some("192.0.2.1".parse().unwrap());
    let proxies = networks(ForwardedHeader::XForwardedFor);
    assert_eq!(proxies.client_ip(peer, &headers), peer);
    assert_eq!(TrustedProxies::none().client_ip(peer, &headers), peer);
    assert_eq!(proxies.client_ip(None, &headers), None);
    // Hops need no peer address.
    let proxies = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
    let client = proxies.client_ip(None, &headers).unwrap();
    assert_eq!(client.to_string(), "203.0.113.9");
}

#[test]
fn chain_length_is_bounded() {
    let mut headers = HeaderMap::new();
    let line = "203.0.113.9,".to_owned() + &vec!["10.0.0.2"; 100].join(",");
    headers.insert("x-forwarded-for", line.parse().unwrap());
    let proxies = networks(ForwardedHeader::XForwardedFor);
    let client = proxies.client_ip(Some("10.0.0.1".parse().unwrap()), &headers);
    assert_eq!(client.unwrap().to_string(), "10.0.0.2");
}

#[test]
fn invalid_networks_are_rejected() {
    for bad in [
        "",
        "10.0.0.0/33",
        "10.0.0",
        "example.com",
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.1",
        "fe80::1%eth0",
    ] {
        let error = TrustedProxies::networks([bad], ForwardedHeader::Forwarded).unwrap_err();
        assert!(
            error.to_string().contains("must be like 10.0.0.0/8"),
            "{error}"
        );
    }
    for good in [
        "10.0.0.1",
        "10.0.0.0/8",
        "2001:db8::/32",
        "2001:db8::1",
        "0.0.0.0/0",
        "::/0",
    ] {
        assert!(
            TrustedProxies::networks([good], ForwardedHeader::Forwarded).is_ok(),
            "{good}"
        );
    }
}

const CALLER: &str = "192.0.2.1";

fn header() -> impl Strategy<Value = ForwardedHeader> {
    prop_oneof![
        Just(ForwardedHeader::Forwarded),
        Just(ForwardedHeader::XForwardedFor)
    ]
}

/// Pieces of real header lines, and arbitrary bytes.
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

/// Appends the caller's address like a proxy, to the last line or in a new one.
fn append_address(headers: &mut HeaderMap, header: ForwardedHeader, from: &str, own_line: bool) {
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
    fn caller_cannot_change_its_address(
        headers in lines(),
        header in header(),
        passes in prop::collection::vec(any::<bool>(), 0..4),
    ) {
        let mut headers = headers;
        let mut from = CALLER.to_owned();
        for (number, own_line) in passes.iter().enumerate() {
            append_address(&mut headers, header, &from, *own_line);
            from = format!("10.0.0.{number}");
        }
        let hops = u8::try_from(passes.len()).unwrap();
        let caller: IpAddr = CALLER.parse().unwrap();
        for proxies in [
            TrustedProxies::networks(["10.0.0.0/8"], header).unwrap(),
            TrustedProxies::hops(hops, header),
        ] {
            let client = proxies.client_ip(Some(from.parse().unwrap()), &headers);
            prop_assert_eq!(client, Some(caller));
        }
    }
}
