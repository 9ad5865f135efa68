//! Repeated SIGTERM under load.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    LONGEST, POLL,
    clients::{Report, Traffic},
};
use crate::support::{Authority, ControlPlane, TIMEOUT, exclusive_load, now};

/// Overrides the number of rounds.
const ROUNDS: &str = "DOORMAN_STOP_ROUNDS";

const DOCUMENT: &str = "
resources:
  - identifier_glob: '*'
    capacity: 100000
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_under_load_fails_no_request() {
    let _exclusive = exclusive_load().await;
    stop_and_restart(ControlPlane::start(DOCUMENT), None, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_stop_under_load_fails_no_request() {
    let _exclusive = exclusive_load().await;
    let authority = Authority::new();
    let server = ControlPlane::start_encrypted(DOCUMENT, &authority);
    stop_and_restart(server, Some(authority), 3).await;
}

/// Stops and restarts the server under load, and asserts that no request in flight fails.
async fn stop_and_restart(mut server: ControlPlane, authority: Option<Authority>, rounds: usize) {
    let rounds = std::env::var(ROUNDS).map_or(rounds, |it| it.parse().expect("a number"));
    for round in 0..rounds {
        let tls = authority.as_ref().map(Authority::client);
        let traffic = Traffic::to(server.address(), tls);
        let clients = tokio::spawn(Arc::clone(&traffic).run());
        let flowing = async {
            while traffic.answered() < 1000 {
                sleep(POLL).await;
            }
        };
        timeout(TIMEOUT, flowing).await.expect("responses");

        traffic.set_stopping();
        let begin = now();
        let stopped = spawn_blocking(move || server.stop()).await;
        let took = now() - begin;
        let reports = timeout(TIMEOUT, clients).await.expect("all clients end");
        let reports = reports.expect("no panic");
        print(round, took, &reports);
        let failed: Vec<_> = reports.iter().filter(|it| !it.failed.is_empty()).collect();
        assert!(failed.is_empty(), "round {round}: {failed:#?}");
        assert!(took < LONGEST, "round {round}: {took:?}");

        server = stopped.expect("no panic").restart_on_free_port();
        assert_leases_restored(&server, round, &reports);
    }
}

/// Asserts that the restarted server has every granted lease, and grants new ones.
fn assert_leases_restored(server: &ControlPlane, round: usize, reports: &[Report]) {
    for resource in ["shared-0", "shared-1", "shared-2"] {
        let view = server.get(&format!("/v1/resources/{resource}"));
        assert_eq!(view["in_learning_mode"], false, "{view}");
        let leases = server.get(&format!("/v1/resources/{resource}/leases?limit=1000"));
        let leases = leases["leases"].as_array().expect("a list");
        for report in reports.iter().filter(|it| it.resource == resource) {
            let lease = leases.iter().find(|it| it["client_id"] == *report.client);
            let has = lease.and_then(|it| it["has"].as_f64());
            assert_eq!(has, report.has, "round {round}: {report:?}, {lease:?}");
        }
        let newcomer = format!(
            r#"{{"client_id":"newcomer-{round}","resources":[{{"resource_id":"{resource}","wants":10}}]}}"#
        );
        let granted = &server.post("/v1/capacity", &newcomer)["resources"][0];
        assert_eq!(granted["gets"]["capacity"], 10.0, "{granted}");
        assert_eq!(granted["reason"], "granted");
    }
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn print(round: usize, took: Duration, reports: &[Report]) {
    let answered: usize = reports.iter().map(|it| it.answered).sum();
    let unprocessed: usize = reports.iter().map(|it| it.unprocessed).sum();
    let failed: usize = reports.iter().map(|it| it.failed.len()).sum();
    println!(
        "round {round}: {answered} answered, {unprocessed} unprocessed, {failed} failed in flight; \
         exit after {took:.2?}"
    );
}
