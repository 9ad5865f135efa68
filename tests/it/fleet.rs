//! Three services held to one limit under real traffic.

use std::time::Duration;

use doorman_examples::load::{Load, Window};

use crate::support::{ControlPlane, DOCUMENT, Service, exclusive_load};

/// Time for leases to follow a new split of the load.
const SETTLING: Duration = Duration::from_secs(5);

/// The limit holds for the mean over any window of this length.
const WINDOW: Duration = Duration::from_secs(10);

/// Time during which windows begin, ten a second.
const OBSERVED: Duration = Duration::from_secs(3);

/// Offers these rates, and returns all windows after the fleet has settled.
async fn offer(load: &Load<3>, rates: [f64; 3]) -> Vec<Window<3>> {
    let from = load.history().now() + SETTLING;
    load.offer(rates);
    tokio::time::sleep(SETTLING + WINDOW + OBSERVED).await;
    let windows: Vec<_> = load.history().windows(from, WINDOW).collect();
    assert!(windows.len() > 10, "only {} windows", windows.len());
    windows
}

fn assert_held_to_the_limit(windows: &[Window<3>]) {
    for window in windows {
        let total = window.total();
        let (offered, admitted) = (
            window.per_second(total.offered),
            window.per_second(total.admitted),
        );
        assert!(
            (2950.0..3050.0).contains(&offered),
            "the load is off: {offered}/s offered"
        );
        assert!(
            (950.0..=1010.0).contains(&admitted),
            "{admitted}/s admitted from {:?} on: {window:?}",
            window.from
        );
        assert_eq!((total.failed, total.unavailable), (0, 0), "{window:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_services_share_one_limit_under_any_split() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let services = [(); 3].map(|()| Service::start(server.address(), &[]));
    let load = Load::start(services.each_ref().map(Service::target), 32);

    assert_held_to_the_limit(&offer(&load, [1000.0, 1000.0, 1000.0]).await);
    assert_held_to_the_limit(&offer(&load, [2700.0, 270.0, 30.0]).await);

    let windows = offer(&load, [720.0, 135.0, 45.0]).await;
    for window in windows {
        let total = window.total();
        let not_admitted = total.rejected + total.unavailable + total.failed;
        assert!(
            not_admitted * 1000 <= total.offered,
            "{not_admitted} of {} not admitted: {window:?}",
            total.offered
        );
    }

    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["clients"], &view["capacity"]),
        (&3.into(), &1000.0.into())
    );
    let sum_has = view["sum_has"].as_f64().expect("a number");
    assert!(sum_has <= 1000.0 * (1.0 + 1e-9), "{view}");
}
