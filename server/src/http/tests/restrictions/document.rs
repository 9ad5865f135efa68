//! Access of a tenant to the document.

use doorman_openapi::DryRun;

use super::*;

#[tokio::test]
async fn tenant_accesses_only_its_own_templates_and_rules() {
    let tenants = Tenants::new().await;
    let call = async |method: &str, uri: &str, body: Value| {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("authorization", format!("Bearer {}", tenant_a()))
            .header("content-type", "application/json");
        let body = if body.is_null() {
            Body::empty()
        } else {
            body.to_string().into()
        };
        send(&tenants.router, request.body(body).unwrap()).await
    };
    let template = json!({"capacity": 5});
    let lasting = |seconds: f64| json!({"capacity": 5, "algorithm": {"kind": "FAIR_SHARE", "lease_length": seconds}});
    let rule_of = |service: &str| json!({"service": service, "resource": "a/api"});
    let rule_on = |resource: &str| json!({"service": "a-web", "resource": resource});
    let urgent =
        |priority: i32| json!({"service": "a-web", "resource": "a/api", "priority": priority});
    let before = tenants.get(&operator(), "/v1/templates").await.json();
    for (method, uri, body) in [
        ("GET", "/v1/templates", Value::Null),
        ("PUT", "/v1/templates", before.clone()),
        ("PUT", "/v1/templates?dry_run=true", before.clone()),
        ("GET", "/v1/history/1", Value::Null),
        ("GET", "/v1/history/999", Value::Null),
        ("GET", "/v1/templates/%2A", Value::Null),
        ("PUT", "/v1/templates/%2A", template.clone()),
        ("PUT", "/v1/templates/%2A?dry_run=true", template.clone()),
        ("GET", "/v1/templates/b%2F%2A", Value::Null),
        ("PUT", "/v1/templates/b%2F%2A", template.clone()),
        ("PUT", "/v1/templates/b%2Fnew", template.clone()),
        // A glob that covers others, too.
        ("PUT", "/v1/templates/a%2A", template.clone()),
        ("PUT", "/v1/templates/%3F%2Fdb", template.clone()),
        // Also if the name is literal.
        ("PUT", "/v1/templates/%5Ca%2Fdb", template.clone()),
        // Longer than any lease: after a crash, everybody would wait for its end.
        ("PUT", "/v1/templates/a%2F%2A", lasting(60.001)),
        (
            "PUT",
            "/v1/templates/a%2F%2A?dry_run=true",
            lasting(31_536_000.0),
        ),
        ("PATCH", "/v1/templates/%2A", template.clone()),
        ("PATCH", "/v1/templates/b%2F%2A", template.clone()),
        ("PATCH", "/v1/templates/b/*", template.clone()),
        ("PATCH", "/v1/templates/b%2Fnone", template.clone()),
        ("PATCH", "/v1/rules/of-b", rule_of("a-web")),
        ("PATCH", "/v1/rules/of-a", rule_of("b-web")),
        ("PATCH", "/v1/rules/of-a", rule_on("b/api")),
        ("PATCH", "/v1/rules/none", rule_on("a/api")),
        ("GET", "/v1/templates/b/*", Value::Null),
        ("DELETE", "/v1/templates/b%2F%2A", Value::Null),
        ("DELETE", "/v1/templates/b%2Fnone", Value::Null),
        ("GET", "/v1/rules/of-b", Value::Null),
        ("GET", "/v1/rules/none", Value::Null),
        ("DELETE", "/v1/rules/of-b", Value::Null),
        ("DELETE", "/v1/rules/none", Value::Null),
        // Neither rules of others, nor for others, nor for all.
        ("PUT", "/v1/rules/of-b", rule_of("a-web")),
        ("PUT", "/v1/rules/of-a", rule_of("b-web")),
        ("PUT", "/v1/rules/new", rule_of("*")),
        ("PUT", "/v1/rules/new?dry_run=true", rule_of("b-web")),
        // Nor may its services spend resources of others, or with a higher priority.
        ("PUT", "/v1/rules/new", rule_on("b/api")),
        ("PUT", "/v1/rules/new?dry_run=true", rule_on("b/api")),
        ("PUT", "/v1/rules/new", rule_on("{header:x-tenant}/api")),
        ("PUT", "/v1/rules/new", rule_on("a{header:x-tenant}")),
        ("PUT", "/v1/rules/of-a", rule_on("b/api")),
        ("PUT", "/v1/rules/of-a", urgent(2)),
        ("PUT", "/v1/rules/above-a", rule_on("a/api")),
        ("DELETE", "/v1/rules/above-a", Value::Null),
        ("PUT", "/v1/rules/before-a", urgent(0)),
        ("DELETE", "/v1/rules/before-a", Value::Null),
    ] {
        let reply = call(method, uri, body).await;
        assert_eq!(
            reply.problem(403).kind,
            "/problems/forbidden",
            "{method} {uri}"
        );
    }
    assert_eq!(
        tenants.get(&operator(), "/v1/templates").await.json(),
        before
    );

    // The forbidden fields are listed.
    let all = json!({"service": "*", "resource": "b/api", "priority": 2});
    let problem = call("PUT", "/v1/rules/new", all).await.problem(403);
    let pointers = problem.errors.iter().map(|it| it.pointer.as_str());
    assert_eq!(
        pointers.collect::<Vec<_>>(),
        ["/service", "/resource", "/priority"]
    );

    let long = call("PUT", "/v1/templates/a%2F%2A", lasting(61.0)).await;
    let problem = long.problem(403);
    assert_eq!(problem.errors[0].pointer, "/algorithm/lease_length");

    for (method, uri, body, status) in [
        (
            "PUT",
            "/v1/templates/a%2F%2A?dry_run=true",
            template.clone(),
            200,
        ),
        ("PUT", "/v1/templates/a%2F%2A", template.clone(), 201),
        ("PUT", "/v1/templates/a%2F%2A", lasting(60.0), 200),
        ("PATCH", "/v1/templates/a/*", template.clone(), 200),
        ("GET", "/v1/templates/a%2F%2A", Value::Null, 200),
        ("DELETE", "/v1/templates/a%2F%2A", Value::Null, 204),
        ("GET", "/v1/rules/of-a", Value::Null, 200),
        ("PUT", "/v1/rules/of-a", rule_of("a-*"), 200),
        ("GET", "/v1/rules/above-a", Value::Null, 200),
        ("PUT", "/v1/rules/of-a", rule_on("a/{header:x-user}"), 200),
        ("PATCH", "/v1/rules/of-a", rule_on("a/api"), 200),
        ("PUT", "/v1/rules/of-a", rule_on("shared"), 200),
        ("PUT", "/v1/rules/of-a", urgent(1), 200),
        ("PUT", "/v1/rules/new", rule_of("a-batch"), 201),
        ("DELETE", "/v1/rules/new", Value::Null, 204),
    ] {
        let reply = call(method, uri, body).await;
        assert_eq!(reply.status, status, "{method} {uri}: {reply:?}");
    }
    let history = tenants.get(&operator(), "/v1/history").await.json();
    assert_eq!(history["changes"][0]["changed_by"], "a of doorman");
}

#[tokio::test]
async fn dry_run_of_a_tenant_reveals_nothing_of_others() {
    let tenants = Tenants::new().await;
    // More than a dry run scans.
    for part in 0..3 {
        tenants.lease_of_b(part * 3_500..(part + 1) * 3_500).await;
    }
    let account = async |token: &str| {
        let request = Request::put("/v1/templates/a%2F%2A?dry_run=true")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        let body = json!({"capacity": 5}).to_string();
        let reply = send(&tenants.router, request.body(body.into()).unwrap()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        serde_json::from_value::<DryRun>(reply.json()).unwrap()
    };
    let all = account(&operator()).await;
    assert_eq!((all.warnings.len(), all.looked_at_all), (1, false));
    let own = account(&tenant_a()).await;
    assert_eq!((own.warnings, own.looked_at_all), (vec![], true));
    assert_eq!(own.resources, all.resources);
    assert_eq!(own.resources[0].resource_id.as_str(), "a/db");
}

#[tokio::test]
async fn place_of_a_new_template_reveals_nothing_of_others() {
    let tenants = Tenants::new().await;
    let put = async |token: &str, uri: &str| {
        let request = Request::put(uri)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        let body = json!({"capacity": 5}).to_string();
        let reply = send(&tenants.router, request.body(body.into()).unwrap()).await;
        assert!(reply.status.is_success(), "{reply:?}");
        String::from_utf8(reply.body).unwrap()
    };
    put(&operator(), "/v1/templates/%3F%2F%2A").await;
    let dry_run = "/v1/templates/a/x%2A?dry_run=true";
    assert!(put(&operator(), dry_run).await.contains("`?/*`"));
    for uri in [dry_run, "/v1/templates/a/x%2A"] {
        let own = put(&tenant_a(), uri).await;
        assert!(!own.contains("?/*"), "{own}");
    }
}

#[tokio::test]
async fn tenant_may_fill_a_quarter_of_the_document() {
    let tenants = Tenants::new().await;
    let put = async |token: &str, number: usize, length: usize| {
        let uri = format!("/v1/templates/a%2F{number}");
        let request = Request::put(uri)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        let body = json!({"capacity": 5, "description": "x".repeat(length)}).to_string();
        send(&tenants.router, request.body(body.into()).unwrap()).await
    };
    for number in 0..2 {
        assert_eq!(put(&tenant_a(), number, 500_000).await.status, 201);
    }
    let problem = put(&tenant_a(), 2, 60_000).await.problem(422);
    assert!(problem.detail.contains("1048576"), "{problem:?}");
    // The operator may exceed it; the tenant may then only shrink it.
    assert_eq!(put(&operator(), 2, 600_000).await.status, 201);
    assert_eq!(put(&tenant_a(), 0, 400_000).await.status, 200);
    put(&tenant_a(), 0, 400_100).await.problem(422);
    assert_eq!(put(&tenant_a(), 2, 10).await.status, 200);
    assert_eq!(put(&tenant_a(), 3, 10).await.status, 201);
}

/// A request with a body, by a token.
async fn edit(tenants: &Tenants, token: &str, method: &str, uri: &str, body: &Value) -> Reply {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    send(
        &tenants.router,
        request.body(body.to_string().into()).unwrap(),
    )
    .await
}

#[tokio::test]
async fn tenant_reads_the_history_of_its_own_entries() {
    let tenants = Tenants::new().await;
    for (token, method, uri, body) in [
        (
            operator(),
            "PUT",
            "/v1/templates/b%2Fx",
            json!({"capacity": 1}),
        ),
        (
            tenant_a(),
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 5}),
        ),
        (
            operator(),
            "PATCH",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 6}),
        ),
        (operator(), "PATCH", "/v1/rules/of-b", json!({"cost": 2})),
        (tenant_a(), "PATCH", "/v1/rules/of-a", json!({"cost": 3})),
        // One of an operator changes entries of both.
        (operator(), "DELETE", "/v1/templates/b%2Fx", json!({})),
    ] {
        let reply = edit(&tenants, &token, method, uri, &body).await;
        assert!(reply.status.is_success(), "{uri}: {reply:?}");
    }
    let both = json!({"resources": [
        {"identifier_glob": "b/*", "capacity": 51, "algorithm": {"kind": "FAIR_SHARE"}},
        {"identifier_glob": "a/db", "capacity": 7, "algorithm": {"kind": "FAIR_SHARE"}}]});
    let reply = edit(&tenants, &operator(), "PUT", "/v1/templates", &both).await;
    assert_eq!(reply.status, 200);

    let page = tenants.get(&tenant_a(), "/v1/history").await.json();
    let changes = page["changes"].as_array().unwrap();
    let listed = changes.iter().map(|it| {
        (
            it["changed_by"].as_str().unwrap(),
            it["change"].as_str().unwrap(),
        )
    });
    let listed: Vec<_> = listed.collect();
    let (newest, older) = listed.split_first().unwrap();
    assert!(
        newest.1.contains("template \"a/db\"") && newest.1.contains("rule \"of-a\" removed"),
        "{newest:?}"
    );
    assert_eq!(
        older,
        [
            ("a of doorman", "rule \"of-a\": cost: 1 → 3"),
            ("another caller", "template \"a/db\": capacity: 5 → 6"),
            ("a of doorman", "template \"a/db\" added"),
        ]
    );
    let text = page.to_string();
    for hidden in [
        "b/", "of-b", "operator", "revision", "version", "cursor", "more",
    ] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let limited = tenants.get(&tenant_a(), "/v1/history?limit=1").await.json();
    assert_eq!(limited["changes"].as_array().unwrap().len(), 1);
    assert_eq!(limited.get("next_cursor"), None);
    let clients_only = token(&json!({"sub": "c", "client_id": "c-*"}));
    let none = tenants.get(&clients_only, "/v1/history").await.json();
    assert_eq!(none, json!({"changes": []}));
}

#[tokio::test]
async fn capacities_of_a_tenant_are_bounded_by_its_token() {
    let tenants = Tenants::new().await;
    let bounded = token(&json!({"sub": "a", "resources": ["a/*", "b/*"], "max_capacity": 60}));
    let kind = |kind: &str| json!({"capacity": 5, "algorithm": {"kind": kind}});
    for (method, uri, body, pointer) in [
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 61}),
            "/capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb?dry_run=true",
            json!({"capacity": 61}),
            "/capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 6.1, "per": 0.1}),
            "/capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 61, "unit": "gauge"}),
            "/capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 5, "safe_capacity": -1}),
            "/safe_capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 5, "safe_capacity": 61}),
            "/safe_capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            kind("NO_ALGORITHM"),
            "/algorithm/kind",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            kind("STATIC"),
            "/algorithm/kind",
        ),
        (
            "PATCH",
            "/v1/templates/b%2F%2A",
            json!({"capacity": 1000}),
            "/capacity",
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 5, "algorithm": {"kind": "FAIR_SHARE", "lease_length": 4, "refresh_interval": 1}}),
            "/algorithm/lease_length",
        ),
    ] {
        let problem = edit(&tenants, &bounded, method, uri, &body)
            .await
            .problem(403);
        let pointers: Vec<_> = problem
            .errors
            .iter()
            .map(|it| it.pointer.as_str())
            .collect();
        assert_eq!(pointers, [pointer], "{method} {uri} {body}");
        assert!(
            problem.detail.contains("this token")
                || problem.detail.contains("60")
                    && problem.detail.contains("`max_capacity` of the token"),
            "{problem:?}"
        );
    }
    for (method, uri, body, status) in [
        (
            "PUT",
            "/v1/templates/a%2F%2A",
            json!({"capacity": 60, "safe_capacity": 60}),
            201,
        ),
        (
            "PUT",
            "/v1/templates/a%2Fdb",
            json!({"capacity": 3600, "per": 60}),
            201,
        ),
        (
            "PATCH",
            "/v1/templates/b%2F%2A",
            json!({"capacity": 60}),
            200,
        ),
        // `a/*` applies then.
        ("DELETE", "/v1/templates/a%2Fdb", Value::Null, 204),
        // `*`, of 100, would apply.
        ("DELETE", "/v1/templates/a%2F%2A", Value::Null, 403),
        (
            "DELETE",
            "/v1/templates/b%2F%2A?dry_run=true",
            Value::Null,
            403,
        ),
    ] {
        let reply = edit(&tenants, &bounded, method, uri, &body).await;
        assert_eq!(reply.status, status, "{method} {uri}: {reply:?}");
    }
    // Without the claim nothing bounds them.
    let reply = edit(
        &tenants,
        &tenant_a(),
        "PATCH",
        "/v1/templates/a%2F%2A",
        &json!({"capacity": 9999}),
    )
    .await;
    assert_eq!(reply.status, 200);
}
