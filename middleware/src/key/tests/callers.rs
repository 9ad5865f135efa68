//! Keys by caller.

use super::*;
use crate::{ForwardedHeader, TrustedProxies};

fn id_of(key: &Key, callers: &Callers, request: &Request<()>) -> String {
    let mut id = Vec::new();
    key.write(&RequestHead::of(request).with_callers(callers), &mut id)
        .ok();
    String::from_utf8(id).unwrap()
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    let peer = "10.0.0.1:4711".parse().unwrap();
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

#[test]
fn trusted_proxy_names_the_client() {
    let request = request(&[("x-forwarded-for", "203.0.113.9, 2001:db8:1:2:3:4:5:6")]);
    let behind = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
    let behind = Callers::new().trusted_proxies(behind);
    for key in [
        Key::client_ip(),
        Key::template("client_ip/{client_ip}").unwrap(),
    ] {
        assert_eq!(id_of(&key, &Callers::new(), &request), "client_ip/10.0.0.1");
        let expected = "client_ip/2001%3Adb8%3A1%3A2%3A%3A%2F64";
        assert_eq!(id_of(&key, &behind, &request), expected);
    }
    assert_eq!(id_of(&Key::peer(), &behind, &request), "peer/10.0.0.1");
    let by_closure = Key::from_fn("c", |head| Some(head.client_ip()?.to_string().into()));
    let expected = "c/2001%3Adb8%3A1%3A2%3A3%3A4%3A5%3A6";
    assert_eq!(id_of(&by_closure.unwrap(), &behind, &request), expected);
}

#[test]
fn prefix_lengths_of_addresses_are_settings() {
    let behind = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
    let behind = Callers::new().trusted_proxies(behind);
    let (v4, v6) = ("192.0.2.129", "2001:db8:1234:5678:9abc::1");
    for (template, client, expected) in [
        ("{client_ip:v4=24,v6=56}", v4, "192.0.2.0/24"),
        ("{client_ip:v4=24,v6=56}", v6, "2001:db8:1234:5600::/56"),
        ("{client_ip:v4=32}", v4, v4),
        ("{client_ip:v4=25}", v4, "192.0.2.128/25"),
        ("{client_ip:v4=1}", v4, "128.0.0.0/1"),
        ("{client_ip:v4=24}", v6, "2001:db8:1234:5678::/64"),
        ("{client_ip:v6=48}", v4, v4),
        ("{client_ip:v6=1}", v6, "::/1"),
        (
            "{client_ip:v6=128}",
            "2001:db8:1234:5678:9abc:def0:1234:5678",
            "2001:db8:1234:5678:9abc:def0:1234:5678/128",
        ),
        ("{client_ip:v4=24}", "::ffff:192.0.2.129", "192.0.2.0/24"),
        ("{peer:v4=8}", v4, "10.0.0.0/8"),
    ] {
        let key = Key::template(template).unwrap();
        let request = request(&[("x-forwarded-for", client)]);
        let expected = expected.replace(':', "%3A").replace('/', "%2F");
        assert_eq!(id_of(&key, &behind, &request), expected, "{template}");
    }
    for template in ["{client_ip:24}", "{peer:v4=33}", "{client_ip:}"] {
        let error = Key::template(template).unwrap_err().to_string();
        let expected = "prefix lengths must be like {client_ip:v4=24,v6=56}, with v4 from 1 to 32";
        assert!(error.starts_with(expected), "{template}: {error}");
    }
}

#[test]
fn api_key_is_hashed() {
    let secret = Callers::new().api_key_secret("pepper");
    let key = Key::api_key();
    let request = request(&[("x-api-key", "abc")]);
    // First half of: echo -n abc | openssl dgst -sha256 -hmac 'doorman api key' (or pepper).
    let plain = "api_key/15da6785e12151d9641b5811e3834b98";
    let peppered = "api_key/95ac8d48c4886bae06029b433c46c419";
    assert_eq!(id_of(&key, &Callers::new(), &request), plain);
    assert_eq!(id_of(&key, &secret, &request), peppered);
    assert!(!format!("{secret:?}").contains("pepper"));
}

#[test]
fn scheme_case_and_spaces_do_not_change_the_key() {
    let key = Key::template("{api_key:Authorization}").unwrap();
    let id = |value: &str| id_of(&key, &Callers::new(), &request(&[("authorization", value)]));
    let same = id("Bearer abc");
    for value in ["bearer abc", "BEARER  abc ", "  Bearer abc"] {
        assert_eq!(id(value), same, "{value:?}");
    }
    for value in ["Bearer abd", "Bearer Abc", "Basic abc"] {
        assert_ne!(id(value), same, "{value:?}");
    }
    for value in ["Bearer", "Bearer ", "abc", ""] {
        assert_eq!(id(value), "(missing)", "{value:?}");
    }
    let twice = request(&[("x-api-key", "abc"), ("x-api-key", "other")]);
    assert_eq!(
        id_of(&Key::api_key(), &Callers::new(), &twice),
        "api_key/(missing)"
    );
}

#[test]
fn host_is_lowercased_without_port() {
    for (target, host, expected) in [
        ("/", "API.example.com", "api.example.com"),
        ("/", "api.example.com:8080", "api.example.com"),
        ("/", "api.example.com.", "api.example.com"),
        ("/", "192.0.2.1:80", "192.0.2.1"),
        ("/", "[2001:DB8::1]:80", "%5B2001%3Adb8%3A%3A1%5D"),
        // The URI precedes the header.
        (
            "http://User@API.example.com:80/x",
            "other",
            "api.example.com",
        ),
        ("/", "", "(missing)"),
        ("/", ":80", "(missing)"),
        ("/", "[2001:db8::1", "(missing)"),
    ] {
        let mut request = request(&[("host", host)]);
        *request.uri_mut() = target.parse().unwrap();
        let id = id_of(&Key::host(), &Callers::new(), &request);
        assert_eq!(id, format!("host/{expected}"), "{target} {host:?}");
    }
    let twice = request(&[("host", "a"), ("host", "b")]);
    let long = request(&[("host", &"a".repeat(256))]);
    for request in [twice, long, Request::new(())] {
        assert_eq!(
            id_of(&Key::host(), &Callers::new(), &request),
            "host/(missing)"
        );
    }
}

proptest! {
    #[test]
    fn unnamed_headers_do_not_change_the_key(
        headers in prop::collection::vec(
            ("[a-z-]{1,20}|x-forwarded-for|forwarded|x-real-ip|x-api-key", "[ -~]{0,30}"),
            0..8,
        ),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let networks = TrustedProxies::networks(["192.0.2.0/24"], ForwardedHeader::Forwarded);
        for callers in [Callers::new(), Callers::new().trusted_proxies(networks.unwrap())] {
            let key = Key::template("{client_ip}/{peer}/{method}/{route}").unwrap();
            let id = id_of(&key, &callers, &request(&headers));
            prop_assert_eq!(id, "10.0.0.1/10.0.0.1/GET/(unmatched)");
        }
    }
}
