//! The short wait for the first lease of a resource.

use super::*;

fn patient() -> Limit {
    Limit::rate("api")
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND)
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_as_soon_as_it_comes() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let waiting = spawn(&service);
    settle().await;
    assert!(!waiting.is_finished());
    let before = clock::now();
    registry.publish("api", leased(1.0, MINUTE));
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(clock::now(), before);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_lease_does_not_end_it() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let waiting = spawn(&service);
    settle().await;
    registry.publish("api", no_lease(None));
    settle().await;
    assert!(!waiting.is_finished());
    registry.publish("api", leased(1.0, MINUTE));
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_fallback_decides_in_the_end_and_nobody_waits_again() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let before = clock::now();
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now().since(before), SECOND);
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now().since(before), SECOND);
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_prolong_it_however_often_the_control_plane_is_asked() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let before = clock::now();
    let waiting = spawn(&service);
    settle().await;
    for _ in 0..8 {
        advance(millis(400)).await;
        registry.publish("api", no_lease(Some(SafeRate::PerSecond(1.0))));
        settle().await;
    }
    assert!(waiting.is_finished(), "{:?}", clock::now().since(before));
    assert_eq!(waiting.await.unwrap(), 503);
    let late = clock::now();
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now(), late, "the resource was delayed once");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_it_is_wanted_once() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let waiting: Vec<_> = (0..5).map(|_| spawn(&service)).collect();
    settle().await;
    let limiter = registry.known("api");
    assert_eq!(limiter.attempted(), 5.0, "before anything is decided");
    registry.publish("api", leased(3.0, MINUTE));
    let mut outcomes = Vec::new();
    for waiting in waiting {
        outcomes.push(waiting.await.unwrap());
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [200, 200, 200, 429, 429]);
    assert_eq!(limiter.attempted(), 5.0, "and after it");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_count_yet_ends_it_too() {
    let (registry, _nudges) = leased_registry(10);
    let limit = patient().fallback(Fallback::Safe);
    let service = limited(&registry, [limit]);
    let waiting = spawn(&service);
    settle().await;
    let before = clock::now();
    let LeaseState::NoLease {
        safe,
        refresh_at,
        policy,
        ..
    } = no_lease(Some(SafeRate::PerSecond(100.0)))
    else {
        unreachable!("that is what it makes");
    };
    let answered = LeaseState::NoLease {
        safe,
        refresh_at,
        policy,
        answered: true,
    };
    registry.publish("api", answered);
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(clock::now(), before);
}
