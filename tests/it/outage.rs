//! An outage of the control plane: leases last, then fallbacks apply, then the fleet recovers.

use std::time::Duration;

use doorman_examples::load::{Load, Totals};
use tokio::time::sleep;

use crate::support::{ControlPlane, Service, TIMEOUT, exclusive_load, now};

const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 300
    safe_capacity: 20
    algorithm: {kind: FAIR_SHARE, lease_length: 6, refresh_interval: 1}
";

/// The load of each service, well within its share.
const OFFERED: f64 = 60.0;

/// A lease of six seconds, refreshed every second, lasts at least this much longer.
const REMAINING: Duration = Duration::from_millis(4500);

/// After this time all earlier leases have expired.
const EXPIRED: Duration = Duration::from_millis(6500);

/// Starts a service for each fallback, under load.
async fn start(server: &ControlPlane) -> ([Service; 3], Load<3>) {
    let services = ["optimistic", "pessimistic", "safe"]
        .map(|fallback| Service::start(server.address(), &["--fallback", fallback]));
    let load = Load::start(services.each_ref().map(Service::target), 8);
    load.offer([OFFERED; 3]);
    until_all_admitted(&load).await;
    (services, load)
}

/// Waits until all services have admitted everything for two seconds.
async fn until_all_admitted(load: &Load<3>) {
    let begin = load.history().now();
    let window = Duration::from_secs(2);
    while load.history().now() < begin + window
        || load
            .history()
            .last(window)
            .is_none_or(|it| not_admitted(it.total()) > 0)
    {
        assert!(
            load.history().now() < begin + TIMEOUT,
            "requests are still not admitted"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

fn not_admitted(totals: Totals) -> u64 {
    totals.rejected + totals.unavailable + totals.failed
}

/// The totals of the next window.
async fn observe(load: &Load<3>, window: Duration) -> [Totals; 3] {
    let before = load.totals();
    sleep(window).await;
    let mut totals = load.totals();
    for (total, before) in totals.iter_mut().zip(before) {
        *total = total.since(before);
    }
    totals
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fallbacks_apply_only_after_leases_expire() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let (_services, load) = start(&server).await;

    let killed = load.history().now();
    let stopped = server.kill();
    for totals in observe(&load, REMAINING).await {
        assert_eq!(not_admitted(totals), 0, "{totals:?}");
    }

    let passed = load.history().now() - killed;
    sleep(EXPIRED.saturating_sub(passed)).await;
    let [optimistic, pessimistic, safe] = observe(&load, Duration::from_secs(4)).await;
    assert_eq!(not_admitted(optimistic), 0, "{optimistic:?}");
    assert!(optimistic.admitted > 200, "{optimistic:?}");
    assert_eq!(
        (pessimistic.admitted, pessimistic.rejected),
        (0, 0),
        "{pessimistic:?}"
    );
    assert!(pessimistic.unavailable > 200, "{pessimistic:?}");
    // 20 a second for 4 s, plus a burst of at most a second. The rest gets 503: no lease.
    assert!((75..=105).contains(&safe.admitted), "{safe:?}");
    assert!(safe.unavailable > 100, "{safe:?}");

    let _server = stopped.restart();
    until_all_admitted(&load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_keep_their_leases_through_learning_mode() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let (services, load) = start(&server).await;

    let server = server.kill().restart();
    for totals in observe(&load, Duration::from_secs(4)).await {
        assert_eq!(not_admitted(totals), 0, "{totals:?}");
    }
    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["in_learning_mode"], &view["clients"]),
        (&true.into(), &3.into()),
        "{view}"
    );
    for service in &services {
        let lease = service.lease("api").expect("it was renewed");
        assert!(lease > 0.9 * OFFERED, "{lease}");
    }
    // Learning mode ends a few seconds after the last earlier lease.
    for totals in observe(&load, Duration::from_secs(8)).await {
        assert_eq!(not_admitted(totals), 0, "{totals:?}");
    }
    assert_eq!(server.get("/v1/resources/api")["in_learning_mode"], false);
}

/// A load that a busy machine can offer in full.
const LONG_LEASES: &str = "
resources:
  - identifier_glob: api
    capacity: 60
    safe_capacity: 4
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}
";

/// Waits until each service has at least this lease of `api`.
async fn until_leased(services: &[(&Service, f64)], longest: Duration) {
    let began = now();
    loop {
        let leases = services.iter().map(|(service, _)| service.lease("api"));
        let leases: Vec<_> = leases.collect();
        let mut reached = leases.iter().zip(services);
        if reached.all(|(lease, (_, least))| *lease >= Some(*least)) {
            return;
        }
        assert!(now() - began < longest, "{leases:?} after {longest:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_moves_before_learning_mode_ends() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(LONG_LEASES);
    let start = |server: &ControlPlane| Service::start(server.address(), &[]);
    let [busy, quiet] = [start(&server), start(&server)];
    let load = Load::start([busy.target(), quiet.target()], 8);
    load.offer([80.0, 6.0]);
    until_leased(&[(&busy, 48.0), (&quiet, 5.0)], TIMEOUT).await;

    let server = server.kill().restart();
    let newcomer = start(&server);
    let newcomer_load = Load::start([newcomer.target()], 8);
    newcomer_load.offer([80.0]);
    load.offer([80.0, 80.0]);
    // The claim, its confirmation, and the shares of the others, at a relaxed pace.
    let four_refresh_intervals = Duration::from_secs(16);
    let shares = [&busy, &quiet, &newcomer].map(|service| (service, 19.0));
    until_leased(&shares, four_refresh_intervals).await;
    let view = server.get("/v1/resources/api");
    assert_eq!(view["in_learning_mode"], true, "{view}");
    let booked = view["sum_has"].as_f64();
    assert!(booked <= Some(60.0 * (1.0 + 1e-9)), "{view}");
}
