//! Past documents.

use super::{documents::stored, *};

#[tokio::test]
async fn past_document_is_the_one_of_its_revision() {
    let stored = stored();
    let router = &stored.router;
    let first = get(router, "/v1/templates").await;
    put(router, "/v1/templates/db", r#"{"capacity": 6}"#).await;
    let second = get(router, "/v1/templates").await;
    for (revision, expected) in [(1, &first), (2, &second)] {
        let found = get(router, &format!("/v1/history/{revision}")).await;
        assert_eq!(
            (found.status, &found.body),
            (StatusCode::OK, &expected.body)
        );
        assert_eq!(found.header("etag"), expected.header("etag"));
        assert_eq!(found.header("cache-control"), "no-cache");
        found.json();
    }
    let conditional = async |name: &str| {
        let request = Request::get("/v1/history/1").header(name, first.header("etag"));
        send(router, request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(conditional("if-none-match").await.status, 304);
    assert_eq!(conditional("if-match").await.status, 200);
    let other = Request::get("/v1/history/1").header("if-match", second.header("etag"));
    send(router, other.body(Body::empty()).unwrap())
        .await
        .problem(412);
}

#[tokio::test]
async fn past_document_can_be_put_back() {
    let stored = stored();
    let router = &stored.router;
    let first = get(router, "/v1/templates").await;
    put(router, "/v1/templates/db", r#"{"capacity": 6}"#).await;
    let past = get(router, "/v1/history/1").await.body;
    let back = put(router, "/v1/templates", past).await;
    assert_eq!(back.header("etag"), first.header("etag"));
    let history = get(router, "/v1/history").await.json();
    assert_eq!(history["changes"][0]["revision"], 3);
}

#[tokio::test]
async fn unknown_revision_is_not_found_and_names_the_range() {
    let stored = stored();
    let router = &stored.router;
    put(router, "/v1/templates/db", r#"{"capacity": 6}"#).await;
    for unknown in ["3", "9007199254740991"] {
        let uri = format!("/v1/history/{unknown}");
        let problem = get(router, &uri).await.problem(404);
        assert_eq!(
            problem.detail,
            format!(
                "no document of revision {unknown} is stored; the oldest is of revision 1, the \
                 newest of revision 2"
            )
        );
    }
    for malformed in ["0", "-1", "+1", "1.0", "x", "9007199254740992", "1e3"] {
        let problem = get(router, &format!("/v1/history/{malformed}"))
            .await
            .problem(400);
        assert!(problem.detail.contains("`revision`"), "{problem:?}");
    }
    get(router, "/v1/history/1?limit=1").await.problem(400);
    let without_store = super::router();
    let problem = get(&without_store, "/v1/history/1").await.problem(404);
    assert!(problem.detail.contains("has no history"), "{problem:?}");
}
