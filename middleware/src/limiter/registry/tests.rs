use std::thread;

use super::{super::testing::leased_registry, *};
use crate::{
    Cost, Fallback, clock,
    limiter::{Acquisition, WaitLimit},
};

fn settings() -> Arc<LimiterSettings> {
    Arc::new(LimiterSettings::default())
}

fn id(text: &str) -> ResourceId {
    ResourceId::new(text).unwrap()
}

#[test]
fn resource_has_one_limiter_and_one_nudge() {
    let (registry, mut nudges) = leased_registry(10);
    let limiters: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| registry.key("tenant/acme", &settings()).unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });

    let pinned = registry.pin_for_code(
        &id("tenant/acme"),
        &registry.register(&settings()),
        clock::now(),
    );
    let permanent = pinned.limiter();
    assert!(limiters.iter().all(|it| *it == permanent.get()));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(limiter)) if limiter == *permanent));
    assert!(nudges.try_recv().is_err());
}

#[test]
fn full_registry_keeps_known_keys_and_permanent_resources() {
    let (registry, _nudges) = leased_registry(2);
    assert!(registry.key("a", &settings()).is_some());
    assert!(registry.key("b", &settings()).is_some());
    assert!(registry.key("c", &settings()).is_none());
    assert!(registry.key("a", &settings()).is_some());
    registry.overflow(&id("(overflow)"), &registry.register(&settings()));
    let _pinned = registry.pin_for_code(&id("db"), &registry.register(&settings()), clock::now());
    assert_eq!(registry.limiters().len(), 4);
}

#[test]
fn only_keys_occupy_slots() {
    let (registry, _nudges) = leased_registry(1);
    let _api = registry.pin_for_code(&id("api"), &registry.register(&settings()), clock::now());
    registry.overflow(&id("(overflow)"), &registry.register(&settings()));
    assert!(registry.key("a", &settings()).is_some());
    assert!(registry.key("b", &settings()).is_none());

    let _a = registry.pin_for_code(&id("a"), &registry.register(&settings()), clock::now());
    assert!(
        registry.key("b", &settings()).is_some(),
        "`a` is permanent now"
    );
    assert!(registry.key("c", &settings()).is_none());
}

#[test]
fn forgotten_key_frees_its_slot() {
    let (registry, mut nudges) = leased_registry(1);
    let first = registry.key("a", &settings()).unwrap();
    assert!(registry.forget(first));
    assert!(!registry.forget(first), "was forgotten before");

    let second = registry.key("a", &settings()).unwrap();
    assert!(first != second && !first.is_current());
    assert!(!registry.forget(first), "must not remove its successor");
    assert_eq!(registry.key("a", &settings()), Some(second));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
}

#[test]
fn key_is_not_forgotten_while_code_names_it() {
    let (registry, _nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap();
    assert!(!limiter.is_permanent());
    let pins = [(); 3]
        .map(|()| registry.pin_for_code(&id("db"), &registry.register(&settings()), clock::now()));
    for pin in pins {
        assert!(limiter.is_permanent());
        assert!(!registry.forget(limiter));
        drop(pin);
    }
    assert!(registry.forget(limiter));
}

#[tokio::test(start_paused = true)]
async fn key_with_waiting_request_is_not_forgotten() {
    let (registry, _nudges) = leased_registry(10);
    let pessimistic = Arc::new(LimiterSettings {
        fallback: Fallback::Pessimistic.into(),
        ..LimiterSettings::default()
    });
    let limiter = registry.key("db", &pessimistic).unwrap();
    let mut acquisition = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    acquisition
        .reserve(WaitLimit::UNBOUNDED, clock::now())
        .unwrap();
    assert!(!registry.forget(limiter));
    drop(acquisition);
    assert!(registry.forget(limiter));
}

#[tokio::test(start_paused = true)]
async fn shortage_is_sent_once_until_cleared() {
    let (registry, mut nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap();
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    for _ in 0..2 {
        for _ in 0..2 {
            registry.record_attempt(limiter, Some(Shortage::RunningLow), clock::now());
        }
        assert!(matches!(nudges.try_recv(), Ok(Nudge::Shortage(..))));
        assert!(nudges.try_recv().is_err());
        limiter.clear_demand_signal();
    }
}

#[test]
fn channel_closes_when_the_registry_is_dropped() {
    let (registry, mut nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap().handle();
    drop(registry);
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    assert!(nudges.is_closed() && nudges.try_recv().is_err());
    drop(limiter);
}
