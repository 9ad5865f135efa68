mod callers;
mod claims;

use std::collections::HashSet;

use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

fn made(key: &Key, request: &Request<()>) -> (String, Made) {
    let mut id = b"left over".to_vec();
    let made = key.write(&RequestHead::of(request), &mut id);
    (String::from_utf8(id).unwrap(), made)
}

fn id(key: &Key, request: &Request<()>) -> String {
    let (id, made) = made(key, request);
    assert_eq!(made, Made::Whole);
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
fn a_template_combines_constants_and_values() {
    let key = Key::template("v1/{method}/{header:X-Tenant}/{peer}").unwrap();
    let mut request = with_tenant("acme");
    request
        .extensions_mut()
        .insert(PeerAddr("192.0.2.1:4711".parse().unwrap()));
    assert_eq!(id(&key, &request), "v1/GET/acme/192.0.2.1");
}

#[test]
fn the_simple_keys_say_what_they_are_kept_by() {
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
fn an_ipv4_peer_is_the_same_however_it_is_written() {
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
fn the_peer_is_that_of_axums_connection() {
    let mut request = with_tenant("acme");
    let address: std::net::SocketAddr = "192.0.2.7:80".parse().unwrap();
    request
        .extensions_mut()
        .insert(axum::extract::ConnectInfo(address));
    assert_eq!(id(&Key::peer(), &request), "peer/192.0.2.7");
}

#[test]
fn values_cannot_reach_out_of_their_place() {
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
fn long_values_are_hashed_to_the_same_id_everywhere_and_the_rest_stays() {
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
fn what_is_missing_has_a_word_of_its_own() {
    let key = Key::template("tenant/{header:x-tenant}/{method}").unwrap();
    let expected = (
        "tenant/(missing)/GET".to_owned(),
        Made::Missing(Absent::Value),
    );
    assert_eq!(made(&key, &Request::new(())), expected);
    assert_eq!(
        made(&key, &with_tenant("")),
        expected,
        "an empty value is none"
    );
    assert_eq!(
        made(&Key::peer(), &Request::new(())).1,
        Made::Missing(Absent::Value)
    );
    assert_eq!(key.overflow().as_str(), "tenant/(overflow)/(overflow)");
}

#[test]
fn headers_of_secrets_make_no_key() {
    for name in ["Authorization", "cookie", "Proxy-Authorization"] {
        let error = Key::header(name).unwrap_err();
        assert!(error.to_string().contains("{api_key:NAME}"), "{error}");
        let hashed = format!("{{api_key:{name}}}");
        assert!(Key::template(&hashed).is_ok(), "{hashed}");
    }
}

#[test]
fn two_spellings_of_a_header_are_one_template() {
    for (written, expected) in [
        ("a/{header:X-Tenant}/B", "a/{header:x-tenant}/B"),
        ("{api_key:X-Key}/{jwt:Sub}", "{api_key:x-key}/{jwt:Sub}"),
        ("{api_key}/{method}", "{api_key}/{method}"),
    ] {
        assert_eq!(&**Key::template(written).unwrap().text(), expected);
    }
}

#[test]
fn a_head_in_a_log_tells_no_secrets() {
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
fn a_wrong_template_says_what_would_be_right() {
    let error = |template: &str| Key::template(template).unwrap_err().to_string();
    assert_eq!(
        error("a/{tenant}"),
        "unknown placeholder {tenant}: there are {header:NAME}, {api_key}, {api_key:NAME}, {jwt:CLAIM}, {client_ip}, {peer}, {host}, {method} and \
         {route}"
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

type Make = Box<dyn for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync>;

#[test]
fn a_template_may_have_the_values_of_closures() {
    let makers = || -> [(&str, Make); 2] {
        [
            (
                "path",
                Box::new(|head| Some(head.uri().path().to_owned().into())),
            ),
            ("nothing", Box::new(|_| None)),
        ]
    };
    let key = Key::template_with("v1/{method}/{path}", makers()).unwrap();
    assert_eq!(id(&key, &with_tenant("acme")), "v1/GET/%2F");
    let key = Key::template_with("{path}/{nothing}", makers()).unwrap();
    let missing = ("%2F/(missing)".to_owned(), Made::Missing(Absent::Value));
    assert_eq!(made(&key, &with_tenant("acme")), missing);
    assert_eq!(
        Key::template_with("{path}/{other}", makers()).unwrap_err(),
        InvalidKey::UnknownPlaceholder("other".to_owned())
    );
    assert_eq!(
        Key::template_with("{path}{nothing}", makers()).unwrap_err(),
        InvalidKeyTemplate::Unseparated(6).into()
    );
}

#[test]
fn placeholders_that_run_into_each_other_are_refused() {
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
    fn no_two_combinations_of_values_make_the_same_id(
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
    fn any_text_of_a_program_is_a_resource(text in any::<String>(), times in 1..200_usize) {
        let id = constant(&text.repeat(times));
        // Once it is one, it stays what it is.
        prop_assert_eq!(&constant(id.as_str()), &id);
    }

    #[test]
    fn any_value_makes_an_id_that_the_control_plane_takes_and_no_other_value_makes(
        values in prop::collection::hash_set(
            prop::collection::vec((0x20..=0xff_u8).prop_filter("no control", |&byte| byte != 0x7f), 1..400),
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
    fn no_template_makes_an_id_that_is_too_long(template in "[a-z/{}:\u{0}-\u{1f}]{0,60}") {
        if let Ok(key) = Key::template(&template) {
            let (id, _) = made(&key, &with_tenant("%".repeat(300)));
            prop_assert!(ResourceId::new(id).is_ok());
        }
    }
}
