//! Merge patches, warnings of changes, and names with slashes.

use axum::http::Method;
use serde_json::json;

use super::{
    documents::{globs, stored},
    openapi::{Operation, operations},
    *,
};

const MERGE_PATCH: &str = "application/merge-patch+json";

async fn patch(router: &Router, uri: &str, body: &str) -> Reply {
    let request = Request::patch(uri).header("content-type", MERGE_PATCH);
    send(router, request.body(body.to_owned().into()).unwrap()).await
}

fn warnings(reply: &Reply) -> Vec<String> {
    serde_json::from_value(reply.json()["warnings"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn patch_changes_only_the_named_fields() {
    let stored = stored();
    let router = &stored.router;
    let before = get(router, "/v1/templates/db").await;
    let reply = patch(
        router,
        "/v1/templates/db",
        r#"{"capacity": 20, "safe_capacity": 2, "algorithm": {"lease_length": 30}}"#,
    )
    .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut expected = before.json();
    expected["capacity"] = json!(20.0);
    expected["safe_capacity"] = json!(2.0);
    expected["algorithm"]["lease_length"] = json!(30.0);
    assert_eq!(reply.json(), expected);
    let after = get(router, "/v1/templates/db").await;
    assert_eq!(after.json(), expected);
    assert_eq!(after.header("etag"), reply.header("etag"));

    let reply = patch(router, "/v1/templates/db", r#"{"safe_capacity": null}"#).await;
    assert!(reply.json().get("safe_capacity").is_none(), "{reply:?}");
    let reply = patch(router, "/v1/rules/first", r#"{"cost": 2}"#).await;
    assert_eq!(reply.json()["cost"], 2.0, "{reply:?}");
    assert_eq!(reply.json()["resource"], "db");
    let history = get(router, "/v1/history?limit=1").await.json();
    assert_eq!(
        history["changes"][0]["change"],
        r#"rule "first": cost: 1 → 2"#
    );
}

#[tokio::test]
async fn patch_has_the_preconditions_and_errors_of_put() {
    let stored = stored();
    let router = &stored.router;
    let before = get(router, "/v1/templates").await.body;
    for path in ["/v1/templates/absent", "/v1/rules/absent"] {
        let problem = patch(router, path, "{}").await.problem(404);
        assert!(problem.detail.ends_with("PUT creates one"), "{problem:?}");
    }
    for (body, status) in [
        ("{", 400),
        ("[]", 422),
        ("null", 422),
        (r#"{"capacity": null}"#, 422),
        (r#"{"identifier_glob": "x"}"#, 422),
        (r#"{"capcity": 1}"#, 422),
    ] {
        patch(router, "/v1/templates/db", body)
            .await
            .problem(status);
    }
    patch(router, "/v1/templates/*", r#"{"algorithm": null}"#)
        .await
        .problem(422);
    let uri = "/v1/templates/db?dry_run=true";
    let dry_run = patch(router, uri, r#"{"capacity": 6}"#).await.json();
    assert_eq!(
        dry_run["changes"],
        json!([r#"template "db": capacity: 5 → 6"#])
    );

    let tag = get(router, "/v1/templates/db")
        .await
        .header("etag")
        .to_owned();
    for (header, value, status) in [
        ("if-match", "\"x\"", 412),
        ("if-none-match", "*", 412),
        ("if-none-match", &*tag, 412),
        ("content-encoding", "gzip", 415),
        ("if-match", &*tag, 200),
    ] {
        let request = Request::patch("/v1/templates/db")
            .header("content-type", "application/json")
            .header(header, value);
        let reply = send(router, request.body("{}".into()).unwrap()).await;
        assert_eq!(reply.status.as_u16(), status, "{header}: {value}");
    }
    assert_eq!(get(router, "/v1/templates").await.body, before);

    let file = crate::http::router(app());
    let problem = patch(&file, "/v1/templates/*", "{}").await.problem(409);
    assert!(
        problem
            .detail
            .contains("it comes from built-in; change it there"),
        "{problem:?}"
    );
}

#[tokio::test]
async fn accept_patch_names_the_media_types() {
    let stored = stored();
    for path in ["/v1/templates/db", "/v1/rules/first"] {
        for (method, status) in [("PATCH", 415), ("OPTIONS", 405)] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", "application/json-patch+json");
            let reply = send(&stored.router, request.body("{}".into()).unwrap()).await;
            assert_eq!(reply.status, status);
            let types = "application/merge-patch+json, application/json";
            assert_eq!(reply.header("accept-patch"), types, "{method} {path}");
        }
        let plain = Request::put(path).body("{}".into()).unwrap();
        let reply = send(&stored.router, plain).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("accept-patch")),
            (415, "")
        );
    }
}

#[tokio::test]
async fn new_template_applies_although_a_glob_covers_it() {
    let stored = stored();
    let router = &stored.router;
    let uri = "/v1/templates/tenant%2Fsb*";
    let expected =
        "placed before the template `tenant/*`, which matches everything that this one does";
    let dry_run = put(router, &format!("{uri}?dry_run=true"), r#"{"capacity": 3}"#).await;
    assert_eq!(warnings(&dry_run), [expected]);
    let made = put(router, uri, r#"{"capacity": 3}"#).await;
    assert_eq!(
        (made.status.as_u16(), warnings(&made)),
        (201, vec![expected.to_owned()])
    );
    assert_eq!(globs(router).await, ["tenant/sb*", "tenant/*", "db", "*"]);
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "tenant/sb-1", "wants": 8}]}"#;
    let response = post(router, "/v1/capacity", ask).await.json();
    assert_eq!(response["resources"][0]["gets"]["capacity"], 3.0);
    let other = put(router, "/v1/templates/x", r#"{"capacity": 3}"#).await;
    assert_eq!(warnings(&other), [""; 0]);
}

#[tokio::test]
async fn put_that_drops_fields_names_them() {
    let stored = stored();
    let router = &stored.router;
    let uri = "/v1/templates/db";
    patch(router, uri, r#"{"safe_capacity": 2, "algorithm": null}"#).await;
    for query in ["?dry_run=true", ""] {
        let reply = put(router, &format!("{uri}{query}"), r#"{"capacity": 20}"#).await;
        assert_eq!(
            warnings(&reply),
            [
                "replaced as a whole; lost with the fields that were left out: safe_capacity: 2; \
                 PATCH changes single fields"
            ]
        );
    }
    patch(router, "/v1/rules/first", r#"{"cost": 2}"#).await;
    let text = r#"{"service": "shop", "resource": "db"}"#;
    let reply = put(router, "/v1/rules/first", text).await;
    assert!(
        warnings(&reply)[0].contains("left out: cost: 2; "),
        "{reply:?}"
    );
    let again = put(router, "/v1/rules/first", text).await;
    assert_eq!(warnings(&again), [""; 0]);
}

#[tokio::test]
async fn unused_templates_and_rules_have_warnings() {
    let stored = stored();
    let router = &stored.router;
    let text = r#"{"resources": [
        {"identifier_glob": "tenant/*", "capacity": 1},
        {"identifier_glob": "tenant/sb*", "capacity": 1},
        {"identifier_glob": "*", "capacity": 1, "algorithm": {"kind": "STATIC"}}
    ], "rules": [
        {"name": "free", "service": "*", "on_limit": {"action": "exempt"}},
        {"name": "all", "service": "shop", "resource": "db"}
    ]}"#;
    let expected = [
        r#"resources[1] "tenant/sb*": never matches: resources[0] "tenant/*" comes first and matches everything that it matches"#,
        r#"rules[1] "all": never applies: rules[0] "free" comes first and exempts all of its requests"#,
    ];
    let dry_run = put(router, "/v1/templates?dry_run=true", text).await;
    assert_eq!(warnings(&dry_run), expected);
    let status = async || get(router, "/v1/status").await.json();
    assert!(status().await.get("config_warnings").is_none());
    assert_eq!(
        warnings(&put(router, "/v1/templates", text).await),
        expected
    );
    assert_eq!(status().await["config_warnings"], json!(expected));
    for (path, text) in [
        ("/v1/rules/all", r#"{"cost": 2}"#),
        ("/v1/templates/tenant/sb*", r#"{"capacity": 2}"#),
    ] {
        assert_eq!(warnings(&patch(router, path, text).await), [before(2)]);
    }
    // Old entries move.
    let first = r#"{"capacity": 5}"#;
    let moves = put(router, "/v1/templates/tenant", first).await;
    assert_eq!(warnings(&moves), [before(2)]);
    let late = r#"{"service": "shop", "resource": "db"}"#;
    let added = put(router, "/v1/rules/late", late).await;
    let new = r#"rules[2] "late": never applies: rules[0] "free" comes first and exempts all of its requests"#;
    assert_eq!(warnings(&added), [new.to_owned(), before(2)]);
}

/// The line about warnings that the document had before a change.
fn before(count: usize) -> String {
    format!(
        "the document has {count} more warnings, as before; doorman export > limits.yaml and \
         doorman check limits.yaml list them"
    )
}

#[tokio::test]
async fn slashes_in_names_need_no_escaping() {
    let stored = stored();
    let router = &stored.router;
    let escaped = get(router, "/v1/templates/tenant%2F*").await;
    let reply = get(router, "/v1/templates/tenant/*").await;
    assert_eq!((reply.status, &reply.body), (escaped.status, &escaped.body));
    let made = put(router, "/v1/templates/a/b/leases", r#"{"capacity": 1}"#).await;
    assert_eq!(made.json()["identifier_glob"], "a/b/leases");
    let made = put(
        router,
        "/v1/rules/a/b",
        r#"{"service": "s", "resource": "r"}"#,
    )
    .await;
    assert_eq!(made.json()["name"], "a/b");
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "tenant/acme", "wants": 8}]}"#;
    post(router, "/v1/capacity", ask).await;
    let resource = get(router, "/v1/resources/tenant/acme").await.json();
    assert_eq!(resource["resource_id"], "tenant/acme");
    let leases = get(router, "/v1/resources/tenant/acme/leases?limit=1").await;
    assert_eq!(leases.json()["leases"][0]["client_id"], "c");
    get(router, "/v1/resources/tenant/acme?limit=1")
        .await
        .problem(400);
    get(router, "/v1/resources/tenant/other").await.problem(404);
    post(router, "/v1/resources/tenant/acme", "{}")
        .await
        .problem(405);

    let metrics = String::from_utf8(get(router, "/metrics").await.body).unwrap();
    let route = r#"route="/v1/resources/{resource_id}""#;
    assert!(metrics.contains(route), "{metrics}");
    assert!(!metrics.contains("acme/leases"), "{metrics}");

    let problem = get(router, "/v1/templates/tenant//*").await.problem(404);
    let hint = "if the slashes are part of the name: /v1/templates/tenant%2F%2F*";
    assert!(problem.detail.ends_with(hint), "{problem:?}");
}

#[tokio::test]
async fn unknown_query_parameters_are_rejected_everywhere() {
    let stored = stored();
    let lenient = ["/livez", "/readyz", "/metrics", "/openapi.json"];
    for Operation { path, method, .. } in operations() {
        let uri = path
            .replace("{identifier_glob}", "db")
            .replace("{name}", "first")
            .replace("{resource_id}", "db");
        let request = Request::builder()
            .method(&method)
            .uri(format!("{uri}?limitt=1"))
            .header("content-type", "application/json");
        let reply = send(&stored.router, request.body("{}".into()).unwrap()).await;
        if lenient.contains(&&*path) {
            assert_eq!(reply.status, 200, "{method} {path}");
            continue;
        }
        let detail = reply.problem(400).detail;
        let start = "unknown query parameter `limitt`; ";
        assert!(detail.starts_with(start), "{method} {path}: {detail}");
        if method == Method::GET && ["/v1/resources", "/v1/history"].contains(&&*path) {
            assert!(detail.ends_with("did you mean `limit`?"), "{detail}");
        }
    }
    assert_eq!(get(&stored.router, "/docs/?x=1").await.status, 200);
}
