use std::time::Duration;

use doorman_openapi::{Capacity, Fallback, Probability, ResourceId};
use tokio::time::{advance, sleep, timeout};

use super::*;
use crate::{
    RefusalReason, clock,
    key::KeyPrefix,
    lease::Sharing,
    limiter::{
        Growth, LeaseState,
        testing::{leased, leased_registry, no_lease, static_registry},
    },
};

const MINUTE: Duration = Duration::from_secs(60);

fn cost(cost: f64) -> Cost {
    Cost::new(cost).unwrap()
}

fn one_a_second() -> Rate {
    Rate::new(static_registry(|_| LeaseState::Fixed { rate: 1.0 }), "db")
}

/// Waits in a task that returns the milliseconds waited.
fn spawn(rate: &Rate, cost: Cost) -> tokio::task::JoinHandle<Result<u128, Refusal>> {
    let rate = rate.clone();
    let start = clock::now();
    tokio::spawn(async move {
        rate.wait(cost).await?;
        Ok(clock::now().since(start).as_millis())
    })
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_served_in_order() {
    let rate = one_a_second();
    let waiting: Vec<_> = [1.0, 1.0, 2.0, 0.5]
        .into_iter()
        .map(|tokens| spawn(&rate, cost(tokens)))
        .collect();
    let mut times = Vec::new();
    for waiting in waiting {
        times.push(waiting.await.unwrap().unwrap());
    }
    // Two tokens of a bucket of one are admitted when it is full, and leave debt.
    assert_eq!(times, [0, 1_000, 2_000, 3_500]);
}

#[tokio::test(start_paused = true)]
async fn dropped_wait_leaves_the_queue() {
    let rate = one_a_second();
    rate.try_acquire(Cost::ONE).unwrap();
    assert!(
        timeout(Duration::from_millis(500), rate.wait(cost(1.0)))
            .await
            .is_err()
    );
    let waited = spawn(&rate, Cost::ONE).await.unwrap().unwrap();
    assert_eq!(waited, 500);
}

#[tokio::test(start_paused = true)]
async fn wait_without_lease_ends_with_the_lease() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    let waiting = [spawn(&rate, Cost::ONE), spawn(&rate, Cost::ONE)];
    advance(MINUTE).await;
    registry.publish("db", no_lease(None));
    advance(MINUTE).await;
    settle().await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));

    registry.publish("db", leased(1.0, MINUTE));
    let mut times = Vec::new();
    for waiting in waiting {
        times.push(waiting.await.unwrap().unwrap());
    }
    assert_eq!(times, [120_000, 121_000]);
}

#[tokio::test(start_paused = true)]
async fn wait_outlasts_an_expired_lease() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    registry.publish("db", leased(0.1, Duration::from_secs(5)));
    rate.try_acquire(Cost::ONE).unwrap();
    let waiting = spawn(&rate, Cost::ONE);
    advance(MINUTE).await;
    settle().await;
    assert!(!waiting.is_finished(), "half a token came before the end");
    registry.publish("db", leased(0.1, MINUTE));
    assert_eq!(waiting.await.unwrap().unwrap(), 65_000);
}

#[tokio::test(start_paused = true)]
async fn wait_fails_when_the_worker_ends() {
    let (registry, nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    let waiting = spawn(&rate, Cost::ONE);
    settle().await;
    assert!(!waiting.is_finished());
    drop(nudges);
    let refusal = waiting.await.unwrap().unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::NoLease);
}

#[tokio::test(start_paused = true)]
async fn refused_attempt_has_a_reason_and_spends_nothing() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    let refusal = rate.try_acquire(Cost::ONE).unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::NoLease);

    registry.publish("db", leased(2.0, MINUTE));
    rate.try_acquire(cost(1.5)).unwrap();
    let refusal = rate.try_acquire(Cost::ONE).unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::Spent);
    assert_eq!(refusal.retry_after(), Duration::from_millis(250));
    assert_eq!(
        (refusal.limit(), refusal.resource().unwrap().as_str()),
        ("db", "db")
    );
    rate.try_acquire(cost(0.5)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn wait_fails_for_a_resource_without_fixed_rate() {
    let doorman = crate::Doorman::fixed([("db", 10.0)]);
    let refusal = timeout(MINUTE, doorman.rate("bd").wait(Cost::ONE)).await;
    let refusal = refusal.expect("does not wait").unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::Blocked);
    assert_eq!(refusal.resource().unwrap().as_str(), "bd");
    assert_eq!(spawn(&doorman.rate("db"), Cost::ONE).await.unwrap(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn suppressed_wait_retries_while_the_refresh_is_overdue() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(registry.clone(), "db");
    let by_chance = |probability| {
        let now = clock::now();
        LeaseState::Leased {
            rate: Some(100.0),
            ends: now.after(MINUTE),
            safe: None,
            refresh_at: now,
            policy: None,
            sharing: Sharing::Suppressed(Probability::new(probability).unwrap()),
            growth: Growth::None,
        }
    };
    registry.publish("db", by_chance(0.0));
    let waiting = spawn(&rate, Cost::ONE);
    sleep(10 * MINUTE / 60).await;
    assert!(!waiting.is_finished());
    registry.publish("db", by_chance(1.0));
    let waited = waiting.await.unwrap().unwrap();
    assert!((10_000..=11_000).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn wait_ends_after_max_wait_and_spends_nothing() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let limited = RateSettings::new("db").max_wait(Duration::from_millis(500));
    let rate = Rate::new(Arc::clone(&registry), limited);
    rate.try_acquire(Cost::ONE).unwrap();
    let start = clock::now();
    let refusal = rate.wait(Cost::ONE).await.unwrap_err();
    assert_eq!(clock::now().since(start), Duration::from_millis(500));
    assert_eq!(refusal.reason(), RefusalReason::Spent);
    assert_eq!(refusal.retry_after(), Duration::from_millis(500));
    assert_eq!(spawn(&rate, Cost::ONE).await.unwrap(), Ok(500));
}

#[tokio::test(start_paused = true)]
async fn max_wait_includes_the_wait_for_a_lease() {
    let (registry, _nudges) = leased_registry(10);
    let settings = RateSettings::new("db").max_wait(MINUTE);
    let rate = Rate::new(Arc::clone(&registry), settings);
    let waiting = [spawn(&rate, Cost::ONE), spawn(&rate, cost(61.0))];
    advance(MINUTE / 2).await;
    registry.publish("db", leased(1.0, 10 * MINUTE));
    let [first, second] = waiting;
    assert_eq!(first.await.unwrap(), Ok(30_000));
    let late = rate.wait(cost(1.0)).await;
    assert_eq!(second.await.unwrap(), Ok(31_000), "admitted with debt");
    assert_eq!(late.unwrap_err().reason(), RefusalReason::Spent);
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_rate_apply() {
    let (registry, _nudges) = leased_registry(10);
    let settings = RateSettings::new("db")
        .fallback(Fallback::Optimistic)
        .burst(Duration::from_secs(3))
        .priority(7)
        .wants(Capacity::saturating(5.0));
    let rate = Rate::new(Arc::clone(&registry), settings);
    assert!(rate.try_acquire(Cost::ONE).is_ok(), "no lease is needed");
    registry.publish("db", leased(2.0, MINUTE));
    let admitted = (0..9).filter(|_| rate.try_acquire(Cost::ONE).is_ok());
    assert_eq!(admitted.count(), 5, "a bucket of 6, less one on credit");
    assert_eq!(rate.0.limiter().priority(), 7);
    assert_eq!(
        rate.0.limiter().with_settings(|it| it.wants.load()),
        Some(Capacity::saturating(5.0))
    );
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_rate() {
    let doorman = crate::Doorman::fixed([("tenant/a%2Fb", 2.0), ("tenant/c", 1.0)]);
    let tenants = doorman.keyed_rate("tenant");
    let take = |key: &str| {
        let admitted = (0..5).filter(|_| tenants.try_acquire(key, Cost::ONE).is_ok());
        admitted.count()
    };
    assert_eq!((take("a/b"), take("c"), take("unknown")), (2, 1, 0));
    tenants.wait("c", Cost::ONE).await.unwrap();
    let refusal = tenants.wait("", Cost::ONE).await.unwrap_err();
    let resource = refusal.resource().map(ToString::to_string);
    assert_eq!(resource.as_deref(), Some("tenant/(missing)"));
    assert_eq!(refusal.limit(), "tenant");
}

#[test]
fn keys_beyond_the_bound_share_a_rate() {
    let (registry, _nudges) = leased_registry(1);
    let tenants = KeyedRate::new(registry, "tenant");
    let resource = |key: &str| {
        let refusal = tenants.try_acquire(key, Cost::ONE).unwrap_err();
        refusal.resource().unwrap().to_string()
    };
    assert_eq!(resource("a"), "tenant/a");
    assert_eq!(resource("b"), "tenant/(overflow)");
    assert_eq!(resource("a"), "tenant/a");
}

#[test]
fn any_key_makes_a_valid_resource() {
    for name in ["tenant", "", "\n", &"x".repeat(300)] {
        let resources = KeyPrefix::new(name);
        let mut ids = std::collections::HashSet::new();
        for key in ["", "a", "a/b", "\n", &"y".repeat(300), &"ü".repeat(60)] {
            let id = String::from_utf8(resources.id(key)).unwrap();
            ids.insert(ResourceId::new(id).unwrap());
        }
        assert_eq!(ids.len(), 6, "{name}");
        assert!(ids.insert(resources.overflow()));
    }
}
