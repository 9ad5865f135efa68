//! Limiters that are forgotten while a request has them, and the next owners of their records.

use super::*;
use crate::snapshot::LimitSnapshot;

fn registered(store: &Store) -> RegisteredSettings {
    store.register(&Arc::new(LimiterSettings::default()))
}

fn create<'s>(store: &'s Arc<Store>, name: &str, settings: &RegisteredSettings) -> Limiter<'s> {
    let resource = ResourceId::new(name).unwrap();
    let created = store.get_or_create(&resource, settings, Purpose::Key, |_, _| (), clock::now());
    let (limiter, is_new) = created.unwrap();
    assert!(is_new);
    limiter.publish(leased(10.0, MINUTE), clock::now());
    limiter
}

/// A forgotten limiter, and the limiter that has its record now.
fn reused(store: &Arc<Store>) -> (Limiter<'_>, Limiter<'_>) {
    let settings = registered(store);
    let forgotten = create(store, "forgotten", &settings);
    assert!(store.forget(forgotten).is_some());
    for number in 0..100_000 {
        let limiter = create(store, &format!("k/{number}"), &settings);
        if limiter.number() == forgotten.number() {
            return (forgotten, limiter);
        }
        assert!(store.forget(limiter).is_some());
    }
    unreachable!("no record is reused");
}

#[tokio::test(start_paused = true)]
async fn late_request_neither_sees_nor_changes_the_next_owner() {
    let store = Store::new(0, clock::Clock::Machine);
    let (forgotten, owner) = reused(&store);
    let name = owner.resource();
    let before = (
        LimitSnapshot::new(owner, false, clock::now()),
        owner.reading(clock::now()),
    );
    assert_eq!(forgotten.resource().as_str(), "(unknown)");
    assert!(!forgotten.is_current());

    let settings = registered(&store);
    let recent = clock::now();
    let acquired = forgotten.try_acquire(&settings, 0, Cost::ONE, false, recent);
    assert!(acquired.is_none(), "taken of another resource");
    let mut acquisition = Acquisition::new(forgotten.handle(), 0, Cost::ONE);
    let rejected = acquisition.reserve(WaitLimit::NoWait, recent).unwrap_err();
    assert_eq!(rejected.reason, RefusalReason::Growing);
    acquisition.mark_pending();
    assert_eq!(owner.attempted(), 0.0);
    drop(acquisition);
    assert!(!forgotten.sleep(recent));

    let after = (
        LimitSnapshot::new(owner, false, clock::now()),
        owner.reading(clock::now()),
    );
    assert_eq!(after, before);
    assert_eq!(owner.resource(), name);
    assert!(store.forget(owner).is_some(), "nobody waits there");
}

#[tokio::test(start_paused = true)]
async fn request_does_not_wait_at_a_forgotten_limiter() {
    let store = Store::new(0, clock::Clock::Machine);
    let limiter = create(&store, "db", &registered(&store));
    assert!(store.forget(limiter).is_some());
    let mut bucket = Acquisition::new(limiter.handle(), 0, Cost::new(10.0).unwrap());
    bucket.reserve(WaitLimit::UNBOUNDED, clock::now()).unwrap();
    bucket.commit();

    let mut acquisition = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    let rejected = acquisition.reserve(WaitLimit::UNBOUNDED, clock::now());
    let rejected = rejected.expect_err("no lease can come");
    assert_eq!(rejected.reason, RefusalReason::Growing);
}

#[tokio::test(start_paused = true)]
async fn limiter_is_not_forgotten_while_its_request_waits_elsewhere() {
    let store = Store::new(0, clock::Clock::Machine);
    let limiter = create(&store, "db", &registered(&store));
    let mut acquisition = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    acquisition
        .reserve(WaitLimit::NoWait, clock::now())
        .unwrap();
    acquisition.mark_pending();
    assert!(store.forget(limiter).is_none());
    assert!(!limiter.sleep(clock::now()));
    drop(acquisition);
    assert_eq!(limiter.attempted(), 0.0, "its tokens were returned");
    assert!(store.forget(limiter).is_some());
}

#[tokio::test(start_paused = true)]
async fn low_records_are_reused_first() {
    let store = Store::new(0, clock::Clock::Machine);
    let settings = registered(&store);
    let mut limiters: Vec<_> = (0..3_000)
        .map(|number| create(&store, &format!("k/{number}"), &settings))
        .collect();
    limiters.reverse();
    for limiter in limiters {
        assert!(store.forget(limiter).is_some());
    }
    let again = create(&store, "again", &settings);
    assert!(
        again.number() > 1_024,
        "reused too early: {}",
        again.number()
    );
    assert!(again.number() < 1_030, "not the lowest: {}", again.number());
}
