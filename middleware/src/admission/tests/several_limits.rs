//! Several limits on one request.

use super::*;
use crate::LimitLayer;

/// A registry in which one resource has another rate than all others.
fn fixed_rates(id: &'static str, rate: f64, others: f64) -> Arc<Registry> {
    static_registry(move |resource| LeaseState::Fixed {
        rate: if resource.as_str() == id {
            rate
        } else {
            others
        },
    })
}

#[tokio::test(start_paused = true)]
async fn refusal_spends_nothing_of_other_limits() {
    let registry = fixed_rates("fleet", 10.0, 1.0);
    let service = limited(&registry, [Limit::rate("fleet"), per_tenant()]);
    for _ in 0..20 {
        send(&service, tenant("greedy")).await;
    }
    // Nineteen refusals took nothing of the fleet's ten tokens.
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
    let response = send(&service, tenant("k")).await;
    assert_eq!(
        response.extensions().get::<Refusal>().unwrap().limit(),
        "fleet"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_covers_all_limits() {
    let registry = fixed_rates("quick", 1.0, 0.1);
    let service = limited(&registry, [Limit::rate("quick"), Limit::rate("slow")]);
    assert_eq!(status(&service).await, 200);
    let response = send(&service, Request::new(())).await;
    let wait = response
        .extensions()
        .get::<Refusal>()
        .unwrap()
        .retry_after();
    assert_eq!(wait, 10 * SECOND);
    assert_eq!(header(&response, "retry-after"), "10");
    assert_eq!(
        header(&response, "ratelimit"),
        r#""quick";r=0;t=1, "slow";r=0;t=10"#,
        "each limit has its own wait"
    );
    advance(wait).await;
    assert_eq!(status(&service).await, 200);
}

#[tokio::test(start_paused = true)]
async fn try_admit_retry_after_covers_all_limits() {
    let registry = fixed_rates("quick", 1.0, 0.1);
    let limits = [Limit::rate("quick"), Limit::rate("slow")];
    let layer = LimitLayer::new(registry, Callers::new(), limits);
    let request = Request::new(());
    let head = RequestHead::of(&request);
    assert_eq!(layer.try_admit(&head).map(drop), Ok(()));
    let wait = layer.try_admit(&head).unwrap_err().retry_after();
    assert_eq!(wait, 10 * SECOND);
    advance(wait).await;
    assert_eq!(layer.try_admit(&head).map(drop), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn headers_have_one_item_per_limit() {
    let registry = fixed_rates("fleet", 10.0, 1.0);
    let service = limited(&registry, [Limit::rate("fleet"), per_tenant()]);
    let response = send(&service, tenant("acme")).await;
    assert_eq!(
        header(&response, "ratelimit"),
        r#""fleet";r=9;t=1, "per-tenant";r=0;t=1"#
    );
    let response = send(&service, tenant("acme")).await;
    assert_eq!(response.status(), 429);
    assert_eq!(
        header(&response, "ratelimit"),
        r#""fleet";r=9;t=1, "per-tenant";r=0;t=1"#
    );
    assert_eq!(
        header(&response, "ratelimit-policy"),
        r#""fleet";q=10;w=1, "per-tenant";q=1;w=1"#
    );
}

#[tokio::test(start_paused = true)]
async fn failed_delay_releases_earlier_limits() {
    let (registry, _nudges) = leased_registry(10);
    let delay = OnLimit::Delay { max_delay: SECOND };
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
async fn returned_tokens_end_the_wait_for_a_larger_lease() {
    let (registry, _nudges) = leased_registry(10);
    let delay = |max_delay| OnLimit::Delay { max_delay };
    let costly = || {
        let fleet = Limit::rate("fleet").burst(10 * SECOND);
        fleet.cost_by(|_| Cost::new(8.0).unwrap())
    };
    let db = || Limit::rate("db");
    let of_both = limited(&registry, [costly(), db().on_limit(delay(SECOND))]);
    let of_fleet = limited(&registry, [costly().on_limit(delay(5 * SECOND))]);
    registry.publish("fleet", leased_as_requested(1.0, MINUTE));
    registry.publish("db", leased(1.0, MINUTE));
    assert_eq!(status(&limited(&registry, [db()])).await, 200);
    let waiting = spawn(&of_both);
    settle().await;
    // Six tokens are missing, in five seconds: only a larger lease can help.
    let growing = spawn(&of_fleet);
    settle().await;
    let start = clock::now();
    registry.publish("db", leased(0.0, MINUTE));
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(growing.await.unwrap(), 200);
    assert_eq!(clock::now(), start);
}

#[tokio::test(start_paused = true)]
async fn limits_on_one_resource_share_the_first_settings() {
    let (registry, _nudges) = leased_registry(10);
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

#[tokio::test(start_paused = true)]
async fn conflicting_settings_are_warned_about_once() {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    let (registry, _nudges) = leased_registry(10);
    let first = limited(&registry, [per_tenant()]);
    let same = limited(&registry, [per_tenant()]);
    let other = limited(&registry, [per_tenant().fallback(Fallback::Optimistic)]);
    for service in [&first, &same] {
        send(service, tenant("acme")).await;
    }
    assert_eq!(warnings.count(), 0);
    for _ in 0..3 {
        send(&other, tenant("acme")).await;
    }
    assert_eq!(warnings.count(), 1);
}
