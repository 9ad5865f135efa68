//! The documentation page.

use super::*;

#[tokio::test]
async fn root_redirects_to_the_page() {
    let router = router();
    for path in ["/", "/docs"] {
        let reply = get(&router, path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("location")),
            (303, "docs/")
        );
    }
    let page = get(&router, "/docs/").await;
    assert_eq!(
        (page.status.as_u16(), page.header("content-type")),
        (200, "text/html")
    );
}

#[tokio::test]
async fn page_loads_nothing_from_elsewhere() {
    let router = router();
    let page = get(&router, "/docs/").await;
    assert!(
        page.header("content-security-policy")
            .starts_with("default-src 'self';")
    );
    let html = String::from_utf8(page.body).unwrap();
    assert!(!html.contains("://"), "{html}");
    let without_scripts = html.split("<noscript>").nth(1).unwrap();
    assert!(without_scripts.contains("../openapi.json"), "{html}");

    let loaded: Vec<_> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|attribute| html.split(attribute).skip(1))
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(loaded.len() >= 4, "{loaded:?}");
    for file in loaded {
        let path = match file.strip_prefix("..") {
            Some(path) => path.to_owned(),
            None => format!("/docs/{}", file.trim_start_matches("./")),
        };
        let reply = get(&router, &path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.body.is_empty(), "{path}");
    }

    let initializer = get(&router, "/docs/swagger-initializer.js").await;
    let script = String::from_utf8(initializer.body).unwrap();
    assert!(!script.contains("://"), "{script}");
    assert!(script.contains("\"../openapi.json\""), "{script}");
    assert!(script.contains("\"validatorUrl\": \"none\""), "{script}");
}

#[tokio::test]
async fn known_openapi_document_is_not_modified() {
    let router = router();
    let document = get(&router, "/openapi.json").await;
    assert_eq!(document.header("cache-control"), "no-cache");
    let tag = document.header("etag");
    assert!(tag.len() == 34 && tag.starts_with('"'), "{tag}");
    for (known, status) in [(tag, 304), ("\"other\"", 200)] {
        let request = Request::get("/openapi.json").header("if-none-match", known);
        let reply = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!((reply.status.as_u16(), reply.header("etag")), (status, tag));
        assert_eq!(reply.body.is_empty(), status == 304);
    }
}

#[tokio::test]
async fn public_files_need_no_response_buffer() {
    let router = router();
    let mut unread = Vec::new();
    for path in ["/docs/swagger-ui-bundle.js", "/openapi.json"] {
        for _ in 0..300 {
            let request = Request::get(path).body(Body::empty()).unwrap();
            unread.push(router.clone().oneshot(request).await.unwrap());
        }
    }
    assert!(unread.iter().all(|it| it.status() == StatusCode::OK));
    let resources: Vec<_> = (0..1_000)
        .map(|number| serde_json::json!({"resource_id": format!("r{number}"), "wants": 1}))
        .collect();
    let body = serde_json::json!({"client_id": "c", "resources": resources});
    let leased = post(&router, "/v1/capacity", body.to_string()).await;
    assert_eq!(leased.status, 200);
}
