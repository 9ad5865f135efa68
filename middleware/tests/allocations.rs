//! A request with a known key allocates nothing in the layer.

use std::{borrow::Cow, convert::Infallible, future::ready, net::SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer as _, Service, service_fn};
use tower_doorman::{
    Callers, Doorman, ForwardedHeader, Key, Limit, PeerAddr, RequestHead, TrustedProxies,
    VerifiedClaims,
};

fn request() -> Request<()> {
    let mut request = Request::builder()
        .uri("http://api.example.com/orders/7")
        .header("x-tenant", "acme & sons")
        .header("x-long", "x".repeat(1_000))
        .header("x-api-key", "secret")
        .header("x-forwarded-for", "203.0.113.9, 2001:db8::1, 10.0.0.2")
        .header(
            "forwarded",
            "for=203.0.113.9, for=\"[2001:db8::1]:80\", for=10.0.0.2",
        )
        .body(())
        .expect("a request");
    let peer = SocketAddr::from(([10, 0, 0, 1], 4711));
    request.extensions_mut().insert(PeerAddr(peer));
    request
}

/// Admits the same request repeatedly and counts the allocations of the last.
#[track_caller]
fn check(callers: &Callers, key: Key, request: impl Fn() -> Request<()>) {
    let name = format!("{key:?}");
    let doorman = Doorman::unlimited().with_callers(callers.clone());
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
    let mut service = doorman
        .layer([Limit::rate(key)])
        .expect("valid limits")
        .layer(inner);
    for _ in 0..100 {
        drop(service.call(request()));
    }
    let request = request();
    let counted = allocation_counter::measure(|| drop(service.call(request)));
    assert_eq!(counted.count_total, 0, "{name}");
    let limits = doorman.snapshot().limits.into_iter();
    let ids: Vec<_> = limits.map(|limit| limit.resource.to_string()).collect();
    assert_eq!(ids.len(), 1, "{name}");
    assert!(!ids.concat().contains("(missing)"), "{name}");
}

fn tenant<'a>(head: &RequestHead<'a>) -> Option<Cow<'a, str>> {
    let value = head.headers().get("x-tenant")?;
    value.to_str().ok().map(Cow::Borrowed)
}

#[test]
fn known_key_allocates_nothing() {
    let counted = allocation_counter::measure(|| drop(request()));
    assert_ne!(counted.count_total, 0, "allocations are counted");
    for key in [
        Key::constant("api"),
        Key::header("x-tenant").unwrap(),
        Key::header("x-long").unwrap(),
        Key::template("tenant/{header:x-tenant}/{method}/{header:x-long}").unwrap(),
        Key::api_key(),
        Key::peer(),
        Key::host(),
        Key::method(),
        Key::route(),
        Key::from_fn("closure", tenant).unwrap(),
    ] {
        check(&Callers::new(), key, request);
    }
}

#[test]
fn known_client_behind_proxies_allocates_nothing() {
    let networks = ["10.0.0.0/8"];
    for header in [ForwardedHeader::Forwarded, ForwardedHeader::XForwardedFor] {
        for proxies in [
            TrustedProxies::none(),
            TrustedProxies::hops(2, header),
            TrustedProxies::networks(networks, header).unwrap(),
        ] {
            let callers = Callers::new().trusted_proxies(proxies);
            check(&callers, Key::client_ip(), request);
        }
    }
}

#[test]
fn known_claim_allocates_nothing() {
    let claims = serde_json::json!({"sub": "alice", "realm": {"tenant": 7}});
    let claims = VerifiedClaims::new(&claims).unwrap();
    for claim in ["sub", "/realm/tenant"] {
        check(&Callers::new(), Key::jwt(claim).unwrap(), || {
            let mut request = request();
            request.extensions_mut().insert(claims.clone());
            request
        });
    }
}

#[cfg(feature = "jwt")]
#[test]
fn known_token_allocates_nothing() {
    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    use tower_doorman::{JwtKey, JwtVerifier};

    const SECRET: &str = "a secret of at least thirty-two bytes";
    let claims = serde_json::json!({
        "iss": "https://issuer.example",
        "aud": "orders",
        "sub": "alice",
        "exp": get_current_timestamp() + 600,
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = encode(&Header::default(), &claims, &key).unwrap();
    let key = JwtKey::hs256(SECRET).unwrap();
    let verifier = JwtVerifier::new([key], "https://issuer.example", "orders").unwrap();
    check(
        &Callers::new().jwt(verifier),
        Key::jwt("sub").unwrap(),
        || {
            let mut request = request();
            let value = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", value);
            request
        },
    );
}

/// One of a hundred rules applies.
#[tokio::test]
async fn rules_that_do_not_match_allocate_nothing() {
    let rules = (0..100).map(|index| {
        serde_json::json!({
            "name": format!("rule-{index}"),
            "service": "*",
            "path": format!("/{}/{{id}}", if index == 70 { "orders".to_owned() } else { index.to_string() }),
            "resource": "tenant/{header:x-tenant}",
        })
    });
    let rules = serde_json::json!({"version": "1", "rules": rules.collect::<Vec<_>>()}).to_string();
    let plane = service_fn(move |request: Request<Bytes>| {
        let response = match request.uri().path() {
            "/v1/rules" => Ok(Response::new(Bytes::from(rules.clone()))),
            _ => Err("no leases today"),
        };
        ready(response)
    });
    let builder = Doorman::builder("http://127.0.0.1:7300");
    let (doorman, worker) = builder.build_with(plane).expect("it makes sense");
    let worker = tokio::spawn(worker.run());
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
    let mut service = doorman.rules().layer(inner);
    while doorman
        .snapshot()
        .rules
        .is_none_or(|it| it.version.is_none())
    {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        drop(service.call(request()));
    }
    let request = request();
    let counted = allocation_counter::measure(|| drop(service.call(request)));
    assert_eq!(counted.count_total, 0);
    let limits = doorman.snapshot().limits;
    assert_eq!(limits.len(), 1, "{limits:?}");
    worker.abort();
}
