use doorman_openapi::{Fallback, Unit};
use tokio::{
    task::yield_now,
    time::{advance, timeout},
};

use super::*;
use crate::{
    Doorman, clock,
    limiter::{
        LeaseState, Policy, SafeRate,
        testing::{blocked, leased, leased_registry, no_lease},
    },
};

const SECOND: Duration = Duration::from_secs(1);

fn capacity(amount: f64, is_leased: bool) -> LeasedCapacity {
    LeasedCapacity {
        amount,
        per: 1.0,
        is_leased,
    }
}

/// The next change, and after how long it came; `None` when there is none in an hour.
async fn next(watch: &mut LeaseWatch) -> Option<(LeasedCapacity, Duration)> {
    let start = clock::now();
    let changed = timeout(3_600 * SECOND, watch.changed()).await;
    changed
        .ok()
        .map(|capacity| (capacity, clock::now().since(start)))
}

#[tokio::test(start_paused = true)]
async fn watch_yields_each_change_once() {
    let (registry, _nudges) = leased_registry(10);
    let lease = Lease::new(Arc::clone(&registry), "db");
    let mut watch = lease.watch();
    assert_eq!(watch.changed().await, capacity(0.0, false));

    let long = 10_000 * SECOND;
    for rate in [10.0, 4.0] {
        registry.publish("db", leased(rate, long));
        assert_eq!(watch.changed().await, capacity(rate, true));
        // A renewal changes nothing.
        registry.publish("db", leased(rate, long));
        assert_eq!(next(&mut watch).await, None);
    }
    registry.publish("db", blocked(long));
    assert_eq!(watch.changed().await, capacity(0.0, true));
    assert_eq!(lease.capacity(), capacity(0.0, true));
}

#[tokio::test(start_paused = true)]
async fn change_wakes_a_waiting_watch() {
    let (registry, _nudges) = leased_registry(10);
    let mut watch = Lease::new(Arc::clone(&registry), "db").watch();
    watch.changed().await;
    let changed = tokio::spawn(async move { next(&mut watch).await });
    yield_now().await;
    advance(SECOND / 2).await;
    registry.publish("db", leased(10.0, 60 * SECOND));
    let changed = changed.await.unwrap();
    assert_eq!(changed, Some((capacity(10.0, true), SECOND / 2)));
}

#[tokio::test(start_paused = true)]
async fn end_of_the_lease_is_noticed_without_a_message() {
    for (fallback, amount) in [
        (Fallback::Pessimistic, 0.0),
        (Fallback::Optimistic, f64::INFINITY),
        (Fallback::Safe, 2.0),
    ] {
        let (registry, _nudges) = leased_registry(10);
        let settings = LeaseSettings::new("db").fallback(fallback);
        let mut watch = Lease::new(Arc::clone(&registry), settings).watch();
        let mut state = leased(10.0, 17 * SECOND);
        if let LeaseState::Leased { safe, .. } = &mut state {
            *safe = Some(SafeRate::PerSecond(2.0));
        }
        registry.publish("db", state);
        assert_eq!(watch.changed().await, capacity(10.0, true));
        let lapsed = Some((capacity(amount, false), 17 * SECOND));
        assert_eq!(next(&mut watch).await, lapsed);
        assert_eq!(next(&mut watch).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn canceled_wait_loses_no_change() {
    let (registry, _nudges) = leased_registry(10);
    let mut watch = Lease::new(Arc::clone(&registry), "db").watch();
    watch.changed().await;
    assert!(timeout(SECOND, watch.changed()).await.is_err());
    registry.publish("db", leased(10.0, 60 * SECOND));
    let changed = next(&mut watch).await;
    assert_eq!(changed, Some((capacity(10.0, true), Duration::ZERO)));
}

#[tokio::test(start_paused = true)]
async fn amount_is_in_the_unit_of_the_resource() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Lease::new(Arc::clone(&registry), "db");
    let mut state = leased(10.0, SECOND);
    if let LeaseState::Leased { policy, .. } = &mut state {
        *policy = Some(Policy {
            limit: 6_000.0,
            per: 60.0,
        });
    }
    registry.publish("db", state);
    let capacity = rate.capacity();
    assert_eq!((capacity.amount, capacity.per_second()), (600.0, 10.0));

    let settings = LeaseSettings::new("tx").unit(Unit::Gauge);
    let gauge = Lease::new(Arc::clone(&registry), settings);
    registry.publish("tx", leased(7.5, SECOND));
    assert_eq!(gauge.capacity().amount, 7.0);
    registry.publish("tx", no_lease(None));
    assert_eq!(gauge.capacity().amount, 0.0);
}

#[tokio::test(start_paused = true)]
async fn handle_without_a_server_has_a_capacity() {
    let amount = |doorman: Doorman| doorman.lease("db").capacity().amount;
    assert_eq!(amount(Doorman::fixed([("db", 10.0)])), 10.0);
    assert_eq!(amount(Doorman::fixed([("other", 10.0)])), 0.0);
    assert_eq!(amount(Doorman::unlimited()), f64::INFINITY);
}
