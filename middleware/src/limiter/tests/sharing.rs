//! Capacities that are not divided: a bucket that all share, and chance.

use doorman_openapi::{Balance, Capacity, Probability};

use super::*;
use crate::lease::{SharedBalance, Sharing};

const SECOND: Duration = Duration::from_secs(1);

/// A lease on all of four a second.
fn leased_with(sharing: Sharing) -> LeaseState {
    let now = clock::now();
    LeaseState::Leased {
        rate: Some(4.0),
        ends: now.after(60 * SECOND),
        safe: None,
        refresh_at: now.after(SECOND),
        policy: None,
        sharing,
        may_grow: false,
    }
}

/// So much is left in the bucket, by an answer that comes now to a holder that had reported so much.
fn balance(tokens: f64, used: f64) -> Sharing {
    Sharing::Bucket(SharedBalance {
        tokens: Balance::new(tokens).unwrap(),
        used: Capacity::new(used).unwrap(),
        received_at: clock::now(),
    })
}

fn admitted(limiter: &Arc<Limiter>, requests: u32) -> usize {
    let now = clock::now();
    let taken = (0..requests).filter_map(|_| take(limiter, now).ok());
    taken.map(|mut place| place.keep()).count()
}

#[tokio::test(start_paused = true)]
async fn what_others_have_used_is_paid_back_before_anything_is_admitted() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased_with(balance(4.0, 0.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 4);
    limiter.publish(leased_with(balance(-8.0, 4.0)), clock::now());

    let refused = take(&limiter, clock::now()).unwrap_err();
    assert_eq!(refused.until, Some(clock::now().after(9 * SECOND / 4)));
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(admitted(&limiter, 10), 0);
    tokio::time::advance(SECOND).await;
    assert_eq!(admitted(&limiter, 10), 4);
}

#[tokio::test(start_paused = true)]
async fn what_was_used_since_the_report_is_taken_out() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased_with(balance(4.0, 0.0)), clock::now());
    assert_eq!(admitted(&limiter, 3), 3);
    // The report of two of them is answered.
    limiter.publish(leased_with(balance(4.0, 2.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_counts_once() {
    let limiter = limiter(Fallback::Pessimistic);
    let told = leased_with(balance(4.0, 0.0));
    limiter.publish(told, clock::now());
    assert_eq!(admitted(&limiter, 10), 4);
    tokio::time::advance(SECOND / 2).await;
    limiter.publish(told, clock::now());
    assert_eq!(admitted(&limiter, 10), 2);
}

#[tokio::test(start_paused = true)]
async fn what_overflowed_before_does_not_come_back_with_a_balance() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased_with(balance(4.0, 0.0)), clock::now());
    tokio::time::advance(20 * SECOND).await;
    limiter.publish(leased_with(balance(1.0, 0.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 1);
    // Never more than the burst, whatever is told.
    limiter.publish(leased_with(balance(1e15, 1.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 4);
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_its_turn_behind_what_others_have_used() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased_with(balance(1.0, 0.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 1);
    let mut place = Reservation::new(Arc::clone(&limiter), Cost::ONE);
    place.take(Patience::Forever, clock::now()).unwrap();

    limiter.publish(leased_with(balance(-3.0, 1.0)), clock::now());
    let waited = clock::now();
    place.turn(std::future::pending()).await.unwrap();
    place.keep();
    assert_eq!(
        clock::now().since(waited),
        SECOND,
        "three are owed, and one is its own"
    );
    // Its token was taken once.
    assert_eq!(admitted(&limiter, 10), 0);
    tokio::time::advance(SECOND / 4).await;
    assert_eq!(admitted(&limiter, 10), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waited_and_went_away_has_used_nothing() {
    let limiter = limiter(Fallback::Pessimistic);
    limiter.publish(leased_with(balance(4.0, 0.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 4);
    for _ in 0..10 {
        let mut place = Reservation::new(Arc::clone(&limiter), Cost::ONE);
        place.take(Patience::Forever, clock::now()).unwrap();
    }
    tokio::time::advance(SECOND / 2).await;
    limiter.publish(leased_with(balance(2.0, 4.0)), clock::now());
    assert_eq!(admitted(&limiter, 10), 2);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_what_is_asked_is_suppressed_and_all_of_it_is_wanted() {
    let limiter = limiter(Fallback::Pessimistic);
    let told = |probability| {
        let standing = leased_with(Sharing::Suppressed(Probability::new(probability).unwrap()));
        match standing {
            LeaseState::Leased {
                ends,
                safe,
                refresh_at,
                policy,
                sharing,
                ..
            } => LeaseState::Leased {
                rate: Some(100_000.0),
                ends,
                safe,
                refresh_at,
                policy,
                sharing,
                may_grow: false,
            },
            other => other,
        }
    };
    limiter.publish(told(0.25), clock::now());
    let passed = admitted(&limiter, 10_000);
    assert!((2_250..2_750).contains(&passed), "{passed}");
    assert_eq!(limiter.attempted(), 10_000.0);

    let refused = take_until_refused(&limiter);
    assert_eq!(refused.reason, RefusalReason::Suppressed);
    assert!(refused.until > Some(clock::now()), "{refused:?}");

    limiter.publish(told(1.0), clock::now());
    assert_eq!(admitted(&limiter, 1_000), 1_000);
    limiter.publish(told(0.0), clock::now());
    assert_eq!(admitted(&limiter, 1_000), 0);
}

fn take_until_refused(limiter: &Arc<Limiter>) -> Refused {
    loop {
        if let Err(refused) = take(limiter, clock::now()) {
            return refused;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_holder_alone_never_admits_more_than_the_whole_capacity() {
    let limiter = limiter(Fallback::Pessimistic);
    let standing = leased_with(Sharing::Suppressed(Probability::new(0.5).unwrap()));
    limiter.publish(standing, clock::now());
    let mut passed = admitted(&limiter, 1_000);
    for _ in 0..10 {
        tokio::time::advance(SECOND).await;
        passed += admitted(&limiter, 1_000);
    }
    assert_eq!(passed, 44, "a bucket full, and four a second");
}
