//! The documentation page.

use super::*;

#[tokio::test]
async fn the_page_is_found_from_the_root() {
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
async fn the_page_and_what_it_loads_come_from_the_server_alone() {
    let router = router();
    let page = get(&router, "/docs/").await;
    assert!(
        page.header("content-security-policy")
            .starts_with("default-src 'self';")
    );
    let html = String::from_utf8(page.body).unwrap();
    assert!(!html.contains("://"), "{html}");

    let loaded: Vec<_> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|attribute| html.split(attribute).skip(1))
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(loaded.len() >= 4, "{loaded:?}");
    for file in loaded {
        let path = format!("/docs/{}", file.trim_start_matches("./"));
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
