mod rotation;

use doorman_jwt::MAX_TOKEN;
use http::Request;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{Callers, Key, RefusalReason, RequestHead, testing::Logged};

const SECRET: &str = "a secret of at least thirty-two bytes";
const ISSUER: &str = "https://issuer.example";
const RSA_PUBLIC: &[u8] = include_bytes!("test_keys/rsa.pub.pem");

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

fn unix_now() -> i64 {
    i64::try_from(get_current_timestamp()).unwrap()
}

/// Valid claims, except for these.
fn claims(other: &Value) -> Value {
    let mut claims =
        json!({"iss": ISSUER, "aud": "orders", "sub": "alice", "exp": unix_now() + 600});
    for (name, value) in other.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// The id of a key by `sub` for a request with this header.
fn sub_of(verifier: &JwtVerifier, authorization: &str) -> (String, Result<(), RefusalReason>) {
    let callers = Callers::new().jwt(verifier.clone());
    let request = Request::builder().header("authorization", authorization);
    let request = request.body(()).unwrap();
    let mut id = Vec::new();
    let key = Key::template("{jwt:sub}").unwrap();
    let written = key.write(&RequestHead::of(&request).with_callers(&callers), &mut id);
    (String::from_utf8(id).unwrap(), written)
}

#[track_caller]
fn check_valid(verifier: &JwtVerifier, token: &str) {
    let (id, written) = sub_of(verifier, &format!("Bearer {token}"));
    assert_eq!((id.as_str(), written), ("alice", Ok(())), "{token}");
}

#[track_caller]
fn check_invalid(verifier: &JwtVerifier, what: &str, token: &str) {
    let (id, written) = sub_of(verifier, &format!("Bearer {token}"));
    let expected = ("(missing)", Err(RefusalReason::InvalidToken));
    assert_eq!((id.as_str(), written), expected, "{what}");
}

#[test]
fn signed_token_is_valid() {
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
        for valid in [
            json!({}),
            json!({"aud": ["other", "orders"]}),
            json!({"nbf": unix_now() - 5}),
            // Within the leeway of 30 seconds.
            json!({"exp": unix_now() - 20}),
            json!({"nbf": unix_now() + 20}),
            json!({"exp": 1e18}),
        ] {
            check_valid(&verifier, &issuer.sign(&claims(&valid)));
        }
    }
}

#[test]
fn failed_check_is_logged_without_the_token() {
    let other_secret = Issuer {
        key: EncodingKey::from_secret(b"another secret of thirty-two bytes"),
        ..Issuer::hs256()
    };
    let sign = |other: Value| Issuer::hs256().sign(&claims(&other));
    let verifier = verifier(JwtKey::hs256(SECRET));
    let (debug, _guard) = Logged::at(tracing::Level::DEBUG);
    let mut logged = 0;
    for (token, check) in [
        ("nonsense".to_owned(), "malformed"),
        (Issuer::rs256().sign(&claims(&json!({}))), "algorithm"),
        (other_secret.sign(&claims(&json!({}))), "signature"),
        (sign(json!({"exp": -1})), "claims"),
        (sign(json!({"iss": "https://other.example"})), "issuer"),
        (sign(json!({"aud": "invoices"})), "audience"),
        (sign(json!({"nbf": unix_now() + 60})), "not yet valid"),
        (sign(json!({"exp": unix_now() - 60})), "expired"),
    ] {
        check_invalid(&verifier, check, &token);
        let lines = debug.lines();
        let line = &lines[logged];
        assert!(
            line.contains(&format!("failed_check=\"{check}\"")),
            "{check}: {line}"
        );
        assert!(!line.contains(&token), "{line}");
        logged += 1;
        assert_eq!(lines.len(), logged, "one line per token");
    }
}

#[test]
fn wrong_or_absent_claims_are_invalid() {
    let verifier = verifier(JwtKey::hs256(SECRET));
    for wrong in [
        json!({"exp": unix_now() - 60}),
        json!({"exp": null}),
        json!({"exp": (unix_now() + 600).to_string()}),
        json!({"exp": [unix_now() + 600]}),
        json!({"exp": -1}),
        json!({"exp": 1e300}),
        json!({"exp": true}),
        json!({"nbf": unix_now() + 60}),
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
        json!({"padding": "x".repeat(MAX_TOKEN)}),
    ] {
        let what: String = wrong.to_string().chars().take(40).collect();
        check_invalid(&verifier, &what, &Issuer::hs256().sign(&claims(&wrong)));
    }
    for absent in ["exp", "iss", "aud"] {
        let mut claims = claims(&json!({}));
        claims.as_object_mut().unwrap().remove(absent);
        check_invalid(&verifier, absent, &Issuer::hs256().sign(&claims));
    }
    let strict = verifier.leeway(Duration::ZERO);
    for late in [
        json!({"exp": unix_now() - 5}),
        json!({"nbf": unix_now() + 5}),
    ] {
        check_invalid(&strict, "leeway", &Issuer::hs256().sign(&claims(&late)));
    }
}

#[test]
fn forged_tokens_are_invalid() {
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
        ("no algorithm, other case", format!("{mixed}.{payload}.")),
        (
            "other algorithm, same signature",
            format!("{hs256}.{payload}.{signature}"),
        ),
        ("no signature", format!("{header}.{payload}.")),
        ("two parts", format!("{header}.{payload}")),
        ("four parts", format!("{good}.{signature}")),
        ("other payload", format!("{header}.{bobs}.{signature}")),
        ("truncated signature", good[..good.len() - 4].to_owned()),
        ("not a token", "x".to_owned()),
        ("dots", "..".to_owned()),
    ] {
        check_invalid(&verifier, what, &token);
    }

    let as_secret = |secret: &[u8], algorithm| Issuer {
        algorithm,
        key: EncodingKey::from_secret(secret),
    };
    for (what, issuer) in [
        (
            "public key as a secret",
            as_secret(RSA_PUBLIC, Algorithm::HS256),
        ),
        ("other secret", as_secret(b"mine", Algorithm::HS256)),
        ("empty secret", as_secret(b"", Algorithm::HS512)),
        (
            "right key, other algorithm",
            Issuer {
                algorithm: Algorithm::PS256,
                ..Issuer::rs256()
            },
        ),
    ] {
        check_invalid(&verifier, what, &issuer.sign(&claims(&json!({}))));
    }
    check_valid(&verifier, &good);
}

#[test]
fn tokens_for_other_uses_are_invalid() {
    let verifier = verifier(JwtKey::rs256_pem(RSA_PUBLIC));
    let mut header = Header::new(Algorithm::RS256);
    header.crit = Some(vec!["exp".to_owned()]);
    let critical = encode(&header, &claims(&json!({})), &Issuer::rs256().key).unwrap();
    check_invalid(&verifier, "critical extension", &critical);
    for (typ, is_valid) in [("logout+jwt", false), ("", false), ("at+JWT", true)] {
        let mut header = Header::new(Algorithm::RS256);
        header.typ = Some(typ.to_owned());
        let token = encode(&header, &claims(&json!({})), &Issuer::rs256().key).unwrap();
        if is_valid {
            check_valid(&verifier, &token);
        } else {
            check_invalid(&verifier, typ, &token);
        }
    }
}

#[test]
fn token_is_read_from_the_bearer_scheme() {
    let verifier = verifier(JwtKey::hs256(SECRET));
    let token = Issuer::hs256().sign(&claims(&json!({})));
    for good in [format!("bearer {token}"), format!("BEARER   {token}")] {
        assert_eq!(sub_of(&verifier, &good).0, "alice");
    }
    for absent in ["", "Bearer", "Bearer ", &token, &format!("Basic {token}")] {
        let missing = Err(RefusalReason::MissingToken);
        assert_eq!(sub_of(&verifier, absent).1, missing, "{absent:?}");
    }
    let without_claim = Issuer::hs256().sign(&claims(&json!({"sub": null})));
    let (_, written) = sub_of(&verifier, &format!("Bearer {without_claim}"));
    assert_eq!(written, Err(RefusalReason::MissingKey));
}

#[test]
fn issuer_can_rotate_its_key() {
    let other = "another secret of thirty-two bytes";
    let keys = [
        JwtKey::hs256(SECRET).unwrap(),
        JwtKey::hs256(other).unwrap(),
    ];
    let verifier = JwtVerifier::new(keys, ISSUER, "orders").unwrap();
    let claims = claims(&json!({}));
    check_valid(&verifier, &Issuer::hs256().sign(&claims));
    let next = Issuer {
        algorithm: Algorithm::HS256,
        key: EncodingKey::from_secret(other.as_bytes()),
    };
    check_valid(&verifier, &next.sign(&claims));
}

#[test]
fn invalid_keys_are_rejected() {
    let error = |key: Result<JwtKey, InvalidJwtKey>| key.unwrap_err().to_string();
    assert!(error(JwtKey::hs256("short")).contains("32 bytes"));
    assert!(error(JwtKey::hs256(RSA_PUBLIC)).contains("must not be a PEM key"));
    assert!(error(JwtKey::es256_pem(RSA_PUBLIC)).contains("ES256"));
    assert!(error(JwtKey::rs256_pem("nothing")).contains("RS256"));
    assert!(error(JwtKey::eddsa_pem(RSA_PUBLIC)).contains("EdDSA"));
    let private = error(JwtKey::rs256_pem(include_bytes!("test_keys/rsa.pem")));
    assert!(private.contains("private key"), "{private}");
    let of_another_kind = error(JwtKey::rs256_pem(include_bytes!("test_keys/ec.pub.pem")));
    assert!(of_another_kind.contains("RS256"), "{of_another_kind}");
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
    #[test]
    fn altered_tokens_make_the_same_key_or_none(
        cut in 0..400_usize,
        insert in "[A-Za-z0-9_.=-]{0,6}",
        replaced in 0..6_usize,
        invented in "[ -~]{0,60}",
    ) {
        let verifier = verifier(JwtKey::hs256(SECRET));
        let mut token = Issuer::hs256().sign(&claims(&json!({"nbf": 1})));
        let cut = cut % token.len();
        let end = (cut + replaced).min(token.len());
        token.replace_range(cut..end, &insert);
        for authorization in [format!("Bearer {token}"), format!("Bearer {invented}"), invented] {
            let (id, _) = sub_of(&verifier, &authorization);
            prop_assert!(id == "alice" || id == "(missing)", "{authorization}: {id}");
        }
    }
}
