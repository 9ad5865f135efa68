//! `Limit::wait_for_lease`: the wait for the first lease of a resource.

use super::*;

fn patient() -> Limit {
    Limit::rate("api")
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND)
}

#[tokio::test(start_paused = true)]
async fn first_lease_admits_the_waiting_request() {
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
async fn response_without_lease_continues_the_wait() {
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
async fn fallback_decides_after_the_wait_once() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let before = clock::now();
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now().since(before), SECOND);
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now().since(before), SECOND);
}

#[tokio::test(start_paused = true)]
async fn outage_does_not_extend_the_wait() {
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
    assert_eq!(clock::now(), late, "a resource waits once");
}

#[tokio::test(start_paused = true)]
async fn waiting_request_is_one_attempt() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [patient()]);
    let waiting: Vec<_> = (0..5).map(|_| spawn(&service)).collect();
    settle().await;
    let limiter = registry.known("api");
    assert_eq!(limiter.attempted(), 5.0, "while waiting");
    registry.publish("api", leased(3.0, MINUTE));
    let mut outcomes = Vec::new();
    for waiting in waiting {
        outcomes.push(waiting.await.unwrap());
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [200, 200, 200, 429, 429]);
    assert_eq!(limiter.attempted(), 5.0, "after the decision");
}
