mod atomics;
mod fast_path;
mod sharing;

use std::{thread, time::Duration};

use super::{testing::leased, *};
use crate::{Cost, clock};

fn limiter(fallback: Fallback) -> Arc<Limiter> {
    let settings = Arc::new(LimiterSettings {
        fallback: fallback.into(),
        ..LimiterSettings::default()
    });
    let resource = ResourceId::new("db").unwrap();
    Arc::new(Limiter::new(resource, settings, 0, clock::now()))
}

fn take(limiter: &Arc<Limiter>, now: Moment) -> Result<Reservation, Refused> {
    let mut place = Reservation::new(Arc::clone(limiter), Cost::ONE);
    place.take(Patience::Never, now)?;
    Ok(place)
}

#[tokio::test(start_paused = true)]
async fn many_threads_together_take_exactly_what_there_is() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1_000.0, Duration::from_secs(60)), clock::now());
    let now = clock::now();
    let admitted: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let taken = (0..1_000).filter_map(|_| take(&limiter, now).ok());
                    taken.map(|mut place| place.keep()).count()
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
async fn a_place_that_is_dropped_is_given_back_and_counts_nowhere() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1.0, Duration::from_secs(60)), clock::now());
    let now = clock::now();

    drop(take(&limiter, now).unwrap());
    assert_eq!(limiter.tally(), Tally::default());
    take(&limiter, now).unwrap().keep();
    assert!(take(&limiter, now).is_err());
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_one_attempt_whatever_comes_of_it() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased(1.0, Duration::from_secs(60)), clock::now());
    take(&limiter, clock::now()).unwrap().keep();
    let mut places = [(); 2].map(|()| Reservation::new(Arc::clone(&limiter), Cost::ONE));
    for place in &mut places {
        place.take(Patience::Forever, clock::now()).unwrap();
    }
    assert_eq!(limiter.attempted(), 3.0);
    let [mut goes, leaves] = places;
    goes.turn(std::future::pending()).await.unwrap();
    goes.keep();
    drop(leaves);
    assert_eq!(limiter.attempted(), 3.0);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_brings_no_second_burst() {
    let limiter = limiter(Fallback::Pessimistic);
    let now = clock::now();
    let mut admitted = 0;
    for _ in 0..100 {
        limiter.publish(leased(10.0, Duration::from_secs(60)), now);
        while let Ok(mut place) = take(&limiter, now) {
            place.keep();
            admitted += 1;
        }
    }
    assert_eq!(admitted, 10);
}

#[tokio::test(start_paused = true)]
async fn credit_is_charged_when_the_lease_comes_but_at_most_a_burst() {
    let limiter = limiter(Fallback::Safe);
    for _ in 0..1_000 {
        take(&limiter, clock::now()).unwrap().keep();
    }
    limiter.publish(leased(10.0, Duration::from_secs(60)), clock::now());

    // A full burst of debt: one second until nothing is owed, and a tenth for the first token.
    let refused = take(&limiter, clock::now()).unwrap_err();
    let wait = refused.until.unwrap().since(clock::now());
    assert_eq!(
        (refused.reason, wait),
        (RefusalReason::Spent, Duration::from_millis(1_100))
    );
}

#[tokio::test(start_paused = true)]
async fn requests_before_the_first_lease_are_charged_against_a_full_bucket() {
    let limiter = limiter(Fallback::Safe);
    for _ in 0..4 {
        take(&limiter, clock::now()).unwrap().keep();
    }
    limiter.publish(leased(10.0, Duration::from_secs(60)), clock::now());
    let admitted = std::iter::from_fn(|| take(&limiter, clock::now()).ok())
        .map(|mut place| place.keep())
        .count();
    assert_eq!(admitted, 6);
}

#[test]
fn is_small() {
    // A service may keep a million of them.
    assert!(size_of::<Limiter>() <= 224, "{}", size_of::<Limiter>());
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_of_its_limits_counts() {
    let of = |priority: i32| {
        Arc::new(LimiterSettings {
            priority: priority.into(),
            ..LimiterSettings::default()
        })
    };
    let first = of(-2);
    let resource = ResourceId::new("db").unwrap();
    let limiter = Limiter::new(resource, Arc::clone(&first), 0, clock::now());
    assert!(limiter.attach(&first).is_ok());
    assert_eq!(limiter.priority(), -2);
    let mut others = Vec::new();
    for (other, counts) in [(-7, -2), (3, 3), (1, 3)] {
        let other = of(other);
        assert!(limiter.attach(&other).is_ok(), "a priority is no conflict");
        others.push(other);
        assert_eq!(limiter.priority(), counts);
    }
    drop(others);
    assert_eq!(limiter.priority(), -2, "of those that are there");
}
