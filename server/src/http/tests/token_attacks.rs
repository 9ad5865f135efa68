//! Forged, stolen and malformed tokens against all routes.

use axum::http::Method;
use doorman_openapi::paths;
use jsonwebtoken::encode;
use serde_json::json;

use super::{
    authentication::{authenticating, bearer, call, guarded},
    *,
};
use crate::auth::testing::{EC_PUBLIC, ISSUER, Issuer, RSA_PUBLIC, SECRET, claims, now};

/// Invalid `Authorization` headers. Each is valid but for the one defect in its name.
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn attacks() -> Vec<(&'static str, Vec<String>)> {
    let all = "capacity server templates:read templates:write status:read";
    let with = |other: Value| {
        let mut claims = claims(&json!({"scope": all}));
        for (name, value) in other.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    };
    let without = |name: &str| {
        let mut claims = with(json!({}));
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let rsa = || Issuer::rs256().with_kid("rsa");
    let good = rsa().sign(&with(json!({})));
    let parts: Vec<_> = good.split('.').map(str::to_owned).collect();
    let (header, payload, signature) = (&parts[0], &parts[1], &parts[2]);
    let other = rsa().sign(&with(json!({"sub": "bob"})));
    let bobs = other.split('.').nth(1).unwrap();
    let base64 = |text: &str| {
        use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
        URL_SAFE_NO_PAD.encode(text)
    };
    // Signed by the issuer, but text that no library would write.
    let signed = |header: &str, payload: &str| {
        let message = format!("{}.{}", base64(header), base64(payload));
        let key = rsa().key;
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &key, jsonwebtoken::Algorithm::RS256);
        format!("{message}.{}", signature.unwrap())
    };
    let rs256 = r#"{"alg":"RS256","kid":"rsa"}"#;
    let text = with(json!({})).to_string();
    let twice = |member: &str| signed(rs256, &text.replacen('{', &format!("{{{member},"), 1));
    // A foreign key that the token contains or points at.
    let stranger = Issuer::eddsa();
    let bringing = |name: &str, value: Value| {
        let mut header = json!({"alg": "EdDSA", "kid": "rsa"});
        header[name] = value;
        let message = format!("{}.{payload}", base64(&header.to_string()));
        let signature = jsonwebtoken::crypto::sign(
            message.as_bytes(),
            &stranger.key,
            jsonwebtoken::Algorithm::EdDSA,
        );
        format!("{message}.{}", signature.unwrap())
    };
    let mut critical = rsa().header();
    critical.crit = Some(vec!["exp".to_owned()]);

    let tokens = [
        (
            "alg none, no signature",
            format!("{}.{payload}.", base64(r#"{"alg":"none"}"#)),
        ),
        (
            "alg none, a signature",
            format!("{}.{payload}.{signature}", base64(r#"{"alg":"none"}"#)),
        ),
        (
            "alg None",
            format!("{}.{payload}.", base64(r#"{"alg":"None"}"#)),
        ),
        ("no alg", format!("{}.{payload}.{signature}", base64("{}"))),
        (
            "alg twice",
            signed(r#"{"alg":"RS256","alg":"none"}"#, &text),
        ),
        (
            "alg HS256, the same signature",
            format!("{}.{payload}.{signature}", base64(r#"{"alg":"HS256"}"#)),
        ),
        (
            "the public key as a secret",
            Issuer::of_secret(RSA_PUBLIC).sign(&with(json!({}))),
        ),
        (
            "the public key as a secret, by name",
            Issuer::of_secret(RSA_PUBLIC)
                .with_kid("rsa")
                .sign(&with(json!({}))),
        ),
        (
            "the other public key as a secret",
            Issuer::of_secret(EC_PUBLIC)
                .with_kid("ec")
                .sign(&with(json!({}))),
        ),
        (
            "the public key as a secret, in the name of the secret's issuer",
            Issuer::of_secret(RSA_PUBLIC).sign(&with(json!({"iss": "doorman"}))),
        ),
        (
            "an empty secret",
            Issuer::of_secret("").sign(&with(json!({"iss": "doorman"}))),
        ),
        (
            "the secret of doorman in the name of the issuer",
            Issuer::of_secret(SECRET).sign(&with(json!({}))),
        ),
        (
            "the key of the issuer in the name of doorman",
            rsa().sign(&with(json!({"iss": "doorman"}))),
        ),
        (
            "another algorithm of the key",
            encode(
                &jsonwebtoken::Header::new(jsonwebtoken::Algorithm::PS256),
                &with(json!({})),
                &rsa().key,
            )
            .unwrap(),
        ),
        ("a key that nobody knows", stranger.sign(&with(json!({})))),
        ("no signature", format!("{header}.{payload}.")),
        ("two parts", format!("{header}.{payload}")),
        ("four parts", format!("{good}.{signature}")),
        (
            "five parts, as encrypted",
            format!("{header}.{payload}.{payload}.{payload}.{signature}"),
        ),
        (
            "the payload of another",
            format!("{header}.{bobs}.{signature}"),
        ),
        ("a signature cut short", good[..good.len() - 4].to_owned()),
        ("no exp", rsa().sign(&without("exp"))),
        ("exp past", rsa().sign(&with(json!({"exp": now() - 60})))),
        ("exp null", rsa().sign(&with(json!({"exp": null})))),
        (
            "exp as text",
            rsa().sign(&with(json!({"exp": (now() + 600).to_string()}))),
        ),
        (
            "exp in a list",
            rsa().sign(&with(json!({"exp": [now() + 600]}))),
        ),
        ("exp below 0", rsa().sign(&with(json!({"exp": -1})))),
        ("exp beyond all", rsa().sign(&with(json!({"exp": 1e300})))),
        ("exp twice", twice(r#""exp":1"#)),
        ("no iss", rsa().sign(&without("iss"))),
        (
            "iss of another",
            rsa().sign(&with(json!({"iss": "https://evil.example"}))),
        ),
        (
            "iss longer",
            rsa().sign(&with(json!({"iss": format!("{ISSUER}/")}))),
        ),
        ("iss in a list", rsa().sign(&with(json!({"iss": [ISSUER]})))),
        ("iss a number", rsa().sign(&with(json!({"iss": 1})))),
        ("iss twice", twice(r#""iss":"https://evil.example""#)),
        ("no aud", rsa().sign(&without("aud"))),
        ("aud of another", rsa().sign(&with(json!({"aud": "bank"})))),
        (
            "aud of others",
            rsa().sign(&with(json!({"aud": ["bank", "doorman2"]}))),
        ),
        ("aud of nobody", rsa().sign(&with(json!({"aud": []})))),
        ("aud null", rsa().sign(&with(json!({"aud": null})))),
        (
            "aud a map",
            rsa().sign(&with(json!({"aud": {"doorman": true}}))),
        ),
        ("aud twice", twice(r#""aud":"bank""#)),
        ("nbf ahead", rsa().sign(&with(json!({"nbf": now() + 60})))),
        ("nbf as text", rsa().sign(&with(json!({"nbf": "0"})))),
        ("no sub", rsa().sign(&without("sub"))),
        ("sub a number", rsa().sign(&with(json!({"sub": 1})))),
        ("sub twice", twice(r#""sub":"bob""#)),
        (
            "scope a map",
            rsa().sign(&with(json!({"scope": {"capacity": true}}))),
        ),
        ("scope twice", twice(r#""scope":"capacity""#)),
        (
            "a bound that is null",
            rsa().sign(&with(json!({"resources": null}))),
        ),
        (
            "a bound that is no glob",
            rsa().sign(&with(json!({"client_id": "["}))),
        ),
        (
            "a bound that stands twice",
            signed(
                rs256,
                &text.replacen('{', r#"{"resources":"a","resources":"*","#, 1),
            ),
        ),
        ("claims that are a list", signed(rs256, "[]")),
        ("claims that are no JSON", signed(rs256, "{")),
        ("no claims", signed(rs256, "")),
        (
            "kid of nothing",
            Issuer::rs256().with_kid("nothing").sign(&with(json!({}))),
        ),
        (
            "kid of another key",
            Issuer::rs256().with_kid("ec").sign(&with(json!({}))),
        ),
        (
            "kid empty",
            Issuer::rs256().with_kid("").sign(&with(json!({}))),
        ),
        (
            "kid a path",
            Issuer::rs256()
                .with_kid("../../../../dev/null")
                .sign(&with(json!({}))),
        ),
        (
            "kid a statement",
            Issuer::rs256()
                .with_kid("x' UNION SELECT 'key")
                .sign(&with(json!({}))),
        ),
        (
            "kid huge",
            Issuer::rs256()
                .with_kid(&"k".repeat(5_000))
                .sign(&with(json!({}))),
        ),
        (
            "kid a path, an empty secret",
            Issuer::of_secret("")
                .with_kid("/dev/null")
                .sign(&with(json!({"iss": "doorman"}))),
        ),
        ("kid a number", signed(r#"{"alg":"RS256","kid":1}"#, &text)),
        ("jwk of a stranger", bringing("jwk", stranger.jwk())),
        (
            "jku of a stranger",
            bringing("jku", json!("https://evil.example/jwks.json")),
        ),
        (
            "x5u of a stranger",
            bringing("x5u", json!("https://evil.example/cert.pem")),
        ),
        ("x5c of a stranger", bringing("x5c", json!(["MIIB"]))),
        (
            "an extension that must be understood",
            encode(&critical, &with(json!({})), &rsa().key).unwrap(),
        ),
        (
            "a token for other purposes",
            signed(r#"{"alg":"RS256","kid":"rsa","typ":"logout+jwt"}"#, &text),
        ),
        (
            "over 8 KiB",
            rsa().sign(&with(json!({"padding": "x".repeat(8 * 1024)}))),
        ),
        ("far over 8 KiB", "x".repeat(40_000)),
        ("garbage", "x".to_owned()),
        ("dots", "..".to_owned()),
        ("padding", format!("{header}=.{payload}=.{signature}=")),
    ];
    let tokens = tokens
        .into_iter()
        .map(|(name, token)| (name, vec![bearer(&token)]));
    let headers = [
        ("nothing", vec![]),
        ("no scheme", vec![good.clone()]),
        ("no token", vec!["Bearer".to_owned()]),
        ("an empty token", vec!["Bearer ".to_owned()]),
        ("another scheme", vec![format!("Basic {good}")]),
        (
            "a token as a password",
            vec!["Basic YWxpY2U6c2VjcmV0".to_owned()],
        ),
        ("two good headers", vec![bearer(&good), bearer(&good)]),
        (
            "a good header behind a bad one",
            vec![bearer("x"), bearer(&good)],
        ),
        (
            "a bad header behind a good one",
            vec![bearer(&good), bearer("x")],
        ),
        (
            "two tokens in one header",
            vec![format!("Bearer {good}, Bearer {good}")],
        ),
        ("two tokens in a row", vec![format!("Bearer {good} {good}")]),
    ];
    headers.into_iter().chain(tokens).collect()
}

#[tokio::test]
async fn every_invalid_token_is_rejected_on_every_route() {
    let (router, _home) = authenticating();
    let attacks = attacks();
    for (method, path, _) in guarded() {
        for (name, authorization) in &attacks {
            let authorization: Vec<_> = authorization.iter().map(String::as_str).collect();
            let reply = call(&router, &method, &path, &authorization).await;
            assert_eq!(reply.status, 401, "{name}: {method} {path}");
            let challenge = reply.header("www-authenticate");
            assert!(
                challenge.starts_with("Bearer realm="),
                "{name}: {challenge}"
            );
            if method != Method::HEAD {
                assert_eq!(reply.problem(401).kind, "/problems/unauthorized", "{name}");
            }
        }
    }
    // The same token without a defect is valid.
    let scope = json!({"scope": "status:read"});
    let good = bearer(&Issuer::rs256().with_kid("rsa").sign(&claims(&scope)));
    assert_eq!(
        call(&router, &Method::GET, paths::STATUS, &[&good])
            .await
            .status,
        200
    );
}
