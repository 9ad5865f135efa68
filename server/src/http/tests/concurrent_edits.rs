//! Concurrent changes of the document.

use super::{
    documents::{globs, stored},
    *,
};

#[tokio::test]
async fn excess_concurrent_changes_are_rejected_with_retry_after() {
    let stored = stored();
    let puts = (0..100).map(|n| {
        let router = stored.router.clone();
        async move {
            put(
                &router,
                &format!("/v1/templates/r{n}"),
                r#"{"capacity": 1}"#,
            )
            .await
        }
    });
    let (mut made, mut rejected) = (0, 0);
    for reply in futures_util::future::join_all(puts).await {
        if reply.status == 201 {
            made += 1;
        } else {
            assert_eq!(reply.header("retry-after"), "1");
            reply.problem(503);
            rejected += 1;
        }
    }
    assert!(
        made >= 16 && rejected > 0,
        "{made} made, {rejected} refused"
    );
    assert_eq!(globs(&stored.router).await.len(), 3 + made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_changes_are_serialized() {
    let stored = stored();
    let puts = (0..12).map(|n| {
        let router = stored.router.clone();
        tokio::spawn(async move {
            put(
                &router,
                &format!("/v1/templates/r{n}"),
                r#"{"capacity": 1}"#,
            )
            .await
        })
    });
    for reply in puts.collect::<Vec<_>>() {
        assert_eq!(reply.await.unwrap().status, 201);
    }
    assert_eq!(globs(&stored.router).await.len(), 15);
    assert_eq!(stored.app.editor.writes.get("written"), 12);
    let history = stored.app.editor.history(None, 100).await.unwrap();
    assert_eq!(history.len(), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_and_history_do_not_block_changes() {
    let stored = Stored::new();
    // While the ledger is locked, no dry run completes.
    let (holds, held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let ledger = Arc::clone(&stored.app.ledger);
    let holder = std::thread::spawn(move || {
        ledger.with(|_, _| {
            holds.send(()).unwrap();
            released.recv().unwrap();
        })
    });
    held.recv().unwrap();
    let mut trials = tokio::task::JoinSet::new();
    for _ in 0..17 {
        let router = stored.router.clone();
        trials.spawn(async move {
            let uri = "/v1/templates/a?dry_run=true";
            put(&router, uri, r#"{"capacity": 1}"#).await.status
        });
    }
    // One more than the limit.
    assert_eq!(trials.join_next().await.unwrap().unwrap(), 503);

    let all = get(&stored.router, "/v1/templates/%2A").await.body;
    let same = put(&stored.router, "/v1/templates/%2A", all).await;
    assert_eq!(same.status, 200, "{same:?}");
    assert_eq!(get(&stored.router, "/v1/history").await.status, 200);
    release.send(()).unwrap();
    holder.join().unwrap().unwrap();
}
