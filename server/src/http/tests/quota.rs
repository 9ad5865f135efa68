//! Rate limits of callers, and overload.

use std::{pin::pin, time::Duration};

use doorman_openapi::paths;
use futures_util::FutureExt;
use serde_json::json;
use tokio::time::advance;

use super::{authentication::routes, *};
use crate::{
    auth::testing::{Home, Issuer, claims, follow_once},
    quota::{CallerLimit, LeaseKind},
    util::peer::PeerAddr,
};

/// A limit whose rate is a tenth of the burst.
fn limit(burst: u32) -> CallerLimit {
    CallerLimit::Of {
        rate: (burst / 10).max(1).try_into().unwrap(),
        burst: burst.try_into().unwrap(),
    }
}

fn limited(burst: u32) -> (AppState, Router) {
    let app = app().with_limit(limit(burst));
    (app.clone(), crate::http::router(app))
}

fn from(peer: &str, mut request: Request<Body>) -> Request<Body> {
    let peer = PeerAddr::new(peer.parse().unwrap());
    request.extensions_mut().insert(peer);
    request
}

async fn ask(router: &Router, peer: &str, path: &str, body: Value) -> Reply {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into()).unwrap();
    send(router, from(peer, request)).await
}

async fn lease(router: &Router, peer: &str, client: &str, resources: &[&str]) -> Reply {
    let request = |id: &&str| json!({"resource_id": id, "wants": 1, "has": {"capacity": 1}});
    let resources: Vec<_> = resources.iter().map(request).collect();
    let body = json!({"client_id": client, "resources": resources});
    ask(router, peer, paths::CAPACITY, body).await
}

async fn look(router: &Router, peer: &str, path: &str) -> Reply {
    let request = Request::get(path).body(Body::empty()).unwrap();
    send(router, from(peer, request)).await
}

const ONE: &str = "192.0.2.1";
const OTHER: &str = "192.0.2.2";

/// Spends the quota for new leases.
async fn flood(router: &Router, peer: &str) -> Reply {
    for number in 0..1_000 {
        let reply = lease(router, peer, "flood", &[&format!("flood/{number}")]).await;
        if reply.status != 200 {
            return reply;
        }
    }
    panic!("nothing limits it");
}

#[tokio::test(start_paused = true)]
async fn rate_limited_caller_gets_retry_after() {
    let (_, router) = limited(1_000);
    let rejected = flood(&router, ONE).await;
    let problem = rejected.problem(429);
    assert_eq!(problem.kind, "/problems/too-many-requests");
    let wait: u64 = rejected.header("retry-after").parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    // Other callers are not affected.
    assert_eq!(lease(&router, OTHER, "a", &["db"]).await.status, 200);

    advance(Duration::from_secs(wait)).await;
    assert_eq!(lease(&router, ONE, "a", &["db"]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn renewals_pass_when_new_leases_are_rate_limited() {
    let (_, router) = limited(1_000);
    assert_eq!(lease(&router, ONE, "a", &["db", "cache"]).await.status, 200);
    flood(&router, ONE).await.problem(429);

    assert_eq!(lease(&router, ONE, "a", &["db", "cache"]).await.status, 200);
    // All of these claim a lease.
    lease(&router, ONE, "b", &["db"]).await.problem(429);
    lease(&router, ONE, "a", &["other"]).await.problem(429);
    let mixed = lease(&router, ONE, "a", &["db", "new"]).await.problem(429);
    assert!(mixed.detail.contains("only renew"));
    // The whole request is rejected.
    look(&router, OTHER, "/v1/resources/new").await.problem(404);

    let release = json!({"client_id": "a", "resource_ids": ["db"]});
    let released = ask(&router, ONE, paths::CAPACITY_RELEASE, release).await;
    assert_eq!(released.status, 200);
    lease(&router, ONE, "a", &["db"]).await.problem(429);
}

#[tokio::test(start_paused = true)]
async fn node_renewals_pass_when_new_leases_are_rate_limited() {
    let (_, router) = limited(1_000);
    let body = |id: &str| {
        let wants = json!([{"priority": 0, "num_clients": 1, "wants": 5}]);
        let requested = json!([{"resource_id": id, "wants": wants}]);
        json!({"node_id": "eu", "epoch": 1, "seq": 1, "resources": requested})
    };
    let lease = async |id| ask(&router, ONE, paths::SERVER_CAPACITY, body(id)).await;
    assert_eq!(lease("db").await.status, 200);
    flood(&router, ONE).await.problem(429);
    assert_eq!(lease("db").await.status, 200);
    lease("new").await.problem(429);
}

#[tokio::test(start_paused = true)]
async fn lease_and_operator_quotas_are_separate() {
    let (_, router) = limited(20_000);
    let ids: Vec<_> = (0..2_000).map(|it| it.to_string()).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    for _ in 0..9 {
        assert_eq!(lease(&router, ONE, "a", &ids).await.status, 200);
    }
    flood(&router, ONE).await.problem(429);
    let mut looked = 0;
    while look(&router, ONE, paths::STATUS).await.status == 200 {
        looked += 1;
        assert!(looked < 10_000, "nothing limits it");
    }
    // The default quota, however small the configured one.
    assert_eq!(looked, 800);
    // Rules count as lease requests.
    look(&router, ONE, "/v1/rules?service=a").await;
    look(&router, ONE, "/v1/rules?service=a").await.problem(429);

    assert_eq!(look(&router, OTHER, paths::STATUS).await.status, 200);
    // A scrape costs as much as a view, and a few are not delayed.
    for _ in 0..8 {
        look(&router, OTHER, paths::METRICS).await;
    }
    for _ in 0..791 {
        assert_eq!(look(&router, OTHER, paths::STATUS).await.status, 200);
    }
    look(&router, OTHER, paths::STATUS).await.problem(429);
    assert_eq!(lease(&router, OTHER, "a", &["db"]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn every_route_but_the_probes_is_rate_limited() {
    let (_, router) = limited(1);
    for (number, (method, path)) in routes().into_iter().enumerate() {
        let peer = format!("192.0.2.{number}");
        let call = async || {
            let body =
                json!({"client_id": "a", "node_id": "a", "epoch": 1, "seq": 1, "resources": []});
            let request = Request::builder().method(&method).uri(&path);
            let request = request.header("content-type", "application/json");
            let request = request.body(body.to_string().into()).unwrap();
            send(&router, from(&peer, request)).await
        };
        // Operators have the default quota, which refills while the read throttle delays them.
        for _ in 0..1_000 {
            if call().await.status == 429 {
                break;
            }
        }
        let probe = path == paths::LIVEZ || path == paths::READYZ;
        let expected = if probe { 200 } else { 429 };
        assert_eq!(call().await.status, expected, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn overloaded_server_only_renews() {
    let app = app();
    let router = crate::http::router(app.clone());
    assert_eq!(lease(&router, ONE, "a", &["db"]).await.status, 200);
    let under_way = app.quotas.begin_decisions(100_000, LeaseKind::Renewal);

    let rejected = lease(&router, ONE, "a", &["db", "new"]).await;
    assert_eq!(rejected.header("retry-after"), "1");
    let detail = rejected.problem(429).detail;
    assert!(detail.contains("overloaded"), "{detail}");
    assert_eq!(lease(&router, ONE, "a", &["db"]).await.status, 200);
    let all = json!({"client_id": "a"});
    let released = ask(&router, ONE, paths::CAPACITY_RELEASE, all).await;
    assert_eq!(released.status, 200);

    drop(under_way);
    assert_eq!(lease(&router, ONE, "a", &["new"]).await.status, 200);
    let scrape = look(&router, ONE, paths::METRICS).await;
    let text = String::from_utf8(scrape.body).unwrap();
    let counted = r#"doorman_requests_limited_total{kind="new",limit="server"} 1"#;
    assert!(text.contains(counted), "{text}");
}

#[tokio::test(start_paused = true)]
async fn renewal_check_counts_as_in_flight() {
    let app = app();
    let router = crate::http::router(app.clone());
    // More than one lock of the ledger checks.
    let many: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(lease(&router, ONE, "a", &many).await.status, 200);
    // One more, and nothing is served.
    let _under_way = app.quotas.begin_decisions(999_999, LeaseKind::Renewal);
    let release = async || {
        let nothing = json!({"client_id": "b", "resource_ids": ["db"]});
        ask(&router, OTHER, paths::CAPACITY_RELEASE, nothing).await
    };
    assert_eq!(release().await.status, 200);

    let mut renewal = pin!(lease(&router, ONE, "a", &many));
    assert!(renewal.as_mut().now_or_never().is_none());
    release().await.problem(429);
    assert_eq!(renewal.await.status, 200);
    assert_eq!(release().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn anonymous_scrapes_are_rate_limited_per_address() {
    let app = app().with_limit(limit(1));
    let router = crate::http::metrics_router(app, false);
    let mut scrapes = 0;
    while look(&router, ONE, paths::METRICS).await.status == 200 {
        scrapes += 1;
    }
    // A scrape costs as much as a view, not as a change: the least quota of operators allows 800,
    // and some more while the read throttle delays them.
    assert!((800..1_000).contains(&scrapes), "{scrapes}");
    look(&router, ONE, paths::METRICS).await.problem(429);
    for path in [paths::LIVEZ, paths::READYZ] {
        assert_eq!(look(&router, ONE, path).await.status, 200);
    }
    assert_eq!(look(&router, OTHER, paths::METRICS).await.status, 200);
    let missing = async || look(&router, ONE, "/nowhere").await.status;
    let mut answered = 0;
    while missing().await != 429 {
        answered += 1;
        assert!(answered < 1_000, "nothing limits it");
    }

    advance(Duration::from_secs(1)).await;
    assert_eq!(look(&router, ONE, paths::METRICS).await.status, 200);
}

fn token(subject: &str) -> String {
    let scope = json!({"scope": "capacity status:read", "sub": subject});
    Issuer::rs256().sign(&claims(&scope))
}

async fn with_token(router: &Router, peer: &str, token: &str) -> Reply {
    let request = Request::get(paths::STATUS).header("authorization", format!("Bearer {token}"));
    send(router, from(peer, request.body(Body::empty()).unwrap())).await
}

fn authenticating(burst: u32) -> (Router, Home) {
    let home = Home::new().jwks(&[Issuer::rs256().jwk()]);
    let auth = Arc::new(home.load().unwrap());
    let app = app();
    let app = app.with_auth(Some(auth)).with_limit(limit(burst));
    (crate::http::router(app), home)
}

#[tokio::test(start_paused = true)]
async fn callers_are_limited_by_token_not_address() {
    let (router, _home) = authenticating(4_000);
    let (one, other) = (token("one"), token("other"));
    for number in 0..800 {
        let peer = [ONE, OTHER][number % 2];
        assert_eq!(with_token(&router, peer, &one).await.status, 200);
    }
    with_token(&router, OTHER, &one).await.problem(429);
    assert_eq!(with_token(&router, ONE, &other).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn invalid_tokens_do_not_lock_out_known_callers() {
    let (router, _home) = authenticating(10_000);
    let good = token("one");
    assert_eq!(with_token(&router, ONE, &good).await.status, 200);
    let mut rejected = 0;
    loop {
        let reply = with_token(&router, ONE, &format!("{good}{rejected}")).await;
        if reply.status != 401 {
            reply.problem(429);
            break;
        }
        rejected += 1;
    }
    // The valid token was refunded.
    assert_eq!(rejected, 100);
    // A request without a token has a separate quota.
    for _ in 0..100 {
        look(&router, ONE, paths::STATUS).await.problem(401);
    }
    look(&router, ONE, paths::STATUS).await.problem(429);
    look(&router, ONE, "/nowhere").await.problem(429);
    assert_eq!(look(&router, ONE, paths::LIVEZ).await.status, 200);
    assert_eq!(look(&router, OTHER, paths::STATUS).await.status, 401);

    assert_eq!(with_token(&router, ONE, &good).await.status, 200);
    // Also when it must be verified again.
    for _ in 0..301 {
        advance(Duration::from_secs(1)).await;
        for number in 0..11 {
            with_token(&router, ONE, &format!("{good}x{number}")).await;
        }
    }
    with_token(&router, ONE, &token("two")).await.problem(429);
    assert_eq!(with_token(&router, ONE, &good).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn invalid_lease_calls_are_charged() {
    let nonsense = "x".repeat(1_000_000);
    let calls = [
        ("POST", "application/json", "{}"),
        ("POST", "text/plain", "{}"),
        ("POST", "application/json", nonsense.as_str()),
        ("GET", "application/json", ""),
    ];
    for (method, media, body) in calls {
        for path in [
            paths::CAPACITY,
            paths::CAPACITY_RELEASE,
            paths::SERVER_CAPACITY,
            paths::SERVER_CAPACITY_RELEASE,
        ] {
            let (_, router) = limited(1_000);
            let call = async || {
                let request = Request::builder().method(method).uri(path);
                let request = request.header("content-type", media);
                let request = request.body(Body::from(body.to_owned())).unwrap();
                send(&router, from(ONE, request)).await.status
            };
            let mut answered = 0;
            while call().await != 429 {
                answered += 1;
                assert!(answered <= 250, "{method} {media} {path}");
            }
            assert!(answered >= 2, "{method} {media} {path}");
            if body.len() > 1_000 {
                assert!(answered <= 3, "{answered}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_scope_is_charged() {
    let (router, _home) = authenticating(1_000);
    let scope = json!({"scope": "status:read", "sub": "one"});
    let token = Issuer::rs256().sign(&claims(&scope));
    let call = async || {
        let request = Request::post(paths::CAPACITY);
        let request = request.header("authorization", format!("Bearer {token}"));
        send(&router, from(ONE, request.body(Body::empty()).unwrap())).await
    };
    for _ in 0..250 {
        call().await.problem(403);
    }
    call().await.problem(429);
}

#[tokio::test(start_paused = true)]
async fn rejected_new_leases_leave_quota_for_renewals() {
    let (_, router) = limited(10_000);
    let many: Vec<_> = (0..500).map(|it| format!("new/{it}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(lease(&router, ONE, "a", &["db", "cache"]).await.status, 200);
    for number in 0..200 {
        let reply = lease(&router, ONE, &format!("new-{number}"), &many).await;
        assert!(number < 20 || reply.status == 429, "nothing limits it");
    }
    for _ in 0..100 {
        assert_eq!(lease(&router, ONE, "a", &["db", "cache"]).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn large_request_passes_after_retry_after() {
    let limit = CallerLimit::Of {
        rate: 1_000.try_into().unwrap(),
        burst: 20_000.try_into().unwrap(),
    };
    let router = crate::http::router(app().with_limit(limit));
    for number in 0..5 {
        let ids: Vec<_> = (0..9_000).map(|it| format!("{number}/{it}")).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let reply = lease(&router, ONE, "a", &ids).await;
        if reply.status == 429 {
            let wait = reply.header("retry-after").parse().unwrap();
            advance(Duration::from_secs(wait)).await;
            assert_eq!(lease(&router, ONE, "a", &ids).await.status, 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn releasing_all_costs_as_much_as_by_name() {
    let (_, router) = limited(1_000);
    for number in 0..9 {
        let ids: Vec<_> = (0..92).map(|it| format!("{number}/{it}")).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        assert_eq!(lease(&router, OTHER, "a", &ids).await.status, 200);
    }
    // Another address, with a full quota, releases them.
    let all = json!({"client_id": "a"});
    let released = ask(&router, ONE, paths::CAPACITY_RELEASE, all).await;
    assert_eq!(released.status, 200);
    let ids: Vec<_> = (0..200).map(|it| format!("new/{it}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    lease(&router, ONE, "b", &ids).await.problem(429);
}

#[tokio::test(start_paused = true)]
async fn stale_token_is_verified_despite_invalid_tokens() {
    let (old, new) = (Issuer::rs256(), Issuer::es256());
    let home = Home::new().jwks(&[old.jwk()]);
    let auth = Arc::new(home.load().unwrap());
    let app = app();
    let app = app
        .with_auth(Some(Arc::clone(&auth)))
        .with_limit(limit(1_000));
    let router = crate::http::router(app);
    let good = token("one");
    assert_eq!(with_token(&router, ONE, &good).await.status, 200);
    let _home = home.jwks(&[old.jwk(), new.jwk()]);
    follow_once(&auth).await;
    let mut rejected = 0;
    while with_token(&router, ONE, "a.b.c").await.status != 429 {
        rejected += 1;
        assert!(rejected < 1_000, "nothing limits it");
    }
    assert_eq!(with_token(&router, ONE, &good).await.status, 200);
}
