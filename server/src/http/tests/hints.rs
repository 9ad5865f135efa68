//! Polls for hints.

use std::time::Duration;

use axum::http::Version;
use doorman_openapi::{HintsResponse, paths};
use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::auth::testing::{Home, Issuer, SECRET, claims};

const SECOND: Duration = Duration::from_secs(1);

/// Opens a poll and returns once it is open.
async fn open(app: &AppState, router: &Router, query: &str) -> JoinHandle<Reply> {
    let before = app.ledger.polls().len();
    let (router, uri) = (router.clone(), format!("{}?{query}", paths::HINTS));
    let poll = tokio::spawn(async move { get(&router, &uri).await });
    while app.ledger.polls().len() == before {
        tokio::task::yield_now().await;
    }
    poll
}

fn hints(reply: &Reply) -> HintsResponse {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("cache-control"), "no-store");
    serde_json::from_value(reply.json()).unwrap()
}

fn is_empty(hints: &HintsResponse) -> bool {
    hints.refresh.is_empty() && !hints.all && !hints.rules && !hints.leaving
}

#[tokio::test(start_paused = true)]
async fn poll_ends_without_hints_after_its_wait() {
    let app = app();
    let router = crate::http::router(app.clone());
    for (query, seconds) in [
        ("client_id=c", 25.0),
        ("client_id=c&after=7&wait=60", 60.0),
        ("node_id=n&wait=0.5", 0.5),
        ("client_id=c&wait=0", 0.0),
    ] {
        let began = clock::now();
        let reply = get(&router, &format!("{}?{query}", paths::HINTS)).await;
        let hints = hints(&reply);
        assert!(is_empty(&hints), "{query}: {hints:?}");
        assert_eq!(hints.after, if query.contains("after") { 7 } else { 0 });
        assert_eq!((hints.node.as_str(), hints.epoch.get()), ("node-a", 7));
        let waited = clock::now().seconds_since(began);
        assert!(
            (seconds..seconds + 0.01).contains(&waited),
            "{query}: {waited}"
        );
        assert_eq!(app.ledger.polls().len(), 0);
    }
}

#[tokio::test]
async fn invalid_polls_are_rejected() {
    let router = router();
    for (query, word) in [
        ("", "exactly one"),
        ("client_id=c&node_id=n", "exactly one"),
        ("client_id=", "client_id"),
        ("client_id=a%0Ab", "client_id"),
        ("node_id=", "node_id"),
        ("client_id=c&after=-1", "after"),
        ("client_id=c&after=9007199254740992", "after"),
        ("client_id=c&after=%2B1", "after"),
        ("client_id=c&run=-1", "run"),
        ("client_id=c&run=", "run"),
        ("client_id=c&run=1.0", "run"),
        ("client_id=c&run=%2B1", "run"),
        ("client_id=c&run=9007199254740992", "run"),
        ("node_id=n&run=1", "run"),
        ("client_id=c&wait=61", "wait"),
        ("client_id=c&wait=-0.1", "wait"),
        ("client_id=c&wait=NaN", "wait"),
        ("client_id=c&wait=", "wait"),
        ("client_id=c&resource=db", "unknown"),
    ] {
        let problem = get(&router, &format!("{}?{query}", paths::HINTS)).await;
        let detail = problem.problem(400).detail;
        assert!(detail.contains(word), "{query}: {detail}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_poll_ends_the_one_before() {
    let app = app();
    let router = crate::http::router(app.clone());
    let first = open(&app, &router, "client_id=c").await;
    let other = open(&app, &router, "client_id=d").await;
    let other_run = open(&app, &router, "client_id=c&run=9007199254740991").await;
    let second = tokio::spawn({
        let router = router.clone();
        async move { get(&router, "/v1/hints?client_id=c").await }
    });
    assert!(is_empty(&hints(&first.await.unwrap())));
    assert!(!second.is_finished() && !other.is_finished() && !other_run.is_finished());
}

#[tokio::test(start_paused = true)]
async fn closed_connection_closes_its_poll() {
    let app = app();
    let router = crate::http::router(app.clone());
    let poll = open(&app, &router, "client_id=c").await;
    poll.abort();
    assert!(poll.await.unwrap_err().is_cancelled());
    assert_eq!(app.ledger.polls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn changed_rules_answer_all_polls() {
    let text = |rule: &str| {
        format!(
            "{{resources: [{{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}], rules: [{{name: {rule}, service: s, resource: api}}]}}"
        )
    };
    let app = app_with(Document::parse(&text("a")).unwrap());
    let router = crate::http::router(app.clone());
    let polls = [
        open(&app, &router, "client_id=c").await,
        open(&app, &router, "node_id=n&after=3").await,
    ];
    let same = Document::parse(&text("a")).unwrap();
    app.document.activate(&Arc::new(same)).unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(app.ledger.polls().len(), 2);

    let changed = Document::parse(&text("b")).unwrap();
    app.document.activate(&Arc::new(changed)).unwrap();
    for (poll, after) in polls.into_iter().zip([0, 3]) {
        let hints = hints(&poll.await.unwrap());
        assert!(hints.rules && hints.refresh.is_empty());
        assert_eq!(hints.after, after, "earlier hints stay unconfirmed");
    }
}

#[tokio::test(start_paused = true)]
async fn polls_end_when_the_server_leaves() {
    let app = app();
    let router = crate::http::router(app.clone());
    let poll = open(&app, &router, "client_id=c").await;
    let began = clock::now();
    app.ledger.polls().set_leaving(true);
    assert!(hints(&poll.await.unwrap()).leaving);
    // Later ones do not wait.
    assert!(hints(&get(&router, "/v1/hints?client_id=d").await).leaving);
    assert_eq!(clock::now(), began);
}

#[tokio::test(start_paused = true)]
async fn oldest_polls_give_way_and_close_their_connections() {
    let app = app();
    let router = crate::http::router(app.clone());
    let mut polls = Vec::new();
    for client in 0..3 {
        polls.push(open(&app, &router, &format!("client_id={client}")).await);
    }
    assert_eq!(app.ledger.polls().free_connections(2), 2);
    let last = polls.pop().unwrap();
    for poll in polls {
        let reply = poll.await.unwrap();
        assert!(is_empty(&hints(&reply)));
        assert_eq!(reply.header("connection"), "close");
    }
    assert!(!last.is_finished());
    assert_eq!(app.ledger.polls().free_connections(5), 1);
}

#[tokio::test(start_paused = true)]
async fn polls_over_http2_free_no_connection() {
    let app = app();
    let router = crate::http::router(app.clone());
    let request = Request::get("/v1/hints?client_id=c").version(Version::HTTP_2);
    let request = request.body(Body::empty()).unwrap();
    let poll = tokio::spawn(async move { send(&router, request).await });
    while app.ledger.polls().len() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(app.ledger.polls().free_connections(1), 0);
    assert!(!poll.is_finished() && app.ledger.polls().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn polls_need_the_scope_and_the_client_of_their_holder() {
    let home = Home::new().secret(SECRET);
    let app = app().with_auth(Some(Arc::new(home.load().unwrap())));
    let router = crate::http::router(app);
    let status = async |scope: &str, client: &str, query: &str| {
        let claims = claims(&json!({"iss": "doorman", "scope": scope, "client_id": client}));
        let token = Issuer::of_secret(SECRET).sign(&claims);
        let uri = format!("{}?{query}&wait=0", paths::HINTS);
        let request = Request::get(uri).header("authorization", format!("Bearer {token}"));
        let reply = send(&router, request.body(Body::empty()).unwrap()).await;
        reply.status.as_u16()
    };
    for (scope, client, query, expected) in [
        ("capacity", "a-*", "client_id=a-1", 200),
        ("capacity", "a-*", "client_id=b-1", 403),
        ("capacity", "*", "node_id=n", 403),
        ("server", "*", "node_id=n", 200),
        ("server", "*", "client_id=a-1", 403),
        ("status:read", "*", "client_id=a-1", 403),
    ] {
        assert_eq!(
            status(scope, client, query).await,
            expected,
            "{scope} {query}"
        );
    }
    assert_eq!(get(&router, "/v1/hints?client_id=a-1").await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn polls_are_counted_without_their_duration() {
    let app = app();
    let router = crate::http::router(app.clone());
    get(&router, "/v1/hints?client_id=c&wait=1").await;
    let _open = open(&app, &router, "client_id=c").await;
    let scrape = get(&router, paths::METRICS).await;
    let text = String::from_utf8(scrape.body).unwrap();
    assert!(
        text.contains("doorman_http_requests_total{method=\"GET\",route=\"/v1/hints\"} 1"),
        "{text}"
    );
    assert!(!text.contains("duration_seconds_count{method=\"GET\",route=\"/v1/hints\"}"));
    assert!(text.contains("doorman_polls 1"), "{text}");
}

fn rates(capacity: f64) -> Document {
    Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE, refresh_interval: 60, lease_length: 300}}}}]"
    ))
    .unwrap()
}

/// Sweeps the ledger as the running server does.
fn sweep(app: &AppState) -> JoinHandle<()> {
    tokio::spawn(crate::leasing::sweeper::run(
        Arc::clone(&app.ledger),
        |_, _| {},
    ))
}

#[tokio::test(start_paused = true)]
async fn changed_limit_answers_polls_of_its_holders() {
    let app = app_with(rates(100.0));
    let router = crate::http::router(app.clone());
    let _sweeper = sweep(&app);
    let lease =
        json!({"client_id": "c", "seq": 3, "resources": [{"resource_id": "db", "wants": 100}]});
    post(&router, paths::CAPACITY, lease.to_string()).await;
    let poll = open(&app, &router, "client_id=c").await;
    let stranger = open(&app, &router, "client_id=d").await;
    tokio::time::sleep(SECOND).await;
    let began = clock::now();
    app.document.activate(&Arc::new(rates(50.0))).unwrap();
    let hints = hints(&poll.await.unwrap());
    let waited = clock::now().seconds_since(began);
    assert!(waited <= 0.2, "{waited} {hints:?}");
    let [hint] = &hints.refresh[..] else {
        panic!("{hints:?}");
    };
    assert_eq!(hint.resource_id.as_str(), "db");
    assert_eq!(hint.seq.map(doorman_openapi::Seq::get), Some(3));
    assert!(hints.after > 0);
    assert!(!stranger.is_finished());
}

#[tokio::test(start_paused = true)]
async fn released_capacity_answers_the_poll_of_a_waiting_holder() {
    let app = app_with(rates(100.0));
    let router = crate::http::router(app.clone());
    let _sweeper = sweep(&app);
    for client in ["a", "b"] {
        let lease =
            json!({"client_id": client, "resources": [{"resource_id": "db", "wants": 100}]});
        post(&router, paths::CAPACITY, lease.to_string()).await;
    }
    let poll = open(&app, &router, "client_id=b").await;
    let began = clock::now();
    let release = json!({"client_id": "a"});
    post(&router, paths::CAPACITY_RELEASE, release.to_string()).await;
    let hints = hints(&poll.await.unwrap());
    assert_eq!(hints.refresh.len(), 1, "{hints:?}");
    assert!(clock::now().seconds_since(began) <= 0.2);
}
