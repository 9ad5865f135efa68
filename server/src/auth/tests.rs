//! Which tokens are valid, and for what.

mod files;
mod jwks_client;

use std::num::NonZeroU32;

use axum::http::{HeaderMap, header};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_openapi::{Capacity, Scope};
use serde_json::{Value, json};

use super::{testing::*, *};

async fn caller(auth: &Auth, token: &str) -> Result<Caller, Unauthenticated> {
    let mut headers = HeaderMap::new();
    let value = format!("Bearer {token}").parse().unwrap();
    headers.insert(header::AUTHORIZATION, value);
    auth.authenticate(&headers).await
}

async fn is_valid(auth: &Auth, token: &str) -> bool {
    caller(auth, token).await.is_ok()
}

#[tokio::test]
async fn token_of_a_trusted_issuer_is_valid() {
    for (issuer, pem) in [
        (Issuer::rs256(), RSA_PUBLIC),
        (Issuer::es256(), EC_PUBLIC),
        (Issuer::eddsa(), ED_PUBLIC),
    ] {
        let auth = Home::new().key(pem).load().unwrap();
        let by_set = Home::new().jwks(&[issuer.jwk()]).load().unwrap();
        for good in [
            json!({}),
            json!({"aud": ["other", "doorman"]}),
            json!({"nbf": now() - 5}),
            json!({"nbf": now() + 3, "iat": now()}),
            json!({"exp": now() - 3}),
        ] {
            let token = issuer.sign(&claims(&good));
            assert!(is_valid(&auth, &token).await, "{good}");
            assert!(is_valid(&by_set, &token).await, "{good}");
        }
    }
    let auth = Home::new().secret(&format!(" {SECRET}\n")).load().unwrap();
    let token = Issuer::of_secret(SECRET).sign(&claims(&json!({"iss": "doorman"})));
    let caller = caller(&auth, &token).await.unwrap();
    let identity = caller.identity().unwrap();
    assert_eq!(
        (&*identity.issuer, &*identity.subject),
        ("doorman", "alice")
    );
    assert!(caller.may(&[Scope::Server, Scope::Capacity]) && !caller.may(&[Scope::Server]));
}

#[tokio::test]
async fn key_of_one_issuer_is_invalid_for_another() {
    let auth = Home::new().secret(SECRET).key(RSA_PUBLIC).load().unwrap();
    let own = json!({"iss": "doorman"});
    assert!(is_valid(&auth, &Issuer::of_secret(SECRET).sign(&claims(&own))).await);
    assert!(is_valid(&auth, &Issuer::rs256().sign(&claims(&json!({})))).await);
    assert!(!is_valid(&auth, &Issuer::rs256().sign(&claims(&own))).await);
    assert!(!is_valid(&auth, &Issuer::of_secret(SECRET).sign(&claims(&json!({})))).await);
}

#[tokio::test]
async fn expiry_is_reported_only_for_signed_tokens() {
    let auth = Home::new().key(RSA_PUBLIC).load().unwrap();
    let late = claims(&json!({"exp": now() - 10}));
    let early = claims(&json!({"nbf": now() + 10}));
    let issuer = Issuer::rs256();
    let error = |token: String| {
        let auth = &auth;
        async move { caller(auth, &token).await.unwrap_err() }
    };
    assert_eq!(
        error(issuer.sign(&late)).await,
        Unauthenticated::Invalid(FailedCheck::Expired)
    );
    assert_eq!(
        error(issuer.sign(&early)).await,
        Unauthenticated::Invalid(FailedCheck::NotYetValid)
    );
    let forged = issuer.sign(&late);
    let (signed, _) = forged.rsplit_once('.').unwrap();
    assert_eq!(
        error(format!("{signed}.AAAA")).await,
        Unauthenticated::Invalid(FailedCheck::Signature)
    );
}

#[tokio::test]
async fn failed_check_of_a_token_is_named() {
    let known = Issuer::rs256().with_kid("known");
    let auth = Home::new().jwks(&[known.jwk()]).load().unwrap();
    let sign = |other: Value| known.sign(&claims(&other));
    let without = |claim: &str| {
        let mut rest = claims(&json!({}));
        rest.as_object_mut().unwrap().remove(claim);
        known.sign(&rest)
    };
    let valid = sign(json!({}));
    let (header, rest) = valid.split_once('.').unwrap();
    let (body, _) = rest.split_once('.').unwrap();
    let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let mut critical = known.header();
    critical.typ = Some("logout+jwt".to_owned());
    let critical = jsonwebtoken::encode(&critical, &claims(&json!({})), &known.key).unwrap();
    for (token, check) in [
        ("nonsense".to_owned(), FailedCheck::Malformed),
        (format!("AAAA.{rest}"), FailedCheck::Malformed),
        (critical, FailedCheck::Header),
        (format!("{unsigned}.{body}."), FailedCheck::Algorithm),
        (
            Issuer::of_secret(SECRET).sign(&claims(&json!({}))),
            FailedCheck::Algorithm,
        ),
        (
            Issuer::rs256().with_kid("new").sign(&claims(&json!({}))),
            FailedCheck::UnknownKey,
        ),
        (format!("{header}.{body}.AAAA"), FailedCheck::Signature),
        (without("sub"), FailedCheck::Claims),
        (sign(json!({"scope": 5})), FailedCheck::Claims),
        (sign(json!({"iss": "other"})), FailedCheck::Issuer),
        (sign(json!({"aud": "other"})), FailedCheck::Audience),
        (without("aud"), FailedCheck::Audience),
    ] {
        let error = caller(&auth, &token).await.unwrap_err();
        assert_eq!(error, Unauthenticated::Invalid(check), "{token}");
    }
}

#[tokio::test]
async fn token_of_another_type_is_rejected() {
    let auth = Home::new().key(RSA_PUBLIC).load().unwrap();
    let issuer = Issuer::rs256();
    for (typ, good) in [
        (None, true),
        (Some("at+JWT"), true),
        (Some("JWT"), true),
        (Some("logout+jwt"), false),
        (Some(""), false),
    ] {
        let mut header = issuer.header();
        header.typ = typ.map(str::to_owned);
        let token = jsonwebtoken::encode(&header, &claims(&json!({})), &issuer.key).unwrap();
        assert_eq!(is_valid(&auth, &token).await, good, "{typ:?}");
    }
}

/// A token as Kubernetes projects it into a pod, and the keys of the cluster as `kubectl get --raw
/// /openid/v1/jwks` prints them.
#[tokio::test(start_paused = true)]
async fn kubernetes_service_account_has_its_grant() {
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let cluster = Issuer::rs256().with_kid("uyRf6hJbFbyDlDbGuqXzCKz3bNqTnKZtGxD3cJZkQvM");
    let mut jwk = cluster.jwk();
    jwk["use"] = "sig".into();
    jwk["alg"] = "RS256".into();
    let mut home = Home::new().jwks(&[jwk]).grants(
        r#"
grants:
  - iss: https://kubernetes.default.svc.cluster.local
    sub: "system:serviceaccount:shop:*"
    scope: [capacity]
    client_id: "shop*"
    resources: ["shop/*"]
    services: "shop*"
    max_priority: 3
"#,
    );
    home.settings.issuer = Some(issuer.to_owned());
    let auth = Arc::new(home.load().unwrap());
    let token = |namespace: &str, account: &str| {
        cluster.sign(&json!({
            "aud": ["doorman"],
            "exp": now() + 3607,
            "iat": now(),
            "iss": issuer,
            "jti": "0f3a8f0e-5a0e-4c1c-a6f6-6f0f4f0c8f55",
            "kubernetes.io": {
                "namespace": namespace,
                "node": {"name": "node-1", "uid": "646e7c5e-32d6-4d42-9dbd-e504e6cbe6b1"},
                "pod": {"name": "web-5c9d", "uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3"},
                "serviceaccount": {"name": account, "uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798"}
            },
            "nbf": now(),
            "sub": format!("system:serviceaccount:{namespace}:{account}")
        }))
    };
    let web = caller(&auth, &token("shop", "web")).await.unwrap();
    assert!(web.may(&[Scope::Capacity]) && !web.may(&[Scope::StatusRead]));
    assert!(
        web.restrictions().allows_resource("shop/db")
            && !web.restrictions().allows_resource("bank/db")
    );
    assert!(
        web.restrictions().allows_client("shop-1") && !web.restrictions().allows_client("bank-1")
    );
    // Another account of the cluster is authenticated without permissions.
    let other = caller(&auth, &token("bank", "web")).await.unwrap();
    assert!(!other.may(Scope::ALL));

    // Grants change while the server runs; an invalid list changes nothing.
    home.write(
        "grants.yaml",
        "grants: [{iss: '*', sub: '*', scope: [capacity], clients: x}]",
    );
    follow_once(&auth).await;
    assert!(
        caller(&auth, &token("shop", "web"))
            .await
            .unwrap()
            .may(&[Scope::Capacity])
    );
    home.write(
        "grants.yaml",
        "grants: [{iss: '*', sub: '*:bank:*', scope: [server]}]",
    );
    follow_once(&auth).await;
    assert!(
        !caller(&auth, &token("shop", "web"))
            .await
            .unwrap()
            .may(Scope::ALL)
    );
    assert!(
        caller(&auth, &token("bank", "web"))
            .await
            .unwrap()
            .may(&[Scope::Server])
    );
}

#[tokio::test]
async fn set_keys_are_used_by_kid_and_algorithm() {
    let rsa = Issuer::rs256().with_kid("rsa");
    let ec = Issuer::es256().with_kid("ec");
    let secret = Issuer::of_secret(SECRET).with_kid("secret");
    let with = |jwk: Value, name: &str, value: &str| {
        let mut jwk = jwk;
        jwk[name] = value.into();
        jwk
    };
    let good = [
        rsa.jwk(),
        ec.jwk(),
        secret.jwk(),
        json!({"kty": "new"}),
        json!(5),
    ];
    let auth = Home::new().jwks(&good).load().unwrap();
    let alice = claims(&json!({}));
    assert!(is_valid(&auth, &rsa.sign(&alice)).await && is_valid(&auth, &ec.sign(&alice)).await);
    assert!(
        is_valid(&auth, &Issuer::rs256().sign(&alice)).await,
        "without a kid all keys are tried"
    );
    assert!(!is_valid(&auth, &Issuer::rs256().with_kid("ec").sign(&alice)).await);
    for kid in ["", "../../dev/null", "file:///dev/null", &"x".repeat(4_000)] {
        assert!(
            !is_valid(&auth, &Issuer::rs256().with_kid(kid).sign(&alice)).await,
            "{kid}"
        );
    }
    // A secret is never published.
    assert!(!is_valid(&auth, &secret.sign(&alice)).await);

    for useless in [
        with(rsa.jwk(), "use", "enc"),
        with(rsa.jwk(), "alg", "RS512"),
        with(rsa.jwk(), "alg", "RSA-OAEP"),
        with(ec.jwk(), "alg", "RS256"),
        with(ec.jwk(), "crv", "P-384"),
        secret.jwk(),
    ] {
        let error = Home::new().jwks(&[useless]).load().unwrap_err();
        assert!(error.to_string().contains("no public key"), "{error}");
    }
    let mut home = Home::new().jwks(&[rsa.jwk(), ec.jwk()]);
    home.settings.algorithms = vec!["ES256".parse().unwrap()];
    let narrow = home.load().unwrap();
    assert!(
        !is_valid(&narrow, &rsa.sign(&alice)).await && is_valid(&narrow, &ec.sign(&alice)).await
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn start_error_names_the_flag() {
    let message = |home: &Home| home.load().unwrap_err().to_string();
    let check = |home: &Home, expected: &[&str]| {
        let message = message(home);
        for expected in expected {
            assert!(message.contains(expected), "{expected}: {message}");
        }
    };
    check(&Home::new(), &["--auth-secret-file", "--auth-jwks"]);
    check(
        &Home::new().secret("short"),
        &["--auth-secret-file ", "32 bytes"],
    );
    check(
        &Home::new().secret(RSA_PUBLIC),
        &["--auth-secret-file ", "must be a secret"],
    );
    check(
        &Home::new().key("nothing"),
        &["--auth-key-file ", "must be a public key"],
    );
    let private = include_str!("test_keys/rsa.pem");
    check(
        &Home::new().key(private),
        &["--auth-key-file ", "a private key"],
    );
    check(
        &Home::new().jwks(&[]),
        &["--auth-jwks ", "has no public key"],
    );
    check(
        &Home::new().secret(SECRET).grants("grants: 5"),
        &["--auth-grants ", "must be a list"],
    );
    let changed = |home: Home, change: &dyn Fn(&mut AuthSettings)| {
        let mut home = home;
        change(&mut home.settings);
        home
    };
    check(
        &changed(Home::new().key(RSA_PUBLIC), &|it| it.issuer = None),
        &["--auth-issuer", "missing"],
    );
    check(
        &changed(Home::new().secret(SECRET), &|it| {
            it.issuer = Some("a".to_owned());
        }),
        &["--auth-issuer", "--auth-secret-issuer"],
    );
    check(
        &changed(Home::new().secret(SECRET).key(RSA_PUBLIC), &|it| {
            it.issuer = Some("doorman".to_owned());
        }),
        &["--auth-issuer", "must not be"],
    );
    check(
        &changed(Home::new().key(RSA_PUBLIC), &|it| {
            it.algorithms = vec!["EdDSA".parse().unwrap()];
        }),
        &["--auth-key-file ", "--auth-algorithms"],
    );
    check(
        &changed(Home::new(), &|it| {
            it.secret_files = vec!["/nowhere/secret".into()];
        }),
        &["--auth-secret-file /nowhere/secret"],
    );
}

#[test]
fn jwks_url_with_password_is_rejected_and_hidden() {
    for url in [
        "https://user:hidden@issuer.example/jwks",
        "https://:hidden@issuer.example/jwks",
        "https://hidden@issuer.example/jwks",
        "http://user:hidden@127.0.0.1:1/jwks",
    ] {
        let mut home = Home::new();
        home.settings.jwks = Some(url.parse().unwrap());
        home.settings.issuer = Some(ISSUER.to_owned());
        let error = home.load().unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(
            shown.contains("--auth-jwks: ") && shown.contains("password"),
            "{shown}"
        );
        assert!(!shown.contains("hidden"), "{shown}");
    }
}

#[test]
fn debug_output_hides_secrets() {
    let home = Home::new().secret(SECRET).key(RSA_PUBLIC);
    let shown = format!("{:?}", home.load().unwrap());
    // The text, and the same as a list of bytes.
    assert!(
        !shown.contains("thirty-two") && !shown.contains("97, 32, 115, 101"),
        "{shown}"
    );
    let made = Token {
        issuer: "doorman".to_owned(),
        audience: "doorman".to_owned(),
        subject: "alice".to_owned(),
        scopes: doorman_openapi::Scopes::NONE,
        clients: Vec::new(),
        resources: Vec::new(),
        services: Vec::new(),
        max_priority: None,
        max_capacity: None,
        max_clients: None,
        lifetime: Duration::from_secs(60),
    };
    let secret = home.write("short", "too short a secret");
    let error = made.sign(&secret).unwrap_err();
    assert!(
        !format!("{error:?} {error}").contains("too short a"),
        "{error:?}"
    );
}

#[tokio::test]
async fn signed_token_has_the_given_claims() {
    let home = Home::new().secret(SECRET);
    let auth = home.load().unwrap();
    let mut made = Token {
        issuer: "doorman".to_owned(),
        audience: "doorman".to_owned(),
        subject: "orders".to_owned(),
        scopes: [Scope::Capacity].into_iter().collect(),
        clients: vec!["orders*".to_owned()],
        resources: vec!["db".to_owned(), "tenant/*".to_owned()],
        services: Vec::new(),
        max_priority: Some(2),
        max_capacity: Some(Capacity::saturating(7.5)),
        max_clients: NonZeroU32::new(3),
        lifetime: Duration::from_secs(60),
    };
    let file = home.folder.path().join("secret");
    let orders = caller(&auth, &made.sign(&file).unwrap()).await.unwrap();
    assert!(orders.may(&[Scope::Capacity]) && !orders.may(&[Scope::TemplatesWrite]));
    let restrictions = orders.restrictions();
    assert!(restrictions.allows_client("orders-1") && !restrictions.allows_client("bank"));
    assert!(restrictions.allows_resource("tenant/a") && !restrictions.allows_resource("cache"));
    assert!(restrictions.allows_service("any") && !restrictions.allows_priority(3));
    let max = restrictions.max_capacity.map(|it| it.0.get());
    assert_eq!(max, Some(7.5));
    assert_eq!(restrictions.max_clients, NonZeroU32::new(3));
    made.resources.push("[".to_owned());
    assert!(
        made.sign(&file)
            .unwrap_err()
            .to_string()
            .contains("--resources")
    );
}
