//! Several limits on one resource and request.

use super::*;
use crate::LimitLayer;

fn by_name(rate: f64) -> Arc<Registry> {
    static_registry(move |_| LeaseState::Fixed { rate })
}

fn costing(name: &str, cost: f64) -> Limit {
    Limit::rate("api")
        .named(name)
        .cost(Cost::new(cost).unwrap())
}

fn wait(response: &TestResponse) -> Duration {
    response
        .extensions()
        .get::<Refusal>()
        .unwrap()
        .retry_after()
}

#[tokio::test(start_paused = true)]
async fn two_limits_share_a_bucket_of_one_token() {
    let service = limited(&by_name(1.0), [costing("a", 1.0), costing("b", 1.0)]);
    assert_eq!(status(&service).await, 200);
    let response = send(&service, Request::new(())).await;
    assert_eq!(wait(&response), 2 * SECOND, "one token of debt");
    let refusal = response.extensions().get::<Refusal>().unwrap();
    assert_eq!(refusal.limit(), "a");
    assert_eq!(
        header(&response, "ratelimit"),
        r#""a";r=0;t=2, "b";r=0;t=2"#
    );
    advance(2 * SECOND).await;
    let response = send(&service, Request::new(())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        r#""a";q=1;w=1, "b";q=1;w=1"#
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_exact_for_shared_limiter() {
    for (rate, first, second) in [
        (1.0, 1.0, 1.0),
        (10.0, 3.0, 4.0),
        (10.0, 7.0, 8.0),
        (0.3, 1.0, 2.0),
    ] {
        let registry = by_name(rate);
        let service = limited(&registry, [costing("a", first), costing("b", second)]);
        let layer = LimitLayer::new(
            registry,
            Callers::new(),
            [costing("a", first), costing("b", second)],
        );
        let request = Request::new(());
        let mut response = send(&service, Request::new(())).await;
        while response.status() == 200 {
            response = send(&service, Request::new(())).await;
        }
        let refusal = layer.try_admit(&RequestHead::of(&request)).unwrap_err();
        assert_eq!(refusal.retry_after(), wait(&response));
        let nanosecond = Duration::from_nanos(1);
        advance(wait(&response) - nanosecond).await;
        assert_eq!(status(&service).await, 429, "{rate}, {first}, {second}");
        advance(nanosecond).await;
        assert_eq!(status(&service).await, 200, "{rate}, {first}, {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn shared_limiter_spends_the_sum_of_costs() {
    let registry = by_name(10.0);
    let service = limited(&registry, [costing("a", 1.0), costing("b", 2.0)]);
    assert_eq!(admitted(&service, 9).await, 3);
    assert_eq!(registry.known("api").reading(clock::now()).left, 1.0);
    let tally = registry.known("api").tally();
    assert_eq!((tally.admitted, tally.refused), (9.0, 18.0));
}

#[tokio::test(start_paused = true)]
async fn shared_limiter_uses_the_shorter_delay() {
    let delay = |limit: Limit, max_delay| limit.on_limit(OnLimit::Delay { max_delay });
    let both = |patience| {
        let limits = [
            delay(costing("a", 1.0), 10 * SECOND),
            delay(costing("b", 1.0), patience),
        ];
        limited(&by_name(1.0), limits)
    };
    let patient = both(2 * SECOND);
    assert_eq!(status(&patient).await, 200);
    let start = clock::now();
    assert_eq!(status(&patient).await, 200);
    assert_eq!(clock::now().since(start), 2 * SECOND);
    let impatient = both(SECOND);
    assert_eq!(status(&impatient).await, 200);
    assert_eq!(status(&impatient).await, 429);
}

#[tokio::test(start_paused = true)]
async fn shadow_limit_is_free_beside_enforcing_limit() {
    let shadow = || costing("tried", 1.0).on_limit(OnLimit::Shadow);
    for limits in [
        [shadow(), costing("real", 1.0)],
        [costing("real", 1.0), shadow()],
    ] {
        let service = limited(&by_name(10.0), limits);
        assert_eq!(admitted(&service, 20).await, 10);
        let response = send(&service, Request::new(())).await;
        assert_eq!(header(&response, "ratelimit"), r#""real";r=0;t=1"#);
    }
}
