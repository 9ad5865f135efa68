//! SIGTERM in the midst of traffic, again and again.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    LOOK,
    callers::{Report, Traffic},
};
use crate::support::{Authority, ControlPlane, TIMEOUT, exclusive_load, now};

/// As many rounds as this variable says, if it is there.
const ROUNDS: &str = "DOORMAN_STOP_ROUNDS";

const DOCUMENT: &str = "
resources:
  - identifier_glob: '*'
    capacity: 100000
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_told_to_stop_under_load_fails_nobody_and_the_next_one_learns_nothing()
 {
    let _exclusive = exclusive_load().await;
    fails_nobody(ControlPlane::start(DOCUMENT), None, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_speaks_tls_and_is_told_to_stop_under_load_fails_nobody() {
    let _exclusive = exclusive_load().await;
    let authority = Authority::new();
    let server = ControlPlane::start_encrypted(DOCUMENT, &authority);
    fails_nobody(server, Some(authority), 3).await;
}

/// Stops it and starts it again, for so many rounds if nothing else is said.
async fn fails_nobody(mut server: ControlPlane, authority: Option<Authority>, rounds: usize) {
    let rounds = std::env::var(ROUNDS).map_or(rounds, |it| it.parse().expect("a number"));
    for round in 0..rounds {
        let tls = authority.as_ref().map(Authority::client);
        let traffic = Traffic::to(server.address(), tls);
        let flows = tokio::spawn(Arc::clone(&traffic).flows());
        let flowing = async {
            while traffic.answered() < 1000 {
                sleep(LOOK).await;
            }
        };
        timeout(TIMEOUT, flowing).await.expect("it answers");

        traffic.may_be_refused();
        let told = now();
        let stopped = spawn_blocking(move || server.stop()).await;
        let took = now() - told;
        let reports = timeout(TIMEOUT, flows).await.expect("all end");
        let reports = reports.expect("no panic");
        tell(round, took, &reports);
        let failed: Vec<_> = reports.iter().filter(|it| !it.failed.is_empty()).collect();
        assert!(failed.is_empty(), "round {round}: {failed:#?}");
        assert!(took < Duration::from_secs(10), "round {round}: {took:?}");

        server = stopped.expect("no panic").restart_on_free_port();
        goes_on(&server, round, &reports);
    }
}

/// The next server has all that was granted, and grants.
fn goes_on(server: &ControlPlane, round: usize, reports: &[Report]) {
    for resource in ["shared-0", "shared-1", "shared-2"] {
        let view = server.get(&format!("/v1/resources/{resource}"));
        assert_eq!(view["in_learning_mode"], false, "{view}");
        let leases = server.get(&format!("/v1/resources/{resource}/leases?limit=1000"));
        let leases = leases["leases"].as_array().expect("a list");
        for report in reports.iter().filter(|it| it.resource == resource) {
            let lease = leases.iter().find(|it| it["client_id"] == *report.client);
            let has = lease.and_then(|it| it["has"].as_f64());
            assert_eq!(has, report.holds, "round {round}: {report:?}, {lease:?}");
        }
        let newcomer = format!(
            r#"{{"client_id":"newcomer-{round}","resources":[{{"resource_id":"{resource}","wants":10}}]}}"#
        );
        let granted = &server.post("/v1/capacity", &newcomer)["resources"][0];
        assert_eq!(granted["gets"]["capacity"], 10.0, "{granted}");
        assert_eq!(granted["reason"], "granted");
    }
}

#[expect(clippy::print_stdout, reason = "who wants to see what happened should")]
fn tell(round: usize, took: Duration, reports: &[Report]) {
    let answered: usize = reports.iter().map(|it| it.answered).sum();
    let not_taken: usize = reports.iter().map(|it| it.not_taken).sum();
    let failed: usize = reports.iter().map(|it| it.failed.len()).sum();
    println!(
        "round {round}: {answered} answered, {not_taken} not taken, {failed} failed in flight; it ended after {took:.2?}"
    );
}
