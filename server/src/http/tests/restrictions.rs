//! Tokens restricted to a tenant.

mod document;

use std::{future::poll_fn, ops::Range, pin::pin};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use doorman_openapi::paths;
use serde_json::json;

use super::*;
use crate::auth::testing::{Home, Issuer, SECRET, claims};

/// A server with resources of tenant A, of tenant B, and shared ones.
struct Tenants {
    router: Router,
    _stored: Stored,
    _home: Home,
}

const ALL: &str = "capacity server templates:read templates:write status:read";

impl Tenants {
    async fn new() -> Self {
        let home = Home::new().secret(SECRET);
        let auth = Arc::new(home.load().unwrap());
        let document = Document::parse(
            "{resources: [{identifier_glob: 'b/*', capacity: 50, algorithm: {kind: FAIR_SHARE, learning_mode_duration: 1}}, {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}],
              rules: [{name: of-a, service: a-web, resource: a/api}, {name: of-b, service: b-web, resource: b/api},
                {name: above-a, service: a-web, resource: b/api}, {name: before-a, service: a-web, resource: a/api, priority: 2}]}",
        )
        .unwrap();
        let stored = Stored::authenticating(&document, Some(auth));
        let tenants = Self {
            router: stored.router.clone(),
            _stored: stored,
            _home: home,
        };
        for tenant in ["a", "b"] {
            for resource in [&format!("{tenant}/db"), "shared"] {
                let body = json!({
                    "client_id": format!("{tenant}-1"), "resources": [{"resource_id": resource, "wants": 10}]
                });
                let reply = tenants.post(&operator(), paths::CAPACITY, &body).await;
                assert_eq!(reply.status, 200, "{reply:?}");
            }
        }
        tenants
    }

    async fn get(&self, token: &str, uri: &str) -> Reply {
        let request = Request::get(uri).header("authorization", format!("Bearer {token}"));
        send(&self.router, request.body(Body::empty()).unwrap()).await
    }

    async fn post(&self, token: &str, uri: &str, body: &Value) -> Reply {
        let request = Request::post(uri)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        send(&self.router, request.body(body.to_string().into()).unwrap()).await
    }

    /// Leases of many resources of tenant B.
    async fn lease_of_b(&self, which: Range<u32>) {
        let requested: Vec<_> = which
            .map(|it| json!({"resource_id": format!("b/{it}"), "wants": 1}))
            .collect();
        let body = json!({"client_id": "b-1", "resources": requested});
        let reply = self.post(&operator(), paths::CAPACITY, &body).await;
        assert_eq!(reply.status, 200);
    }

    /// The holders of a resource, as the operator sees them.
    async fn holders(&self, resource: &str) -> Vec<String> {
        let uri = format!("/v1/resources/{}/leases", resource.replace('/', "%2F"));
        let page = self.get(&operator(), &uri).await.json();
        let leases = page["leases"].as_array().unwrap().clone();
        let held = leases.into_iter().filter(|it| it["has"] != 0.0);
        held.map(|it| it["client_id"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn token(other: &Value) -> String {
    let mut claims = claims(&json!({"iss": "doorman", "scope": ALL}));
    for (name, value) in other.as_object().unwrap() {
        claims[name] = value.clone();
    }
    Issuer::of_secret(SECRET).sign(&claims)
}

fn operator() -> String {
    token(&json!({"sub": "operator"}))
}

/// A token restricted to tenant A in every way.
fn tenant_a() -> String {
    token(&json!({
        "sub": "a", "client_id": "a-*", "resources": ["a/*", "shared"], "services": "a-*", "max_priority": 1
    }))
}

#[tokio::test]
async fn cursor_hides_resources_of_other_tenants() {
    let tenants = Tenants::new().await;
    tenants.lease_of_b(0..2500).await;
    // As many globs as a token may have: the most expensive case.
    let resources: Vec<_> = (0..63)
        .map(|number| format!("[x]/{number}"))
        .chain(["shared".to_owned()])
        .collect();
    let bound = token(&json!({"sub": "c", "resources": resources}));
    let (mut lengths, mut cursor) = (Vec::new(), String::new());
    loop {
        let uri = format!("/v1/resources?cursor={cursor}");
        let page = tenants.get(&bound, &uri).await.json();
        let found = page["resources"].as_array().unwrap();
        assert!(
            found.iter().all(|it| it["resource_id"] == "shared"),
            "{page}"
        );
        lengths.push(found.len());
        let Some(next) = page.get("next_cursor") else {
            break;
        };
        cursor = next.as_str().unwrap().to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(&cursor).unwrap();
        assert!(!bytes.windows(2).any(|part| part == b"b/"), "{bytes:?}");
    }
    assert_eq!(lengths, [0, 0, 1]);

    // The other tenant gets full pages and plain cursors.
    let page = tenants.get(&operator(), "/v1/resources?limit=1000").await;
    let page = page.json();
    assert_eq!(page["resources"].as_array().unwrap().len(), 1000);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn tenant_leases_only_its_own_resources() {
    let tenants = Tenants::new().await;
    let ask = |client: &str, resources: Value| json!({"client_id": client, "resources": resources});
    let own = ask(
        "a-2",
        json!([{"resource_id": "a/db", "wants": 1, "priority": 1}]),
    );
    assert_eq!(
        tenants
            .post(&tenant_a(), paths::CAPACITY, &own)
            .await
            .status,
        200
    );
    for (body, pointers) in [
        (
            ask("b-1", json!([{"resource_id": "shared", "wants": 1}])),
            &["/client_id"][..],
        ),
        (
            ask("a-1", json!([{"resource_id": "b/db", "wants": 1}])),
            &["/resources/0/resource_id"],
        ),
        (
            ask(
                "a-1",
                json!([{"resource_id": "a/db", "wants": 1, "priority": 2}, {"resource_id": "b/x", "wants": 1}]),
            ),
            &["/resources/0/priority", "/resources/1/resource_id"],
        ),
        (
            ask(
                "a-1",
                json!([{"resource_id": "a/db", "wants": 3, "priority": 3, "bands": [
                    {"priority": 3, "wants": 1}, {"priority": 0, "wants": 1}, {"priority": 2, "wants": 1},
                ]}]),
            ),
            &[
                "/resources/0/bands/0/priority",
                "/resources/0/bands/2/priority",
            ],
        ),
    ] {
        let reply = tenants.post(&tenant_a(), paths::CAPACITY, &body).await;
        let problem = reply.problem(403);
        assert_eq!(problem.kind, "/problems/forbidden");
        let named: Vec<_> = problem
            .errors
            .iter()
            .map(|it| it.pointer.as_str())
            .collect();
        assert_eq!(named, pointers, "{problem:?}");
        assert!(
            reply
                .header("www-authenticate")
                .contains("insufficient_scope")
        );
    }
    // The whole request is rejected.
    assert_eq!(tenants.holders("b/db").await, ["b-1"]);
    assert_eq!(
        tenants.get(&operator(), "/v1/resources/b%2Fx").await.status,
        404
    );

    let node = |node: &str, resource: &str, priority: i32| {
        json!({"node_id": node, "resources": [{"resource_id": resource,
            "wants": [{"priority": priority, "num_clients": 1, "wants": 1}]}]})
    };
    let post = async |body: &Value| {
        tenants
            .post(&tenant_a(), paths::SERVER_CAPACITY, body)
            .await
            .status
    };
    assert_eq!(post(&node("a-node", "a/db", 0)).await, 200);
    for rejected in [
        node("b-node", "a/db", 0),
        node("a-node", "b/db", 0),
        node("a-node", "a/db", 2),
    ] {
        assert_eq!(post(&rejected).await, 403, "{rejected}");
    }
}

#[tokio::test]
async fn tenant_releases_only_its_own_leases() {
    let tenants = Tenants::new().await;
    for (path, caller) in [
        (paths::CAPACITY_RELEASE, "client_id"),
        (paths::SERVER_CAPACITY_RELEASE, "node_id"),
    ] {
        for body in [
            json!({caller: "b-1"}),
            json!({caller: "b-1", "resource_ids": ["shared"]}),
            json!({caller: "a-1", "resource_ids": ["a/db", "b/db"]}),
        ] {
            tenants.post(&tenant_a(), path, &body).await.problem(403);
        }
    }
    assert_eq!(tenants.holders("shared").await, ["a-1", "b-1"]);
    assert_eq!(tenants.holders("b/db").await, ["b-1"]);
    assert_eq!(tenants.holders("a/db").await, ["a-1"]);

    // A token restricted to resources releases all leases of a client on those only.
    let of_a = token(&json!({"resources": "a/*"}));
    let body = json!({"client_id": "a-1"});
    assert_eq!(
        tenants
            .post(&of_a, paths::CAPACITY_RELEASE, &body)
            .await
            .status,
        200
    );
    let gone = tenants.get(&operator(), "/v1/resources/a%2Fdb").await;
    gone.problem(404);
    assert_eq!(tenants.holders("shared").await, ["a-1", "b-1"]);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn tenant_sees_only_its_own_resources() {
    let tenants = Tenants::new().await;
    let seen = async |token: &str, query: &str| {
        let page = tenants
            .get(token, &format!("/v1/resources{query}"))
            .await
            .json();
        let resources = page["resources"].as_array().unwrap().clone();
        let ids = resources
            .iter()
            .map(|it| it["resource_id"].as_str().unwrap().to_owned());
        (
            ids.collect::<Vec<_>>(),
            page["next_cursor"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(seen(&operator(), "").await.0, ["a/db", "b/db", "shared"]);
    let (first, cursor) = seen(&tenant_a(), "?limit=1").await;
    assert_eq!(first, ["a/db"]);
    // The cursor names a resource that the tenant saw.
    let (second, end) = seen(&tenant_a(), &format!("?limit=1&cursor={}", cursor.unwrap())).await;
    assert_eq!((second, end), (vec!["shared".to_owned()], None));
    assert_eq!(seen(&tenant_a(), "?prefix=b").await, (vec![], None));

    // The same whether it exists or not.
    for id in ["b%2Fdb", "b%2Fnothing"] {
        for view in ["", "/leases"] {
            tenants
                .get(&tenant_a(), &format!("/v1/resources/{id}{view}"))
                .await
                .problem(403);
        }
    }
    assert_eq!(
        tenants
            .get(&tenant_a(), "/v1/resources/a%2Fdb")
            .await
            .status,
        200
    );
    let leases_of_shared = "/v1/resources/shared/leases";
    let shared = tenants.get(&tenant_a(), leases_of_shared).await.json();
    let holders: Vec<_> = shared["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["client_id"])
        .collect();
    assert_eq!(holders, ["a-1"]);
    // The same for a client, whether it exists or not.
    let named = async |name: &str| {
        let uri = format!("{leases_of_shared}?client_id={name}");
        tenants.get(&tenant_a(), &uri).await
    };
    assert_eq!(named("a-1").await.json()["leases"][0]["client_id"], "a-1");
    assert_eq!(named("a-2").await.json()["leases"], json!([]));
    for name in ["b-1", "b-2"] {
        named(name).await.problem(403);
    }

    let rules = tenants
        .get(&tenant_a(), "/v1/rules?service=a-web")
        .await
        .json();
    assert_eq!(rules["rules"][0]["name"], "of-a");
    tenants
        .get(&tenant_a(), "/v1/rules?service=b-web")
        .await
        .problem(403);
    // All rules are for nodes.
    tenants.get(&tenant_a(), "/v1/rules").await.problem(403);
    for (scope, status) in [
        ("server", 200),
        ("templates:read", 200),
        ("capacity", 403),
        ("status:read", 403),
    ] {
        let token = token(&json!({"sub": "node", "scope": scope}));
        let reply = tenants.get(&token, "/v1/rules").await;
        assert_eq!(reply.status, status, "{scope}");
    }
    // The metrics name resources of all tenants.
    tenants.get(&tenant_a(), "/metrics").await.problem(403);
    assert_eq!(tenants.get(&operator(), "/metrics").await.status, 200);
    let status = tenants.get(&tenant_a(), "/v1/status").await.json();
    for field in ["leases", "resources", "resources_unmet", "unmet_since"] {
        assert!(status.get(field).is_none(), "{field}");
    }
}

#[tokio::test]
async fn listed_forbidden_fields_are_limited() {
    let tenants = Tenants::new().await;
    let ids: Vec<_> = (0..300).map(|it| format!("b/{it}")).collect();
    let requested = ids.iter().map(|id| json!({"resource_id": id, "wants": 1}));
    let bands = ids.iter().map(
        |id| json!({"resource_id": id, "wants": [{"priority": 0, "num_clients": 1, "wants": 1}]}),
    );
    let (requested, bands): (Vec<_>, Vec<_>) = (requested.collect(), bands.collect());
    for (path, body) in [
        (
            paths::CAPACITY,
            json!({"client_id": "a-1", "resources": requested}),
        ),
        (
            paths::SERVER_CAPACITY,
            json!({"node_id": "a-1", "resources": bands}),
        ),
        (
            paths::CAPACITY_RELEASE,
            json!({"client_id": "a-1", "resource_ids": ids}),
        ),
        (
            paths::SERVER_CAPACITY_RELEASE,
            json!({"node_id": "a-1", "resource_ids": ids}),
        ),
    ] {
        let problem = tenants.post(&tenant_a(), path, &body).await.problem(403);
        assert_eq!(problem.errors.len(), 101, "{path}");
        let rest = &problem.errors[100];
        assert_eq!(
            (rest.pointer.as_str(), rest.detail.as_str()),
            ("", "has 200 more errors")
        );
        assert!(
            problem.detail.ends_with(" (and 299 more errors)"),
            "{}",
            problem.detail
        );
    }
}

#[tokio::test]
async fn small_page_of_a_tenant_reads_large_chunks() {
    let tenants = Tenants::new().await;
    tenants.lease_of_b(0..4000).await;
    // The glob has no literal prefix, so all resources are scanned.
    let token = token(&json!({"sub": "a", "resources": ["[a]/*"]}));
    let mut page = pin!(tenants.get(&token, "/v1/resources?limit=1&prefix=b"));
    // It yields after each chunk.
    let mut turns = 0;
    let page = poll_fn(|context| {
        turns += 1;
        page.as_mut().poll(context)
    });
    assert_eq!(page.await.json(), json!({"resources": []}));
    assert!((3..20).contains(&turns), "{turns}");
}

#[tokio::test]
async fn leases_of_a_client_are_listed_as_far_as_the_token_allows() {
    let tenants = Tenants::new().await;
    let seen = async |token: &str, client: &str| {
        let uri = format!("/v1/leases?client_id={client}");
        let page = tenants.get(token, &uri).await.json();
        let leases = page["leases"].as_array().unwrap().iter();
        let mut ids: Vec<_> = leases
            .map(|it| it["resource"]["resource_id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(seen(&operator(), "b-1").await, ["b/db", "shared"]);
    assert_eq!(seen(&tenant_a(), "a-1").await, ["a/db", "shared"]);
    let of_shared = token(&json!({"resources": "shared"}));
    assert_eq!(seen(&of_shared, "b-1").await, ["shared"]);
    let with_prefix = async |token: &str, prefix: &str| {
        let uri = format!("/v1/leases?prefix={prefix}");
        let page = tenants.get(token, &uri).await.json();
        let leases = page["leases"].as_array().unwrap().iter();
        let mut clients: Vec<_> = leases
            .map(|it| it["lease"]["client_id"].as_str().unwrap().to_owned())
            .collect();
        clients.sort();
        clients.dedup();
        clients
    };
    assert_eq!(with_prefix(&operator(), "b-").await, ["b-1"]);
    assert_eq!(with_prefix(&tenant_a(), "").await, ["a-1"]);
    assert_eq!(with_prefix(&tenant_a(), "b-").await, [""; 0]);
    // The same whether it exists or not.
    for client in ["b-1", "b-2"] {
        let uri = format!("/v1/leases?client_id={client}");
        tenants.get(&tenant_a(), &uri).await.problem(403);
    }
}

#[tokio::test]
async fn token_bounds_the_clients_of_its_tenant() {
    let tenants = Tenants::new().await;
    let of = |max_clients: u32| {
        token(&json!({"sub": "c", "client_id": "c-*", "max_clients": max_clients}))
    };
    let ask = async |token: &str, client: &str| {
        let resources = json!([{"resource_id": "c/db", "wants": 1}]);
        let body = json!({"client_id": client, "resources": resources});
        let reply = tenants.post(token, paths::CAPACITY, &body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["resources"][0]["reason"].clone()
    };
    let two = of(2);
    for (client, expected) in [
        ("c-1", "granted"),
        ("c-2", "granted"),
        ("c-3", "full"),
        ("c-1", "granted"),
    ] {
        assert_eq!(ask(&two, client).await, expected, "{client}");
    }
    assert_eq!(ask(&of(3), "c-3").await, "granted");
}
