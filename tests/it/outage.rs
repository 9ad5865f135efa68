//! The control plane is gone, and comes back.

use std::time::Duration;

use doorman_examples::load::{Load, Totals};
use tokio::time::sleep;

use crate::{
    fleet::target,
    support::{ControlPlane, Service, exclusive_load},
};

const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 300
    safe_capacity: 20
    algorithm: {kind: FAIR_SHARE, lease_length: 6, refresh_interval: 1}
";

/// What each service is offered, well within its share.
const OFFERED: f64 = 60.0;
/// A lease is renewed every second, so at least this is left of it at any moment.
const LEFT_OF_A_LEASE: Duration = Duration::from_millis(4500);
/// After this none of the old leases stands.
const NO_LEASE_LASTS: Duration = Duration::from_millis(6500);
/// Only what is broken takes longer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Three services, one a fallback, under a load that all of them can take.
async fn start(server: &ControlPlane) -> ([Service; 3], Load<3>) {
    let services = ["optimistic", "pessimistic", "safe"]
        .map(|fallback| Service::start(server.address(), &["--fallback", fallback]));
    let load = Load::start(services.each_ref().map(target), 8);
    load.offer([OFFERED; 3]);
    until_nothing_is_refused(&load).await;
    (services, load)
}

/// Waits until every service has admitted all it was offered for two seconds.
async fn until_nothing_is_refused(load: &Load<3>) {
    let begun = load.history().now();
    let stretch = Duration::from_secs(2);
    while load.history().now() < begun + stretch
        || load
            .history()
            .last(stretch)
            .is_none_or(|it| turned_away(it.total()) > 0)
    {
        assert!(
            load.history().now() < begun + TIMEOUT,
            "the services never took the load"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

fn turned_away(totals: Totals) -> u64 {
    totals.rejected + totals.unavailable + totals.failed
}

/// What the services answer in the next stretch of time.
async fn during(load: &Load<3>, stretch: Duration) -> [Totals; 3] {
    let before = load.totals();
    sleep(stretch).await;
    let mut totals = load.totals();
    for (total, before) in totals.iter_mut().zip(before) {
        *total = total.since(before);
    }
    totals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_notices_while_leases_last_then_each_fallback_does_what_it_says() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let (_services, load) = start(&server).await;

    let killed = load.history().now();
    let down = server.kill();
    for totals in during(&load, LEFT_OF_A_LEASE).await {
        assert_eq!(turned_away(totals), 0, "{totals:?}");
    }

    let passed = load.history().now() - killed;
    sleep(NO_LEASE_LASTS.saturating_sub(passed)).await;
    let [optimistic, pessimistic, safe] = during(&load, Duration::from_secs(4)).await;
    assert_eq!(turned_away(optimistic), 0, "{optimistic:?}");
    assert!(optimistic.admitted > 200, "{optimistic:?}");
    assert_eq!(
        (pessimistic.admitted, pessimistic.rejected),
        (0, 0),
        "{pessimistic:?}"
    );
    assert!(pessimistic.unavailable > 200, "{pessimistic:?}");
    // 20 a second for 4 s, and at most one burst of a second. It is the lease that is missing, so the rest is 503.
    assert!((75..=105).contains(&safe.admitted), "{safe:?}");
    assert!(safe.unavailable > 100, "{safe:?}");

    let _server = down.restart();
    until_nothing_is_refused(&load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_restart_the_holders_keep_what_they_hold() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let (services, load) = start(&server).await;

    let down = server.kill();
    let held = services
        .each_ref()
        .map(|service| service.lease("api").expect("it lasts"));
    let server = down.restart();
    for totals in during(&load, Duration::from_secs(4)).await {
        assert_eq!(turned_away(totals), 0, "{totals:?}");
    }
    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["in_learning_mode"], &view["clients"]),
        (&true.into(), &3.into()),
        "{view}"
    );
    let kept = services
        .each_ref()
        .map(|service| service.lease("api").expect("it was renewed"));
    for (held, kept) in held.into_iter().zip(kept) {
        assert!((held - kept).abs() < 1e-6, "{kept} is not {held}");
    }
    // Learning ends when the last lease of before has ended, or some seconds later; nobody notices that either.
    for totals in during(&load, Duration::from_secs(8)).await {
        assert_eq!(turned_away(totals), 0, "{totals:?}");
    }
    assert_eq!(server.get("/v1/resources/api")["in_learning_mode"], false);
}
