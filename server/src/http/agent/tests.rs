//! The API of the agent, with fixed limits and no control plane.

use std::{env, fs, sync::atomic::Ordering, time::Duration};

use axum::http::{HeaderName, Method};
use doorman_openapi::{AGENT_OPENAPI_JSON, MAX_RELEASED, Rule};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/agent.json");

struct Agent {
    router: Router,
    state: AgentState,
}

/// The response to a request.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: axum::http::HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

impl Agent {
    fn new(rules: &Value, max_permits: usize) -> Self {
        let limits = [
            ("api", 2.0),
            ("pool", 1.0),
            ("tx", 3.0),
            ("tenant/a", 1.0),
            ("net/*", 1.0),
        ];
        let doorman = Doorman::fixed(limits.into_iter().chain([("192.0.2.7", 1.0)]));
        let doorman = doorman.with_callers(tower_doorman::Callers::new().trusted_proxies(
            tower_doorman::TrustedProxies::hops(1, tower_doorman::ForwardedHeader::XForwardedFor),
        ));
        let rules: Vec<Rule> = serde_json::from_value(rules.clone()).unwrap();
        let own = doorman.own_rules();
        own.replace(&rules).unwrap();
        let parts = AgentParts {
            checks: doorman.checks(),
            rules: ForwardRules::new(own.layer()),
            answers: Some(RecentAnswers::new(HeaderName::from_static("x-request-id"))),
            doorman,
            permits: Arc::new(PermitTable::new(max_permits)),
            ready: AtomicBool::new(false),
            draining: Draining::default(),
            body_buffer: BodyBuffer::default(),
            requests: RequestMetrics::default(),
            connections: ConnectionMetrics::default(),
            layer: LayerMetrics::of_process(),
        };
        let state = AgentState::from(parts);
        let expiring = Arc::clone(&state.permits);
        tokio::spawn(async move { expiring.expire().await });
        let hosts = AllowedHosts::of_machine("http://127.0.0.1:7301");
        Self {
            router: router(state.clone(), hosts),
            state,
        }
    }

    fn without_rules() -> Self {
        Self::new(&json!([]), 10)
    }

    async fn send(&self, request: Request<Body>) -> Reply {
        let Ok(response) = self.router.clone().oneshot(request).await;
        let (head, body) = response.into_parts();
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    async fn post(&self, path: &str, body: impl ToString) -> Reply {
        let request = Request::post(path).header("content-type", "application/json");
        self.send(request.body(body.to_string().into()).unwrap())
            .await
    }

    async fn check(&self, body: Value) -> Reply {
        self.post(paths::CHECK, body).await
    }

    async fn release(&self, permits: &[&str]) -> Value {
        let body = json!({ "permits": permits });
        let reply = self.post(paths::CHECK_RELEASE, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["released"].clone()
    }

    async fn forward(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let request = Request::get(path).header("host", "shop.example");
        let request = headers
            .iter()
            .fold(request, |it, (name, value)| it.header(*name, *value));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    async fn get(&self, path: &str) -> Reply {
        let request = Request::get(path).header("host", "localhost");
        self.send(request.body(Body::empty()).unwrap()).await
    }
}

fn permit(reply: &Reply, index: usize) -> String {
    let permit = &reply.json()["permits"][index]["permit"];
    permit
        .as_str()
        .unwrap_or_else(|| panic!("{reply:?}"))
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn check_spends_every_resource_or_none() {
    let agent = Agent::without_rules();
    let one = agent.check(json!({"resource_id": "api"})).await;
    assert_eq!(one.status, 200);
    assert_eq!(one.json(), json!({"permits": []}));
    assert_eq!(one.header("ratelimit"), r#""api";r=1;t=1"#);
    assert_eq!(one.header("ratelimit-policy"), r#""api";q=2;w=1"#);

    let both = json!({"resources": [{"resource_id": "api"}, {"resource_id": "none"}]});
    let refused = agent.check(both).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "60");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.json()["violated-policies"], json!(["none"]));

    let last = agent.check(json!({"resource_id": "api"})).await;
    assert_eq!(last.status, 200);
    let costly = json!({"resource_id": "api", "cost": 0.5});
    let refused = agent.check(costly).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["reason"], "spent");
    assert_eq!(refused.header("retry-after"), "1");
}

#[tokio::test(start_paused = true)]
async fn permit_is_held_until_its_release() {
    let agent = Agent::without_rules();
    let uses = json!({"resources": [
        {"resource_id": "api"},
        {"resource_id": "tx", "unit": "gauge", "cost": 2},
        {"resource_id": "pool", "unit": "gauge"}
    ]});
    let held = agent.check(uses).await;
    assert_eq!(held.status, 200, "{held:?}");
    let names = [0, 1].map(|it| held.json()["permits"][it]["resource_id"].clone());
    assert_eq!(names, ["tx", "pool"]);
    let pool = json!({"resource_id": "pool", "unit": "gauge"});
    assert_eq!(agent.check(pool.clone()).await.status, 429);

    let [tx, second] = [0, 1].map(|it| permit(&held, it));
    assert_ne!(tx, second);
    assert_eq!(agent.release(&[&second, "unknown", &second]).await, 1);
    assert_eq!(agent.release(&[&second]).await, 0);
    assert_eq!(agent.check(pool).await.status, 200);
    let twice = json!({"resource_id": "tx", "unit": "gauge", "cost": 2});
    assert_eq!(agent.check(twice.clone()).await.status, 429);
    assert_eq!(agent.release(&[&tx]).await, 1);
    assert_eq!(agent.check(twice).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn permit_ends_after_its_time() {
    let agent = Agent::without_rules();
    let pool =
        |seconds: Value| json!({"resource_id": "pool", "unit": "gauge", "hold_seconds": seconds});
    for (seconds, hold) in [
        (json!(2.5), 2_500),
        (json!(3600), 3_600_000),
        (json!(1), 1_000),
    ] {
        let held = agent.check(pool(seconds.clone())).await;
        assert_eq!(held.status, 200, "{held:?}");
        tokio::time::sleep(Duration::from_millis(hold - 1)).await;
        assert_eq!(agent.check(pool(seconds)).await.status, 429);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(agent.state.permits.len(), 0);
        assert_eq!(agent.release(&[&permit(&held, 0)]).await, 0);
    }
    // The default.
    let default = json!({"resource_id": "pool", "unit": "gauge"});
    assert_eq!(agent.check(default).await.status, 200);
    tokio::time::sleep(Duration::from_millis(59_990)).await;
    assert_eq!(agent.state.permits.len(), 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(agent.state.permits.len(), 0);
    let metrics = agent.get(paths::METRICS).await;
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(
        metrics.contains("\ndoorman_agent_permits_expired_total 4\n"),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn renewed_permit_ends_later() {
    let agent = Agent::without_rules();
    let pool = json!({"resource_id": "pool", "unit": "gauge", "hold_seconds": 10});
    let renew = async |permit: &str, hold: Value| {
        let body = json!({"permit": permit, "hold_seconds": hold});
        agent.post(paths::CHECK_RENEW, body).await
    };
    let held = permit(&agent.check(pool.clone()).await, 0);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let renewed = renew(&held, json!(10)).await;
    assert_eq!(
        (renewed.status, renewed.json()),
        (200, json!({"hold_seconds": 10.0}))
    );
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(agent.check(pool.clone()).await.status, 429);
    // It never ends sooner than before.
    assert_eq!(renew(&held, json!(0.5)).await.json()["hold_seconds"], 1.0);
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(agent.state.permits.len(), 0);

    let mut released = permit(&agent.check(pool.clone()).await, 0);
    assert_eq!(agent.release(&[&released]).await, 1);
    for unknown in [&*held, &released, "unknown", ""] {
        let reply = renew(unknown, json!(1)).await;
        assert_eq!(reply.status, 404, "{unknown} {reply:?}");
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("unknown permit"), "{detail}");
    }
    released = permit(&agent.check(pool).await, 0);
    for (hold, detail) in [(json!(0), "more than 0"), (json!(3601), "at most 3600")] {
        let reply = renew(&released, hold).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], "/hold_seconds");
        assert!(error["detail"].to_string().contains(detail), "{error}");
    }
    // The default.
    let body = json!({"permit": released});
    let renewed = agent.post(paths::CHECK_RENEW, body).await;
    assert_eq!(renewed.json()["hold_seconds"], 60.0);
}

fn waiting(max_wait: f64) -> Value {
    json!({"resource_id": "pool", "unit": "gauge", "max_wait": max_wait})
}

#[tokio::test]
async fn check_waits_for_its_turn() {
    let agent = Agent::without_rules();
    let held = permit(&agent.check(waiting(0.0)).await, 0);
    assert_eq!(agent.check(waiting(0.0)).await.status, 429);
    let list = json!({"resources": [{"resource_id": "pool", "unit": "gauge"}], "max_wait": 0.01});
    assert_eq!(agent.check(list).await.status, 429);
    let release = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        agent.release(&[&held]).await
    };
    let (waited, released) = tokio::join!(agent.check(waiting(60.0)), release);
    assert_eq!((waited.status, released), (200, json!(1)), "{waited:?}");

    for (wait, detail) in [(61.0, "at most 60, not 61"), (-1.0, "")] {
        let reply = agent.check(waiting(wait)).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], "/max_wait");
        assert!(error["detail"].to_string().contains(detail), "{error}");
    }
}

#[tokio::test]
async fn waiting_check_leaves_the_queue_with_its_caller() {
    let agent = Agent::without_rules();
    let held = permit(&agent.check(waiting(0.0)).await, 0);
    let gone = tokio::time::timeout(Duration::from_millis(20), agent.check(waiting(60.0)));
    assert!(gone.await.is_err());
    assert_eq!(agent.release(&[&held]).await, 1);
    assert_eq!(agent.check(waiting(0.0)).await.status, 200);
}

#[tokio::test]
async fn agent_that_drains_lets_no_check_wait() {
    let agent = Agent::without_rules();
    let held = permit(&agent.check(waiting(0.0)).await, 0);
    let drain = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        agent.state.draining.begin();
    };
    let (waited, ()) = tokio::join!(agent.check(waiting(60.0)), drain);
    assert_eq!(waited.status, 503, "{waited:?}");
    assert_eq!(agent.release(&[&held]).await, 1);
    assert_eq!(agent.check(waiting(60.0)).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn permits_are_bounded() {
    let agent = Agent::new(&json!([]), 2);
    let one = json!({"resource_id": "tx", "unit": "gauge"});
    let both = json!({"resources": [one.clone(), {"resource_id": "pool", "unit": "gauge"}]});
    let held = agent.check(one.clone()).await;
    let full = agent.check(both).await;
    assert_eq!(full.status, 503);
    assert!(
        full.json()["detail"]
            .as_str()
            .unwrap()
            .contains("--max-permits")
    );
    assert_eq!(full.header("retry-after"), "1");
    assert_eq!(agent.check(one.clone()).await.status, 200);
    assert_eq!(agent.check(one.clone()).await.status, 503);
    assert_eq!(agent.release(&[&permit(&held, 0)]).await, 1);
    assert_eq!(agent.check(one).await.status, 200);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn invalid_checks_are_rejected_with_a_pointer() {
    let agent = Agent::without_rules();
    let gauge = |hold: f64| json!({"resource_id": "a", "unit": "gauge", "hold_seconds": hold});
    let many: Vec<_> = (0..101)
        .map(|it| json!({"resource_id": it.to_string()}))
        .collect();
    for (body, pointer, detail) in [
        (json!({}), "", "must have `resources` or `resource_id`"),
        (json!([]), "", "expected an object"),
        (json!({"resources": []}), "/resources", "1 to 100"),
        (json!({"resources": many}), "/resources", "not 101"),
        (json!({"resource_id": "a", "resources": []}), "", "both"),
        (
            json!({"cost": 1, "resources": [{"resource_id": "a"}]}),
            "",
            "elements",
        ),
        (json!({"resource_id": ""}), "/resource_id", "1 to 256 bytes"),
        (
            json!({"resource_id": "a", "cost": 0}),
            "/cost",
            "more than 0",
        ),
        (
            json!({"resource_id": "a", "cost": -1}),
            "/cost",
            "0 to 1e15",
        ),
        (json!({"resource_id": "a", "unit": "x"}), "/unit", "`gauge`"),
        (
            json!({"resource_id": "a", "hold_second": 1}),
            "/hold_second",
            "unknown field",
        ),
        (
            json!({"resource_id": "a", "hold_seconds": 1}),
            "/hold_seconds",
            "gauge",
        ),
        (gauge(0.0), "/hold_seconds", "more than 0"),
        (gauge(3601.0), "/hold_seconds", "at most 3600"),
        (
            json!({"resources": [{"resource_id": "a"}, {"resource_id": "a"}]}),
            "/resources/1/resource_id",
            "duplicate",
        ),
        (
            json!({"resources": [{"cost": 1}]}),
            "/resources/0/resource_id",
            "missing",
        ),
        (
            json!({"resources": [{"resource_id": "a", "cost": null}]}),
            "/resources/0/cost",
            "null",
        ),
    ] {
        let reply = agent.check(body.clone()).await;
        assert_eq!(reply.status, 422, "{body} {reply:?}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], pointer, "{body} {error}");
        let text = error["detail"].as_str().unwrap();
        assert!(text.contains(detail), "{body} {error}");
    }
    for (body, status) in [("{", 400), ("", 400)] {
        assert_eq!(agent.post(paths::CHECK, body).await.status, status);
    }
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    let reply = agent.post(paths::CHECK, long).await;
    assert_eq!(reply.status, 422);
    assert!(reply.body.len() < 2_000, "{}", reply.body.len());
    for (path, body, pointer, detail) in [
        (
            paths::CHECK_RELEASE,
            json!({"permits": [{"permit": "0", "outcome": "slow"}]}),
            "/permits/0",
            "ok, overloaded, failed or none",
        ),
        (
            paths::CHECK_RELEASE,
            json!({"permits": ["0", 7]}),
            "/permits/1",
            "must be a permit, or an object",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": []}),
            "/resources",
            "1 to 100 elements",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": [{"resource_id": "api", "outcome": "slow"}]}),
            "/resources/0/outcome",
            "slow",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": [{"resource_id": "api", "outcome": "ok", "count": 0}]}),
            "/resources/0/count",
            "from 1 to 1000000, not 0",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": [{"resource_id": "api", "outcome": "ok", "pause": 1}]}),
            "/resources/0/pause",
            "only for `outcome` overloaded",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": [{"resource_id": "api", "outcome": "overloaded", "pause": 3601}]}),
            "/resources/0/pause",
            "3600",
        ),
        (
            paths::CHECK_OUTCOME,
            json!({"resources": [{"resource_id": "api", "outcome": "ok",
                "seen": {"remaining": 1, "reset": 0}}]}),
            "/resources/0/seen/reset",
            "86400",
        ),
    ] {
        let reply = agent.post(path, body.clone()).await;
        assert_eq!(reply.status, 422, "{body} {reply:?}");
        let error = &reply.json()["errors"][0];
        assert_eq!(error["pointer"], pointer, "{body} {error}");
        let text = error["detail"].as_str().unwrap();
        assert!(text.contains(detail), "{body} {error}");
    }
    let many = vec!["0"; MAX_RELEASED + 1];
    let reply = agent
        .post(paths::CHECK_RELEASE, json!({"permits": many}))
        .await;
    assert_eq!(reply.json()["errors"][0]["pointer"], "/permits");
}

/// `ok`, `overloaded` and `failed` requests of a resource.
fn outcomes(agent: &Agent, resource: &str) -> [u64; 3] {
    let limits = agent.state.doorman.snapshot().limits;
    let limit = limits.iter().find(|it| it.resource.as_str() == resource);
    limit.map_or([0; 3], |it| {
        let outcomes = it.outcomes;
        [outcomes.ok, outcomes.overloaded, outcomes.failed]
    })
}

#[tokio::test]
async fn stated_outcomes_are_counted_by_resource() {
    let agent = Agent::without_rules();
    assert_eq!(agent.check(json!({"resource_id": "api"})).await.status, 200);
    let all = json!({"resources": [
        {"resource_id": "api", "outcome": "overloaded", "pause": 5},
        {"resource_id": "api", "outcome": "ok", "count": 40},
        {"resource_id": "api", "outcome": "failed", "seen": {"remaining": 3, "reset": 60}},
        {"resource_id": "api", "outcome": "none"},
        {"resource_id": "unknown", "outcome": "ok"},
    ]});
    for times in 1..=2 {
        let reply = agent.post(paths::CHECK_OUTCOME, all.clone()).await;
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{reply:?}");
        assert_eq!(outcomes(&agent, "api"), [40 * times, times, times]);
    }
    // One that is invalid counts nothing of the others.
    let invalid = json!({"resources": [
        {"resource_id": "api", "outcome": "ok"},
        {"resource_id": "api", "outcome": "ok", "count": 1_000_001},
    ]});
    let reply = agent.post(paths::CHECK_OUTCOME, invalid).await;
    assert_eq!(reply.status, 422, "{reply:?}");
    assert_eq!(outcomes(&agent, "api"), [80, 2, 2]);
}

#[tokio::test]
async fn release_states_the_outcome_of_a_permit() {
    let agent = Agent::without_rules();
    let tx = json!({"resource_id": "tx", "unit": "gauge"});
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(permit(&agent.check(tx.clone()).await, 0));
    }
    let body = json!({"permits": [
        {"permit": permits[0], "outcome": "ok"},
        {"permit": permits[1], "outcome": "overloaded"},
        permits[2],
        {"permit": permits[0], "outcome": "failed"},
    ]});
    let reply = agent.post(paths::CHECK_RELEASE, body).await;
    assert_eq!(reply.json()["released"], 3, "{reply:?}");
    assert_eq!(outcomes(&agent, "tx"), [1, 1, 0]);
}

#[tokio::test]
async fn other_hosts_and_origins_are_rejected() {
    let agent = Agent::without_rules();
    for (name, value, status) in [
        ("host", "attacker.example", 421),
        ("origin", "http://attacker.example", 403),
    ] {
        let request = Request::post(paths::CHECK).header("content-type", "application/json");
        let request = request.header(name, value).body("{}".into()).unwrap();
        assert_eq!(agent.send(request).await.status, status);
    }
}

fn rules() -> Value {
    json!([
        {"name": "health", "service": "*", "path": "/healthz", "on_limit": {"action": "exempt"}},
        {"name": "orders", "service": "*", "methods": ["POST"], "path": "/orders/{id}", "resource": "api"},
        {"name": "tenant", "service": "*", "path": "/tenant", "resource": "tenant/{header:x-tenant}"},
        {"name": "caller", "service": "*", "path": "/caller", "resource": "{client_ip}"},
        {"name": "net", "service": "*", "path": "/net", "resource": "net/{client_ip:v4=24,v6=56}"},
        {"name": "pool", "service": "*", "path": "/report", "resource": "pool", "unit": "gauge"}
    ])
}

#[tokio::test]
async fn forwarded_request_has_only_a_stated_outcome() {
    let agent = Agent::new(&rules(), 10);
    let post = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/orders/7"),
    ];
    for status in [200, 200, 429] {
        let reply = agent.forward(paths::FORWARD_AUTH, &post).await;
        assert_eq!(reply.status, status);
    }
    assert_eq!(outcomes(&agent, "api"), [0; 3]);
    let stated = json!({"resources": [{"resource_id": "api", "outcome": "overloaded"}]});
    let reply = agent.post(paths::CHECK_OUTCOME, stated).await;
    assert_eq!(reply.status, 204, "{reply:?}");
    assert_eq!(outcomes(&agent, "api"), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn forwarded_request_is_decided_by_the_rules() {
    let agent = Agent::new(&rules(), 10);
    let method = |it| ("x-forwarded-method", it);
    let uri = |it| ("x-forwarded-uri", it);
    let post = [method("POST"), uri("/orders/7?x=1")];
    let admitted = agent.forward(paths::FORWARD_AUTH, &post).await;
    assert_eq!((admitted.status, admitted.body.len()), (200, 0));
    assert_eq!(admitted.header("ratelimit"), r#""orders";r=1;t=1"#);
    assert_eq!(agent.forward(paths::FORWARD_AUTH, &post).await.status, 200);
    let refused = agent.forward(paths::FORWARD_AUTH, &post).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.json()["violated-policies"], json!(["orders"]));

    let get = [method("GET"), uri("/orders/7")];
    assert_eq!(agent.forward(paths::FORWARD_AUTH, &get).await.status, 200);
    let unescaped = [method("POST"), uri("/orders/<\u{e9}>")];
    assert_eq!(
        agent.forward(paths::FORWARD_AUTH, &unescaped).await.status,
        429
    );
    let exempt = [method("GET"), uri("/healthz")];
    assert_eq!(
        agent.forward(paths::FORWARD_AUTH, &exempt).await.status,
        200
    );
    let tenant = |name| [method("GET"), uri("/tenant"), ("x-tenant", name)];
    assert_eq!(
        agent
            .forward(paths::FORWARD_AUTH, &tenant("a"))
            .await
            .status,
        200
    );
    assert_eq!(
        agent
            .forward(paths::FORWARD_AUTH, &tenant("a"))
            .await
            .status,
        429
    );
    assert_eq!(
        agent
            .forward(paths::FORWARD_AUTH, &tenant("b"))
            .await
            .status,
        429
    );
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_network_share_a_limit() {
    let agent = Agent::new(&rules(), 10);
    for (client, status) in [
        ("198.51.100.1", 200),
        ("198.51.100.200", 429),
        ("198.51.101.1", 200),
        ("2001:db8:1:201::1", 200),
        ("2001:db8:1:2ff::1%eth0", 429),
    ] {
        let headers = [
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "/net"),
            ("x-forwarded-for", client),
        ];
        let reply = agent.forward(paths::FORWARD_AUTH, &headers).await;
        assert_eq!(reply.status, status, "{client}");
    }
}

#[tokio::test(start_paused = true)]
async fn path_behind_the_route_describes_the_request() {
    let agent = Agent::new(&rules(), 10);
    // Headers that the caller sends change nothing.
    let forged = [
        ("x-forwarded-uri", "/healthz"),
        ("x-forwarded-method", "GET"),
    ];
    for status in [200, 200, 429] {
        let request = Request::post("/v1/forward-auth/orders/7?x=1").header("host", "shop.example");
        let request = forged
            .iter()
            .fold(request, |it, (name, value)| it.header(*name, *value));
        let reply = agent.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.status, status);
    }
    assert_eq!(agent.forward("/v1/forward-auth/", &[]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn repeated_check_of_a_request_is_answered_as_before() {
    let agent = Agent::new(&rules(), 10);
    let forward = async |path: &str, id| {
        let call = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", path),
            ("x-request-id", id),
        ];
        agent.forward(paths::FORWARD_AUTH, &call).await
    };
    let order = async |id| {
        let reply = forward("/orders/7", id).await;
        (reply.status, reply.header("ratelimit").to_owned())
    };
    let left = |it: u8| format!(r#""orders";r={it};t=1"#);
    for (id, answer) in [
        ("a", (200, left(1))),
        ("a", (200, left(1))),
        ("b", (200, left(0))),
        ("a", (200, left(1))),
        ("c", (429, left(0))),
        ("c", (429, left(0))),
    ] {
        assert_eq!(order(id).await, answer, "{id}");
    }

    let first = forward("/report", "d").await;
    tokio::time::sleep(Duration::from_millis(990)).await;
    let again = forward("/report", "d").await;
    assert_eq!((first.status, again.status), (200, 200));
    let permits = [first, again].map(|it| it.header("doorman-permit").to_owned());
    assert_eq!(permits[0], permits[1]);
    // After a second it is another request.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(forward("/report", "d").await.status, 429);
    let long = "x".repeat(129);
    for id in ["", &long] {
        let reply = forward("/", id).await;
        assert_eq!(reply.status, 400);
        let detail = reply.json()["detail"].clone();
        assert!(
            detail.as_str().unwrap().contains("`x-request-id`"),
            "{detail}"
        );
    }

    // Envoy passes the header of the caller on.
    let agent = Agent::new(&rules(), 10);
    for status in [200, 200, 429] {
        let request = Request::post("/v1/forward-auth/orders/7").header("x-request-id", "a");
        let reply = agent.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_grpc_request_has_an_http_status() {
    let agent = Agent::new(&rules(), 10);
    let call = [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-uri", "/orders/7"),
        ("content-type", "application/grpc"),
    ];
    // A proxy forwards whatever the agent answers with 2xx.
    for status in [200, 200, 429] {
        let reply = agent.forward(paths::FORWARD_AUTH, &call).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_spelling_of_a_path_has_the_same_limit() {
    for path in [
        "/%6frders/7",
        "//orders/7",
        "/orders//7",
        "http://shop.example/orders/7",
        "/orders/7?/../../healthz",
        "/./orders/7",
        "/healthz/../orders/7",
        "/healthz/%2e%2E/orders/7",
        "/healthz/..%2forders/7",
    ] {
        let agent = Agent::new(&rules(), 10);
        let call = [("x-forwarded-method", "POST"), ("x-forwarded-uri", path)];
        for status in [200, 200, 429] {
            let reply = agent.forward(paths::FORWARD_AUTH, &call).await;
            assert_eq!(reply.status, status, "{path} {reply:?}");
        }
    }
}

#[tokio::test]
async fn path_with_a_fragment_is_malformed() {
    let agent = Agent::new(&rules(), 10);
    let path = "/orders/7#/healthz";
    let call = [("x-forwarded-method", "POST"), ("x-forwarded-uri", path)];
    let reply = agent.forward(paths::FORWARD_AUTH, &call).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    for path in [
        "/",
        "/.well-known/a",
        "/a..b/...",
        "/a/",
        "/100%",
        "/%2F%c3",
    ] {
        let call = [("x-forwarded-method", "GET"), ("x-forwarded-uri", path)];
        let reply = agent.forward(paths::FORWARD_AUTH, &call).await;
        assert_eq!(reply.status, 200, "{path} {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_of_the_other_unit_takes_nothing() {
    let agent = Agent::without_rules();
    let gauge = json!({"resource_id": "tx", "unit": "gauge"});
    assert_eq!(agent.check(gauge).await.status, 200);
    let rate = agent.check(json!({"resource_id": "tx"})).await;
    assert_eq!(rate.status, 422);
    assert_eq!(rate.json()["errors"][0]["pointer"], "/unit");
    let list = json!({"resources": [{"resource_id": "api", "cost": 2}, {"resource_id": "tx"}]});
    let both = agent.check(list).await;
    assert_eq!(both.status, 422);
    assert_eq!(both.json()["errors"][0]["pointer"], "/resources/1/unit");
    let all = agent.check(json!({"resource_id": "api", "cost": 2})).await;
    assert_eq!(all.header("ratelimit"), r#""api";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn caller_is_the_address_that_the_proxy_appends() {
    let agent = Agent::new(&rules(), 10);
    let from = |addresses| {
        [
            ("x-forwarded-method", "GET"),
            ("x-forwarded-uri", "/caller"),
            ("x-forwarded-for", addresses),
        ]
    };
    let forward = async |addresses| {
        let reply = agent.forward(paths::FORWARD_AUTH, &from(addresses)).await;
        reply.status
    };
    assert_eq!(forward("192.0.2.7").await, 200);
    assert_eq!(forward("203.0.113.9, 192.0.2.7").await, 429);
    // Its own resource has no capacity.
    assert_eq!(forward("192.0.2.7, 203.0.113.9").await, 429);
}

#[tokio::test(start_paused = true)]
async fn gauge_of_a_forwarded_request_is_held_for_a_fixed_time() {
    let agent = Agent::new(&rules(), 10);
    let report = [
        ("x-forwarded-method", "GET"),
        ("x-forwarded-uri", "/report"),
    ];
    let forward = async || agent.forward(paths::FORWARD_AUTH, &report).await;
    let first = forward().await;
    assert_eq!(first.status, 200);
    assert_eq!(forward().await.status, 429);
    assert_eq!(agent.release(&[first.header("doorman-permit")]).await, 1);
    assert_eq!(forward().await.status, 200);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(forward().await.status, 200);
}

#[tokio::test]
async fn request_that_is_not_described_is_malformed() {
    let agent = Agent::new(&rules(), 10);
    let (method, uri) = (("x-forwarded-method", "GET"), ("x-forwarded-uri", "/a"));
    for (headers, word) in [
        (vec![], "missing `x-forwarded-method`"),
        (vec![method], "missing `x-forwarded-uri`"),
        (vec![method, uri, uri], "duplicate `x-forwarded-uri`"),
        (
            vec![
                method,
                uri,
                ("x-forwarded-host", "a"),
                ("x-forwarded-host", "b"),
            ],
            "duplicate `x-forwarded-host`",
        ),
        (
            vec![("x-forwarded-method", "G T"), uri],
            "invalid `x-forwarded-method`",
        ),
        (
            vec![method, ("x-forwarded-uri", "a b")],
            "invalid `x-forwarded-uri`",
        ),
        (
            vec![method, ("x-forwarded-uri", "")],
            "invalid `x-forwarded-uri`",
        ),
    ] {
        let reply = agent.forward(paths::FORWARD_AUTH, &headers).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        let detail = reply.json()["detail"].clone();
        assert!(detail.as_str().unwrap().contains(word), "{detail}");
    }
}

#[tokio::test]
async fn metrics_are_those_of_the_layer_and_of_requests() {
    let agent = Agent::without_rules();
    agent.check(json!({"resource_id": "api"})).await;
    let reply = agent.get(paths::METRICS).await;
    let text = String::from_utf8(reply.body).unwrap();
    for series in [
        r#"doorman_layer_decisions_total{limit="check",outcome="admitted"} "#,
        r#"doorman_http_requests_total{method="POST",route="/v1/check"} 1"#,
        "doorman_agent_permits 0",
        "# TYPE doorman_layer_keys gauge",
    ] {
        assert!(text.contains(series), "{series} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let request = Request::get(paths::METRICS).header("host", "localhost");
    let request = request.header("accept", "text/plain");
    let reply = agent.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        reply.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = String::from_utf8(reply.body).unwrap();
    assert!(text.contains("# TYPE doorman_layer_decisions_total counter\n"));
    assert!(!text.contains("# EOF"), "{text}");
}

#[tokio::test]
async fn errors_point_only_to_what_the_agent_has() {
    let agent = Agent::without_rules();
    for path in ["/", "/docs", paths::CAPACITY, paths::STATUS] {
        let reply = agent.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        let detail = format!("no route {path}; see /openapi.json");
        assert_eq!(reply.json()["detail"], detail);
    }
    assert_eq!(agent.get("/openapi.json").await.status, 200);
    let request = Request::get(paths::METRICS).header("host", "attacker.example");
    let reply = agent.send(request.body(Body::empty()).unwrap()).await;
    let detail = reply.json()["detail"].to_string();
    assert!(
        detail.contains("localhost") && !detail.contains("--"),
        "{detail}"
    );
    let document = AGENT_OPENAPI_JSON.replace("`docs/AGENT.md`", "");
    for word in ["/docs", "docs/", paths::CAPACITY, "--advertise"] {
        assert!(!document.contains(word), "{word}");
    }
}

#[tokio::test]
async fn agent_is_ready_until_it_drains() {
    let agent = Agent::without_rules();
    assert_eq!(agent.get(paths::READYZ).await.status, 503);
    agent.state.ready.store(true, Ordering::Release);
    assert_eq!(agent.get(paths::READYZ).await.status, 200);
    agent.state.draining.begin();
    assert_eq!(agent.get(paths::READYZ).await.status, 503);
    assert_eq!(agent.get(paths::LIVEZ).await.status, 200);
}

#[test]
fn committed_agent_openapi_document_matches_the_routes() {
    let generated = crate::agent_openapi_json();
    if env::var_os("DOORMAN_UPDATE").is_some() {
        fs::write(COMMITTED, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(COMMITTED).unwrap() == generated,
        "openapi/agent.json is outdated: `DOORMAN_UPDATE=1 cargo test -p doorman-server openapi` rewrites it"
    );
}

#[tokio::test]
async fn every_documented_operation_of_the_agent_exists() {
    let agent = Agent::new(&rules(), 10);
    let document = agent.get(paths::OPENAPI).await;
    assert_eq!(document.body, AGENT_OPENAPI_JSON.as_bytes());
    let parsed = oas3::from_json(AGENT_OPENAPI_JSON).unwrap();
    assert!(parsed.operations().count() >= 7);
    for (path, methods) in document.json()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            let examples = &operation["requestBody"]["content"]["application/json"]["examples"];
            let bodies = examples.as_object().into_iter().flat_map(|it| it.values());
            for body in bodies.map(|it| it["value"].clone()) {
                let reply = agent.post(path, &body).await;
                assert!(
                    [200, 429].contains(&reply.status),
                    "{path} {body} {reply:?}"
                );
            }
            if method == Method::GET {
                let reply = agent.get(path).await;
                assert!(![404, 405].contains(&reply.status), "{path} {reply:?}");
                let status = reply.status.to_string();
                assert!(
                    operation["responses"].get(&*status).is_some(),
                    "{path} {status}"
                );
            }
        }
    }
}
