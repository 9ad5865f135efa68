//! Leases for code without requests.

use doorman_openapi::Capacity;
use tokio::time::timeout;

use super::*;
use crate::{LeaseWatch, LeasedCapacity};

/// Grants what is wanted.
fn grants_wants(call: &Received) -> Reply {
    match call.capacity() {
        Some(request) => {
            let wants = request.resources[0].wants.get();
            grant_all(&request, wants).into()
        }
        None => Reply::json(200, &serde_json::json!({})),
    }
}

fn capacity(amount: f64) -> Capacity {
    Capacity::new(amount).unwrap()
}

async fn next(watch: &mut LeaseWatch) -> LeasedCapacity {
    timeout(10 * SECOND, watch.changed()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn stated_wants_are_reported_soon() {
    let plane = Plane::new(grants_wants);
    let (doorman, _worker) = run(builder(), &plane);
    let lease = doorman.lease("db");
    doorman.ready(SECOND).await.unwrap();
    let mut watch = lease.watch();
    assert_eq!(next(&mut watch).await.amount, 0.0);

    // Also while it sleeps, as an idle resource does after a minute.
    for (pause, wants) in [(0, 50.0), (2, 80.0), (2, 7.5), (300, 0.0), (1, 20.0)] {
        sleep(pause * SECOND).await;
        let start = clock::now();
        lease.set_wants(capacity(wants));
        assert_eq!(next(&mut watch).await.amount, wants);
        let waited = clock::now().since(start);
        assert!(waited <= SECOND / 10, "{wants}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sleeping_lease_wakes_when_wants_are_stated() {
    let plane = Plane::new(grants_wants);
    let (doorman, _worker) = run(builder(), &plane);
    let lease = doorman.lease("db");
    sleep(300 * SECOND).await;
    assert_eq!(held(&doorman, "db"), None);
    let mut watch = lease.watch();
    assert_eq!(next(&mut watch).await.amount, 0.0);
    lease.set_wants(capacity(50.0));
    assert_eq!(next(&mut watch).await.amount, 50.0);
    // It stays without requests.
    let calls = plane.calls().len();
    sleep(300 * SECOND).await;
    assert_eq!(held(&doorman, "db"), Some(50.0));
    assert!(plane.calls().len() > calls + 200);
}

#[tokio::test(start_paused = true)]
async fn any_number_of_changes_is_reported_at_a_bounded_rate() {
    let plane = Plane::new(grants_wants);
    let (doorman, _worker) = run(builder(), &plane);
    let lease = doorman.lease("db");
    doorman.ready(SECOND).await.unwrap();
    let before = plane.calls().len();
    for wants in 1..=1_000 {
        lease.set_wants(capacity(wants.into()));
        sleep(SECOND / 1_000).await;
    }
    sleep(SECOND / 10).await;
    assert_eq!(lease.capacity().amount, 1_000.0);
    let calls = plane.calls().len() - before;
    assert!(calls <= 60, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_released() {
    let plane = Plane::new(grants_wants);
    let (doorman, _worker) = run(builder(), &plane);
    let lease = doorman.lease("db");
    lease.set_wants(capacity(50.0));
    sleep(300 * SECOND).await;
    assert!(plane.releases().is_empty());
    drop(lease);
    sleep(120 * SECOND).await;
    assert_eq!(plane.releases().len(), 1);
    assert!(doorman.snapshot().limits.is_empty());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_capacity() {
    let plane = Plane::new(grants_wants);
    let (doorman, _worker) = run(builder(), &plane);
    let lease = doorman.lease("db");
    lease.set_wants(capacity(50.0));
    let mut watch = lease.watch();
    while next(&mut watch).await.amount != 50.0 {}
    doorman.shutdown().await.unwrap();
    let capacity = next(&mut watch).await;
    assert_eq!((capacity.amount, capacity.is_leased), (0.0, false));
}
