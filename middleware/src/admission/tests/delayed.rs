//! Requests that wait for their turn.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::Rate;

fn at_most(at_most: Duration) -> Limit {
    Limit::rate("api")
        .burst(Duration::ZERO)
        .on_limit(OnLimit::Delay { at_most })
}

#[tokio::test(start_paused = true)]
async fn requests_go_one_by_one_as_tokens_come() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
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
async fn what_would_not_come_in_time_is_refused_at_once() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(millis(99))]);
    registry.publish("api", leased(10.0, MINUTE));
    let start = clock::now();
    assert_eq!(status(&service).await, 200);
    assert_eq!(status(&service).await, 429);
    assert_eq!(clock::now(), start);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_gives_its_place_back() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(millis(100))]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    for _ in 0..5 {
        let waiting = spawn(&service);
        settle().await;
        assert_eq!(status(&service).await, 429, "the one place is taken");
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
async fn a_full_queue_refuses_with_503() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(MINUTE).queue(2)]);
    registry.publish("api", leased(1.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = [spawn(&service), spawn(&service)];
    settle().await;
    let answer = send(&service, Request::new(())).await;
    assert_eq!(
        (answer.status().as_u16(), reason(&answer)),
        (503, RefusalReason::QueueFull)
    );
    assert_eq!(header(&answer, "retry-after"), "2", "the next refresh");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_larger_lease_lets_them_go_earlier() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(20 * SECOND)]);
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
async fn a_smaller_lease_refuses_those_who_would_come_too_late_and_frees_their_places() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = spawn(&service);
    settle().await;
    let start = clock::now();
    registry.publish("api", leased(0.5, MINUTE));
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now(), start);
    advance(2 * SECOND).await;
    assert_eq!(status(&service).await, 200, "its token was not used up");
}

#[tokio::test(start_paused = true)]
async fn a_place_given_back_goes_to_those_behind_and_to_nobody_twice() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(30 * SECOND)]);
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
async fn a_gap_that_nobody_saw_gives_no_place_to_newcomers() {
    let (registry, _nudges) = leased_registry(10);
    let limit = at_most(30 * SECOND).fallback(Fallback::Optimistic);
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
async fn a_place_given_back_without_a_lease_returns_nothing_that_had_overflowed() {
    let (registry, _nudges) = leased_registry(10);
    let fleet = Limit::rate("fleet")
        .cost(Cost::new(4.0).unwrap())
        .fallback(Fallback::Pessimistic);
    let api = at_most(20 * SECOND);
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
async fn requests_wait_for_a_larger_lease_where_the_one_there_is_was_all_that_was_asked_for() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
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
async fn no_longer_than_their_delay_and_not_once_it_is_known_that_there_is_no_more() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
    registry.publish("api", leased_as_requested(0.1, MINUTE));
    assert_eq!(status(&service).await, 200);
    let start = clock::now();
    assert_eq!(status(&service).await, 503);
    assert_eq!(clock::now().since(start), SECOND);

    let waiting = spawn(&service);
    settle().await;
    let told = clock::now();
    registry.publish("api", leased(0.1, MINUTE));
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now(), told);
}

/// How often a request was polled that waits, all of them together.
async fn count_polls(service: LimitService<Inner>, polls: Arc<AtomicUsize>) -> u16 {
    let mut answer = pin!(status(&service));
    poll_fn(|context| {
        polls.fetch_add(1, Ordering::Relaxed);
        answer.as_mut().poll(context)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_larger_lease_wakes_nobody_when_it_goes() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
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
        assert_eq!(waiting.await.unwrap(), 503);
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 4_000, "{polls}");
    assert_eq!(registry.known("api").waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_larger_lease_is_in_nobodys_way() {
    let (registry, _nudges) = leased_registry(10);
    let limit = || Limit::rate("api").burst(10 * SECOND);
    let delay = OnLimit::Delay { at_most: SECOND };
    let dear = Cost::new(10.0).unwrap();
    let patient = limited(&registry, [limit().cost(dear).on_limit(delay)]);
    let service = limited(&registry, [limit()]);
    let rate = Rate::new(Arc::clone(&registry), "api");
    registry.publish("api", leased_as_requested(1.0, MINUTE));
    assert_eq!(admitted(&service, 8).await, 8);
    let waiting: Vec<_> = (0..1_000).map(|_| spawn(&patient)).collect();
    settle().await;
    assert!(rate.try_acquire(Cost::ONE).is_ok(), "there are two");
    assert_eq!(status(&service).await, 200);
    let answer = send(&service, Request::new(())).await;
    let refusal = answer.extensions().get::<Refusal>().unwrap();
    assert_eq!(
        (refusal.reason(), refusal.retry_after()),
        (RefusalReason::Spent, SECOND)
    );
    assert!(waiting.iter().all(|it| !it.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_for_a_larger_lease_goes_in_turn_and_counts_once() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [at_most(SECOND)]);
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
