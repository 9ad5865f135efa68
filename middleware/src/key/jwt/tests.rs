//! Which tokens count, and which do not, whoever made them.

use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    Callers, Key, RequestHead,
    key::{Absent, Made},
};

const SECRET: &str = "a secret of at least thirty-two bytes";
const ISSUER: &str = "https://issuer.example";
const RSA_PUBLIC: &[u8] = include_bytes!("test_keys/rsa.pub.pem");

/// What signs the tokens of a verifier.
struct Issuer {
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Issuer {
    fn hs256() -> Self {
        Self {
            algorithm: Algorithm::HS256,
            key: EncodingKey::from_secret(SECRET.as_bytes()),
        }
    }

    fn rs256() -> Self {
        Self {
            algorithm: Algorithm::RS256,
            key: EncodingKey::from_rsa_pem(include_bytes!("test_keys/rsa.pem")).unwrap(),
        }
    }

    fn sign(&self, claims: &Value) -> String {
        encode(&Header::new(self.algorithm), claims, &self.key).unwrap()
    }
}

fn verifier(key: Result<JwtKey, InvalidJwtKey>) -> JwtVerifier {
    JwtVerifier::new([key.unwrap()], ISSUER, "orders").unwrap()
}

/// Seconds of the wall clock.
fn now() -> i64 {
    i64::try_from(get_current_timestamp()).unwrap()
}

/// Good claims, but for these.
fn claims(other: &Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": "orders", "sub": "alice", "exp": now() + 600});
    for (name, value) in other.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// The id of a key by `sub` for a request with this header.
fn sub_of(verifier: &JwtVerifier, authorization: &str) -> (String, Made) {
    let callers = Callers::new().jwt(verifier.clone());
    let request = Request::builder().header("authorization", authorization);
    let request = request.body(()).unwrap();
    let mut id = Vec::new();
    let key = Key::template("{jwt:sub}").unwrap();
    let made = key.write(&RequestHead::of(&request).with_callers(&callers), &mut id);
    let id = String::from_utf8(id).unwrap();
    (id, made)
}

#[track_caller]
fn counts(verifier: &JwtVerifier, token: &str) {
    let (id, made) = sub_of(verifier, &format!("Bearer {token}"));
    assert_eq!((id.as_str(), made), ("alice", Made::Whole), "{token}");
}

#[track_caller]
fn does_not_count(verifier: &JwtVerifier, what: &str, token: &str) {
    let (id, made) = sub_of(verifier, &format!("Bearer {token}"));
    let expected = ("(missing)", Made::Missing(Absent::GoodToken));
    assert_eq!((id.as_str(), made), expected, "{what}");
}

#[test]
fn a_token_counts_that_the_issuer_has_signed() {
    let ec = EncodingKey::from_ec_pem(include_bytes!("test_keys/ec.pem")).unwrap();
    let ed = EncodingKey::from_ed_pem(include_bytes!("test_keys/ed.pem")).unwrap();
    for (issuer, key) in [
        (Issuer::hs256(), JwtKey::hs256(SECRET)),
        (Issuer::rs256(), JwtKey::rs256_pem(RSA_PUBLIC)),
        (
            Issuer {
                algorithm: Algorithm::ES256,
                key: ec,
            },
            JwtKey::es256_pem(include_bytes!("test_keys/ec.pub.pem")),
        ),
        (
            Issuer {
                algorithm: Algorithm::EdDSA,
                key: ed,
            },
            JwtKey::eddsa_pem(include_bytes!("test_keys/ed.pub.pem")),
        ),
    ] {
        let verifier = verifier(key);
        counts(&verifier, &issuer.sign(&claims(&json!({}))));
        counts(
            &verifier,
            &issuer.sign(&claims(&json!({"aud": ["other", "orders"]}))),
        );
        counts(&verifier, &issuer.sign(&claims(&json!({"nbf": now() - 5}))));
        // The clocks may be half a minute apart.
        counts(
            &verifier,
            &issuer.sign(&claims(&json!({"exp": now() - 20}))),
        );
        counts(
            &verifier,
            &issuer.sign(&claims(&json!({"nbf": now() + 20}))),
        );
        counts(&verifier, &issuer.sign(&claims(&json!({"exp": 1e18}))));
    }
}

#[test]
fn no_claim_that_is_wrong_or_absent_passes() {
    let verifier = verifier(JwtKey::hs256(SECRET));
    for wrong in [
        json!({"exp": now() - 60}),
        json!({"exp": null}),
        json!({"exp": (now() + 600).to_string()}),
        json!({"exp": [now() + 600]}),
        json!({"exp": -1}),
        json!({"exp": 1e300}),
        json!({"exp": true}),
        json!({"nbf": now() + 60}),
        json!({"nbf": "soon"}),
        json!({"nbf": -1}),
        json!({"iss": "https://other.example"}),
        json!({"iss": null}),
        json!({"iss": 1}),
        json!({"aud": "invoices"}),
        json!({"aud": ["invoices"]}),
        json!({"aud": []}),
        json!({"aud": null}),
        json!({"aud": {"orders": true}}),
        json!({"padding": "x".repeat(LONGEST_TOKEN)}),
    ] {
        let what: String = wrong.to_string().chars().take(40).collect();
        does_not_count(&verifier, &what, &Issuer::hs256().sign(&claims(&wrong)));
    }
    for absent in ["exp", "iss", "aud"] {
        let mut claims = claims(&json!({}));
        claims.as_object_mut().unwrap().remove(absent);
        does_not_count(&verifier, absent, &Issuer::hs256().sign(&claims));
    }
    let strict = verifier.leeway(Duration::ZERO);
    for late in [json!({"exp": now() - 5}), json!({"nbf": now() + 5})] {
        does_not_count(&strict, "leeway", &Issuer::hs256().sign(&claims(&late)));
    }
}

#[test]
fn no_token_passes_that_somebody_else_made() {
    let verifier = verifier(JwtKey::rs256_pem(RSA_PUBLIC));
    let good = Issuer::rs256().sign(&claims(&json!({})));
    let other = Issuer::rs256().sign(&claims(&json!({"sub": "bob"})));
    let parts: Vec<_> = good.split('.').collect();
    let (header, payload, signature) = (parts[0], parts[1], parts[2]);
    let bobs = other.split('.').nth(1).unwrap();
    // {"alg":"none"} and {"alg":"None"}, and {"alg":"HS256"}.
    let (none, mixed, hs256) = (
        "eyJhbGciOiJub25lIn0",
        "eyJhbGciOiJOb25lIn0",
        "eyJhbGciOiJIUzI1NiJ9",
    );
    for (what, token) in [
        ("no algorithm, no signature", format!("{none}.{payload}.")),
        ("no algorithm", format!("{none}.{payload}.{signature}")),
        (
            "no algorithm in another case",
            format!("{mixed}.{payload}."),
        ),
        (
            "another algorithm with the same signature",
            format!("{hs256}.{payload}.{signature}"),
        ),
        ("no signature", format!("{header}.{payload}.")),
        ("two parts", format!("{header}.{payload}")),
        ("four parts", format!("{good}.{signature}")),
        ("another payload", format!("{header}.{bobs}.{signature}")),
        ("a signature cut short", good[..good.len() - 4].to_owned()),
        ("no token at all", "x".to_owned()),
        ("dots", "..".to_owned()),
    ] {
        does_not_count(&verifier, what, &token);
    }

    let as_secret = |secret: &[u8], algorithm| Issuer {
        algorithm,
        key: EncodingKey::from_secret(secret),
    };
    for (what, issuer) in [
        (
            "the public key as a secret",
            as_secret(RSA_PUBLIC, Algorithm::HS256),
        ),
        (
            "a secret of one's own",
            as_secret(b"mine", Algorithm::HS256),
        ),
        ("the empty secret", as_secret(b"", Algorithm::HS512)),
        (
            "the right key by another algorithm",
            Issuer {
                algorithm: Algorithm::PS256,
                ..Issuer::rs256()
            },
        ),
    ] {
        does_not_count(&verifier, what, &issuer.sign(&claims(&json!({}))));
    }

    let mut header = Header::new(Algorithm::RS256);
    header.crit = Some(vec!["exp".to_owned()]);
    let critical = encode(&header, &claims(&json!({})), &Issuer::rs256().key).unwrap();
    does_not_count(&verifier, "an extension that must be understood", &critical);
    counts(&verifier, &good);
}

#[test]
fn a_token_is_looked_for_where_it_belongs() {
    let verifier = verifier(JwtKey::hs256(SECRET));
    let token = Issuer::hs256().sign(&claims(&json!({})));
    for good in [format!("bearer {token}"), format!("BEARER   {token}")] {
        assert_eq!(sub_of(&verifier, &good).0, "alice");
    }
    for absent in ["", "Bearer", "Bearer ", &token, &format!("Basic {token}")] {
        let missing = Made::Missing(Absent::Token);
        assert_eq!(sub_of(&verifier, absent).1, missing, "{absent:?}");
    }
    let without_claim = Issuer::hs256().sign(&claims(&json!({"sub": null})));
    let (_, made) = sub_of(&verifier, &format!("Bearer {without_claim}"));
    assert_eq!(made, Made::Missing(Absent::Value));
}

#[test]
fn an_issuer_may_change_its_key() {
    let other = "another secret of thirty-two bytes";
    let keys = [
        JwtKey::hs256(SECRET).unwrap(),
        JwtKey::hs256(other).unwrap(),
    ];
    let verifier = JwtVerifier::new(keys, ISSUER, "orders").unwrap();
    let claims = claims(&json!({}));
    counts(&verifier, &Issuer::hs256().sign(&claims));
    let next = Issuer {
        algorithm: Algorithm::HS256,
        key: EncodingKey::from_secret(other.as_bytes()),
    };
    counts(&verifier, &next.sign(&claims));
}

#[test]
fn keys_that_are_none_are_refused() {
    let error = |key: Result<JwtKey, InvalidJwtKey>| key.unwrap_err().to_string();
    assert!(error(JwtKey::hs256("short")).contains("32 bytes"));
    assert!(error(JwtKey::hs256(RSA_PUBLIC)).contains("no secret"));
    assert!(error(JwtKey::es256_pem(RSA_PUBLIC)).contains("ES256"));
    assert!(error(JwtKey::rs256_pem("nothing")).contains("RS256"));
    assert!(error(JwtKey::eddsa_pem(RSA_PUBLIC)).contains("EdDSA"));
    let mixed = [
        JwtKey::hs256(SECRET).unwrap(),
        JwtKey::rs256_pem(RSA_PUBLIC).unwrap(),
    ];
    let error = JwtVerifier::new(mixed, ISSUER, "orders").unwrap_err();
    assert!(matches!(error, InvalidJwtKey::Mixed), "{error}");
    let error = JwtVerifier::new([], ISSUER, "orders").unwrap_err();
    assert!(matches!(error, InvalidJwtKey::None), "{error}");
    let shown = format!(
        "{:?} {:?}",
        JwtKey::hs256(SECRET),
        verifier(JwtKey::hs256(SECRET))
    );
    assert!(!shown.contains("thirty"), "{shown}");
}

proptest! {
    /// What a caller makes of a good token, or makes up, is the same key or none.
    #[test]
    fn nothing_that_a_caller_sends_makes_another_key(
        cut in 0..400_usize,
        insert in "[A-Za-z0-9_.=-]{0,6}",
        replaced in 0..6_usize,
        made_up in "[ -~]{0,60}",
    ) {
        let verifier = verifier(JwtKey::hs256(SECRET));
        let mut token = Issuer::hs256().sign(&claims(&json!({"nbf": 1})));
        let cut = cut % token.len();
        let end = (cut + replaced).min(token.len());
        token.replace_range(cut..end, &insert);
        for authorization in [format!("Bearer {token}"), format!("Bearer {made_up}"), made_up] {
            let (id, _) = sub_of(&verifier, &authorization);
            prop_assert!(id == "alice" || id == "(missing)", "{authorization}: {id}");
        }
    }
}
