//! Liveness and readiness.

use std::time::Duration;

use doorman_core::etcd::{EtcdCall, ReplyHeader};
use serde_json::json;
use tokio::time;

use super::*;
use crate::etcd::testing::{Member, client, client_without_space, reply_to};

#[tokio::test]
async fn draining_server_is_alive_but_not_ready() {
    let app = app();
    let router = crate::http::router(app.clone());
    // Orchestrators may add a query.
    for path in ["/livez", "/readyz", "/livez?verbose", "/readyz?verbose"] {
        let reply = get(&router, path).await;
        assert_eq!(reply.status, 200);
        // No proxy may cache a probe.
        assert_eq!(reply.header("cache-control"), "no-store");
    }
    app.draining.begin();
    assert_eq!(get(&router, "/livez").await.status, 200);
    let reply = get(&router, "/readyz").await;
    reply.problem(503);
    assert_eq!(reply.header("retry-after"), "1");
}

#[tokio::test]
async fn draining_server_still_serves_requests() {
    let app = app();
    let router = crate::http::router(app.clone());
    app.draining.begin();
    let body = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":1}]}"#;
    assert_eq!(post(&router, "/v1/capacity", body).await.status, 200);
}

fn text(reply: &Reply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

#[tokio::test]
async fn readiness_and_status_report_learning_mode_and_document_errors() {
    let settings = ledger::Settings {
        predecessor: Predecessor::Until(clock::now().after(Duration::from_secs(1000))),
        ..SETTINGS
    };
    let app = app_of(Document::built_in(), settings, Moment::NEVER);
    let router = crate::http::router(app.clone());
    for client in ["a", "b"] {
        let body = json!({"client_id": client, "resources": [{"resource_id": client, "wants": 1}]});
        post(&router, "/v1/capacity", body.to_string()).await;
    }
    let reply = get(&router, "/readyz").await;
    assert_eq!(reply.status, 200);
    let left = text(&reply).strip_prefix("ok\nlearning mode for another ");
    let left = left.and_then(|rest| rest.split_once(" s: ")?.0.parse::<u64>().ok());
    assert!(
        left.is_some_and(|left| (900..=1000).contains(&left)),
        "{reply:?}"
    );
    assert!(!text(&reply).contains("config_error"), "{reply:?}");
    app.document.reject("line 3: secret");
    let reply = get(&router, "/readyz").await;
    assert!(
        text(&reply).ends_with(
            "\nthe source of the document has a problem: see config_error in /v1/status\n"
        ),
        "{reply:?}"
    );
    assert!(!text(&reply).contains("secret"), "{reply:?}");
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["resources_learning"], 2, "{status}");
    let left = status["learning_ends_in"].as_f64().unwrap();
    assert!((900.0..=1000.0).contains(&left), "{status}");
}

#[tokio::test]
async fn server_without_predecessor_reports_no_learning_mode() {
    let router = crate::http::router(app());
    assert_eq!(text(&get(&router, "/readyz").await), "ok\n");
    let status = get(&router, "/v1/status").await.json();
    for field in ["learning_ends_in", "resources_learning", "unmet_since"] {
        assert!(status.get(field).is_none(), "{status}");
    }
}

#[tokio::test]
async fn standby_without_space_is_unready_only_if_it_knows_of_no_master() {
    let etcd = client_without_space().await;
    for (has_read, address, status) in [
        (false, None, 200),
        (true, Some("http://127.0.0.1:7301"), 200),
        (true, None, 503),
    ] {
        let view = View {
            has_read,
            address: address.map(str::to_owned),
            ..View::default()
        };
        let app = app().with(|parts| {
            let server = Arc::get_mut(&mut parts.server).unwrap();
            server.etcd = Some(etcd.clone());
            parts.master = watch::channel(view).1;
        });
        app.ledger.end();
        let reply = get(&crate::http::router(app), "/readyz").await;
        assert_eq!(reply.status, status, "{has_read} {address:?}");
        assert!(text(&reply).contains("etcd is out of space"), "{reply:?}");
    }
}

#[tokio::test]
async fn readiness_tells_that_all_endpoints_of_etcd_are_behind() {
    let header = |revision| ReplyHeader {
        cluster: 1,
        raft_term: 5,
        revision,
    };
    let member = Member::with_header(header(20)).await;
    let (silent, _listener) = Member::silent();
    let etcd = client(&[&member, &silent]);
    let app = app().with(|parts| {
        let server = Arc::get_mut(&mut parts.server).unwrap();
        server.etcd = Some(etcd.clone());
    });
    let router = crate::http::router(app);
    let answered = async || {
        etcd.begin_with(0);
        let grant = EtcdCall::GrantLease { ttl: 5 };
        etcd.call(grant, Duration::from_secs(10)).await.is_ok()
    };
    assert!(answered().await);
    member.answer(move |path| (200, reply_to(path, header(10))));
    for _ in 0..3 {
        assert!(!answered().await);
    }
    assert_eq!(text(&get(&router, "/readyz").await), "ok\n");
    time::pause();
    time::advance(Duration::from_secs(11)).await;
    time::resume();
    assert!(!answered().await);
    let reply = get(&router, "/readyz").await;
    assert_eq!(reply.status, 200);
    let line = "ok\nevery endpoint of etcd that answers has been behind for 11 s: if etcd was \
                restored from a backup, restart the servers\n";
    assert_eq!(text(&reply), line);
}
