//! What a refused caller is told, for every rate that a limit is likely to have.

use std::ops::RangeInclusive;

use super::*;
use crate::{LimitService, lease::Sharing};

const RATES: RangeInclusive<u32> = 1..=2_000;

/// Requests that cost what their path says.
fn service(registry: &Arc<Registry>, burst: Duration) -> LimitService<Inner> {
    let cost = |head: &RequestHead<'_>| {
        let cost = head.uri().path().trim_start_matches('/').parse().ok();
        cost.and_then(|cost| Cost::new(cost).ok())
            .unwrap_or(Cost::ONE)
    };
    limited(registry, [Limit::rate("api").burst(burst).cost_by(cost)])
}

async fn ask(service: &LimitService<Inner>, cost: f64) -> Answer {
    send(
        service,
        Request::builder().uri(format!("/{cost}")).body(()).unwrap(),
    )
    .await
}

/// A lease that is followed by a safe capacity.
fn lease(rate: u32, length: Duration, safe: u32) -> LeaseState {
    let now = clock::now();
    LeaseState::Leased {
        rate: Some(rate.into()),
        ends: now.after(length),
        safe: Some(SafeRate::PerSecond(safe.into())),
        refresh_at: now.after(SECOND),
        policy: None,
        sharing: Sharing::Divided,
        may_grow: false,
    }
}

/// Asks until it is refused, then comes back a nanosecond too early, and when it was told to.
async fn is_told_the_truth(service: &LimitService<Inner>, cost: f64, what: &str) {
    let mut answer = ask(service, cost).await;
    while answer.status() == 200 {
        answer = ask(service, cost).await;
    }
    assert_eq!(reason(&answer), RefusalReason::Spent, "{what}");
    let wait = answer.extensions().get::<Refusal>().unwrap().retry_after();
    let whole_seconds = wait.as_nanos().div_ceil(1_000_000_000);
    assert_eq!(
        header(&answer, "retry-after"),
        whole_seconds.to_string(),
        "{what}"
    );

    let nanosecond = Duration::from_nanos(1);
    advance(wait - nanosecond).await;
    assert_ne!(ask(service, cost).await.status(), 200, "{what}: early");
    advance(nanosecond).await;
    assert_eq!(ask(service, cost).await.status(), 200, "{what}: in time");
}

#[tokio::test(start_paused = true)]
async fn for_every_whole_rate_who_comes_back_when_told_is_admitted_and_nobody_before() {
    let chance = &mut fastrand::Rng::with_seed(0);
    for rate in RATES {
        let (registry, _nudges) = leased_registry(10);
        let service = service(&registry, millis(chance.u64(0..2_000)));
        // As dear as a part of what there is in a second, so that few requests spend it.
        let cost = f64::max(1.0, (f64::from(rate) * chance.f64()).round());
        let other = chance.u32(RATES);

        registry.publish("api", lease(rate, MINUTE, other));
        is_told_the_truth(&service, cost, "leased").await;
        advance(Duration::from_nanos(chance.u64(0..2_000_000_000))).await;
        registry.publish("api", lease(rate, MINUTE, other));
        is_told_the_truth(&service, cost, "renewed").await;
        registry.publish("api", lease(other, MINUTE, rate));
        is_told_the_truth(&service, cost, "changed").await;
        // Most of these promises reach beyond the end of the lease.
        let rest = Duration::from_nanos(chance.u64(1..500_000_000 / u64::from(rate)));
        registry.publish("api", lease(rate, rest, other));
        is_told_the_truth(&service, cost, "about to end").await;
    }
}
