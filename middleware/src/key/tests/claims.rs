//! Keys by claims that somebody further out has verified.

use serde_json::json;

use super::*;
use crate::{InvalidClaims, VerifiedClaims};

fn with(claims: &serde_json::Value) -> Request<()> {
    let mut request = Request::builder()
        .header("authorization", "Bearer nobody.has.verified-this")
        .body(())
        .unwrap();
    let claims = VerifiedClaims::new(claims).unwrap();
    request.extensions_mut().insert(claims);
    request
}

#[test]
fn a_claim_is_found_by_name_or_pointer() {
    let claims = json!({
        "sub": "Alice B",
        "tid": 7,
        "debt": -7,
        "admin": true,
        "https://example.com/tenant": "acme",
        "realm": {"tenant": "acme", "a/b": "slash", "m~n": "tilde"},
        "groups": ["first", "second"],
    });
    for (claim, expected) in [
        ("sub", "Alice%20B"),
        ("tid", "7"),
        ("debt", "-7"),
        ("admin", "true"),
        ("https://example.com/tenant", "acme"),
        ("/sub", "Alice%20B"),
        ("/realm/tenant", "acme"),
        ("/realm/a~1b", "slash"),
        ("/realm/m~0n", "tilde"),
        ("/groups/1", "second"),
    ] {
        let key = Key::jwt(claim).unwrap();
        let expected = format!("jwt:{claim}/{expected}");
        assert_eq!(id(&key, &with(&claims)), expected);
    }
}

#[test]
fn what_makes_no_key_is_missing() {
    let claims = json!({
        "empty": "", "null": null, "list": ["a"], "object": {"a": "b"}, "fraction": 1.5,
        "realm": {"tenant": "acme"},
    });
    for claim in [
        "absent",
        "empty",
        "null",
        "list",
        "object",
        "fraction",
        "realm/tenant",
        "/realm",
        "/realm/other",
        "/realm/tenant/deeper",
        "/list/1",
        "/list/00",
        "/list/+0",
        "/list/-",
        "/",
        "//",
    ] {
        let (id, made) = made(&Key::jwt(claim).unwrap(), &with(&claims));
        assert_eq!(made, Made::Missing(Absent::Value), "{claim}");
        assert_eq!(id, format!("jwt:{claim}/(missing)"));
    }
    for bad in ["", "a}", "{"] {
        assert!(Key::jwt(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_claim_that_nobody_has_verified_is_never_looked_at() {
    // {"alg":"none"}.{"sub":"alice"}
    let token = "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.";
    let request = Request::builder().header("authorization", token);
    let request = request.body(()).unwrap();
    let expected = ("jwt:sub/(missing)".to_owned(), Made::Missing(Absent::Token));
    assert_eq!(made(&Key::jwt("sub").unwrap(), &request), expected);
}

#[test]
fn claims_are_an_object_and_show_no_values() {
    for bad in [json!("alice"), json!(["alice"]), json!(null)] {
        let error: InvalidClaims = VerifiedClaims::new(&bad).unwrap_err();
        assert_eq!(error.to_string(), "claims must be an object of JSON");
    }
    let claims = VerifiedClaims::new(&json!({"sub": "alice"})).unwrap();
    assert_eq!(format!("{claims:?}"), "VerifiedClaims([\"sub\"])");
}
