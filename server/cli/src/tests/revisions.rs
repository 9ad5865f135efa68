//! Past documents: `export --revision`, `diff` and `rollback`.

use super::*;

async fn import(address: &str, home: &TempDir, capacity: u32) {
    let file = limits(home, capacity);
    call(address, &format!("import {file}")).await.unwrap();
}

#[tokio::test]
async fn past_document_is_exported_compared_and_restored() {
    with_server(async |address| {
        let home = TempDir::new().unwrap();
        for capacity in [20, 30, 40] {
            import(&address, &home, capacity).await;
        }
        let exported = call(&address, "export --revision 2").await.unwrap();
        assert!(exported.contains("capacity: 20"), "{exported}");

        let line = |from: u32, to: u32| format!("template \"*\": capacity: {from} → {to}\n");
        for (arguments, expected) in [
            ("2", line(20, 40)),
            ("2 3", line(20, 30)),
            ("3 2", line(30, 20)),
            (&limits(&home, 30), line(30, 40)),
            (&format!("2 {}", limits(&home, 50)), line(20, 50)),
        ] {
            let output = call(&address, &format!("diff {arguments}")).await.unwrap();
            assert_eq!(output, expected, "{arguments}");
        }
        let output = call(&address, "diff 4").await.unwrap();
        assert!(output.starts_with("no difference: version "), "{output}");

        let output = call(&address, "rollback 2 --dry-run").await.unwrap();
        let would = format!("would change: {}", line(40, 20));
        assert!(output.starts_with(&would), "{output}");
        let output = call(&address, "export").await.unwrap();
        assert!(output.contains("capacity: 40"), "{output}");
        let output = call(&address, "rollback 2").await.unwrap();
        let changed = format!("changed: {}", line(40, 20));
        assert!(output.starts_with(&changed), "{output}");
        let output = call(&address, "diff 2 5").await.unwrap();
        assert!(output.starts_with("no difference"), "{output}");
        let output = call(&address, "rollback 5").await.unwrap();
        assert!(output.starts_with("nothing to change"), "{output}");

        for command in ["rollback 9", "diff 9", "export --revision 9"] {
            let failure = call(&address, command).await.unwrap_err().to_string();
            let expected = "doorman: no document of revision 9 is stored; the oldest is of \
                revision 1, the newest of revision 5";
            assert!(failure.starts_with(expected), "{failure}");
        }
    })
    .await;
}

#[tokio::test]
async fn stopped_store_is_rolled_back_by_its_author() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("doorman.db").display().to_string();
    for capacity in [20, 30] {
        let file = limits(&home, capacity);
        run(&format!("doorman import {file} --store {store}"))
            .await
            .unwrap();
    }
    let diff = run(&format!("doorman diff 1 --store {store}")).await;
    assert_eq!(diff.unwrap(), "template \"*\": capacity: 20 → 30\n");
    let back = format!("doorman rollback 1 --store {store}");
    let output = run(&format!("{back} --dry-run")).await.unwrap();
    assert!(output.contains("capacity: 30 → 20"), "{output}");
    let output = run(&back).await.unwrap();
    assert!(output.contains("capacity: 30 → 20"), "{output}");
    let history = run(&format!("doorman history --store {store}"))
        .await
        .unwrap();
    assert_eq!(rows(&history).lines().count(), 3, "{history}");
    assert!(history.contains("doorman rollback 1 by "), "{history}");
    let missing = run(&format!("doorman rollback 7 --store {store}")).await;
    let missing = missing.unwrap_err().to_string();
    assert!(missing.contains("newest of revision 3"), "{missing}");
}

/// The change of another client between the two requests is not lost.
#[tokio::test]
async fn rollback_sends_the_etag_that_it_has_seen() {
    use axum::{Json, Router, http::HeaderMap, routing::get};

    let document = |capacity: u32| {
        Json(serde_json::json!({
            "resources": [{"identifier_glob": "a", "capacity": capacity, "algorithm": {"kind": "STATIC"}}]
        }))
    };
    let put = async move |headers: HeaderMap| {
        assert_eq!(headers["if-match"], "\"seen\"");
        StatusCode::PRECONDITION_FAILED
    };
    let active = get(async move || ([("etag", "\"seen\"")], document(1))).put(put);
    let routes = Router::new()
        .route("/v1/templates", active)
        .route("/v1/history/7", get(async move || document(2)));
    assert!(call_stub(routes, "rollback 7").await.is_err());
}

#[test]
fn reference_is_a_revision_or_a_file() {
    for (line, valid) in [
        ("doorman diff 7", true),
        ("doorman diff 7 9", true),
        ("doorman diff limits.yaml 7", true),
        ("doorman diff", false),
        ("doorman diff 99999999999999999999", false),
        ("doorman diff 1 2 3", false),
        ("doorman rollback", false),
        ("doorman rollback limits.yaml", false),
        ("doorman rollback -1", false),
    ] {
        let parsed = Cli::read(line.split_whitespace());
        assert_eq!(parsed.is_ok(), valid, "{line}");
    }
}
