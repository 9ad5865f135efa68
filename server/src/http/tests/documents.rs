//! Reading and changing the document.

use serde_json::json;

use super::*;

const DOCUMENT: &str = "
resources:
- {identifier_glob: 'tenant/*', capacity: 10}
- {identifier_glob: db, capacity: 5, algorithm: {kind: STATIC}}
- {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}
rules:
- {name: first, service: shop, resource: db}
";

/// A server with a store that has this document.
pub(super) fn stored() -> Stored {
    Stored::with(&Document::parse(DOCUMENT).unwrap())
}

async fn delete(router: &Router, uri: &str) -> Reply {
    send(router, Request::delete(uri).body(Body::empty()).unwrap()).await
}

async fn put_if(router: &Router, uri: &str, header: (&str, &str), body: &str) -> Reply {
    let request = Request::put(uri)
        .header("content-type", "application/json")
        .header(header.0, header.1);
    send(router, request.body(body.to_owned().into()).unwrap()).await
}

/// The globs of all templates, in their order.
pub(super) async fn globs(router: &Router) -> Vec<String> {
    let document = get(router, "/v1/templates").await.json();
    let templates = document["resources"].as_array().unwrap();
    templates
        .iter()
        .map(|it| it["identifier_glob"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn document_can_be_put_back_unchanged() {
    let stored = stored();
    let reply = get(&stored.router, "/v1/templates").await;
    let tag = reply.header("etag").to_owned();
    assert_eq!(reply.header("cache-control"), "no-cache");
    let document: doorman_openapi::Document = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((document.resources.len(), document.rules.len()), (3, 1));
    assert!(document.resources[0].algorithm.is_none());

    let known = Request::get("/v1/templates").header("if-none-match", &tag);
    let again = send(&stored.router, known.body(Body::empty()).unwrap()).await;
    assert_eq!((again.status.as_u16(), again.body.len()), (304, 0));
    let other = Request::get("/v1/templates").header("if-match", "\"x\"");
    let other = send(&stored.router, other.body(Body::empty()).unwrap()).await;
    assert_eq!(other.header("etag"), tag);
    other.problem(412);

    let same = put(&stored.router, "/v1/templates", reply.body).await;
    assert_eq!((same.status.as_u16(), same.header("etag")), (200, &*tag));
    let history = get(&stored.router, "/v1/history").await.json();
    assert_eq!(
        history["changes"].as_array().unwrap().len(),
        1,
        "nothing changed"
    );
}

#[tokio::test]
async fn new_document_is_active_immediately() {
    let stored = stored();
    let text = r#"{"resources": [{"identifier_glob": "*", "capacity": 7, "algorithm": {"kind": "STATIC"}}]}"#;
    let reply = put(&stored.router, "/v1/templates", text).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["resources"][0]["capacity"], 7.0);
    let tag = reply.header("etag");
    let status = get(&stored.router, "/v1/status").await.json();
    assert_eq!(
        format!("\"{}\"", status["config_version"].as_str().unwrap()),
        tag
    );
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "db", "wants": 50}]}"#;
    let response = post(&stored.router, "/v1/capacity", ask).await.json();
    assert_eq!(response["resources"][0]["gets"]["capacity"], 7.0);
    let reported = get(&stored.router, "/v1/rules?service=shop").await.json();
    assert_eq!(reported["rules"], json!([]));
}

#[tokio::test]
async fn put_response_has_the_warnings() {
    let stored = stored();
    let short = r#"{"capacity": 1, "algorithm": {"kind": "STATIC", "learning_mode_duration": 1}}"#;
    let reply = put(&stored.router, "/v1/templates/short", short).await;
    assert_eq!(reply.status, 201);
    let document = get(&stored.router, "/v1/templates").await.body;
    let whole = put(&stored.router, "/v1/templates", document).await;
    for reply in [reply, whole] {
        let warnings = &reply.json()["warnings"];
        let first = warnings[0].as_str().unwrap();
        assert!(first.contains("learning_mode_duration"), "{warnings}");
    }
    delete(&stored.router, "/v1/templates/short").await;
    let document = get(&stored.router, "/v1/templates").await.body;
    let reply = put(&stored.router, "/v1/templates", document).await;
    assert!(reply.json().get("warnings").is_none());
}

#[tokio::test]
async fn template_is_created_replaced_and_deleted() {
    let stored = stored();
    let path = "/v1/templates/a%2F%3F%5B%C3%BC%5D*";
    get(&stored.router, path).await.problem(404);
    delete(&stored.router, path).await.problem(404);

    let made = put(&stored.router, path, r#"{"capacity": 1}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(
        globs(&stored.router).await,
        ["tenant/*", "db", "a/?[ü]*", "*"]
    );
    let shown = get(&stored.router, path).await;
    assert_eq!(shown.header("etag"), made.header("etag"));
    assert_eq!(shown.json(), made.json());
    assert_eq!(shown.json()["identifier_glob"], "a/?[ü]*");

    let replaced = put(&stored.router, path, r#"{"capacity": 2}"#).await;
    assert_eq!(replaced.status, 200);
    assert_ne!(replaced.header("etag"), made.header("etag"));
    let back = put(&stored.router, path, made.body.clone()).await;
    assert_eq!(
        back.header("etag"),
        made.header("etag"),
        "it says the same again"
    );

    let gone = delete(&stored.router, path).await;
    assert_eq!((gone.status.as_u16(), gone.body.len()), (204, 0));
    get(&stored.router, path).await.problem(404);
}

#[tokio::test]
async fn stale_etag_is_a_failed_precondition() {
    let stored = stored();
    let router = &stored.router;
    let db = "/v1/templates/db";
    let old = get(router, db).await.header("etag").to_owned();
    let body =
        |capacity| format!(r#"{{"capacity": {capacity}, "algorithm": {{"kind": "STATIC"}}}}"#);
    let first = put_if(router, db, ("if-match", &old), &body(1)).await;
    assert_eq!(first.status, 200);
    let second = put_if(router, db, ("if-match", &old), &body(2)).await;
    assert_eq!(second.header("etag"), first.header("etag"));
    second.problem(412);
    assert_eq!(get(router, db).await.json()["capacity"], 1.0);

    let weak = format!("W/{}", first.header("etag"));
    put_if(router, db, ("if-match", &weak), &body(2))
        .await
        .problem(412);
    put_if(router, db, ("if-none-match", "*"), &body(2))
        .await
        .problem(412);
    let absent = "/v1/templates/absent";
    let missing = put_if(router, absent, ("if-match", "*"), &body(2)).await;
    assert_eq!(missing.header("etag"), "");
    missing.problem(412);
    let new = put_if(router, absent, ("if-none-match", "*"), &body(2)).await;
    assert_eq!(new.status, 201);

    let whole = get(router, "/v1/templates").await;
    let text = String::from_utf8(whole.body.clone()).unwrap();
    put_if(router, "/v1/templates", ("if-match", &old), &text)
        .await
        .problem(412);
    let request = Request::delete(db).header("if-match", &old);
    send(router, request.body(Body::empty()).unwrap())
        .await
        .problem(412);
    let request = Request::delete(db).header("if-match", first.header("etag"));
    let gone = send(router, request.body(Body::empty()).unwrap()).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test]
async fn invalid_document_changes_nothing() {
    let stored = stored();
    let before = get(&stored.router, "/v1/templates").await.body;
    let pointers = |reply: Reply| {
        let errors = reply.problem(422).errors;
        let mut pointers: Vec<_> = errors.into_iter().map(|it| it.pointer).collect();
        pointers.sort();
        pointers
    };
    let text = r#"{"resources": [{"identifier_glob": "a", "capacity": 1e999}, {"capacity": -1}], "rule": []}"#;
    let reply = put(&stored.router, "/v1/templates", text).await;
    assert_eq!(
        pointers(reply),
        [
            "/resources/0/algorithm",
            "/resources/0/capacity",
            "/resources/1/algorithm",
            "/resources/1/capacity",
            "/resources/1/identifier_glob",
            "/rule"
        ]
    );
    let text =
        r#"{"identifier_glob": "x", "capacity": "1", "capacity": 2, "algorithm": {"kind": 99}}"#;
    let reply = put(&stored.router, "/v1/templates/db", text).await;
    assert_eq!(
        pointers(reply),
        [
            "/algorithm/kind",
            "/capacity",
            "/capacity",
            "/identifier_glob"
        ]
    );
    let reply = put(&stored.router, "/v1/rules/second", r#"{"service": ""}"#).await;
    assert_eq!(pointers(reply), ["/resource", "/service"]);
    for (body, status) in [
        ("{", 400),
        ("", 400),
        ("a: 1", 400),
        ("7", 422),
        ("null", 422),
    ] {
        for path in ["/v1/templates", "/v1/templates/db", "/v1/rules/first"] {
            put(&stored.router, path, body).await.problem(status);
        }
    }
    put(&stored.router, "/v1/templates", vec![0xff])
        .await
        .problem(400);
    let plain = Request::put("/v1/templates").body("{}".into()).unwrap();
    send(&stored.router, plain).await.problem(415);
    put(&stored.router, "/v1/templates?dry=true", "{}")
        .await
        .problem(400);
    put(&stored.router, "/v1/templates?dry_run=yes", "{}")
        .await
        .problem(400);
    assert_eq!(get(&stored.router, "/v1/templates").await.body, before);
}

#[tokio::test]
async fn template_in_use_cannot_be_deleted() {
    let stored = stored();
    let problem = delete(&stored.router, "/v1/templates/*").await.problem(409);
    assert!(problem.detail.contains("tenant/*"), "{problem:?}");
    assert_eq!(problem.errors[0].pointer, "/resources/0/algorithm");
}

#[tokio::test]
async fn rule_is_created_replaced_and_deleted() {
    let stored = stored();
    let router = &stored.router;
    let path = "/v1/rules/per-tenant";
    let made = put(router, path, r#"{"service": "shop", "resource": "api"}"#).await;
    assert_eq!(made.status, 201);
    let reported = get(router, "/v1/rules?service=shop").await.json();
    assert_eq!(reported["rules"][1], made.json());
    assert_eq!(get(router, path).await.header("etag"), made.header("etag"));
    let text = r#"{"service": "shop", "resource": "api", "cost": 2}"#;
    let replaced = put_if(router, path, ("if-match", made.header("etag")), text).await;
    assert_eq!(replaced.status, 200);
    assert_eq!(delete(router, path).await.status, 204);
    delete(router, path).await.problem(404);
    get(router, path).await.problem(404);
}

#[tokio::test]
async fn dry_run_describes_the_change_and_makes_none() {
    let stored = stored();
    let router = &stored.router;
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "tenant/a", "wants": 8}, {"resource_id": "db", "wants": 1}]}"#;
    post(router, "/v1/capacity", ask).await;
    let before = get(router, "/v1/templates").await.body;
    let reply = put(
        router,
        "/v1/templates/tenant%2Fa?dry_run=true",
        r#"{"capacity": 3}"#,
    )
    .await;
    assert_eq!(reply.status, 200);
    let account: doorman_openapi::DryRun = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(account.changes, [r#"template "tenant/a" added"#]);
    assert_eq!((account.change_count, account.resource_count), (1, 1));
    assert!(account.looked_at_all);
    let effect = &account.resources[0];
    assert_eq!(effect.resource_id.as_str(), "tenant/a");
    assert_eq!((effect.sum_has, effect.clients), (8.0, 1));
    assert_eq!(
        effect.changes,
        ["template: tenant/* → tenant/a", "capacity: 10 → 3"]
    );
    assert_eq!(get(router, "/v1/templates").await.body, before);

    let reply = delete(router, "/v1/templates/db?dry_run=true").await.json();
    assert_eq!(
        reply["resources"][0]["changes"],
        json!([
            "template: db → *",
            "capacity: 5 → 100",
            "algorithm.kind: STATIC → FAIR_SHARE"
        ])
    );
    let reply = delete(router, "/v1/rules/first?dry_run=true").await.json();
    assert_eq!(reply["changes"], json!([r#"rule "first" removed"#]));
    assert_eq!(reply["resources"], json!([]));
    let reply = put_if(
        router,
        "/v1/templates/db?dry_run=true",
        ("if-match", "\"x\""),
        "{}",
    )
    .await;
    reply.problem(412);
    put(router, "/v1/templates?dry_run=true", "{}")
        .await
        .problem(422);
    assert_eq!(get(router, "/v1/templates").await.body, before);
}

#[tokio::test]
async fn feedback_of_a_template_is_changed_and_compared() {
    let stored = stored();
    let router = &stored.router;
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "tenant/a", "wants": 8}]}"#;
    post(router, "/v1/capacity", ask).await;
    let patch = |uri: &str, text: &'static str| {
        let request = Request::patch(uri).header("content-type", "application/json");
        send(router, request.body(text.into()).unwrap())
    };
    let uri = "/v1/templates/tenant%2F*";
    let dry_run = patch(
        "/v1/templates/tenant%2F*?dry_run=true",
        r#"{"feedback": {"mode": "observe"}}"#,
    )
    .await
    .json();
    assert_eq!(
        dry_run["resources"][0]["changes"],
        json!([
            "feedback.floor: absent → 0.1",
            "feedback.headers: absent → true",
            "feedback.mode: absent → \"observe\"",
            "feedback.tolerate: absent → 0.01"
        ])
    );
    let set = patch(uri, r#"{"feedback": {"tolerate": 0.1}}"#)
        .await
        .json();
    let feedback = json!({"mode": "act", "floor": 0.1, "tolerate": 0.1, "headers": true});
    assert_eq!(set["feedback"], feedback);
    assert_eq!(get(router, uri).await.json()["feedback"], feedback);
    let invalid = patch(uri, r#"{"feedback": {"latency": 1}}"#).await;
    let problem = invalid.problem(422);
    let error = &problem.errors[0];
    assert_eq!(error.pointer, "/feedback/latency");
    assert_eq!(error.detail, "must be left out: latency is for gauges only");
    let removed = patch(uri, r#"{"feedback": null}"#).await.json();
    assert_eq!(removed.get("feedback"), None);
}

#[tokio::test]
async fn change_that_ends_limits_says_so() {
    let document = "resources: [{identifier_glob: db, capacity: 5, algorithm: {kind: STATIC}},
        {identifier_glob: '*', capacity: 9, algorithm: {kind: STATIC}}]";
    let stored = Stored::with(&Document::parse(document).unwrap());
    let router = &stored.router;
    let unlimited = "resources: has no template for \"*\": resources that match no template are \
        unlimited, or blocked with `--unmatched refuse`";
    for client in ["a", "b"] {
        let ask = json!({"client_id": client, "resources": [
            {"resource_id": "db", "wants": 1}, {"resource_id": "x", "wants": 1}
        ]});
        post(router, "/v1/capacity", ask.to_string()).await;
    }

    let dry_run = put(router, "/v1/templates?dry_run=true", r#"{"resources": []}"#).await;
    let lost = "live resources that become unlimited: 2; leases of their clients: 4";
    assert_eq!(dry_run.json()["warnings"], json!([lost, unlimited]));
    let uri = "/v1/templates/*?dry_run=true";
    let dry_run = delete(router, uri).await.json();
    let lost = "live resources that become unlimited: 1; leases of their clients: 2";
    assert_eq!(dry_run["warnings"], json!([lost, unlimited]));
    assert_eq!(
        dry_run["resources"],
        json!([{
            "resource_id": "x", "clients": 2, "sum_has": 2.0,
            "changes": ["template: * → none", "capacity: 9 → unlimited"]
        }])
    );

    let gone = delete(router, "/v1/templates/*").await;
    assert_eq!(gone.status, 200);
    assert_eq!(gone.json(), json!({"warnings": [lost, unlimited]}));
    let status = get(router, "/v1/status").await.json();
    assert_eq!(status["config_warnings"], json!([unlimited]));
    let text = r#"{"capacity": 6}"#;
    let request = Request::patch("/v1/templates/db").header("content-type", "application/json");
    let patched = send(router, request.body(text.into()).unwrap()).await;
    let before = "the document has 1 more warning, as before; doorman export > limits.yaml and \
                  doorman check limits.yaml list them";
    assert_eq!(patched.json()["warnings"], json!([before]));
    let back = r#"{"capacity": 9, "algorithm": {"kind": "STATIC"}}"#;
    let dry_run = put(router, uri, back).await.json();
    assert_eq!(
        dry_run["resources"][0]["changes"],
        json!(["template: none → *", "capacity: unlimited → 9"])
    );
    let whole = put(router, "/v1/templates", r#"{"resources": []}"#).await;
    assert_eq!(whole.json()["warnings"], json!([lost, unlimited]));
}

#[tokio::test]
async fn changes_and_dry_runs_compare_effective_limits() {
    let document =
        "resources: [{identifier_glob: free, capacity: 5, algorithm: {kind: NO_ALGORITHM}},
        {identifier_glob: db, capacity: 5, algorithm: {kind: STATIC}}]";
    let stored = Stored::with(&Document::parse(document).unwrap());
    let router = &stored.router;
    let ask = json!({"client_id": "c", "resources": [
        {"resource_id": "db", "wants": 1}, {"resource_id": "free", "wants": 1}
    ]});
    post(router, "/v1/capacity", ask.to_string()).await;
    let counted = |warnings: &Value| {
        let warnings = warnings.as_array().unwrap().iter();
        let warnings = warnings.map(|it| it.as_str().unwrap().to_owned());
        let effects = warnings.filter(|it| it.starts_with("live resources"));
        effects.collect::<Vec<_>>()
    };

    let dry_run = delete(router, "/v1/templates/free?dry_run=true")
        .await
        .json();
    assert_eq!(
        dry_run["resources"][0]["changes"],
        json!(["template: free → none"])
    );
    assert_eq!(counted(&dry_run["warnings"]), [""; 0]);

    let uri = "/v1/templates/db?dry_run=true";
    for (change, outcome) in [
        (
            r#"{"capacity": 5, "algorithm": {"kind": "NO_ALGORITHM"}}"#,
            "unlimited",
        ),
        (
            r#"{"capacity": 0, "algorithm": {"kind": "STATIC"}}"#,
            "blocked",
        ),
    ] {
        let dry_run = put(router, uri, change).await.json();
        let expected =
            format!("live resources that become {outcome}: 1; leases of their clients: 1");
        assert_eq!(counted(&dry_run["warnings"]), [expected.as_str()]);
        let made = put(router, "/v1/templates/db", change).await.json();
        assert_eq!(counted(&made["warnings"]), [expected.as_str()]);
        let again = put(router, "/v1/templates/db", change).await.json();
        assert_eq!(counted(&again["warnings"]), [""; 0]);
    }
}

#[tokio::test]
async fn incomplete_dry_run_counts_at_least() {
    let templates =
        (0..9_999).map(|number| format!("{{identifier_glob: a{number}, capacity: 1}}, "));
    let document = format!(
        "resources: [{}{{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}]",
        templates.collect::<String>()
    );
    let stored = Stored::with(&Document::parse(&document).unwrap());
    let router = &stored.router;
    let resources: Vec<_> = (0..600)
        .map(|number| json!({"resource_id": format!("r{number}"), "wants": 1}))
        .collect();
    for part in resources.chunks(100) {
        let ask = json!({"client_id": "c", "resources": part});
        assert_eq!(
            post(router, "/v1/capacity", ask.to_string()).await.status,
            200
        );
    }
    let change = r#"{"resources": []}"#;
    let dry_run = put(router, "/v1/templates?dry_run=true", change)
        .await
        .json();
    assert_eq!(dry_run["looked_at_all"], true, "{dry_run}");
    let uri = "/v1/templates/*?dry_run=true";
    let change = r#"{"capacity": 1, "algorithm": {"kind": "NO_ALGORITHM"}}"#;
    let dry_run = put(router, uri, change).await.json();
    assert_eq!(dry_run["looked_at_all"], false, "{dry_run}");
    assert_eq!(
        dry_run["warnings"][0],
        "live resources that become unlimited: at least 500; leases of their clients: at least 500"
    );
}

#[tokio::test]
async fn dry_run_has_at_most_100_warnings() {
    let shadowed =
        (0..150).map(|number| format!("{{identifier_glob: a{number}/*, capacity: 1}}, "));
    let document = format!(
        "resources: [{{identifier_glob: 'a*', capacity: 1}}, {}{{identifier_glob: '*', capacity: 1, \
         algorithm: {{kind: STATIC}}}}]",
        shadowed.collect::<String>()
    );
    let stored = Stored::with(&Document::parse(&document).unwrap());
    let router = &stored.router;
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "x", "wants": 8}]}"#;
    post(router, "/v1/capacity", ask).await;
    let change = Document::parse(&document.replace("STATIC", "NO_ALGORITHM")).unwrap();
    let uri = "/v1/templates?dry_run=true";
    let dry_run = put(router, uri, change.to_json()).await.json();
    let warnings = dry_run["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 100, "{dry_run}");
    assert_eq!(
        warnings[0],
        "live resources that become unlimited: 1; leases of their clients: 1"
    );
}

#[tokio::test]
async fn lost_template_blocks_where_unmatched_resources_are_refused() {
    let settings = ledger::Settings {
        unmatched: UnmatchedPolicy::Refuse,
        ..SETTINGS
    };
    let router = crate::http::router(app_of(Document::built_in(), settings, Moment::NEVER));
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "x", "wants": 8}]}"#;
    post(&router, "/v1/capacity", ask).await;
    let dry_run = delete(&router, "/v1/templates/*?dry_run=true").await.json();
    assert_eq!(
        dry_run["warnings"][0],
        "live resources that become blocked: 1; leases of their clients: 1"
    );
    assert_eq!(
        dry_run["resources"][0]["changes"],
        json!(["template: * → none", "capacity: 1000 → 0"])
    );
}

#[tokio::test]
async fn history_names_author_and_change() {
    let stored = stored();
    let router = &stored.router;
    put(router, "/v1/templates/a", r#"{"capacity": 1}"#).await;
    put(router, "/v1/templates/a", r#"{"capacity": 2}"#).await;

    let page = get(router, "/v1/history?limit=2").await.json();
    let entries = |page: &Value| -> Vec<_> {
        let changes = page["changes"].as_array().unwrap().iter();
        changes
            .map(|it| {
                (
                    it["revision"].clone(),
                    it["changed_by"].clone(),
                    it["change"].clone(),
                )
            })
            .collect()
    };
    assert_eq!(
        entries(&page),
        [
            (
                json!(3),
                json!("anonymous"),
                json!(r#"template "a": capacity: 1 → 2"#)
            ),
            (json!(2), json!("anonymous"), json!(r#"template "a" added"#)),
        ]
    );
    assert_eq!(page["next_cursor"], "2");
    let last = get(router, "/v1/history?cursor=2").await.json();
    assert_eq!(
        entries(&last),
        [(json!(1), json!("doorman"), json!("the first document"))]
    );
    assert!(last.get("next_cursor").is_none());
    for query in ["cursor=x", "cursor=-1", "limit=0", "page=2"] {
        get(router, &format!("/v1/history?{query}"))
            .await
            .problem(400);
    }
}

#[tokio::test]
async fn file_document_is_read_only_but_dry_runs_work() {
    let router = router();
    let text = r#"{"capacity": 1, "algorithm": {"kind": "STATIC"}}"#;
    for path in ["/v1/templates/a", "/v1/templates", "/v1/rules/a"] {
        let problem = put(&router, path, text).await.problem(409);
        assert!(
            problem
                .detail
                .contains("it comes from built-in; change it there"),
            "{problem:?}"
        );
    }
    delete(&router, "/v1/templates/*").await.problem(409);
    let reply = put(&router, "/v1/templates/a?dry_run=true", text).await;
    assert_eq!(reply.json()["change_count"], 1);
    assert_eq!(
        get(&router, "/v1/history").await.json()["changes"],
        json!([])
    );
}

#[tokio::test]
async fn failed_write_is_rejected_and_leases_continue() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("doorman.db");
    let opened = Store::open(&path, &Document::built_in(), 0).unwrap();
    let app = app_with(opened.document);
    let app = app.with_store(opened.store);
    let router = crate::http::router(app);
    std::fs::rename(&path, home.path().join("moved")).unwrap();
    let reply = put(&router, "/v1/templates/a", r#"{"capacity": 1}"#).await;
    assert_eq!(reply.header("retry-after"), "1");
    let problem = reply.problem(503);
    assert!(
        problem.detail.contains("nothing was changed"),
        "{problem:?}"
    );
    get(&router, "/v1/templates/a").await.problem(404);
    let ask = r#"{"client_id": "c", "resources": [{"resource_id": "a", "wants": 8}]}"#;
    let response = post(&router, "/v1/capacity", ask).await.json();
    assert_eq!(response["resources"][0]["reason"], "granted");
    let metrics = String::from_utf8(get(&router, "/metrics").await.body).unwrap();
    let line = r#"doorman_config_writes_total{outcome="failed"} 1"#;
    assert!(metrics.lines().any(|it| it == line), "{metrics}");
}
