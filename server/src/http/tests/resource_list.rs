//! Views of resources, leases and status.

use serde_json::json;

use super::*;

async fn with_leases(resources: impl IntoIterator<Item = (String, String)>) -> Router {
    let router = router();
    for (client, resource) in resources {
        let body =
            json!({"client_id": client, "resources": [{"resource_id": resource, "wants": 1}]});
        assert_eq!(
            post(&router, "/v1/capacity", body.to_string()).await.status,
            200
        );
    }
    router
}

/// All pages of a list: their lengths and elements.
async fn pages(router: &Router, uri: &str, list: &str, name: &str) -> (Vec<usize>, Vec<String>) {
    let (mut lengths, mut names) = (Vec::new(), Vec::new());
    let mut cursor = String::new();
    loop {
        let page = get(router, &format!("{uri}cursor={cursor}")).await.json();
        let elements = page[list].as_array().unwrap();
        lengths.push(elements.len());
        names.extend(
            elements
                .iter()
                .map(|one| one[name].as_str().unwrap().to_owned()),
        );
        match page.get("next_cursor") {
            Some(next) => cursor = next.as_str().unwrap().to_owned(),
            None => return (lengths, names),
        }
    }
}

#[tokio::test]
async fn resource_is_found_by_percent_encoded_name() {
    let ids = ["a/b", "a b", "ü", "..", "100%", "a?b#c", "x+y"];
    let router = with_leases(ids.map(|id| ("c".to_owned(), id.to_owned()))).await;
    for (encoded, id) in [
        "a%2Fb",
        "a%20b",
        "%C3%BC",
        "%2E%2E",
        "100%25",
        "a%3Fb%23c",
        "x+y",
    ]
    .iter()
    .zip(ids)
    {
        let view = get(&router, &format!("/v1/resources/{encoded}"))
            .await
            .json();
        assert_eq!(view["resource_id"], id);
        assert_eq!(view["sum_wants"], 1.0);
        let page = get(&router, &format!("/v1/resources/{encoded}/leases"))
            .await
            .json();
        assert_eq!(page["leases"][0]["client_id"], "c");
    }
}

#[tokio::test]
async fn resource_without_holders_is_not_found() {
    let router = router();
    for path in ["/v1/resources/db", "/v1/resources/db/leases"] {
        let problem = get(&router, path).await.problem(404);
        assert!(problem.detail.contains("`db`"), "{}", problem.detail);
    }
}

#[tokio::test]
async fn invalid_resource_names_are_malformed() {
    let router = router();
    let long = "x".repeat(257);
    for name in ["%ff", "a%00", "%0A", &long] {
        for path in [
            format!("/v1/resources/{name}"),
            format!("/v1/resources/{name}/leases"),
        ] {
            get(&router, &path).await.problem(400);
        }
    }
    get(&router, "/v1/resources//leases").await.problem(400);
}

#[tokio::test]
async fn resources_are_paged_by_name() {
    let ids = (0..120).map(|n| ("c".to_owned(), format!("tenant/{n:03}")));
    let others = ["db", "u"].map(|id| ("c".to_owned(), id.to_owned()));
    let router = with_leases(ids.chain(others)).await;

    let (lengths, names) = pages(&router, "/v1/resources?", "resources", "resource_id").await;
    assert_eq!(lengths, [50, 50, 22]);
    assert!(names.is_sorted());
    assert_eq!(names.len(), 122);

    let (lengths, names) = pages(
        &router,
        "/v1/resources?prefix=tenant%2F&limit=40&",
        "resources",
        "resource_id",
    )
    .await;
    assert_eq!(lengths, [40, 40, 40]);
    assert_eq!(
        (names[0].as_str(), names[119].as_str()),
        ("tenant/000", "tenant/119")
    );

    let (lengths, _) = pages(
        &router,
        "/v1/resources?limit=5000&",
        "resources",
        "resource_id",
    )
    .await;
    assert_eq!(lengths, [122]);
    let (lengths, _) = pages(
        &router,
        "/v1/resources?prefix=none&",
        "resources",
        "resource_id",
    )
    .await;
    assert_eq!(lengths, [0]);
}

#[tokio::test]
async fn leases_are_paged() {
    let router = with_leases((0..7).map(|n| (format!("c{n}"), "db".to_owned()))).await;
    let (lengths, mut names) = pages(
        &router,
        "/v1/resources/db/leases?limit=3&",
        "leases",
        "client_id",
    )
    .await;
    assert_eq!(lengths, [3, 3, 1]);
    names.sort();
    assert_eq!(names, (0..7).map(|n| format!("c{n}")).collect::<Vec<_>>());
}

/// Leases `wants` of a resource for a client.
async fn lease(router: &Router, client: &str, resource: &str, wants: u32) {
    let resource = json!({"resource_id": resource, "wants": wants});
    let body = json!({"client_id": client, "resources": [resource]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    assert_eq!(reply.status, 200);
}

/// The names in a page, and its total.
async fn sorted(router: &Router, uri: &str, list: &str, name: &str) -> (Vec<String>, Value) {
    let page = get(router, uri).await.json();
    assert!(page.get("next_cursor").is_none(), "{page}");
    let elements = page[list].as_array().unwrap().iter();
    let names = elements.map(|it| it[name].as_str().unwrap().to_owned());
    (names.collect(), page["total"].clone())
}

#[tokio::test]
async fn sorted_resources_are_the_largest_of_all() {
    let router = router();
    for number in 0..3_000 {
        lease(&router, "c", &format!("tenant/{number:04}"), 1).await;
    }
    for (client, resource, wants) in [
        ("c", "tenant/2999", 7),
        ("c", "tenant/0500", 9),
        ("d", "tenant/1500", 2),
        ("c", "zone", 50),
    ] {
        lease(&router, client, resource, wants).await;
    }
    let page = async |query: &str| {
        let uri = format!("/v1/resources?{query}");
        sorted(&router, &uri, "resources", "resource_id").await
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    for (query, expected, total) in [
        (
            "sort=wants&limit=3",
            &["zone", "tenant/0500", "tenant/2999"][..],
            3_001,
        ),
        (
            "sort=has&limit=2&prefix=tenant/",
            &["tenant/0500", "tenant/2999"],
            3_000,
        ),
        // Of equal ones the first by name.
        (
            "sort=clients&limit=3",
            &["tenant/1500", "tenant/0000", "tenant/0001"],
            3_001,
        ),
        ("sort=wants&prefix=none", &[], 0),
    ] {
        assert_eq!(page(query).await, (ids(expected), json!(total)), "{query}");
    }
    assert_eq!(page("sort=wants&limit=1000").await.0.len(), 1_000);
}

#[tokio::test]
async fn sorted_leases_are_the_largest_of_all() {
    let router = router();
    for number in 0..2_000 {
        let wants = if number == 1_999 { 30 } else { 1 + number % 7 };
        lease(&router, &format!("orders-{number}"), "db", wants).await;
    }
    lease(&router, "shop-1", "db", 20).await;
    let page = async |query: &str| {
        let uri = format!("/v1/resources/db/leases?{query}");
        sorted(&router, &uri, "leases", "client_id").await
    };
    let (names, total) = page("sort=wants&limit=3").await;
    assert_eq!(names[..2], ["orders-1999", "shop-1"]);
    assert_eq!((names.len(), total), (3, json!(2_001)));
    let (names, total) = page("sort=wants&limit=1&prefix=shop-").await;
    assert_eq!((names, total), (vec!["shop-1".to_owned()], json!(1)));

    let uri = "/v1/resources/db/leases?prefix=shop-&";
    let (_, names) = pages(&router, uri, "leases", "client_id").await;
    assert_eq!(names, ["shop-1"]);
}

#[tokio::test]
async fn invalid_query_parameters_are_named() {
    let router = with_leases([("c".to_owned(), "db".to_owned())]).await;
    for (path, word) in [
        ("/v1/resources?prefx=a", "`prefx`"),
        ("/v1/resources?limit=0", "`limit`"),
        ("/v1/resources?limit=-1", "`limit`"),
        ("/v1/resources?limit=ten", "`limit`"),
        ("/v1/resources?limit=", "`limit`"),
        ("/v1/resources?limit=1&limit=2", "`limit`"),
        ("/v1/resources?cursor=x", "`cursor`"),
        ("/v1/resources?prefix=%ff", "`prefix`"),
        ("/v1/resources/db?limit=1", "`limit`"),
        ("/v1/resources?sort=size", "`sort`"),
        ("/v1/resources?sort=wants&cursor=cmRi", "`cursor`"),
        ("/v1/resources/db/leases?sort=", "`sort`"),
        ("/v1/resources/db/leases?sort=has&client_id=c", "`sort`"),
        ("/v1/resources/db/leases?after=a", "`after`"),
        ("/v1/resources/db/leases?limit=0", "`limit`"),
        ("/v1/resources/db/leases?cursor=cmRi", "`cursor`"),
        ("/v1/status?verbose", "`verbose`"),
        ("/v1/discovery?x=1", "`x`"),
    ] {
        let problem = get(&router, path).await.problem(400);
        assert_eq!(problem.kind, "/problems/malformed-request");
        assert!(problem.detail.contains(word), "{path}: {}", problem.detail);
    }
}

#[tokio::test(start_paused = true)]
async fn status_has_identity_and_totals() {
    let router = with_leases([
        ("c".to_owned(), "db".to_owned()),
        ("d".to_owned(), "db".to_owned()),
    ])
    .await;
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let status = get(&router, "/v1/status").await.json();
    for (field, value) in [
        ("server_id", json!("host-a:7300")),
        ("node", json!("node-a")),
        ("level", json!(0)),
        ("is_master", json!(true)),
        ("epoch", json!(7)),
        ("master", json!("http://127.0.0.1:7300")),
        ("parents", json!([])),
        ("uptime", json!(5.0)),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("config_source", json!("built-in")),
        ("config_version", json!(Document::built_in().version())),
        ("resources", json!(1)),
        ("leases", json!(2)),
    ] {
        assert_eq!(status[field], value, "{field}");
    }
}

#[tokio::test]
async fn server_without_election_is_its_own_master() {
    let discovery = get(&router(), "/v1/discovery").await.json();
    let expected = json!({
        "is_master": true,
        "mastership": {"master_address": "http://127.0.0.1:7300"},
        "server_id": "host-a:7300",
        "node": "node-a",
        "level": 0,
        "root": "http://127.0.0.1:7300",
        "epoch": 7
    });
    assert_eq!(discovery, expected);
}
