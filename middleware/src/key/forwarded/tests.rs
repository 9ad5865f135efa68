//! What proxies write, and what callers do.

use http::{HeaderMap, HeaderValue};

use super::*;

/// Proxies in 10.0.0.0/8 and 2001:db8:ff::/48 are trusted.
fn networks(header: ForwardedHeader) -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8", "2001:db8:ff::/48"], header).unwrap()
}

/// Whose request it is that came from a proxy with these lines.
#[track_caller]
fn check(proxies: &TrustedProxies, name: &'static str, lines: &[&str], expected: &str) {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    let peer = "10.0.0.1".parse().unwrap();
    let client = proxies.client(Some(peer), &headers).unwrap();
    assert_eq!(client.to_string(), expected, "{lines:?}");
}

const PEER: &str = "10.0.0.1";

#[test]
fn x_forwarded_for_is_read_from_the_right_to_the_first_who_is_not_trusted() {
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
        // All are trusted: the leftmost.
        (&["10.3.3.3, 10.2.3.4"], "10.3.3.3"),
        (&["192.0.2.1:4711"], "192.0.2.1"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["[2001:db8::1]"], "2001:db8::1"),
        (&["[2001:db8::1]:4711"], "2001:db8::1"),
        (&["192.0.2.1, [2001:db8:ff::7]:80"], "192.0.2.1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["192.0.2.1, ::ffff:10.1.1.1"], "192.0.2.1"),
        // What is no address ends the way: what stands behind it is not skipped to.
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
        (&["203.0.113.9, fe80::1%eth0"], PEER),
        (&["203.0.113.9, \u{fc}"], PEER),
    ] {
        let proxies = networks(ForwardedHeader::XForwardedFor);
        check(&proxies, "x-forwarded-for", lines, expected);
    }
}

#[test]
fn forwarded_is_read_from_the_right_to_the_first_who_is_not_trusted() {
    for (lines, expected) in [
        (&["for=192.0.2.1"][..], "192.0.2.1"),
        (&["For=192.0.2.1;proto=http;by=203.0.113.43"], "192.0.2.1"),
        (&["proto=http ; for = 192.0.2.1"], "192.0.2.1"),
        (&["for=\"192.0.2.1:4711\""], "192.0.2.1"),
        (&["for=192.0.2.1:4711"], "192.0.2.1"),
        (&["for=\"192.0.2.1:_hidden\""], "192.0.2.1"),
        (&["for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
        (&["for=\"[::ffff:192.0.2.1]\""], "192.0.2.1"),
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
        // Commas, semicolons and quotes in quotes divide nothing.
        (&["for=192.0.2.1;by=\"a,for=203.0.113.9\""], "192.0.2.1"),
        (&["for=192.0.2.1;by=\"a;for=203.0.113.9\""], "192.0.2.1"),
        (
            &["by=\"a\\\",for=203.0.113.9\\\\\";for=192.0.2.1"],
            "192.0.2.1",
        ),
        // A quote that the caller leaves open swallows nothing.
        (&["for=\"203.0.113.9, for=192.0.2.1"], "192.0.2.1"),
        (&["for=\"203.0.113.9\\, for=\"192.0.2.1\""], "192.0.2.1"),
        (
            &["for=203.0.113.9\", for=192.0.2.1, for=10.2.3.4"],
            "192.0.2.1",
        ),
        // What is no address ends the way.
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
fn a_count_of_proxies_goes_so_many_to_the_left_whoever_they_are() {
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
fn only_the_header_that_the_proxies_write_is_read() {
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
fn a_peer_that_is_not_trusted_says_nothing() {
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.9"));
    let peer = Some("192.0.2.1".parse().unwrap());
    let proxies = networks(ForwardedHeader::XForwardedFor);
    assert_eq!(proxies.client(peer, &headers), peer);
    assert_eq!(TrustedProxies::none().client(peer, &headers), peer);
    assert_eq!(proxies.client(None, &headers), None);
    // Behind a socket without addresses the count still holds.
    let proxies = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
    let client = proxies.client(None, &headers).unwrap();
    assert_eq!(client.to_string(), "203.0.113.9");
}

#[test]
fn no_chain_is_followed_without_end() {
    let mut headers = HeaderMap::new();
    let line = "203.0.113.9,".to_owned() + &vec!["10.0.0.2"; 100].join(",");
    headers.insert("x-forwarded-for", line.parse().unwrap());
    let proxies = networks(ForwardedHeader::XForwardedFor);
    let client = proxies.client(Some("10.0.0.1".parse().unwrap()), &headers);
    assert_eq!(client.unwrap().to_string(), "10.0.0.2");
}

#[test]
fn what_is_no_network_is_refused() {
    for bad in [
        "",
        "10.0.0.0/33",
        "10.0.0",
        "example.com",
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.1",
    ] {
        let error = TrustedProxies::networks([bad], ForwardedHeader::Forwarded).unwrap_err();
        assert!(
            error.to_string().contains("it would be like 10.0.0.0/8"),
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
