//! Keys by claims that an outer layer verified.

use serde_json::json;

use super::*;
use crate::{InvalidClaims, VerifiedClaims};

fn with_claims(claims: &serde_json::Value) -> Request<()> {
    let mut request = Request::builder()
        .header("authorization", "Bearer not.a.token")
        .body(())
        .unwrap();
    let claims = VerifiedClaims::new(claims).unwrap();
    request.extensions_mut().insert(claims);
    request
}

#[test]
fn claim_is_found_by_name_or_pointer() {
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
        assert_eq!(id(&key, &with_claims(&claims)), expected);
    }
}

#[test]
fn absent_and_composite_claims_are_missing() {
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
        let (id, written) = write(&Key::jwt(claim).unwrap(), &with_claims(&claims));
        assert_eq!(written, Err(RefusalReason::MissingKey), "{claim}");
        assert_eq!(id, format!("jwt:{claim}/(missing)"));
    }
    for bad in ["", "a}", "{"] {
        assert!(Key::jwt(bad).is_err(), "{bad}");
    }
}

#[test]
fn unverified_claims_are_ignored() {
    // {"alg":"none"}.{"sub":"alice"}
    let token = "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.";
    let request = Request::builder().header("authorization", token);
    let request = request.body(()).unwrap();
    let (id, written) = write(&Key::jwt("sub").unwrap(), &request);
    assert_eq!(id, "jwt:sub/(missing)");
    assert_eq!(written, Err(RefusalReason::MissingToken));
}

#[test]
fn claims_are_an_object_and_debug_hides_values() {
    for bad in [json!("alice"), json!(["alice"]), json!(null)] {
        let error: InvalidClaims = VerifiedClaims::new(&bad).unwrap_err();
        assert_eq!(error.to_string(), "claims must be a JSON object");
    }
    let claims = VerifiedClaims::new(&json!({"sub": "alice"})).unwrap();
    assert_eq!(format!("{claims:?}"), "VerifiedClaims([\"sub\"])");
}
