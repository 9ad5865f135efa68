//! Decisions by a clock that may be late.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_nanos(clock::COARSE_SLACK_NANOS);

fn acquire(limiter: Limiter<'_>, awaits_lease: bool, recent: Moment) -> Option<Acquired> {
    let settings = RegisteredSettings {
        settings: Arc::new(limiter.with_settings(LimiterSettings::clone)),
        number: limiter.settings_number(),
    };
    limiter.try_acquire(&settings, 0, Cost::ONE, awaits_lease, recent)
}

fn admits(limiter: Limiter<'_>, awaits_lease: bool, recent: Moment) -> bool {
    let acquired = acquire(limiter, awaits_lease, recent);
    acquired.map(|acquired| limiter.commit(&acquired)).is_some()
}

#[tokio::test(start_paused = true)]
async fn late_clock_does_not_decide_near_lease_end() {
    let limiter = limiter(Fallback::Optimistic);
    limiter.publish(leased(1_000.0, MINUTE), clock::now());
    let end = clock::now().after(MINUTE);
    let admits = |recent| admits(limiter, false, recent);

    assert!(admits(clock::now()));
    assert!(admits(clock::now().after(58 * SECOND)));
    assert!(!admits(clock::now().after(MINUTE - SLACK)));
    assert!(!admits(Moment::from_nanos(end.as_nanos() - 1)));
    assert!(admits(end), "the fallback does not end");
    assert_eq!(limiter.tally().admitted, 3.0);
    assert_eq!(limiter.tally().refused, 0.0, "the fast path never rejects");
}

#[tokio::test(start_paused = true)]
async fn late_clock_admits_no_more_than_the_precise_clock() {
    let limiter = limiter(Fallback::Pessimistic);
    let late = clock::now();
    tokio::time::advance(Duration::from_millis(10)).await;
    limiter.publish(leased(10.0, MINUTE), clock::now());
    let admitted = (0..20).filter(|_| admits(limiter, false, late));
    assert_eq!(admitted.count(), 10, "one full bucket");
    assert!(reserve(limiter, clock::now()).is_err());
}

#[tokio::test(start_paused = true)]
async fn required_first_lease_disables_the_fallback() {
    let limiter = limiter(Fallback::Optimistic);
    let now = clock::now();
    assert!(!admits(limiter, true, now));
    assert!(admits(limiter, false, now));
    limiter.publish(leased(10.0, MINUTE), now);
    assert!(admits(limiter, true, now));
}

#[tokio::test(start_paused = true)]
async fn undone_tokens_are_returned() {
    let limiter = limiter(Fallback::Pessimistic);
    let now = clock::now();
    limiter.publish(leased(10.0, MINUTE), now);
    let acquired = acquire(limiter, false, now);
    limiter.undo(&acquired.unwrap(), 0, now);
    assert_eq!(limiter.reading(now).left, 10.0);
    assert_eq!(limiter.tally().admitted, 0.0);
}
