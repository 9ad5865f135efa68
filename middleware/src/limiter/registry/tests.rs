use std::thread;

use super::{super::testing::leased_registry, *};
use crate::{
    Cost,
    limiter::{Fallback, Patience, Reservation},
};

fn settings() -> Arc<LimiterSettings> {
    Arc::new(LimiterSettings::default())
}

fn id(text: &str) -> ResourceId {
    ResourceId::new(text).unwrap()
}

#[test]
fn a_resource_has_one_limiter_and_the_worker_hears_of_it_once() {
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

    let fixed = registry.permanent(&id("tenant/acme"), &settings());
    assert!(limiters.iter().all(|limiter| Arc::ptr_eq(limiter, &fixed)));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(limiter)) if Arc::ptr_eq(&limiter, &fixed)));
    assert!(nudges.try_recv().is_err());
}

#[test]
fn past_the_bound_there_is_room_for_known_keys_and_what_the_program_names() {
    let (registry, _nudges) = leased_registry(2);
    assert!(registry.key("a", &settings()).is_some());
    assert!(registry.key("b", &settings()).is_some());
    assert!(registry.key("c", &settings()).is_none());
    assert!(registry.key("a", &settings()).is_some());
    registry.spare(&id("(overflow)"), &settings());
    registry.permanent(&id("db"), &settings());
    assert_eq!(registry.limiters().len(), 4);
}

#[test]
fn only_keys_take_up_their_room() {
    let (registry, _nudges) = leased_registry(1);
    registry.permanent(&id("api"), &settings());
    registry.spare(&id("(overflow)"), &settings());
    let first = registry.key("a", &settings());
    assert!(first.is_some(), "what the program names takes no room");
    assert!(registry.key("b", &settings()).is_none());

    registry.permanent(&id("a"), &settings());
    assert!(
        registry.key("b", &settings()).is_some(),
        "`a` is no key any more"
    );
    assert!(registry.key("c", &settings()).is_none());
}

#[test]
fn a_forgotten_key_makes_room_and_comes_back_as_a_new_one() {
    let (registry, mut nudges) = leased_registry(1);
    let first = registry.key("a", &settings()).unwrap();
    assert!(registry.forget(&first));
    assert!(!registry.forget(&first), "was forgotten before");
    assert!(first.tenure.fix(FIXED).is_none(), "is not the one to stay");

    let second = registry.key("a", &settings()).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(
        !registry.forget(&first),
        "must not take its successor along"
    );
    assert!(Arc::ptr_eq(
        &second,
        &registry.key("a", &settings()).unwrap()
    ));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
}

#[test]
fn what_the_program_names_is_never_forgotten_even_if_a_request_named_it_first() {
    let (registry, _nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap();
    assert!(!limiter.is_permanent());
    registry.permanent(&id("db"), &settings());
    assert!(limiter.is_permanent());
    assert!(!registry.forget(&limiter));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_forgotten_while_somebody_waits_for_it() {
    let (registry, _nudges) = leased_registry(10);
    let pessimistic = Arc::new(LimiterSettings {
        fallback: Fallback::Pessimistic.into(),
        ..LimiterSettings::default()
    });
    let limiter = registry.key("db", &pessimistic).unwrap();
    let mut place = Reservation::new(Arc::clone(&limiter), Cost::ONE);
    place.take(Patience::Forever, clock::now()).unwrap();
    assert!(!registry.forget(&limiter));
    drop(place);
    assert!(registry.forget(&limiter));
}

#[test]
fn hunger_is_told_once_until_it_is_heard() {
    let (registry, mut nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap();
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    for _ in 0..2 {
        registry.hungry(&limiter, Shortage::RunningLow);
        registry.hungry(&limiter, Shortage::RunningLow);
        assert!(matches!(nudges.try_recv(), Ok(Nudge::Shortage(..))));
        assert!(nudges.try_recv().is_err());
        limiter.clear_demand_signal();
    }
}

#[test]
fn the_worker_sees_when_nobody_admits_requests_any_more() {
    let (registry, mut nudges) = leased_registry(10);
    let limiter = registry.key("db", &settings()).unwrap();
    drop(registry);
    assert!(matches!(nudges.try_recv(), Ok(Nudge::New(_))));
    assert!(nudges.is_closed() && nudges.try_recv().is_err());
    drop(limiter);
}
