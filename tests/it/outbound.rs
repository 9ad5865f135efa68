//! The example `outbound`: clients of a partner that share its limit.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    http::{StatusCode, header::RETRY_AFTER},
    routing::get,
};
use tokio::{net::TcpListener, task::spawn_blocking};

use crate::support::{ControlPlane, Process, example, exclusive_load, now};

const RATE: f64 = 20.0;
const DOCUMENT: &str = "
resources:
  - identifier_glob: partner
    capacity: 20
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";
const REQUESTS: usize = 40;

/// Starts a server that rejects its first request. Returns its address, and when it was called.
async fn start_partner() -> (String, Arc<Mutex<Vec<Duration>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&calls);
    let respond = async move || {
        let mut calls = recorded.lock().expect("no panic");
        calls.push(now());
        match calls.len() {
            1 => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]),
            _ => (StatusCode::OK, [(RETRY_AFTER, "0")]),
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let app = Router::new().route("/", get(respond));
    tokio::spawn(async { axum::serve(listener, app).await });
    (format!("http://{address}/"), calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_limit_of_a_partner() {
    let _exclusive = exclusive_load().await;
    let (url, calls) = start_partner().await;
    let clients = spawn_blocking(move || {
        let server = ControlPlane::start(DOCUMENT);
        let requests = REQUESTS.to_string();
        let args = [
            "--server",
            server.address(),
            "--url",
            &url,
            "--requests",
            &requests,
        ];
        let start = || Process::start(&example("outbound"), &args);
        for mut client in [start(), start()] {
            client.wait_for(|line| (line == format!("200 OK: {REQUESTS}")).then_some(()));
            client.wait_for_success();
        }
    });
    clients.await.expect("all requests are answered");

    let calls = calls.lock().expect("no panic").clone();
    // One was sent again.
    assert_eq!(calls.len(), 2 * REQUESTS + 1);
    // One bucket of the whole limit, and one more: both processes begin with a full one.
    for (sent, call) in calls.iter().enumerate() {
        let seconds = (*call - calls[0]).as_secs_f64();
        let allowed = RATE * seconds + 2.0 * RATE;
        assert!(sent as f64 <= allowed, "{sent} of {allowed} in {seconds} s");
    }
}
