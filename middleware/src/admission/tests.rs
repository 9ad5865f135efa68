use std::{borrow::Cow, time::Duration};

use http::{HeaderValue, Request};
use tokio::time::advance;

use super::*;
use crate::{
    Cost, Fallback, Key, LimitService, RefusalReason,
    limiter::{
        SafeRate, Standing, Tally,
        testing::{given, leased, leasing, no_lease},
    },
    testing::{Answer, Inner, admitted, header, limited, send, status},
};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn tenant(name: &'static str) -> Request<()> {
    let mut request = Request::new(());
    request
        .headers_mut()
        .insert("x-tenant", HeaderValue::from_static(name));
    request
}

fn per_tenant() -> Limit {
    Limit::rate(Key::template("tenant/{header:x-tenant}").unwrap()).named("per-tenant")
}

fn reason(answer: &Answer) -> RefusalReason {
    answer.extensions().get::<Refusal>().unwrap().reason()
}

/// Sends a request that another task waits for.
fn spawn(service: &LimitService<Inner>) -> tokio::task::JoinHandle<u16> {
    let service = service.clone();
    tokio::spawn(async move { status(&service).await })
}

/// Lets every task run that can.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

mod without_a_lease {
    use super::*;

    async fn admitted_of_10(fallback: Fallback, standing: Option<Standing>) -> usize {
        let (registry, _nudges) = leasing(10);
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
            let (registry, _nudges) = leasing(10);
            let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
            let ends = clock::now().after(5 * SECOND);
            let lease = Standing::Leased {
                rate: 20.0,
                ends,
                safe: Some(SafeRate::PerSecond(2.0)),
                refresh_at: ends,
                policy: None,
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
        let (registry, _nudges) = leasing(10);
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
    async fn a_lease_of_nothing_blocks_under_every_fallback() {
        for fallback in [Fallback::Safe, Fallback::Optimistic, Fallback::Pessimistic] {
            let (registry, _nudges) = leasing(10);
            let service = limited(&registry, [Limit::rate("api").fallback(fallback)]);
            registry.publish("api", leased(0.0, MINUTE));
            let answer = send(&service, Request::new(())).await;
            assert_eq!(
                (answer.status().as_u16(), reason(&answer)),
                (429, RefusalReason::Blocked)
            );
            assert_eq!(header(&answer, "retry-after"), "2", "the next refresh");
        }
    }
}

mod waiting_for_the_first_lease {
    use super::*;

    fn patient() -> Limit {
        Limit::rate("api")
            .fallback(Fallback::Pessimistic)
            .wait_for_lease(SECOND)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_as_soon_as_it_comes() {
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
        let service = limited(&registry, [patient()]);
        let before = clock::now();
        assert_eq!(status(&service).await, 503);
        assert_eq!(clock::now().since(before), SECOND);
        assert_eq!(status(&service).await, 503);
        assert_eq!(clock::now().since(before), SECOND);
    }
}

mod delayed {
    use super::*;

    fn at_most(at_most: Duration) -> Limit {
        Limit::rate("api")
            .burst(Duration::ZERO)
            .on_limit(OnLimit::Delay { at_most })
    }

    #[tokio::test(start_paused = true)]
    async fn requests_go_one_by_one_as_tokens_come() {
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
        let service = limited(&registry, [at_most(millis(99))]);
        registry.publish("api", leased(10.0, MINUTE));
        let start = clock::now();
        assert_eq!(status(&service).await, 200);
        assert_eq!(status(&service).await, 429);
        assert_eq!(clock::now(), start);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_goes_away_gives_its_place_back() {
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
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
        let (registry, _nudges) = leasing(10);
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
}

mod several_limits {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_spends_nothing_of_the_others() {
        let registry = given(|resource| Standing::Fixed {
            rate: if resource.as_str() == "fleet" {
                10.0
            } else {
                1.0
            },
        });
        let service = limited(&registry, [Limit::rate("fleet"), per_tenant()]);
        for _ in 0..20 {
            send(&service, tenant("greedy")).await;
        }
        // One of the greedy tenant went, and nineteen took nothing of the fleet's ten.
        let tally = registry.known("fleet").tally();
        assert_eq!(
            tally,
            Tally {
                admitted: 1.0,
                refused: 0.0
            }
        );
        for name in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
            assert_eq!(send(&service, tenant(name)).await.status(), 200, "{name}");
        }
        let answer = send(&service, tenant("k")).await;
        assert_eq!(
            answer.extensions().get::<Refusal>().unwrap().limit(),
            "fleet"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_has_its_item_in_the_fields() {
        let registry = given(|resource| Standing::Fixed {
            rate: if resource.as_str() == "fleet" {
                10.0
            } else {
                1.0
            },
        });
        let service = limited(&registry, [Limit::rate("fleet"), per_tenant()]);
        let answer = send(&service, tenant("acme")).await;
        assert_eq!(
            header(&answer, "ratelimit"),
            r#""fleet";r=9;t=1, "per-tenant";r=0;t=1"#
        );
        let answer = send(&service, tenant("acme")).await;
        assert_eq!(answer.status(), 429);
        assert_eq!(
            header(&answer, "ratelimit"),
            r#""fleet";r=9;t=1, "per-tenant";r=0;t=1"#
        );
        assert_eq!(
            header(&answer, "ratelimit-policy"),
            r#""fleet";q=10;w=1, "per-tenant";q=1;w=1"#
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_that_fails_gives_back_what_was_taken_before() {
        let (registry, _nudges) = leasing(10);
        let delay = OnLimit::Delay { at_most: SECOND };
        let service = limited(
            &registry,
            [Limit::rate("fleet"), Limit::rate("db").on_limit(delay)],
        );
        registry.publish("fleet", leased(2.0, MINUTE));
        registry.publish("db", leased(1.0, MINUTE));
        assert_eq!(status(&service).await, 200);
        let waiting = spawn(&service);
        settle().await;
        registry.publish("db", leased(0.0, MINUTE));
        assert_eq!(waiting.await.unwrap(), 429);
        let reading = registry.known("fleet").reading(clock::now());
        assert_eq!(reading.left, 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn two_on_one_resource_share_one_limiter_with_the_settings_of_the_first() {
        let (registry, _nudges) = leasing(10);
        let first = limited(
            &registry,
            [Limit::rate("db").fallback(Fallback::Pessimistic)],
        );
        let second = limited(
            &registry,
            [Limit::rate("db").fallback(Fallback::Optimistic)],
        );
        assert_eq!(status(&second).await, 503);
        registry.publish("db", leased(2.0, MINUTE));
        assert_eq!(status(&first).await, 200);
        assert_eq!(status(&second).await, 200);
        assert_eq!(status(&first).await, 429);
    }
}

mod keys {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn past_the_bound_new_ones_share_one_whose_refusals_are_503() {
        let registry = given(|_| Standing::Fixed { rate: 1.0 });
        let service = limited(&registry, [per_tenant()]);
        let names: Vec<&'static str> = (0..1_000)
            .map(|n| &*Box::leak(format!("t{n}").into_boxed_str()))
            .collect();
        for name in &names {
            assert_eq!(send(&service, tenant(name)).await.status(), 200);
        }
        assert_eq!(send(&service, tenant("new")).await.status(), 200);
        let answer = send(&service, tenant("newer")).await;
        assert_eq!(
            (answer.status().as_u16(), reason(&answer)),
            (503, RefusalReason::Overflow)
        );
        let refusal: &Refusal = answer.extensions().get().unwrap();
        assert_eq!(refusal.resource().unwrap().as_str(), "tenant/(overflow)");

        // A known key is still its own, and its refusals are its own fault.
        let answer = send(&service, tenant("t7")).await;
        assert_eq!(
            (answer.status().as_u16(), reason(&answer)),
            (429, RefusalReason::Spent)
        );
        assert_eq!(registry.limiters().len(), 1_001);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_one_is_shared_skipped_or_refused() {
        let registry = given(|_| Standing::Fixed { rate: 1.0 });
        let service = |missing| limited(&registry, [per_tenant().on_missing_key(missing)]);

        let shared = service(MissingKey::Shared);
        assert_eq!(admitted(&shared, 3).await, 1);
        assert_eq!(registry.known("tenant/(missing)").tally().refused, 2.0);
        assert_eq!(admitted(&service(MissingKey::Skip), 3).await, 3);

        let answer = send(&service(MissingKey::Reject), Request::new(())).await;
        assert_eq!(
            (answer.status().as_u16(), reason(&answer)),
            (400, RefusalReason::MissingKey)
        );
        assert_eq!(header(&answer, "retry-after"), "");
        let problem = crate::testing::body(answer).await;
        let problem: doorman_openapi::Problem = serde_json::from_slice(&problem).unwrap();
        assert_eq!(
            (problem.kind.as_str(), problem.status),
            ("about:blank", 400)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_closure_may_itself_use_a_limited_service() {
        let registry = given(|_| Standing::Fixed { rate: 1.0 });
        let inner = limited(&registry, [per_tenant()]);
        let key = Key::from_fn("outer", move |_| {
            use tower::Service as _;
            drop(inner.clone().call(tenant("inner")));
            Some(Cow::Borrowed("value"))
        });
        let outer = limited(&registry, [Limit::rate(key.unwrap())]);
        assert_eq!(send(&outer, Request::new(())).await.status(), 200);
        assert_eq!(registry.known("tenant/inner").tally().admitted, 1.0);
        assert_eq!(registry.known("outer/value").tally().admitted, 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_is_fixed_or_computed_and_a_dear_request_passes_a_full_bucket() {
    let registry = given(|_| Standing::Fixed { rate: 10.0 });
    let limit = Limit::rate("api").cost_by(|head| match head.uri().path() {
        "/report" => Cost::new(30.0).unwrap(),
        _ => Cost::ONE,
    });
    let service = limited(&registry, [limit]);
    let report = || Request::builder().uri("/report").body(()).unwrap();

    assert_eq!(send(&service, report()).await.status(), 200);
    // Thirty of ten: twenty are owed.
    let answer = send(&service, Request::new(())).await;
    let wait = answer.extensions().get::<Refusal>().unwrap().retry_after();
    assert_eq!(wait, millis(2_100));
    advance(millis(2_100)).await;
    assert_eq!(status(&service).await, 200);
    assert_eq!(
        send(&service, report()).await.status(),
        429,
        "not while any is missing"
    );
}

#[tokio::test(start_paused = true)]
async fn the_worker_hears_of_demand_beyond_the_lease() {
    let (registry, mut nudges) = leasing(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(10.0, MINUTE));
    let limiter = registry.known("api");
    nudges.try_recv().unwrap();

    assert_eq!(admitted(&service, 5).await, 5);
    assert!(nudges.try_recv().is_err(), "half the bucket is left");
    status(&service).await;
    assert!(nudges.try_recv().is_ok());
    limiter.heard();
    assert_eq!(admitted(&service, 10).await, 4);
    assert!(nudges.try_recv().is_ok());
    assert!(nudges.try_recv().is_err(), "once is enough");
}
