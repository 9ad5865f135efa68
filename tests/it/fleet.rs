//! The main job: three services, one limit, real traffic.

use std::{net::SocketAddr, time::Duration};

use doorman_examples::load::{Load, Target, Window};

use crate::support::{ControlPlane, DOCUMENT, Service, exclusive_load};

/// A new split may take so long to be followed.
const SETTLING: Duration = Duration::from_secs(5);
/// What is promised is promised of the mean over any stretch of this length.
const STRETCH: Duration = Duration::from_secs(10);
/// How many stretches are looked at, in tenths of a second.
const WATCHED: Duration = Duration::from_secs(3);

/// Offers each service so much, and gives every stretch that begins after the fleet had time to settle.
async fn offer(load: &Load<3>, rates: [f64; 3]) -> Vec<Window<3>> {
    let from = load.history().now() + SETTLING;
    load.offer(rates);
    tokio::time::sleep(SETTLING + STRETCH + WATCHED).await;
    let windows: Vec<_> = load.history().windows(from, STRETCH).collect();
    assert!(
        windows.len() > 10,
        "only {} stretches were seen",
        windows.len()
    );
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
            "the load itself is off: {offered}/s offered"
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
async fn three_services_are_held_to_one_limit_however_the_load_is_split() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let services = [(); 3].map(|()| Service::start(server.address(), &[]));
    let load = Load::start(services.each_ref().map(target), 32);

    assert_held_to_the_limit(&offer(&load, [1000.0, 1000.0, 1000.0]).await);
    assert_held_to_the_limit(&offer(&load, [2700.0, 270.0, 30.0]).await);

    let windows = offer(&load, [720.0, 135.0, 45.0]).await;
    for window in windows {
        let total = window.total();
        let refused = total.rejected + total.unavailable + total.failed;
        assert!(
            refused * 1000 <= total.offered,
            "{refused} of {} refused: {window:?}",
            total.offered
        );
    }

    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["clients"], &view["capacity"]),
        (&3.into(), &1000.0.into())
    );
    let held = view["sum_has"].as_f64().expect("a number");
    assert!(held <= 1000.0 * (1.0 + 1e-9), "{view}");
}

pub(crate) fn target(service: &Service) -> Target {
    let address: SocketAddr = service
        .address()
        .trim_start_matches("http://")
        .parse()
        .expect("an address");
    Target::new(address).expect("services listen on loopback")
}
