mod atomics;
mod bands;
mod fast_path;
mod index;
mod reuse;
mod sharing;

use std::{sync::Barrier, thread, time::Duration};

use doorman_holder::Sharing;

use super::{
    retention::Purpose,
    testing::{leased, leased_as_requested},
    *,
};
use crate::{Cost, RefusalReason, clock};

const MINUTE: Duration = Duration::from_secs(60);

fn limiter(fallback: Fallback) -> Limiter<'static> {
    let settings = Arc::new(LimiterSettings {
        fallback: fallback.into(),
        ..LimiterSettings::default()
    });
    with_settings(&settings)
}

/// The limiter of a store that lives as long as the test.
fn with_settings(settings: &Arc<LimiterSettings>) -> Limiter<'static> {
    let store = Box::leak(Box::new(Store::new(0, clock::Clock::Machine)));
    let settings = store.register(settings);
    let resource = ResourceId::new("db").unwrap();
    let created = store.get_or_create(&resource, &settings, Purpose::Key, |_, _| (), clock::now());
    created.unwrap().0
}

fn reserve(limiter: Limiter<'_>, now: Moment) -> Result<Acquisition, Rejected> {
    let mut acquisition = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    acquisition.reserve(WaitLimit::NoWait, now)?;
    Ok(acquisition)
}

/// A acquisition that waits for its turn.
fn queued(limiter: Limiter<'_>) -> Acquisition {
    let mut acquisition = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    acquisition
        .reserve(WaitLimit::UNBOUNDED, clock::now())
        .unwrap();
    acquisition
}

#[tokio::test(start_paused = true)]
async fn threads_admit_exactly_the_available_tokens() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1_000.0, MINUTE), clock::now());
    let now = clock::now();
    let admitted: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let reserved = (0..1_000).filter_map(|_| reserve(limiter, now).ok());
                    reserved.map(|mut acquisition| acquisition.commit()).count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });

    assert_eq!(admitted, 1_000);
    let tally = limiter.tally();
    assert_eq!((tally.admitted, tally.refused), (1_000.0, 3_000.0));
}

#[tokio::test(start_paused = true)]
async fn dropped_acquisition_is_released_and_not_counted() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1.0, MINUTE), clock::now());
    let now = clock::now();

    drop(reserve(limiter, now).unwrap());
    assert_eq!(limiter.tally(), Tally::default());
    reserve(limiter, now).unwrap().commit();
    assert!(reserve(limiter, now).is_err());
}

#[tokio::test(start_paused = true)]
async fn waiting_request_is_one_attempt() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1.0, MINUTE), clock::now());
    reserve(limiter, clock::now()).unwrap().commit();
    let [mut admitted, canceled] = [(); 2].map(|()| queued(limiter));
    assert_eq!(limiter.attempted(), 3.0);
    admitted.wait_turn(std::future::pending()).await.unwrap();
    admitted.commit();
    assert!(limiter.record.has_queue());
    drop(canceled);
    assert_eq!(limiter.attempted(), 3.0);
    assert!(!limiter.record.has_queue(), "nobody waits");
}

#[tokio::test(start_paused = true)]
async fn released_tokens_move_no_request_whose_turn_has_come() {
    let limiter = with_settings(&Arc::new(LimiterSettings {
        burst: Burst::new(Duration::from_secs(4)).into(),
        ..LimiterSettings::default()
    }));
    limiter.publish(leased(1.0, MINUTE), clock::now());
    let admitted = || {
        let taken = std::iter::from_fn(|| reserve(limiter, clock::now()).ok());
        taken.map(|mut taken| taken.commit()).count()
    };
    assert_eq!(admitted(), 4);
    let [mut first, mut second] = [(); 2].map(|()| queued(limiter));
    tokio::time::advance(Duration::from_secs(4)).await;
    second.wait_turn(std::future::pending()).await.unwrap();
    drop(second);
    first.wait_turn(std::future::pending()).await.unwrap();
    drop(first);
    assert_eq!(admitted(), 4, "the bucket is full");
}

#[tokio::test(start_paused = true)]
async fn threads_that_wake_a_limiter_are_all_admitted() {
    let limiter = limiter(Fallback::Optimistic);
    let now = clock::now();
    for _ in 0..1_000 {
        assert!(limiter.sleep(now));
        let together = Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    together.wait();
                    reserve(limiter, now).unwrap().commit();
                });
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn renewed_lease_adds_no_second_burst() {
    let limiter = limiter(Fallback::Pessimistic);
    let now = clock::now();
    let mut admitted = 0;
    for _ in 0..100 {
        limiter.publish(leased(10.0, MINUTE), now);
        while let Ok(mut acquisition) = reserve(limiter, now) {
            acquisition.commit();
            admitted += 1;
        }
    }
    assert_eq!(admitted, 10);
}

#[tokio::test(start_paused = true)]
async fn first_lease_charges_credit_in_full() {
    let limiter = limiter(Fallback::Safe);
    for _ in 0..500 {
        reserve(limiter, clock::now()).unwrap().commit();
    }
    limiter.publish(leased(10.0, 2 * MINUTE), clock::now());

    // A bucket of ten pays the first of them, and ten a second the others.
    let rejected = reserve(limiter, clock::now()).unwrap_err();
    let wait = rejected.retry_at.unwrap().since(clock::now());
    assert_eq!(
        (rejected.reason, wait),
        (RefusalReason::Spent, Duration::from_millis(49_100))
    );
}

#[tokio::test(start_paused = true)]
async fn requests_before_the_first_lease_are_charged() {
    let limiter = limiter(Fallback::Safe);
    for _ in 0..4 {
        reserve(limiter, clock::now()).unwrap().commit();
    }
    limiter.publish(leased(10.0, MINUTE), clock::now());
    let admitted = std::iter::from_fn(|| reserve(limiter, clock::now()).ok())
        .map(|mut acquisition| acquisition.commit())
        .count();
    assert_eq!(admitted, 6);
}

/// Five in 60 s, of which a lease has a part.
fn slow(lease: Option<f64>) -> LeaseState {
    let now = clock::now();
    let policy = Some(Policy {
        limit: 5.0,
        per: 60.0,
    });
    match lease {
        Some(capacity) => LeaseState::Leased {
            rate: Some(capacity / 60.0),
            ends: now.after(MINUTE),
            safe: None,
            refresh_at: now.after(Duration::from_secs(5)),
            policy,
            sharing: Sharing::Divided,
            growth: if capacity < 5.0 {
                Growth::OnRequest
            } else {
                Growth::None
            },
        },
        None => LeaseState::NoLease {
            safe: None,
            refresh_at: now,
            policy,
            awaits_answer: true,
        },
    }
}

#[tokio::test(start_paused = true)]
async fn retry_of_a_slow_limit_awaits_its_next_token() {
    for (before, seconds) in [(None, 12), (Some(4.0), 12), (Some(0.0), 12)] {
        let limiter = limiter(Fallback::Safe);
        limiter.publish(slow(before), clock::now());
        reserve(limiter, clock::now()).unwrap().commit();
        let rejected = reserve(limiter, clock::now()).unwrap_err();
        assert_eq!(rejected.reason, RefusalReason::Growing);
        let wait = rejected.retry_at.unwrap().since(clock::now());
        assert_eq!(wait, Duration::from_secs(seconds), "{before:?}");

        limiter.publish(slow(Some(5.0)), clock::now());
        tokio::time::advance(wait - Duration::from_millis(1)).await;
        assert!(reserve(limiter, clock::now()).is_err(), "{before:?}");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(reserve(limiter, clock::now()).is_ok(), "{before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_of_a_fast_limit_awaits_the_larger_lease() {
    let limiter = limiter(Fallback::Safe);
    limiter.publish(leased_as_requested(0.5, MINUTE), clock::now());
    reserve(limiter, clock::now()).unwrap().commit();
    let rejected = reserve(limiter, clock::now()).unwrap_err();
    let wait = rejected.retry_at.unwrap().since(clock::now());
    assert_eq!(
        (rejected.reason, wait),
        (RefusalReason::Growing, Duration::from_secs(1))
    );
}

#[tokio::test(start_paused = true)]
async fn highest_priority_of_existing_limits_applies() {
    let of = |priority: i32| {
        Arc::new(LimiterSettings {
            priority: priority.into(),
            ..LimiterSettings::default()
        })
    };
    let first = of(-2);
    let limiter = with_settings(&first);
    let register = |settings: &Arc<_>| limiter.store.register(settings);
    limiter.attach(&register(&first), "first");
    assert_eq!(limiter.priority(), -2);
    let mut others = Vec::new();
    for (other, highest) in [(-7, -2), (3, 3), (1, 3)] {
        let other = of(other);
        assert!(first.agrees_with(&other), "a priority is no conflict");
        limiter.attach(&register(&other), "other");
        others.push(other);
        assert_eq!(limiter.priority(), highest);
    }
    drop(others);
    assert_eq!(limiter.priority(), -2);
}
