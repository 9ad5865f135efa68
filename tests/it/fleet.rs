//! Three services held to one limit under real traffic.

use std::time::Duration;

use doorman_examples::load::{Load, Window};

use crate::support::{ControlPlane, DOCUMENT, Service, exclusive_load};

/// The limit, per second. A full bucket holds as much.
const LIMIT: f64 = 1000.0;

/// The limit holds for the mean over any window of this length.
const WINDOW: Duration = Duration::from_secs(10);

/// In shorter windows the load may spend a full bucket on top.
const SHORT_WINDOW: Duration = Duration::from_secs(1);

/// Time during which windows begin, ten a second.
const OBSERVED: Duration = Duration::from_secs(5);

/// So many first windows contain the time in which leases follow the load. Their bounds are looser.
const SHIFTING: usize = 20;

/// Offers these rates, and returns all windows from then on. The first one begins up to a tenth of
/// a second before. No second exceeds the limit by more than a full bucket.
async fn offer(load: &Load<3>, rates: [f64; 3]) -> Vec<Window<3>> {
    let from = load.history().now();
    load.offer(rates);
    tokio::time::sleep(WINDOW + OBSERVED).await;
    let history = load.history();
    for window in history.windows(from, SHORT_WINDOW) {
        assert_at_most(&window, LIMIT);
    }
    let windows: Vec<_> = history.windows(from, WINDOW).collect();
    assert!(windows.len() > 10, "only {} windows", windows.len());
    windows
}

/// Checks that a window has at most the limit and so many requests more.
fn assert_at_most(window: &Window<3>, more: f64) {
    let admitted = window.per_second(window.total().admitted);
    let most = LIMIT + more / window.length.as_secs_f64();
    assert!(
        admitted <= 1.01 * most,
        "{admitted}/s admitted from {:?} on: {window:?}",
        window.from
    );
}

/// Checks windows of an overload; `bucket` is what full buckets admit beyond the limit.
fn assert_held_to_the_limit(windows: &[Window<3>], bucket: f64) {
    for (index, window) in windows.iter().enumerate() {
        let least = if index < SHIFTING { 0.92 } else { 0.95 };
        assert_at_most(window, bucket);
        let total = window.total();
        let (offered, admitted) = (
            window.per_second(total.offered),
            window.per_second(total.admitted),
        );
        assert!(
            (2900.0..3100.0).contains(&offered),
            "the load is off: {offered}/s offered"
        );
        assert!(
            admitted >= least * LIMIT,
            "{admitted}/s admitted: {window:?}"
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

    // Every bucket is full at the start. In overload they stay empty.
    assert_held_to_the_limit(&offer(&load, [1000.0, 1000.0, 1000.0]).await, LIMIT);
    assert_held_to_the_limit(&offer(&load, [2700.0, 270.0, 30.0]).await, 0.0);

    // The first window begins in overload, and at the end of that every bucket is empty.
    let windows = offer(&load, [720.0, 135.0, 45.0]).await;
    for (index, window) in windows.iter().enumerate().skip(1) {
        let per_thousand = if index < SHIFTING { 5 } else { 1 };
        let total = window.total();
        let not_admitted = total.rejected + total.unavailable + total.failed;
        assert!(
            not_admitted * 1000 <= total.offered * per_thousand,
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
