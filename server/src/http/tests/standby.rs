//! A server that is not master.

use doorman_core::election::ReignEffect;
use std::time::Duration;

use doorman_openapi::HintsResponse;

use super::*;

const MASTER: &str = "http://doorman-2:7300";
const LEASE: &str = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":1}]}"#;

fn standby(master: Option<&str>) -> AppState {
    let app = app();
    app.ledger.end();
    let view = View {
        address: master.map(str::to_owned),
        epoch: Some(Epoch::new(9).unwrap()),
        longest: None,
        unread_since: None,
        has_read: true,
    };
    app.with(|parts| parts.master = watch::channel(view).1)
}

#[tokio::test]
async fn standby_redirects_to_the_master() {
    let router = crate::http::router(standby(Some(MASTER)));
    let reply = post(&router, "/v1/capacity", LEASE).await;
    let problem = reply.problem(307);
    assert_eq!(reply.header("location"), format!("{MASTER}/v1/capacity"));
    assert_eq!(reply.header("connection"), "close");
    let mastership = problem.mastership.unwrap();
    assert_eq!(mastership.master_address.as_deref(), Some(MASTER));

    for path in [
        "/v1/resources?prefix=a%2Fb&limit=3",
        "/v1/resources/tenant%2Facme",
        "/v1/resources/db/leases",
        "/v1/leases?client_id=c",
    ] {
        let reply = get(&router, path).await;
        reply.problem(307);
        assert_eq!(reply.header("location"), format!("{MASTER}{path}"));
    }
}

#[tokio::test]
async fn standby_that_knows_no_master_is_unavailable() {
    let router = crate::http::router(standby(None));
    let reply = post(&router, "/v1/capacity", LEASE).await;
    let problem = reply.problem(503);
    assert_eq!(problem.mastership.unwrap().master_address, None);
    assert_eq!(reply.header("retry-after"), "1");
    assert_eq!(reply.header("connection"), "close");
    assert_eq!(reply.header("location"), "");
}

#[tokio::test]
async fn standby_is_ready_and_serves_the_rest() {
    let app = standby(Some(MASTER));
    let router = crate::http::router(app);
    for path in ["/livez", "/readyz", "/v1/templates", "/metrics"] {
        let reply = get(&router, path).await;
        assert_eq!(reply.status, 200, "{path}");
    }
    let metrics = get(&router, "/metrics").await;
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("\ndoorman_is_master 0\n"), "{metrics}");
    assert!(metrics.contains("\ndoorman_epoch 9\n"), "{metrics}");

    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["is_master"], false);
    assert_eq!(
        (&status["master"], &status["epoch"]),
        (&MASTER.into(), &9.into())
    );
    assert_eq!(status.get("leases"), None);
    let discovery = get(&router, "/v1/discovery").await.json();
    assert_eq!(discovery["is_master"], false);
    assert_eq!(discovery["mastership"]["master_address"], MASTER);
}

#[tokio::test]
async fn election_that_cannot_be_read_is_shown_with_its_age() {
    for (age, shown) in [(2, false), (60, true)] {
        let app = standby(Some(MASTER)).with(|parts| {
            let since = clock::now().as_nanos() - age * 1_000_000_000;
            let view = View {
                unread_since: Some(Moment::from_nanos(since)),
                ..parts.master.borrow().clone()
            };
            parts.master = watch::channel(view).1;
        });
        let router = crate::http::router(app);
        for path in ["/v1/discovery", "/v1/status"] {
            let reply = get(&router, path).await.json();
            let unread = reply["election_unread_for"].as_f64();
            assert_eq!(unread.is_some_and(|it| it >= 60.0), shown, "{reply}");
        }
        let ready = String::from_utf8(get(&router, "/readyz").await.body).unwrap();
        assert_eq!(
            ready.contains("election cannot be read for 6"),
            shown,
            "{ready}"
        );
    }
}

#[tokio::test]
async fn standby_sends_polls_elsewhere() {
    let router = crate::http::router(standby(Some(MASTER)));
    let reply = get(&router, "/v1/hints?client_id=c&wait=25").await;
    let hints: HintsResponse = serde_json::from_slice(&reply.body).unwrap();
    assert!(hints.leaving && hints.epoch.get() == 9, "{hints:?}");
    assert_eq!(reply.header("connection"), "close");
}

#[tokio::test]
async fn dry_run_of_a_standby_looks_at_no_resources() {
    let stored = Stored::new();
    stored.app.ledger.end();
    let body =
        r#"{"resources":[{"identifier_glob":"*","capacity":5,"algorithm":{"kind":"FAIR_SHARE"}}]}"#;
    let request = Request::put("/v1/templates?dry_run=true")
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap();
    let reply = send(&stored.router, request).await.json();
    assert_eq!(reply["looked_at_all"], false, "{reply}");
}

/// As after SIGSTOP and SIGCONT: the requests were sent while the server was master.
#[tokio::test(start_paused = true)]
async fn no_request_is_granted_after_the_deadline() {
    let app = app();
    let epoch = Epoch::new(8).unwrap();
    let deadline = clock::now().after_seconds(4.75);
    let ledger = app.ledger.end().unwrap().into_ledger();
    let bound = DurableBound::new(Moment::NEVER, u64::MAX);
    app.ledger.begin(Reign::new(epoch, deadline, ledger, bound));
    let router = crate::http::router(app.clone());
    assert_eq!(post(&router, "/v1/capacity", LEASE).await.status, 200);
    let queued: Vec<_> = (0..100)
        .map(|client| {
            let body = LEASE.replace("\"c\"", &format!("\"c{client}\""));
            let router = router.clone();
            async move { post(&router, "/v1/capacity", body).await }
        })
        .collect();
    tokio::time::advance(Duration::from_millis(4750)).await;
    for request in queued {
        let reply = request.await;
        assert!(matches!(reply.status.as_u16(), 307 | 503), "{reply:?}");
    }
    // A renewal that was sent in time extends the same reign.
    let extended = ReignEffect::Extend(clock::now().after_seconds(1.0));
    app.ledger.apply(extended);
    assert_eq!(post(&router, "/v1/capacity", LEASE).await.status, 200);
}

#[tokio::test]
async fn ledger_is_handed_over_once_to_the_bearer_of_the_secret() {
    let app = app();
    let router = crate::http::router(app.clone());
    post(&router, "/v1/capacity", LEASE).await;
    let ask = |epoch: &str, secret: &str| {
        Request::post(format!("/v1/handover?epoch={epoch}"))
            .header("authorization", format!("Bearer {secret}"))
            .body(Body::empty())
            .unwrap()
    };
    let secret = app.offer.secret.clone();
    // Nothing is offered yet.
    send(&router, ask("7", &secret)).await.problem(403);
    app.offer.set(*app.ledger.end().unwrap());
    send(&router, ask("7", "guess")).await.problem(403);
    send(&router, ask("7", "")).await.problem(403);
    send(&router, ask("8", &secret)).await.problem(403);
    send(&router, ask("x", &secret)).await.problem(400);
    let reply = send(&router, ask("7", &secret)).await;
    assert_eq!(reply.status, 200);
    let text = String::from_utf8(reply.body).unwrap();
    assert!(text.contains(r#""resource_id":"db""#), "{text}");
    send(&router, ask("7", &secret)).await.problem(403);
}
