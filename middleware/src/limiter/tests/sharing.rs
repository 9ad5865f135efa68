//! Capacity that is not divided: a shared bucket, and suppression.

use doorman_holder::{SharedBalance, Sharing};
use doorman_openapi::{Balance, Capacity, Probability};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn shared_lease(rate: f64, sharing: Sharing) -> LeaseState {
    let now = clock::now();
    LeaseState::Leased {
        rate: Some(rate),
        ends: now.after(MINUTE),
        safe: None,
        refresh_at: now.after(SECOND),
        policy: None,
        sharing,
        growth: Growth::None,
    }
}

/// A bucket of four tokens a second, with `tokens` left in a response that arrives now, to a holder
/// that reported `used`.
fn balance(tokens: f64, used: f64) -> LeaseState {
    let balance = SharedBalance {
        tokens: Balance::new(tokens).unwrap(),
        used: Capacity::new(used).unwrap(),
        received_at: clock::now(),
    };
    shared_lease(4.0, Sharing::Bucket(balance))
}

fn suppressed(rate: f64, probability: f64) -> LeaseState {
    let probability = Probability::new(probability).unwrap();
    shared_lease(rate, Sharing::Suppressed(probability))
}

fn admitted(limiter: Limiter<'_>, requests: u32) -> usize {
    let now = clock::now();
    let reserved = (0..requests).filter_map(|_| reserve(limiter, now).ok());
    reserved.map(|mut reservation| reservation.commit()).count()
}

#[tokio::test(start_paused = true)]
async fn usage_of_other_holders_is_paid_back() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(balance(4.0, 0.0), clock::now());
    assert_eq!(admitted(limiter, 10), 4);
    limiter.publish(balance(-8.0, 4.0), clock::now());

    let rejected = reserve(limiter, clock::now()).unwrap_err();
    assert_eq!(rejected.retry_at, Some(clock::now().after(9 * SECOND / 4)));
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(admitted(limiter, 10), 0);
    tokio::time::advance(SECOND).await;
    assert_eq!(admitted(limiter, 10), 4);
}

#[tokio::test(start_paused = true)]
async fn usage_since_the_report_is_subtracted() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(balance(4.0, 0.0), clock::now());
    assert_eq!(admitted(limiter, 3), 3);
    // The response to a report of two.
    limiter.publish(balance(4.0, 2.0), clock::now());
    assert_eq!(admitted(limiter, 10), 3);
}

#[tokio::test(start_paused = true)]
async fn balance_is_applied_once() {
    let limiter = limiter(Fallback::Pessimistic);
    let response = balance(4.0, 0.0);
    limiter.publish(response, clock::now());
    assert_eq!(admitted(limiter, 10), 4);
    tokio::time::advance(SECOND / 2).await;
    limiter.publish(response, clock::now());
    assert_eq!(admitted(limiter, 10), 2);
}

#[tokio::test(start_paused = true)]
async fn balance_does_not_return_overflowed_tokens() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(balance(4.0, 0.0), clock::now());
    tokio::time::advance(20 * SECOND).await;
    limiter.publish(balance(1.0, 0.0), clock::now());
    assert_eq!(admitted(limiter, 10), 1);
    limiter.publish(balance(1e15, 1.0), clock::now());
    assert_eq!(admitted(limiter, 10), 4, "at most the burst");
}

#[tokio::test(start_paused = true)]
async fn queued_request_waits_for_shared_debt() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(balance(1.0, 0.0), clock::now());
    assert_eq!(admitted(limiter, 10), 1);
    let mut reservation = queued(limiter);

    limiter.publish(balance(-3.0, 1.0), clock::now());
    let start = clock::now();
    reservation.wait_turn(std::future::pending()).await.unwrap();
    reservation.commit();
    assert_eq!(clock::now().since(start), SECOND, "three owed, and its own");
    assert_eq!(admitted(limiter, 10), 0);
    tokio::time::advance(SECOND / 4).await;
    assert_eq!(admitted(limiter, 10), 1, "its token was taken once");
}

#[tokio::test(start_paused = true)]
async fn canceled_requests_use_nothing_of_the_balance() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(balance(4.0, 0.0), clock::now());
    assert_eq!(admitted(limiter, 10), 4);
    for _ in 0..10 {
        drop(queued(limiter));
    }
    tokio::time::advance(SECOND / 2).await;
    limiter.publish(balance(2.0, 4.0), clock::now());
    assert_eq!(admitted(limiter, 10), 2);
}

#[tokio::test(start_paused = true)]
async fn suppressed_requests_are_rejected_by_chance_and_wanted() {
    fastrand::seed(7);
    let limiter = limiter(Fallback::Pessimistic);
    let publish = |probability| limiter.publish(suppressed(100_000.0, probability), clock::now());
    publish(0.25);
    let passed = admitted(limiter, 10_000);
    assert!((2_250..2_750).contains(&passed), "{passed}");
    assert_eq!(limiter.attempted(), 10_000.0);

    let rejected = loop {
        if let Err(rejected) = reserve(limiter, clock::now()) {
            break rejected;
        }
    };
    assert_eq!(rejected.reason, RefusalReason::Suppressed);
    assert!(rejected.retry_at > Some(clock::now()), "{rejected:?}");

    publish(1.0);
    assert_eq!(admitted(limiter, 1_000), 1_000);
    publish(0.0);
    assert_eq!(admitted(limiter, 1_000), 0);
}

#[tokio::test(start_paused = true)]
async fn suppressed_holder_never_exceeds_the_whole_capacity() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(suppressed(4.0, 0.5), clock::now());
    let mut passed = admitted(limiter, 1_000);
    for _ in 0..10 {
        tokio::time::advance(SECOND).await;
        passed += admitted(limiter, 1_000);
    }
    assert_eq!(passed, 44, "a full bucket, and four a second");
}
