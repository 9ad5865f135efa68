//! What the fallbacks let pass.

use super::*;
use crate::{lease::Sharing, limiter::testing::blocked};

async fn admitted_of_10(fallback: Fallback, standing: Option<LeaseState>) -> usize {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
    if let Some(standing) = standing {
        registry.publish("api", standing);
    }
    admitted(&service, 10).await
}

#[tokio::test(start_paused = true)]
async fn the_fallback_decides() {
    let safe = |rate| Some(no_lease(Some(SafeRate::PerSecond(rate))));
    for (fallback, standing, expected) in [
        (Fallback::Safe, None, 10),
        (Fallback::Safe, Some(no_lease(None)), 10),
        (
            Fallback::Safe,
            Some(no_lease(Some(SafeRate::Unlimited))),
            10,
        ),
        (Fallback::Safe, safe(3.0), 3),
        (Fallback::Safe, safe(0.1), 1),
        (Fallback::Safe, safe(0.0), 0),
        (Fallback::Optimistic, None, 10),
        (Fallback::Optimistic, safe(0.0), 10),
        (Fallback::Pessimistic, None, 0),
        (Fallback::Pessimistic, safe(3.0), 0),
    ] {
        let count = admitted_of_10(fallback, standing).await;
        assert_eq!(count, expected, "{fallback:?} {standing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_seen_without_anybody_saying_so() {
    for (fallback, expected) in [
        (Fallback::Safe, 2),
        (Fallback::Optimistic, 30),
        (Fallback::Pessimistic, 0),
    ] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
        let ends = clock::now().after(5 * SECOND);
        let lease = LeaseState::Leased {
            rate: Some(20.0),
            ends,
            safe: Some(SafeRate::PerSecond(2.0)),
            refresh_at: ends,
            policy: None,
            sharing: Sharing::Divided,
            may_grow: false,
        };
        registry.publish("api", lease);
        advance(5 * SECOND - millis(1)).await;
        assert_eq!(admitted(&service, 30).await, 20, "{fallback:?}");
        advance(millis(1)).await;
        // The bucket was emptied just before: what comes now is the fallback's alone.
        let at_once = admitted(&service, 30).await;
        assert!(
            at_once == 0 || fallback == Fallback::Optimistic,
            "{fallback:?}"
        );
        advance(SECOND).await;
        assert_eq!(admitted(&service, 30).await, expected, "{fallback:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_say_that_it_is_not_the_callers_fault() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit]);
    registry.publish("api", no_lease(None));

    let answer = send(&service, Request::new(())).await;
    assert_eq!(
        (answer.status().as_u16(), reason(&answer)),
        (503, RefusalReason::NoLease)
    );
    assert_eq!(header(&answer, "retry-after"), "2", "the next refresh");
    let problem = crate::testing::body(answer).await;
    let problem: doorman_openapi::Problem = serde_json::from_slice(&problem).unwrap();
    assert_eq!(problem.status, 503);
    assert_eq!(
        problem.kind,
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
}

#[tokio::test(start_paused = true)]
async fn a_capacity_of_nothing_blocks_under_every_fallback() {
    for fallback in [Fallback::Safe, Fallback::Optimistic, Fallback::Pessimistic] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
        registry.publish("api", blocked(MINUTE));
        let answer = send(&service, Request::new(())).await;
        assert_eq!(
            (answer.status().as_u16(), reason(&answer)),
            (429, RefusalReason::Blocked)
        );
        assert_eq!(header(&answer, "retry-after"), "2", "the next refresh");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_nothing_that_wanted_nothing_lets_the_next_request_pass_and_asks_for_more() {
    let (registry, mut nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(0.0, MINUTE));
    while nudges.try_recv().is_ok() {}
    assert_eq!(admitted(&service, 1).await, 1);
    assert!(matches!(nudges.try_recv(), Ok(Nudge::Shortage(..))));
    let answer = send(&service, Request::new(())).await;
    assert_eq!(
        (answer.status().as_u16(), reason(&answer)),
        (503, RefusalReason::NoLease)
    );
    assert_eq!(header(&answer, "retry-after"), "2", "the next refresh");
    advance(10 * SECOND).await;
    assert_eq!(admitted(&service, 1).await, 0, "nothing comes by itself");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_before_anything_is_known_comes_back_in_a_second() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit]);
    let answer = send(&service, Request::new(())).await;
    assert_eq!(header(&answer, "retry-after"), "1");
    assert_eq!(
        header(&answer, "ratelimit-policy"),
        "",
        "nobody has told it"
    );
}

#[tokio::test(start_paused = true)]
async fn the_whole_limit_is_still_told_when_the_lease_is_lost() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(10.0, MINUTE));
    registry.publish("api", no_lease(Some(SafeRate::PerSecond(5.0))));
    let answer = send(&service, Request::new(())).await;
    assert_eq!(header(&answer, "ratelimit-policy"), r#""api";q=1000;w=1"#);
    assert_eq!(header(&answer, "ratelimit"), r#""api";r=4;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn what_passed_on_credit_is_charged_whatever_comes_before_the_lease() {
    let nothing_is_safe = no_lease(Some(SafeRate::PerSecond(0.0)));
    let ways: [&[LeaseState]; 4] = [
        &[],
        &[nothing_is_safe],
        &[blocked(MINUTE)],
        &[nothing_is_safe, blocked(MINUTE), nothing_is_safe],
    ];
    for way in ways {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api")]);
        assert_eq!(admitted(&service, 500).await, 500);
        for standing in way {
            registry.publish("api", *standing);
        }
        registry.publish("api", leased(10.0, MINUTE));
        assert_eq!(
            registry.known("api").reading(clock::now()).left,
            -10.0,
            "{way:?}"
        );
        assert_eq!(admitted(&service, 100).await, 0);
        advance(millis(1_100)).await;
        assert_eq!(admitted(&service, 100).await, 1, "a burst of debt, no more");
    }
}

#[tokio::test(start_paused = true)]
async fn little_because_little_was_wanted_is_not_the_callers_fault_and_mended_by_the_next_refresh()
{
    for (standing, status, reason_of_it, wait) in [
        (
            leased_as_requested(0.1, MINUTE),
            503,
            RefusalReason::WarmingUp,
            2 * SECOND,
        ),
        (
            leased_as_requested(0.0, MINUTE),
            503,
            RefusalReason::WarmingUp,
            2 * SECOND,
        ),
        // There is no more for it.
        (leased(0.1, MINUTE), 429, RefusalReason::Spent, 10 * SECOND),
        // Its turn comes before the refresh.
        (
            leased_as_requested(1.0, MINUTE),
            429,
            RefusalReason::Spent,
            SECOND,
        ),
    ] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api")]);
        registry.publish("api", standing);
        assert_eq!(admitted(&service, 1).await, 1);
        let answer = send(&service, Request::new(())).await;
        let refusal = answer.extensions().get::<Refusal>().unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(
            (refusal.reason(), refusal.retry_after()),
            (reason_of_it, wait)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_refresh_is_overdue_is_not_believed_to_grow() {
    let (registry, _nudges) = leased_registry(10);
    let limit = || Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit()]);
    let at_most = MINUTE;
    let patient = limited(&registry, [limit().on_limit(OnLimit::Delay { at_most })]);
    registry.publish("api", leased_as_requested(0.01, 2 * MINUTE));
    assert_eq!(admitted(&service, 1).await, 1);
    let hoping = spawn(&patient);
    settle().await;

    // The refresh was to be after two seconds.
    advance(3 * SECOND).await;
    let refusing = clock::now();
    let answer = send(&service, Request::new(())).await;
    let refusal = answer.extensions().get::<Refusal>().unwrap();
    assert_eq!(
        (refusal.reason(), refusal.retry_after()),
        (RefusalReason::Spent, 97 * SECOND)
    );
    assert_eq!(status(&patient).await, 429, "there is nothing to wait for");
    assert_eq!(hoping.await.unwrap(), 429, "any more");
    assert_eq!(clock::now(), refusing);
}

#[tokio::test(start_paused = true)]
async fn nor_is_one_that_ends_while_somebody_waits_for_more() {
    let (registry, _nudges) = leased_registry(10);
    let safe = Some(SafeRate::PerSecond(0.01));
    let limit = || Limit::rate("api").fallback(Fallback::Safe);
    let at_most = MINUTE;
    let service = limited(&registry, [limit()]);
    let patient = limited(&registry, [limit().on_limit(OnLimit::Delay { at_most })]);
    let start = clock::now();
    let ends_soon = match leased_as_requested(0.01, SECOND) {
        LeaseState::Leased {
            rate,
            ends,
            refresh_at,
            policy,
            sharing,
            may_grow,
            ..
        } => LeaseState::Leased {
            rate,
            ends,
            safe,
            refresh_at,
            policy,
            sharing,
            may_grow,
        },
        other => other,
    };
    registry.publish("api", ends_soon);
    assert_eq!(admitted(&service, 1).await, 1);
    assert_eq!(status(&patient).await, 503);
    assert_eq!(clock::now().since(start), SECOND);
    let answer = send(&service, Request::new(())).await;
    assert_eq!(reason(&answer), RefusalReason::NoLease);
}
