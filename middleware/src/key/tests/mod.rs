mod callers;
mod claims;

use std::collections::HashSet;

use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;
use crate::{RefusalReason, testing::Logged};

fn write(key: &Key, request: &Request<()>) -> (String, Result<(), RefusalReason>) {
    let mut id = b"left over".to_vec();
    let written = key.write(&RequestHead::of(request), &mut id);
    (String::from_utf8(id).unwrap(), written)
}

fn id(key: &Key, request: &Request<()>) -> String {
    let (id, written) = write(key, request);
    assert_eq!(written, Ok(()));
    id
}

fn with_tenant(value: impl AsRef<[u8]>) -> Request<()> {
    let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
    Request::builder()
        .header("x-tenant", value)
        .body(())
        .unwrap()
}

#[test]
fn template_combines_constants_and_values() {
    let key = Key::template("v1/{method}/{header:X-Tenant}/{peer}").unwrap();
    let mut request = with_tenant("acme");
    request
        .extensions_mut()
        .insert(PeerAddr("192.0.2.1:4711".parse().unwrap()));
    assert_eq!(id(&key, &request), "v1/GET/acme/192.0.2.1");
}

#[test]
fn simple_keys_begin_with_their_kind() {
    let mut request = with_tenant("acme");
    request
        .extensions_mut()
        .insert(PeerAddr("[2001:db8:1:2:3:4:5:6]:80".parse().unwrap()));
    assert_eq!(id(&Key::constant("api"), &request), "api");
    assert_eq!(
        id(&Key::header("X-Tenant").unwrap(), &request),
        "x-tenant/acme"
    );
    assert_eq!(id(&Key::method(), &request), "method/GET");
    assert_eq!(id(&Key::route(), &request), "route/(unmatched)");
    assert_eq!(
        id(&Key::peer(), &request),
        "peer/2001%3Adb8%3A1%3A2%3A%3A%2F64"
    );
    let by_path = Key::from_fn("path", |head| Some(head.uri().path().into())).unwrap();
    assert_eq!(id(&by_path, &request), "path/%2F");
}

#[test]
fn mapped_ipv4_peer_is_ipv4() {
    let mut request = with_tenant("acme");
    for address in ["192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
        request
            .extensions_mut()
            .insert(PeerAddr(address.parse().unwrap()));
        assert_eq!(id(&Key::peer(), &request), "peer/192.0.2.1");
    }
}

#[cfg(feature = "axum")]
#[test]
fn peer_is_read_from_axum_connect_info() {
    let mut request = with_tenant("acme");
    let address: std::net::SocketAddr = "192.0.2.7:80".parse().unwrap();
    request
        .extensions_mut()
        .insert(axum::extract::ConnectInfo(address));
    assert_eq!(id(&Key::peer(), &request), "peer/192.0.2.7");
}

#[test]
fn values_are_percent_encoded() {
    let key = Key::template("tenant/{header:x-tenant}").unwrap();
    for (value, encoded) in [
        ("a/b", "a%2Fb"),
        ("..", ".."),
        ("(missing)", "%28missing%29"),
        ("(overflow)", "%28overflow%29"),
        ("100%", "100%25"),
        ("A-Za.z_0~9", "A-Za.z_0~9"),
        ("ü", "%C3%BC"),
    ] {
        assert_eq!(id(&key, &with_tenant(value)), format!("tenant/{encoded}"));
    }
}

#[test]
fn only_values_of_too_long_ids_are_hashed() {
    let key = Key::template("tenant/{header:x-tenant}/{method}").unwrap();
    let just_fits = "x".repeat(256 - "tenant//GET".len());
    assert_eq!(
        id(&key, &with_tenant(&just_fits)),
        format!("tenant/{just_fits}/GET")
    );
    // sha256 of 246 times `x`, the first half.
    assert_eq!(
        id(&key, &with_tenant(format!("{just_fits}x"))),
        "tenant/(8cc53d6331e742b5f588efbc3b1f9c55)/GET"
    );
}

#[test]
fn missing_value_is_marked() {
    let key = Key::template("tenant/{header:x-tenant}/{method}").unwrap();
    let missing = Err(RefusalReason::MissingKey);
    let expected = ("tenant/(missing)/GET".to_owned(), missing);
    assert_eq!(write(&key, &Request::new(())), expected);
    assert_eq!(write(&key, &with_tenant("")), expected, "empty value");
    assert_eq!(write(&Key::peer(), &Request::new(())).1, missing);
    assert_eq!(key.overflow().as_str(), "tenant/(overflow)/(overflow)");
}

#[test]
fn headers_with_secrets_are_rejected() {
    for name in ["Authorization", "cookie", "Proxy-Authorization"] {
        let error = Key::header(name).unwrap_err().to_string();
        let hint = format!("use {{api_key:{}}}", name.to_lowercase());
        assert!(error.contains(&hint), "{error}");
        let hashed = format!("{{api_key:{name}}}");
        assert!(Key::template(&hashed).is_ok(), "{hashed}");
    }
}

#[test]
fn header_names_are_lowercased_in_templates() {
    for (written, expected) in [
        ("a/{header:X-Tenant}/B", "a/{header:x-tenant}/B"),
        ("{api_key:X-Key}/{jwt:Sub}", "{api_key:x-key}/{jwt:Sub}"),
        ("{api_key}/{method}", "{api_key}/{method}"),
    ] {
        assert_eq!(&**Key::template(written).unwrap().text(), expected);
    }
}

#[test]
fn debug_output_of_a_head_shows_no_secrets() {
    let request = Request::get("/orders?token=in-the-query")
        .header("authorization", "Bearer in-a-header")
        .header("x-tenant", "acme")
        .body(())
        .unwrap();
    let shown = format!("{:?}", RequestHead::of(&request));
    for word in ["GET", "/orders", "authorization", "x-tenant"] {
        assert!(shown.contains(word), "{shown}");
    }
    for word in ["in-the-query", "in-a-header", "acme"] {
        assert!(!shown.contains(word), "{shown}");
    }
}

#[test]
fn invalid_templates_are_rejected() {
    let error = |template: &str| Key::template(template).unwrap_err().to_string();
    assert_eq!(
        error("a/{tenant}"),
        "unknown placeholder {tenant}; must be {header:NAME}, {api_key}, {api_key:NAME}, \
         {jwt:CLAIM}, {client_ip}, {peer}, {host}, {method} or {route}"
    );
    assert!(error("{header}").contains("{header:NAME}"));
    for template in ["{header:a b}", "{api_key:a b}"] {
        let error = InvalidKey::InvalidHeader("a b".to_owned());
        assert_eq!(Key::template(template).unwrap_err(), error);
    }
    for (template, at) in [
        ("a{method", 1),
        ("a}b", 1),
        ("{a{method}", 0),
        ("{method}}", 8),
    ] {
        let error = Key::template(template).unwrap_err();
        assert_eq!(
            error,
            InvalidKeyTemplate::UnbalancedBrace(at).into(),
            "{template}"
        );
    }
    assert_eq!(
        Key::template("").unwrap_err(),
        InvalidKeyTemplate::Empty.into()
    );
    let long = "x".repeat(217);
    assert_eq!(
        Key::template(&format!("{long}{{method}}")).unwrap_err(),
        InvalidKeyTemplate::TooLong(257).into()
    );
    assert!(Key::from_fn(&long, |_| None).is_err());
}

#[test]
fn text_with_braces_becomes_a_template() {
    let key = Key::from("tenant/{header:x-tenant}");
    assert_eq!(id(&key, &with_tenant("acme")), "tenant/acme");
    assert_eq!(key.invalid(), None);
    let literal = Key::constant("tenant/{header:x-tenant}");
    assert_eq!(
        id(&literal, &with_tenant("acme")),
        "tenant/{header:x-tenant}"
    );
    assert_eq!(
        id(&Key::from("api".to_owned()), &with_tenant("acme")),
        "api"
    );
    assert_eq!(
        id(&Key::from(&"api".to_owned()), &with_tenant("acme")),
        "api"
    );
    for invalid in ["tenant/{id}", "a}b", "{method", ""] {
        assert!(Key::from(invalid).invalid().is_some(), "{invalid}");
    }
}

#[test]
fn literal_text_like_a_placeholder_is_warned_about() {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    for usual in [
        "api",
        "tenant/{header:x-tenant}",
        "{api_key:x-key}/{jwt:$sub}",
        "my-header:x",
        "price$",
    ] {
        Key::from(usual).warn_like_placeholder();
        assert_eq!(warnings.count(), 0, "{usual}");
    }
    for (count, (text, sign)) in [
        ("tenant/header:x-tenant", "`header:`"),
        ("tenant/jwt:sub", "`jwt:`"),
        ("tenant/${header:x-tenant}", "`${`"),
        ("{method}/header:x-tenant", "`header:`"),
    ]
    .into_iter()
    .enumerate()
    {
        Key::from(text).warn_like_placeholder();
        let lines = warnings.lines();
        assert_eq!(lines.len(), count + 1, "{text}: {lines:?}");
        assert!(lines[count].contains(sign), "{text}: {lines:?}");
        assert!(lines[count].contains(text), "{text}: {lines:?}");
    }
    Key::constant("header:x-tenant").warn_like_placeholder();
    assert_eq!(warnings.count(), 4, "a constant is meant literally");
}

#[test]
fn missing_value_is_named() {
    let request = Request::new(());
    for (template, expected) in [
        ("{header:X-Tenant}/{host}", Some("header `x-tenant`")),
        ("{api_key}", Some("single API key in header `x-api-key`")),
        (
            "{method}/{jwt:/org~1id/0}",
            Some("token with the claim `/org~1id/0`"),
        ),
        ("{peer}", Some("peer address")),
        ("{host}", Some("single host")),
        ("{route}/{method}", None),
    ] {
        let missing = Key::template(template).unwrap();
        let missing = missing.missing_value(&RequestHead::of(&request));
        assert_eq!(missing.as_deref(), expected, "{template}");
    }
}

type Closure = Box<dyn for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync>;

#[test]
fn template_uses_closures() {
    let closures = || -> [(&str, Closure); 2] {
        [
            (
                "path",
                Box::new(|head| Some(head.uri().path().to_owned().into())),
            ),
            ("nothing", Box::new(|_| None)),
        ]
    };
    let key = Key::template_with("v1/{method}/{path}", closures()).unwrap();
    assert_eq!(id(&key, &with_tenant("acme")), "v1/GET/%2F");
    let key = Key::template_with("{path}/{nothing}", closures()).unwrap();
    let missing = ("%2F/(missing)".to_owned(), Err(RefusalReason::MissingKey));
    assert_eq!(write(&key, &with_tenant("acme")), missing);
    assert_eq!(
        Key::template_with("{path}/{other}", closures()).unwrap_err(),
        InvalidKey::UnknownPlaceholder("other".to_owned())
    );
    assert_eq!(
        Key::template_with("{path}{nothing}", closures()).unwrap_err(),
        InvalidKeyTemplate::Unseparated(6).into()
    );
}

#[test]
fn adjacent_placeholders_are_rejected() {
    for (template, at) in [
        ("{method}{peer}", 8),
        ("{method}-{peer}", 8),
        ("a/{method}x1.{peer}", 10),
        ("{method}%20{peer}", 8),
        ("{method}(missing){peer}", 8),
        ("{method}\n{peer}", 8),
        ("{method}/{peer}_{route}", 15),
    ] {
        let error = Key::template(template).unwrap_err();
        assert_eq!(
            error,
            InvalidKeyTemplate::Unseparated(at).into(),
            "{template:?}"
        );
    }
    let error = Key::template("{method}{peer}").unwrap_err().to_string();
    assert!(error.contains("such as `/`"), "{error}");
    for template in [
        "{method}/{peer}",
        "a-{method}:{peer}-b",
        "{method}-ü-{peer}",
    ] {
        assert!(Key::template(template).is_ok(), "{template:?}");
    }
}

proptest! {
    #[test]
    fn different_values_make_different_ids(
        between in "[ab/%20()-]{0,4}",
        one in ("[ab/% ()-]{1,3}", "[ab/% ()-]{1,3}"),
        other in ("[ab/% ()-]{1,3}", "[ab/% ()-]{1,3}"),
    ) {
        prop_assume!(one != other);
        if let Ok(key) = Key::template(&format!("{{header:a}}{between}{{header:b}}")) {
            let id = |(a, b): &(String, String)| {
                let request = Request::builder().header("a", a).header("b", b).body(());
                id(&key, &request.unwrap())
            };
            prop_assert_ne!(id(&one), id(&other));
        }
    }

    #[test]
    fn any_text_becomes_a_resource_id(text in any::<String>(), times in 1..200_usize) {
        let id = to_resource_id(&text.repeat(times));
        prop_assert_eq!(&to_resource_id(id.as_str()), &id);
    }

    #[test]
    fn any_value_makes_a_valid_and_unique_id(
        values in prop::collection::hash_set(
            prop::collection::vec(
                (0x20..=0xff_u8).prop_filter("no control", |&byte| byte != 0x7f),
                1..400,
            ),
            1..20,
        ),
    ) {
        let key = Key::template("tenant/{header:x-tenant}/{method}").unwrap();
        let ids: HashSet<_> = values
            .iter()
            .map(|value| ResourceId::new(id(&key, &with_tenant(value))).unwrap())
            .collect();
        prop_assert_eq!(ids.len(), values.len());
    }

    #[test]
    fn no_template_makes_an_invalid_id(template in "[a-z/{}:\u{0}-\u{1f}]{0,60}") {
        if let Ok(key) = Key::template(&template) {
            let (id, _) = write(&key, &with_tenant("%".repeat(300)));
            prop_assert!(ResourceId::new(id).is_ok());
        }
    }
}
