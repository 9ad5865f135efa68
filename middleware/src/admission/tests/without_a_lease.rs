//! Fallbacks, and leases that are blocked, zero or small.

use super::*;
use crate::{
    lease::Sharing,
    limiter::testing::{awaiting_answer, awaiting_answer_of, blocked},
};

async fn admitted_of_10(fallback: Fallback, state: Option<LeaseState>) -> usize {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
    if let Some(state) = state {
        registry.publish("api", state);
    }
    admitted(&service, 10).await
}

#[tokio::test(start_paused = true)]
async fn fallback_decides_without_lease() {
    let safe = |rate| Some(no_lease(Some(SafeRate::PerSecond(rate))));
    for (fallback, state, expected) in [
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
        let count = admitted_of_10(fallback, state).await;
        assert_eq!(count, expected, "{fallback:?} {state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn expired_lease_switches_to_the_fallback() {
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
            growth: Growth::None,
        };
        registry.publish("api", lease);
        advance(5 * SECOND - millis(1)).await;
        assert_eq!(admitted(&service, 30).await, 20, "{fallback:?}");
        advance(millis(1)).await;
        // The bucket is empty: only the fallback adds tokens.
        let immediately = admitted(&service, 30).await;
        assert!(
            immediately == 0 || fallback == Fallback::Optimistic,
            "{fallback:?}"
        );
        advance(SECOND).await;
        assert_eq!(admitted(&service, 30).await, expected, "{fallback:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn missing_lease_gets_503() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit]);
    registry.publish("api", no_lease(None));

    let response = send(&service, Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (503, RefusalReason::NoLease)
    );
    assert_eq!(header(&response, "retry-after"), "2", "the next refresh");
    let problem = crate::testing::body(response).await;
    let problem: doorman_openapi::Problem = serde_json::from_slice(&problem).unwrap();
    assert_eq!(problem.status, 503);
    assert_eq!(
        problem.kind,
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
}

#[tokio::test(start_paused = true)]
async fn zero_capacity_blocks_under_every_fallback() {
    for fallback in [Fallback::Safe, Fallback::Optimistic, Fallback::Pessimistic] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
        registry.publish("api", blocked(MINUTE));
        let response = send(&service, Request::new(())).await;
        assert_eq!(
            (response.status().as_u16(), reason(&response)),
            (429, RefusalReason::Blocked)
        );
        assert_eq!(header(&response, "retry-after"), "2", "the next refresh");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_lease_of_zero_admits_one_request() {
    let (registry, mut nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(0.0, MINUTE));
    while nudges.try_recv().is_ok() {}
    assert_eq!(admitted(&service, 1).await, 1);
    assert!(matches!(nudges.try_recv(), Ok(Nudge::Shortage(..))));
    let response = send(&service, Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (429, RefusalReason::Spent)
    );
    assert_eq!(header(&response, "retry-after"), "2", "the next refresh");
    advance(10 * SECOND).await;
    assert_eq!(admitted(&service, 1).await, 0, "no tokens are issued");
}

#[tokio::test(start_paused = true)]
async fn refusal_before_first_response_retries_in_a_second() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit]);
    let response = send(&service, Request::new(())).await;
    assert_eq!(header(&response, "retry-after"), "1");
    assert_eq!(
        header(&response, "ratelimit-policy"),
        "",
        "the policy is unknown"
    );
}

#[tokio::test(start_paused = true)]
async fn policy_header_survives_a_lost_lease() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(10.0, MINUTE));
    registry.publish("api", no_lease(Some(SafeRate::PerSecond(5.0))));
    let response = send(&service, Request::new(())).await;
    assert_eq!(header(&response, "ratelimit-policy"), r#""api";q=1000;w=1"#);
    assert_eq!(header(&response, "ratelimit"), r#""api";r=4;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn credit_is_charged_to_the_next_lease() {
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
        for state in way {
            registry.publish("api", *state);
        }
        registry.publish("api", leased(10.0, MINUTE));
        assert_eq!(
            registry.known("api").reading(clock::now()).left,
            -490.0,
            "{way:?}"
        );
        assert_eq!(admitted(&service, 100).await, 0);
        advance(millis(49_100)).await;
        assert_eq!(admitted(&service, 100).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn debt_from_credit_is_at_most_one_bucket_of_the_limit() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    assert_eq!(admitted(&service, 2_500).await, 2_500);
    registry.publish("api", leased(10.0, MINUTE));
    let left = registry.known("api").reading(clock::now()).left;
    assert_eq!(left, -1_000.0);
}

#[tokio::test(start_paused = true)]
async fn one_bucket_of_a_known_limit_passes_before_the_first_answer() {
    for (burst, bucket) in [(SECOND, 1_000), (SECOND / 10, 100)] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api").burst(burst)]);
        registry.publish("api", awaiting_answer());
        assert_eq!(admitted(&service, 2_000).await, bucket);
        let response = send(&service, Request::new(())).await;
        assert_eq!(
            (response.status().as_u16(), reason(&response)),
            (429, RefusalReason::Growing)
        );
        assert_eq!(header(&response, "retry-after"), "1");
        assert_eq!(header(&response, "ratelimit"), r#""api";r=0;t=1"#);
        advance(SECOND / 2).await;
        assert_eq!(admitted(&service, 10).await, 0, "no tokens are issued");

        registry.publish("api", leased(50.0, MINUTE));
        let left = registry.known("api").reading(clock::now()).left;
        let first_bucket = (50.0 * burst.as_secs_f64()).max(1.0);
        assert_eq!(left, first_bucket + 25.0 - bucket as f64, "charged in full");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_limit_blocks_before_the_first_answer() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", awaiting_answer_of(0.0));
    let response = send(&service, Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (429, RefusalReason::Blocked)
    );
}

#[tokio::test(start_paused = true)]
async fn failure_before_the_first_answer_applies_the_safe_capacity() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", awaiting_answer());
    assert_eq!(admitted(&service, 1).await, 1);
    registry.publish("api", no_lease(Some(SafeRate::PerSecond(2.0))));
    assert_eq!(
        admitted(&service, 10).await,
        1,
        "charged with the first one"
    );
    let response = send(&service, Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (503, RefusalReason::NoLease)
    );
}

#[tokio::test(start_paused = true)]
async fn delayed_request_waits_for_the_first_answer() {
    let (registry, _nudges) = leased_registry(10);
    let max_delay = SECOND / 2;
    let limit = Limit::rate("api").burst(Duration::ZERO);
    let service = limited(&registry, [limit.on_limit(OnLimit::Delay { max_delay })]);
    registry.publish("api", awaiting_answer());
    assert_eq!(admitted(&service, 1).await, 1);
    let waiting = spawn(&service);
    settle().await;
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn lease_that_may_grow_gets_429_growing() {
    for (state, reason_of_it, wait) in [
        (
            leased_as_requested(0.1, MINUTE),
            RefusalReason::Growing,
            SECOND,
        ),
        (
            leased_as_requested(0.0, MINUTE),
            RefusalReason::Growing,
            SECOND,
        ),
        // Its own tokens come earlier.
        (
            leased_as_requested(5.0, MINUTE),
            RefusalReason::Growing,
            SECOND / 5,
        ),
        // No larger lease will come.
        (leased(0.1, MINUTE), RefusalReason::Spent, 10 * SECOND),
    ] {
        let (registry, _nudges) = leased_registry(10);
        let service = limited(&registry, [Limit::rate("api")]);
        registry.publish("api", state);
        admitted(&service, 5).await;
        let response = send(&service, Request::new(())).await;
        let refusal = response.extensions().get::<Refusal>().unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(
            (refusal.reason(), refusal.retry_after()),
            (reason_of_it, wait)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn overdue_refresh_ends_growing() {
    let (registry, _nudges) = leased_registry(10);
    let limit = || Limit::rate("api").fallback(Fallback::Pessimistic);
    let service = limited(&registry, [limit()]);
    let max_delay = MINUTE;
    let patient = limited(&registry, [limit().on_limit(OnLimit::Delay { max_delay })]);
    registry.publish("api", leased_as_requested(0.01, 2 * MINUTE));
    assert_eq!(admitted(&service, 1).await, 1);
    let waiting = spawn(&patient);
    settle().await;

    // The refresh was due after two seconds.
    advance(3 * SECOND).await;
    let refusing = clock::now();
    let response = send(&service, Request::new(())).await;
    let refusal = response.extensions().get::<Refusal>().unwrap();
    assert_eq!(
        (refusal.reason(), refusal.retry_after()),
        (RefusalReason::Spent, 97 * SECOND)
    );
    assert_eq!(status(&patient).await, 429, "no larger lease will come");
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now(), refusing);
}

#[tokio::test(start_paused = true)]
async fn expiring_lease_ends_growing() {
    let (registry, _nudges) = leased_registry(10);
    let safe = Some(SafeRate::PerSecond(0.01));
    let limit = || Limit::rate("api").fallback(Fallback::Safe);
    let max_delay = MINUTE;
    let service = limited(&registry, [limit()]);
    let patient = limited(&registry, [limit().on_limit(OnLimit::Delay { max_delay })]);
    let start = clock::now();
    let ends_soon = match leased_as_requested(0.01, SECOND) {
        LeaseState::Leased {
            rate,
            ends,
            refresh_at,
            policy,
            sharing,
            growth,
            ..
        } => LeaseState::Leased {
            rate,
            ends,
            safe,
            refresh_at,
            policy,
            sharing,
            growth,
        },
        other => other,
    };
    registry.publish("api", ends_soon);
    assert_eq!(admitted(&service, 1).await, 1);
    assert_eq!(status(&patient).await, 503);
    assert_eq!(clock::now().since(start), SECOND);
    let response = send(&service, Request::new(())).await;
    assert_eq!(reason(&response), RefusalReason::NoLease);
}
