//! Requests delayed by `OnLimit::Delay`.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::Rate;

fn delayed(max_delay: Duration) -> Limit {
    Limit::rate("api")
        .burst(Duration::ZERO)
        .on_limit(OnLimit::Delay { max_delay })
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_are_admitted_in_order() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased(10.0, MINUTE));
    let start = clock::now();
    let waiting: Vec<_> = (0..12).map(|_| spawn(&service)).collect();
    let mut outcomes = Vec::new();
    for waiting in waiting {
        let status = waiting.await.unwrap();
        outcomes.push((status, clock::now().since(start).as_millis()));
    }
    let expected: Vec<_> = (0..11)
        .map(|n| (200, n * 100))
        .chain([(429, 1_000)])
        .collect();
    assert_eq!(outcomes, expected);
}

#[tokio::test(start_paused = true)]
async fn hopeless_delay_is_refused_immediately() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(millis(99))]);
    registry.publish("api", leased(10.0, MINUTE));
    let start = clock::now();
    assert_eq!(status(&service).await, 200);
    assert_eq!(status(&service).await, 429);
    assert_eq!(clock::now(), start);
}

#[tokio::test(start_paused = true)]
async fn canceled_request_frees_its_queue_position() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(millis(100))]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    for _ in 0..5 {
        let waiting = spawn(&service);
        settle().await;
        assert_eq!(status(&service).await, 429, "the queue is full");
        waiting.abort();
        settle().await;
    }
    let start = clock::now();
    assert_eq!(status(&service).await, 200);
    assert_eq!(clock::now().since(start), millis(100));
    assert_eq!(registry.known("api").waiting(), 0);
    let tally = registry.known("api").tally();
    assert_eq!(
        tally,
        Tally {
            admitted: 2.0,
            refused: 5.0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_with_429() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(MINUTE).queue(2)]);
    registry.publish("api", leased(1.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = [spawn(&service), spawn(&service)];
    settle().await;
    let response = send(&service, Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (429, RefusalReason::QueueFull)
    );
    assert_eq!(header(&response, "retry-after"), "3", "its turn");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn larger_lease_shortens_the_delay() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(20 * SECOND)]);
    registry.publish("api", leased(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = spawn(&service);
    settle().await;
    let start = clock::now();
    registry.publish("api", leased(2.0, MINUTE));
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(clock::now().since(start), millis(500));
}

#[tokio::test(start_paused = true)]
async fn smaller_lease_refuses_late_requests() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = spawn(&service);
    settle().await;
    let start = clock::now();
    registry.publish("api", leased(0.5, MINUTE));
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now(), start);
    advance(2 * SECOND).await;
    assert_eq!(status(&service).await, 200, "its token was released");
}

#[tokio::test(start_paused = true)]
async fn released_position_goes_to_requests_behind() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(30 * SECOND)]);
    registry.publish("api", leased(10.0, 10 * MINUTE));
    assert_eq!(status(&service).await, 200);
    let start = clock::now();
    let go = || {
        let waiting = spawn(&service);
        async move {
            (
                waiting.await.unwrap(),
                clock::now().since(start).as_millis(),
            )
        }
    };
    let leaving: Vec<_> = (0..50).map(|_| spawn(&service)).collect();
    settle().await;
    let mut staying: Vec<_> = (0..50).map(|_| tokio::spawn(go())).collect();
    settle().await;
    for waiting in leaving {
        waiting.abort();
    }
    settle().await;
    staying.extend((0..50).map(|_| tokio::spawn(go())));
    for (turn, waiting) in (1..).zip(staying) {
        assert_eq!(waiting.await.unwrap(), (200, turn * 100));
    }
}

#[tokio::test(start_paused = true)]
async fn short_lease_gap_keeps_the_queue_order() {
    let (registry, _nudges) = leased_registry(10);
    let limit = delayed(30 * SECOND).fallback(Fallback::Optimistic);
    let service = limited(&registry, [limit]);
    registry.publish("api", leased(10.0, 10 * MINUTE));
    assert_eq!(status(&service).await, 200);
    let first: Vec<_> = (0..20).map(|_| spawn(&service)).collect();
    settle().await;
    registry.publish("api", no_lease(None));
    registry.publish("api", leased(10.0, 10 * MINUTE));
    let start = clock::now();
    let second = spawn(&service);
    assert_eq!(second.await.unwrap(), 200);
    assert_eq!(clock::now().since(start), millis(2_100));
    assert!(first.iter().all(tokio::task::JoinHandle::is_finished));
}

#[tokio::test(start_paused = true)]
async fn release_without_lease_returns_no_overflowed_tokens() {
    let (registry, _nudges) = leased_registry(10);
    let fleet = Limit::rate("fleet")
        .cost(Cost::new(4.0).unwrap())
        .fallback(Fallback::Pessimistic);
    let api = delayed(20 * SECOND);
    let service = limited(&registry, [fleet, api]);
    registry.publish("fleet", leased(10.0, MINUTE));
    registry.publish("api", leased(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = spawn(&service);
    settle().await;
    advance(SECOND).await;
    registry.publish("fleet", no_lease(None));
    waiting.abort();
    settle().await;
    registry.publish("fleet", leased(20.0, MINUTE));
    assert_eq!(registry.known("fleet").reading(clock::now()).left, 10.0);
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_wait_for_a_larger_lease() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased_as_requested(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let start = clock::now();
    let waiting: Vec<_> = (0..3).map(|_| spawn(&service)).collect();
    advance(millis(300)).await;
    settle().await;
    assert!(waiting.iter().all(|it| !it.is_finished()));
    registry.publish("api", leased_as_requested(10.0, MINUTE));
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 200);
    }
    assert!(clock::now().since(start) <= millis(600));
}

#[tokio::test(start_paused = true)]
async fn wait_for_larger_lease_ends_in_time() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased_as_requested(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let start = clock::now();
    assert_eq!(status(&service).await, 429);
    assert_eq!(clock::now().since(start), SECOND);

    let waiting = spawn(&service);
    settle().await;
    let published_at = clock::now();
    registry.publish("api", leased(0.1, MINUTE));
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now(), published_at);
}

/// Counts the polls of a request.
async fn count_polls(service: LimitService<Inner>, polls: Arc<AtomicUsize>) -> u16 {
    let mut response = pin!(status(&service));
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::Relaxed);
        response.as_mut().poll(context)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn waiting_for_larger_lease_wakes_no_other_request() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased_as_requested(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let polls = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for _ in 0..1_000 {
        waiting.push(tokio::spawn(count_polls(service.clone(), polls.clone())));
        advance(millis(1)).await;
        settle().await;
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 429);
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 4_000, "{polls}");
    assert_eq!(registry.known("api").waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_larger_lease_holds_no_position() {
    let (registry, _nudges) = leased_registry(10);
    let limit = || Limit::rate("api").burst(10 * SECOND);
    let delay = OnLimit::Delay { max_delay: SECOND };
    let expensive = Cost::new(10.0).unwrap();
    let patient = limited(&registry, [limit().cost(expensive).on_limit(delay)]);
    let service = limited(&registry, [limit()]);
    let rate = Rate::new(Arc::clone(&registry), "api");
    registry.publish("api", leased_as_requested(1.0, MINUTE));
    assert_eq!(admitted(&service, 8).await, 8);
    let waiting: Vec<_> = (0..1_000).map(|_| spawn(&patient)).collect();
    settle().await;
    assert!(rate.try_acquire(Cost::ONE).is_ok(), "two tokens are left");
    assert_eq!(status(&service).await, 200);
    let response = send(&service, Request::new(())).await;
    let refusal = response.extensions().get::<Refusal>().unwrap();
    assert_eq!(
        (refusal.reason(), refusal.retry_after()),
        (RefusalReason::Growing, SECOND)
    );
    assert!(waiting.iter().all(|it| !it.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn wait_for_larger_lease_counts_one_attempt() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delayed(SECOND)]);
    registry.publish("api", leased_as_requested(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let start = clock::now();
    let waiting: Vec<_> = (0..15)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { (status(&service).await, clock::now().since(start)) })
        })
        .collect();
    settle().await;
    let limiter = registry.known("api");
    assert_eq!((limiter.waiting(), limiter.attempted()), (15, 16.0));
    registry.publish("api", leased(10.0, MINUTE));
    let mut last = Duration::ZERO;
    for (turn, waiting) in (1..).zip(waiting) {
        let (status, after) = waiting.await.unwrap();
        assert_eq!(status, if turn <= 10 { 200 } else { 429 }, "{turn}");
        if status == 200 {
            assert!(after > last && after <= SECOND, "{turn}: {after:?}");
            last = after;
        }
    }
    assert_eq!((limiter.waiting(), limiter.attempted()), (0, 16.0));
}
