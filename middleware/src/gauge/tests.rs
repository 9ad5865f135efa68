use std::time::Duration;

use doorman_openapi::{Fallback, ResourceId};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{advance, timeout},
};

use super::*;
use crate::{
    Doorman, RefusalReason,
    limiter::{
        LeaseState, LimiterHandle, Nudge,
        testing::{leased, leased_as_requested, leased_registry, no_lease},
    },
};

const MINUTE: Duration = Duration::from_secs(60);

fn fixed(units: f64) -> Gauge {
    Doorman::fixed([("tx", units)]).gauge("tx")
}

/// A gauge for which the test is the worker.
struct Leased {
    registry: Arc<Registry>,
    nudges: UnboundedReceiver<Nudge>,
    gauge: Gauge,
}

impl Leased {
    fn new(units: f64) -> Self {
        let (registry, nudges) = leased_registry(10);
        let gauge = Gauge::new(Arc::clone(&registry), "tx");
        let it = Self {
            registry,
            nudges,
            gauge,
        };
        it.publish(leased(units, MINUTE));
        it
    }

    fn limiter(&self) -> LimiterHandle {
        let limiters = self.registry.limiters();
        let [limiter] = &limiters[..] else {
            panic!("one limiter, not {limiters:?}")
        };
        limiter.handle()
    }

    fn publish(&self, state: LeaseState) {
        self.limiter().get().publish(state, crate::clock::now());
    }

    /// The units in use, and waited for.
    fn units(&self) -> (f64, f64) {
        let units = self.limiter().get().units_in_use();
        let units = units.expect("it is a gauge");
        (units.in_use, units.waiting)
    }

    fn returned(&mut self) -> usize {
        let mut returned = 0;
        while let Ok(nudge) = self.nudges.try_recv() {
            returned += usize::from(matches!(nudge, Nudge::Returned(_)));
        }
        returned
    }
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn refused(gauge: &Gauge, units: u32) -> RefusalReason {
    let refusal = gauge.try_acquire_many(units).unwrap_err();
    assert_eq!(refusal.retry_after_seconds(), 1);
    refusal.reason()
}

#[test]
fn units_are_in_use_until_the_permit_and_its_clones_are_dropped() {
    let gauge = fixed(3.0);
    let two = gauge.try_acquire_many(2).unwrap();
    let one = gauge.try_acquire().unwrap();
    assert_eq!(refused(&gauge, 1), RefusalReason::Spent);
    let clone = two.clone();
    drop(two);
    assert_eq!(refused(&gauge, 1), RefusalReason::Spent);
    drop(clone);
    assert_eq!(refused(&gauge, 3), RefusalReason::Spent);
    let two = gauge.try_acquire_many(2).unwrap();
    assert_eq!(format!("{two:?}"), r#"{"tx": 2.0}"#);
    drop((one, two));
    assert!(gauge.try_acquire_many(3).is_ok());
}

#[test]
fn blocked_and_unlimited_gauges() {
    let blocked = fixed(0.0).try_acquire().unwrap_err();
    assert_eq!(blocked.reason(), RefusalReason::Blocked);
    let unlimited = Doorman::unlimited().gauge("tx");
    let permits = [(); 100].map(|()| unlimited.try_acquire().unwrap());
    assert!(permits.iter().all(|permit| !permit.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_served_in_order() {
    let gauge = fixed(2.0);
    let first = gauge.acquire_many(2).await.unwrap();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for (number, units) in [(1, 2), (2, 1), (3, 1)] {
        let (gauge, order) = (gauge.clone(), order.clone());
        tokio::spawn(async move {
            let permit = gauge.acquire_many(units).await.unwrap();
            order.send((number, permit)).unwrap();
        });
        settle().await;
    }
    assert!(served.try_recv().is_err());
    drop(first);
    settle().await;
    let (number, two) = served.try_recv().unwrap();
    assert_eq!(number, 1);
    // The next one waits in front of a newcomer.
    assert!(served.try_recv().is_err());
    assert!(gauge.try_acquire().is_err());
    drop(two);
    settle().await;
    let numbers = [(); 2].map(|()| served.try_recv().unwrap()).map(|it| it.0);
    assert_eq!(numbers, [2, 3]);
    settle().await;
    assert!(gauge.try_acquire_many(2).is_ok());
}

#[tokio::test(start_paused = true)]
async fn dropped_or_late_wait_leaves_the_queue() {
    let gauge = fixed(1.0);
    let held = gauge.try_acquire().unwrap();
    assert!(timeout(MINUTE, gauge.acquire()).await.is_err());
    let impatient = Doorman::fixed([("tx", 1.0)]);
    let impatient = impatient.gauge(GaugeSettings::new("tx").max_wait(MINUTE));
    let other = impatient.try_acquire().unwrap();
    let start = crate::clock::now();
    let refusal = impatient.acquire().await.unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::Spent);
    assert_eq!(crate::clock::now().since(start), MINUTE);
    drop((held, other));
    for gauge in [gauge, impatient] {
        let again = gauge.try_acquire().unwrap();
        assert_eq!(refused(&gauge, 1), RefusalReason::Spent);
        drop(again);
    }
}

#[tokio::test(start_paused = true)]
async fn shrunk_lease_admits_nothing_until_it_fits() {
    let mut it = Leased::new(3.0);
    let mut permits = [(); 3].map(|()| Some(it.gauge.try_acquire().unwrap()));
    it.publish(leased(1.0, MINUTE));
    for (index, left) in [(0, 2.0), (1, 1.0)] {
        it.returned();
        permits[index] = None;
        assert_eq!(it.units(), (left, 0.0));
        assert_eq!(refused(&it.gauge, 1), RefusalReason::Spent);
    }
    permits[2] = None;
    assert!(it.gauge.try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn worker_is_told_once_of_units_returned_above_the_lease() {
    let mut it = Leased::new(3.0);
    let [one, two, three] = [(); 3].map(|()| it.gauge.try_acquire().unwrap());
    it.publish(leased(1.0, MINUTE));
    drop((one, two));
    assert_eq!(it.returned(), 1);
    it.limiter().get().clear_returned();
    // The rest is within the lease.
    drop(three);
    assert_eq!(it.returned(), 0);
}

#[tokio::test(start_paused = true)]
async fn operations_outlive_a_lapsed_lease_and_others_wait() {
    let it = Leased::new(2.0);
    let held = it.gauge.try_acquire().unwrap();
    advance(MINUTE).await;
    assert_eq!(it.units(), (1.0, 0.0));
    let refusal = it.gauge.try_acquire().unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::NoLease);
    let waiting = tokio::spawn({
        let gauge = it.gauge.clone();
        async move { gauge.acquire().await }
    });
    settle().await;
    assert_eq!(it.units(), (1.0, 1.0));
    it.publish(leased(2.0, MINUTE));
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(it.units(), (2.0, 0.0));
    drop((held, second));
    assert_eq!(it.units(), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn fallbacks_decide_without_a_lease() {
    let (registry, _nudges) = leased_registry(10);
    let gauge = |fallback| {
        let settings = GaugeSettings::new(format!("{fallback:?}")).fallback(fallback);
        Gauge::new(Arc::clone(&registry), settings)
    };
    let [optimistic, safe] = [Fallback::Optimistic, Fallback::Safe].map(gauge);
    let safe_capacity = crate::limiter::SafeRate::PerSecond(2.0);
    for limiter in registry.limiters() {
        limiter.publish(no_lease(Some(safe_capacity)), crate::clock::now());
    }
    let _many = [(); 50].map(|()| optimistic.try_acquire().unwrap());
    let two = [(); 2].map(|()| safe.try_acquire().unwrap());
    assert_eq!(refused(&safe, 1), RefusalReason::NoLease);
    drop(two);
    assert!(safe.try_acquire().is_ok());
}

#[tokio::test(start_paused = true)]
async fn key_in_use_is_not_forgotten() {
    let (registry, _nudges) = leased_registry(10);
    let tenants = KeyedGauge::new(Arc::clone(&registry), "tenant");
    let find = |key: &str| {
        let id = ResourceId::new(format!("tenant/{key}")).unwrap();
        let limiters = registry.limiters();
        let found = limiters.into_iter().find(|it| it.resource() == id);
        found.expect("it is known").handle()
    };
    assert!(tenants.try_acquire("acme").is_err());
    find("acme")
        .get()
        .publish(leased(1.0, MINUTE), crate::clock::now());
    let permit = tenants.try_acquire("acme").unwrap();
    let limiter = find("acme");
    assert!(!limiter.get().is_full(crate::clock::now()));
    assert!(!registry.forget(limiter.get()));
    assert!(!limiter.get().sleep(crate::clock::now()));
    drop(permit);
    assert!(limiter.get().is_full(crate::clock::now()));
    assert!(registry.forget(limiter.get()));
    assert!(registry.limiters().is_empty());
    // A new one begins without a lease.
    assert!(tenants.try_acquire("acme").is_err());
}

#[tokio::test(start_paused = true)]
async fn larger_lease_may_come_for_many_units() {
    let it = Leased::new(1.0);
    it.publish(leased_as_requested(1.0, MINUTE));
    assert_eq!(refused(&it.gauge, 2), RefusalReason::Growing);
    let waiting = tokio::spawn({
        let gauge = it.gauge.clone();
        async move { gauge.acquire_many(3).await }
    });
    settle().await;
    assert_eq!(it.units(), (0.0, 3.0));
    it.publish(leased(3.0, MINUTE));
    let permit = waiting.await.unwrap().unwrap();
    assert_eq!(it.units(), (3.0, 0.0));
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn more_units_than_there_are_hold_up_nobody() {
    let it = Leased::new(5.0);
    let waiting = tokio::spawn({
        let gauge = it.gauge.clone();
        async move { gauge.acquire_many(10).await }
    });
    settle().await;
    let permits = [(); 5].map(|()| it.gauge.try_acquire().unwrap());
    assert_eq!(it.units(), (5.0, 10.0));
    drop(permits);
    it.publish(leased(10.0, MINUTE));
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn request_that_a_smaller_lease_cannot_serve_leaves_the_queue() {
    let it = Leased::new(5.0);
    let all = it.gauge.acquire_many(5).await.unwrap();
    let acquire = |units| {
        let gauge = it.gauge.clone();
        tokio::spawn(async move { gauge.acquire_many(units).await.map(drop) })
    };
    let large = acquire(3);
    settle().await;
    let small = acquire(1);
    settle().await;
    it.publish(leased(2.0, MINUTE));
    drop(all);
    settle().await;
    assert!(small.is_finished());
    assert!(!large.is_finished());
    it.publish(leased(3.0, MINUTE));
    assert!(large.await.unwrap().is_ok());
}

#[test]
fn threads_never_use_more_than_the_units() {
    use std::sync::atomic::{AtomicU32, Ordering};

    let gauge = fixed(3.0);
    let in_use = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let Ok(permit) = gauge.try_acquire() else {
                        continue;
                    };
                    assert!(in_use.fetch_add(1, Ordering::SeqCst) < 3);
                    in_use.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert!(gauge.try_acquire_many(3).is_ok());
}
