//! `Retry-After` is exact for every likely rate.

use std::ops::RangeInclusive;

use super::*;
use crate::{LimitService, lease::Sharing};

const RATES: RangeInclusive<u32> = 1..=2_000;

/// The path of a request is its cost.
fn service(registry: &Arc<Registry>, burst: Duration) -> LimitService<Inner> {
    let cost = |head: &RequestHead<'_>| {
        let cost = head.uri().path().trim_start_matches('/').parse().ok();
        cost.and_then(|cost| Cost::new(cost).ok())
            .unwrap_or(Cost::ONE)
    };
    limited(registry, [Limit::rate("api").burst(burst).cost_by(cost)])
}

async fn send_cost(service: &LimitService<Inner>, cost: f64) -> TestResponse {
    send(
        service,
        Request::builder().uri(format!("/{cost}")).body(()).unwrap(),
    )
    .await
}

/// A lease with a safe capacity after it.
fn lease(rate: u32, length: Duration, safe: u32) -> LeaseState {
    let now = clock::now();
    LeaseState::Leased {
        rate: Some(rate.into()),
        ends: now.after(length),
        safe: Some(SafeRate::PerSecond(safe.into())),
        refresh_at: now.after(SECOND),
        policy: None,
        sharing: Sharing::Divided,
        growth: Growth::None,
    }
}

/// Sends until refused, then retries a nanosecond early and on time.
async fn check_retry_after(service: &LimitService<Inner>, cost: f64, what: &str) {
    let mut response = send_cost(service, cost).await;
    while response.status() == 200 {
        response = send_cost(service, cost).await;
    }
    assert_eq!(reason(&response), RefusalReason::Spent, "{what}");
    let wait = response
        .extensions()
        .get::<Refusal>()
        .unwrap()
        .retry_after();
    let whole_seconds = wait.as_nanos().div_ceil(1_000_000_000);
    assert_eq!(
        header(&response, "retry-after"),
        whole_seconds.to_string(),
        "{what}"
    );

    let nanosecond = Duration::from_nanos(1);
    advance(wait - nanosecond).await;
    assert_ne!(
        send_cost(service, cost).await.status(),
        200,
        "{what}: early"
    );
    advance(nanosecond).await;
    assert_eq!(
        send_cost(service, cost).await.status(),
        200,
        "{what}: in time"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_exact_for_every_rate() {
    let chance = &mut fastrand::Rng::with_seed(0);
    for rate in RATES {
        let (registry, _nudges) = leased_registry(10);
        let service = service(&registry, millis(chance.u64(0..2_000)));
        // A part of a second's tokens, so that few requests spend the burst.
        let cost = f64::max(1.0, (f64::from(rate) * chance.f64()).round());
        let other = chance.u32(RATES);

        registry.publish("api", lease(rate, MINUTE, other));
        check_retry_after(&service, cost, "leased").await;
        advance(Duration::from_nanos(chance.u64(0..2_000_000_000))).await;
        registry.publish("api", lease(rate, MINUTE, other));
        check_retry_after(&service, cost, "renewed").await;
        registry.publish("api", lease(other, MINUTE, rate));
        check_retry_after(&service, cost, "changed").await;
        // Most of these retries are after the end of the lease.
        let rest = Duration::from_nanos(chance.u64(1..500_000_000 / u64::from(rate)));
        registry.publish("api", lease(rate, rest, other));
        check_retry_after(&service, cost, "about to end").await;
    }
}
