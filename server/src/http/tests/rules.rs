//! The rules of a service.

use serde_json::json;

use super::*;

const RULES: &str = "
resources: [{identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC}}]
rules:
- {name: health, service: '*', path: /healthz, on_limit: {action: exempt}}
- name: per-tenant
  service: 'orders*'
  methods: [GET, POST]
  path: '/v1/orders/{id}'
  resource: 'tenant/{jwt:sub}'
  on_limit: {action: delay, max_delay: 0.5}
- {name: all, service: 'shop', resource: api}
";

fn with_rules(text: &str) -> Router {
    crate::http::router(app_with(Document::parse(text).unwrap()))
}

async fn get_unless(router: &Router, uri: &str, known: &str) -> Reply {
    let request = Request::get(uri).header("if-none-match", known);
    send(router, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn service_gets_its_rules_in_order() {
    let router = with_rules(RULES);
    let reply = get(&router, "/v1/rules?service=orders-eu").await;
    let rules = reply.json()["rules"].clone();
    let names: Vec<_> = rules
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["health", "per-tenant"]);
    assert_eq!(
        rules[1],
        json!({
            "name": "per-tenant",
            "service": "orders*",
            "methods": ["GET", "POST"],
            "path": "/v1/orders/{id}",
            "resource": "tenant/{jwt:sub}",
            "unit": "rate",
            "cost": 1.0,
            "burst": 1.0,
            "on_limit": {"action": "delay", "max_delay": 0.5},
            "on_missing_key": "shared",
            "fallback": "safe",
            "priority": 0
        })
    );
    let none = get(&with_rules("resources: []"), "/v1/rules?service=orders").await;
    assert_eq!(none.json()["rules"], json!([]));
}

#[tokio::test]
async fn all_rules_are_listed_without_a_service() {
    let router = with_rules(RULES);
    let reply = get(&router, "/v1/rules").await;
    let etag = reply.header("etag").to_owned();
    let rules = reply.json()["rules"].clone();
    let names: Vec<_> = rules.as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["health", "per-tenant", "all"]);
    assert_eq!(get_unless(&router, "/v1/rules", &etag).await.status, 304);
    // A change that concerns another service.
    let changed = with_rules(&RULES.replace("resource: api", "resource: db"));
    assert_eq!(get_unless(&changed, "/v1/rules", &etag).await.status, 200);
}

#[tokio::test]
async fn known_rules_are_not_modified() {
    let router = with_rules(RULES);
    let reply = get(&router, "/v1/rules?service=orders").await;
    let tag = reply.header("etag");
    assert_eq!(
        tag,
        format!("\"{}\"", reply.json()["version"].as_str().unwrap())
    );
    assert_eq!(reply.header("cache-control"), "no-cache");

    for known in [tag, &format!("\"x\", W/{tag}"), "*"] {
        let again = get_unless(&router, "/v1/rules?service=orders", known).await;
        assert_eq!(
            (again.status.as_u16(), again.body.len()),
            (304, 0),
            "{known}"
        );
        assert_eq!(
            (again.header("etag"), again.header("cache-control")),
            (tag, "no-cache")
        );
    }
    // The `ETag` is that of no other service, and of no other rules.
    let other = get_unless(&router, "/v1/rules?service=shop", tag).await;
    assert_eq!(other.status, 200);
    let changed = with_rules(&RULES.replace("0.5", "0.6"));
    let reply = get_unless(&changed, "/v1/rules?service=orders", tag).await;
    assert_eq!(reply.status, 200);
    assert_ne!(reply.header("etag"), tag);
    let reply = get_unless(&changed, "/v1/rules?service=shop", other.header("etag")).await;
    assert_eq!(reply.status, 304, "the change is for others");
}

#[tokio::test]
async fn new_document_has_new_rules() {
    let app = app_with(Document::parse(RULES).unwrap());
    let router = crate::http::router(app.clone());
    let tag = get(&router, "/v1/rules?service=shop")
        .await
        .header("etag")
        .to_owned();
    let changed = RULES.replace("resource: api", "resource: api, cost: 2");
    let changed = Arc::new(Document::parse(&changed).unwrap());
    app.document.activate(&changed).unwrap();
    let reply = get_unless(&router, "/v1/rules?service=shop", &tag).await;
    assert_eq!(reply.json()["rules"][1]["cost"], 2.0);
}

#[tokio::test]
async fn service_parameter_is_a_name() {
    let router = with_rules(RULES);
    let long = format!("service={}", "x".repeat(257));
    for (query, word) in [
        ("service=", "`service`"),
        ("service=a%0A", "`service`"),
        ("service=%ff", "`service`"),
        ("service=a&service=b", "`service`"),
        ("service=a&x=1", "`x`"),
        (&long, "`service`"),
    ] {
        let problem = get(&router, &format!("/v1/rules?{query}"))
            .await
            .problem(400);
        assert!(problem.detail.contains(word), "{query}: {}", problem.detail);
    }
    post(&router, "/v1/rules?service=a", "{}")
        .await
        .problem(405);
}
