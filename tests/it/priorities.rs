//! Two priorities in one process, on a limit that is too small for both.

use std::time::Duration;

use doorman_examples::load::{Load, Totals};

use crate::support::{ControlPlane, Service, exclusive_load, until};

const DOCUMENT: &str = "
resources:
  - identifier_glob: database
    capacity: 1000
    algorithm: {kind: PRIORITY_SHARE, lease_length: 60, refresh_interval: 5}
rules:
  - {name: reports, service: orders, path: '/reports/{id}', resource: database, priority: -1}
  - {name: orders, service: orders, path: '/orders/{id}', resource: database, priority: 1}
";

const OBSERVED: Duration = Duration::from_secs(10);

/// Offers these rates of orders and reports. Returns the totals from one second later on.
async fn offer(load: &Load<2>, rates: [f64; 2]) -> [Totals; 2] {
    load.offer(rates);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = load.totals();
    tokio::time::sleep(OBSERVED).await;
    let [orders, reports] = load.totals();
    [orders.since(before[0]), reports.since(before[1])]
}

/// Checks that orders are not rejected, and that reports have what they leave.
fn assert_orders_first(totals: &[Totals; 2], left: f64) {
    let [orders, reports] = totals;
    assert!(orders.rejected * 1000 <= orders.offered, "{totals:?}");
    let admitted = reports.admitted as f64 / OBSERVED.as_secs_f64();
    assert!((0.9 * left..=1.05 * left).contains(&admitted), "{totals:?}");
    for totals in totals {
        assert_eq!((totals.failed, totals.unavailable), (0, 0), "{totals:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_priority_of_a_process_is_rejected_first() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::follow_rules(server.address(), &[]);
    until("it has a lease", || service.lease("database").is_some());
    let target = service.target();
    let targets = ["/orders/7", "/reports/7"].map(|path| target.with_path(path));
    let load = Load::start(targets, 32);

    let begin = offer(&load, [700.0, 700.0]).await;
    // At first the bucket fills up to what is kept for orders.
    assert_orders_first(&begin, 300.0);

    let alone = offer(&load, [0.0, 1400.0]).await;
    assert_orders_first(&alone, 1000.0);

    let again = offer(&load, [700.0, 1400.0]).await;
    let [orders, reports] = again;
    assert!(orders.rejected * 1000 <= orders.offered, "{again:?}");
    assert!(reports.admitted >= 2_000, "{again:?}");

    let lease = server.get("/v1/resources/database/leases");
    let bands = &lease["leases"][0]["bands"];
    assert_eq!(bands[0]["priority"], 1, "{lease}");
    assert_eq!(bands[1]["priority"], -1, "{lease}");
}
