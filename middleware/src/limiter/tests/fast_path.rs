//! What is decided by a time that may be late, and what is not.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_nanos(clock::SLACK_NANOS);

fn goes(limiter: &Limiter, first_lease: FirstLease, recent: Moment) -> bool {
    let taken = limiter.take_at_once(Cost::ONE, first_lease, recent);
    taken.map(|taken| limiter.keep(&taken)).is_some()
}

#[tokio::test(start_paused = true)]
async fn near_the_end_of_a_lease_a_time_that_may_be_late_decides_nothing() {
    let limiter = limiter(Fallback::Optimistic);
    limiter.publish(leased(1_000.0, 60 * SECOND), clock::now());
    let end = clock::now().after(60 * SECOND);
    let goes = |recent| goes(&limiter, FirstLease::NotNeeded, recent);

    assert!(goes(clock::now()));
    assert!(goes(clock::now().after(58 * SECOND)));
    assert!(!goes(clock::now().after(60 * SECOND - SLACK)));
    assert!(!goes(Moment::from_nanos(end.as_nanos() - 1)));
    assert!(goes(end), "the fallback is not about to end");
    assert_eq!(limiter.tally().admitted, 3.0);
    assert_eq!(limiter.tally().refused, 0.0, "nothing is refused here");
}

#[tokio::test(start_paused = true)]
async fn a_late_time_admits_only_what_the_present_time_would() {
    let limiter = limiter(Fallback::Pessimistic);
    let late = clock::now();
    tokio::time::advance(Duration::from_millis(10)).await;
    limiter.publish(leased(10.0, 60 * SECOND), clock::now());
    let admitted = (0..20).filter(|_| goes(&limiter, FirstLease::NotNeeded, late));
    assert_eq!(admitted.count(), 10, "one full bucket");
    assert!(take(&limiter, clock::now()).is_err());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_first_lease_is_not_let_pass_for_want_of_one() {
    let limiter = limiter(Fallback::Optimistic);
    let now = clock::now();
    assert!(!goes(&limiter, FirstLease::Awaited, now));
    assert!(goes(&limiter, FirstLease::NotNeeded, now));
    limiter.publish(leased(10.0, 60 * SECOND), now);
    assert!(goes(&limiter, FirstLease::Awaited, now));
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_at_once_and_is_given_back_was_never_taken() {
    let limiter = limiter(Fallback::Pessimistic);
    let now = clock::now();
    limiter.publish(leased(10.0, 60 * SECOND), now);
    let taken = limiter.take_at_once(Cost::ONE, FirstLease::NotNeeded, now);
    limiter.undo(&taken.unwrap(), now);
    assert_eq!(limiter.reading(now).left, 10.0);
    assert_eq!(limiter.tally().admitted, 0.0);
}
