//! Metrics of limits.

mod delivered;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use doorman_openapi::Probability;
use http::{Request, Response};
use tokio::task::yield_now;
use tower::{Service as _, ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::{
    limits::{MAX_NAMES, OTHERS},
    testing::Counts,
};
use crate::{
    Callers, Cost, Doorman, Fallback, Key, Limit, LimitLayer, LimitService, OnLimit, OnMissingKey,
    Rate, RequestHead, TargetHeaders,
    lease::Sharing,
    limiter::{
        LeaseState, Registry,
        testing::{
            blocked, leased, leased_as_requested, leased_registry, no_lease, static_registry,
        },
    },
    testing::{Inner, admitted, limited, send, status},
};

const MINUTE: Duration = Duration::from_secs(60);
const DECISIONS: &str = "doorman_layer_decisions_total";
const WITHOUT_LEASE: &str = "doorman_layer_admissions_without_lease_total";
const OUTCOMES: &str = "doorman_layer_outcomes_total";
const INVALID_HEADERS: &str = "doorman_layer_invalid_target_headers_total";

fn tenant(name: &str) -> Request<()> {
    Request::get("/").header("x-tenant", name).body(()).unwrap()
}

fn per_tenant() -> Limit {
    Limit::rate(Key::template("tenant/{header:x-tenant}").unwrap()).named("per-tenant")
}

fn delaying(queue: u32) -> Limit {
    let max_delay = Duration::from_secs(5);
    Limit::rate("api")
        .on_limit(OnLimit::Delay { max_delay })
        .queue(queue)
}

fn one_a_second() -> Arc<Registry> {
    static_registry(|_| LeaseState::Fixed { rate: 1.0 })
}

/// The decisions of one limit, by outcome.
fn outcomes(counts: &Counts, limit: &str) -> Vec<(String, u64)> {
    let start = format!("limit={limit} outcome=");
    let decisions = counts.of(DECISIONS).into_iter();
    decisions
        .filter_map(|(labels, count)| Some((labels.strip_prefix(&start)?.to_owned(), count)))
        .collect()
}

#[track_caller]
fn assert_outcomes(counts: &Counts, limit: &str, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(outcome, count)| ((*outcome).to_owned(), *count))
        .collect();
    assert_eq!(outcomes(counts, limit), expected);
}

#[tokio::test(start_paused = true)]
async fn admitted_and_spent_requests_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let service = limited(&one_a_second(), [Limit::rate("api").named("fleet")]);
    assert_eq!(admitted(&service, 5).await, 1);
    assert_outcomes(&counts, "fleet", &[("admitted", 1), ("spent", 4)]);
    assert_eq!(counts.of(WITHOUT_LEASE), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn outcomes_and_invalid_headers_of_the_target_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let target = service_fn(async |request: Request<()>| {
        let status: u16 = request.uri().path()[1..].parse().unwrap();
        let response = Response::builder().status(status).header("ratelimit", "?");
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let limit = Limit::rate("db").named("partner");
    let limit = limit.headers_from(TargetHeaders::Standard);
    let doorman = Doorman::fixed([("db", 100.0)]);
    let service = doorman.layer(limit).unwrap().layer(target);
    for path in ["/200", "/404", "/429", "/500"] {
        let request = Request::get(path).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    }
    let of = |outcome| format!("limit=partner outcome={outcome}");
    let expected = [(of("failed"), 1), (of("ok"), 2), (of("overloaded"), 1)];
    assert_eq!(counts.of(OUTCOMES), expected.into());
    let expected = [("limit=partner".to_owned(), 4)];
    assert_eq!(counts.of(INVALID_HEADERS), expected.into());
}

#[tokio::test(start_paused = true)]
async fn recorder_may_be_installed_after_the_layer() {
    let service = limited(&one_a_second(), [Limit::rate("api")]);
    let counts = Counts::default();
    let _guard = counts.install();
    status(&service).await;
    assert_outcomes(&counts, "api", &[("admitted", 1)]);
}

#[tokio::test(start_paused = true)]
async fn limits_on_one_resource_count_separately() {
    let counts = Counts::default();
    let _guard = counts.install();
    let limits = ["a", "b"].map(|name| Limit::rate("api").named(name));
    let service = limited(&one_a_second(), limits);
    assert_eq!(admitted(&service, 5).await, 1);
    assert_outcomes(&counts, "a", &[("admitted", 1), ("spent", 4)]);
    assert_outcomes(&counts, "b", &[("admitted", 1)]);
}

#[tokio::test(start_paused = true)]
async fn blocked_and_missing_leases_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let service = limited(
        &registry,
        [Limit::rate("api").fallback(Fallback::Pessimistic)],
    );
    assert_eq!(admitted(&service, 2).await, 0);
    registry.publish("api", blocked(MINUTE));
    assert_eq!(admitted(&service, 3).await, 0);
    assert_outcomes(&counts, "api", &[("blocked", 3), ("no_lease", 2)]);
}

#[tokio::test(start_paused = true)]
async fn growing_lease_is_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased_as_requested(0.02, MINUTE));
    assert_eq!(admitted(&service, 3).await, 1);
    assert_outcomes(&counts, "api", &[("admitted", 1), ("growing", 2)]);
}

#[tokio::test(start_paused = true)]
async fn admissions_without_lease_are_counted_by_fallback() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let limit = |name, fallback| Limit::rate(name).fallback(fallback);
    for (limit, requests) in [
        (limit("a", Fallback::Safe), 2),
        (limit("b", Fallback::Optimistic), 3),
        (limit("c", Fallback::Pessimistic), 4),
    ] {
        admitted(&limited(&registry, [limit.clone()]), requests).await;
        let name = limit.name.to_string();
        registry.publish(&name, leased(100.0, MINUTE));
        admitted(&limited(&registry, [limit]), 1).await;
    }
    let expected = [
        ("limit=a fallback=safe".to_owned(), 2),
        ("limit=b fallback=optimistic".to_owned(), 3),
    ];
    assert_eq!(counts.of(WITHOUT_LEASE), BTreeMap::from(expected));
    assert_outcomes(&counts, "a", &[("admitted", 3)]);
    assert_outcomes(&counts, "c", &[("admitted", 1), ("no_lease", 4)]);
}

/// Sends a request that waits.
async fn wait(service: &LimitService<Inner>) -> tokio::task::JoinHandle<()> {
    let mut service = service.clone();
    let waiting = tokio::spawn(async move { drop(service.call(Request::new(())).await) });
    yield_now().await;
    waiting
}

#[tokio::test(start_paused = true)]
async fn delayed_gone_and_queue_full_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let service = limited(&one_a_second(), [delaying(2)]);
    assert_eq!(status(&service).await, 200);
    let (first, second) = (wait(&service).await, wait(&service).await);
    assert_eq!(status(&service).await, 429);
    second.abort();
    first.await.unwrap();
    let expected = [
        ("admitted", 1),
        ("delayed", 1),
        ("gone", 1),
        ("queue_full", 1),
    ];
    assert_outcomes(&counts, "api", &expected);
}

#[tokio::test(start_paused = true)]
async fn failed_delay_counts_as_refused_not_gone() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [delaying(2).fallback(Fallback::Pessimistic)]);
    registry.publish("api", leased(1.0, MINUTE));
    assert_eq!(status(&service).await, 200);
    let waiting = wait(&service).await;
    registry.publish("api", no_lease(None));
    waiting.await.unwrap();
    assert_outcomes(&counts, "api", &[("admitted", 1), ("no_lease", 1)]);
}

#[tokio::test(start_paused = true)]
async fn shadow_rejections_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let limit = Limit::rate("api").on_limit(OnLimit::Shadow);
    let service = limited(&one_a_second(), [limit]);
    assert_eq!(admitted(&service, 5).await, 5);
    assert_outcomes(&counts, "api", &[("admitted", 1), ("shadow", 4)]);
}

#[tokio::test(start_paused = true)]
async fn shadow_limits_on_one_resource_count_separately() {
    let counts = Counts::default();
    let _guard = counts.install();
    let limits = ["a", "b"].map(|name| Limit::rate("api").named(name).on_limit(OnLimit::Shadow));
    let service = limited(&one_a_second(), limits);
    assert_eq!(admitted(&service, 3).await, 3);
    for name in ["a", "b"] {
        assert_outcomes(&counts, name, &[("admitted", 1), ("shadow", 2)]);
    }
}

#[tokio::test(start_paused = true)]
async fn missing_and_overflowing_keys_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(1);
    let service = limited(
        &registry,
        [per_tenant()
            .on_missing_key(OnMissingKey::Reject)
            .fallback(Fallback::Pessimistic)],
    );
    for request in [tenant("a"), tenant("b"), tenant("c"), Request::new(())] {
        send(&service, request).await;
    }
    let expected = [("missing_key", 1), ("no_lease", 1), ("overflow", 2)];
    assert_outcomes(&counts, "per-tenant", &expected);

    let skipping = per_tenant()
        .named("skipping")
        .on_missing_key(OnMissingKey::Skip);
    admitted(&limited(&registry, [skipping]), 2).await;
    assert_outcomes(&counts, "skipping", &[("skipped", 2)]);
    let named = Limit::rate("named").skip(|_| true);
    admitted(&limited(&registry, [named]), 3).await;
    assert_outcomes(&counts, "named", &[("skipped", 3)]);
}

#[tokio::test(start_paused = true)]
async fn refusal_counts_for_the_refusing_limit_only() {
    let counts = Counts::default();
    let _guard = counts.install();
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: if resource.as_str() == "a" { 9.0 } else { 1.0 },
    });
    let service = limited(&registry, [Limit::rate("a"), Limit::rate("b")]);
    assert_eq!(admitted(&service, 3).await, 1);
    assert_outcomes(&counts, "a", &[("admitted", 1)]);
    assert_outcomes(&counts, "b", &[("admitted", 1), ("spent", 2)]);
}

#[tokio::test(start_paused = true)]
async fn decision_without_service_is_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let limits = [Limit::rate("api"), Limit::rate("api").named("second")];
    let layer = LimitLayer::new(Arc::clone(&registry), Callers::new(), limits);
    let request = Request::new(());
    let admit = || layer.try_admit(&RequestHead::of(&request)).is_ok();
    assert!(admit());
    registry.publish("api", blocked(MINUTE));
    assert!(!admit());
    assert_outcomes(&counts, "api", &[("admitted", 1), ("blocked", 1)]);
    assert_outcomes(&counts, "second", &[("admitted", 1)]);
    let expected = ["api", "second"].map(|limit| (format!("limit={limit} fallback=safe"), 1));
    assert_eq!(counts.of(WITHOUT_LEASE), BTreeMap::from(expected));
}

#[tokio::test(start_paused = true)]
async fn keys_have_one_gauge_and_no_series() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(20_000);
    let service = limited(&registry, [per_tenant(), Limit::rate("api")]);
    assert_eq!(counts.gauge("doorman_layer_keys"), None);
    send(&service, tenant("first")).await;
    let series = counts.series();
    for key in 1..10_000 {
        send(&service, tenant(&key.to_string())).await;
    }
    assert_eq!(counts.series(), series);
    assert_outcomes(&counts, "per-tenant", &[("admitted", 10_000)]);
    assert_eq!(counts.gauge("doorman_layer_keys"), Some(10_000.0));

    assert!(registry.forget(registry.known("tenant/first")));
    assert_eq!(counts.gauge("doorman_layer_keys"), Some(9_999.0));
    drop((service, registry));
    assert_eq!(counts.gauge("doorman_layer_keys"), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn direct_use_counts_by_resource_up_to_a_bound() {
    let counts = Counts::default();
    let _guard = counts.install();
    let doorman = Doorman::fixed([("db", 1.0)]);
    let database = doorman.rate("db");
    database.try_acquire(Cost::ONE).unwrap();
    database.try_acquire(Cost::ONE).unwrap_err();
    database.wait(Cost::ONE).await.unwrap();
    let hurried = tokio::time::timeout(Duration::from_millis(1), database.wait(Cost::ONE));
    hurried.await.unwrap_err();
    let expected = [("admitted", 1), ("delayed", 1), ("gone", 1), ("spent", 1)];
    assert_outcomes(&counts, "db", &expected);

    for name in 0..10_000 {
        let rate = doorman.rate(name.to_string());
        rate.try_acquire(Cost::ONE).unwrap_err();
    }
    let limits = counts.of(DECISIONS).into_keys();
    let limits = limits.filter(|labels| labels.ends_with("outcome=blocked"));
    assert_eq!(limits.count(), MAX_NAMES);
    let others = u64::try_from(10_001 - MAX_NAMES).unwrap();
    assert_outcomes(&counts, OTHERS, &[("blocked", others)]);
}

#[tokio::test(start_paused = true)]
async fn wait_without_worker_counts_as_refused_not_gone() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, nudges) = leased_registry(10);
    let rate = Rate::new(registry, "db");
    drop(nudges);
    rate.wait(Cost::ONE).await.unwrap_err();
    assert_outcomes(&counts, "db", &[("no_lease", 1)]);
}

/// A lease of one per second with this admission probability.
fn by_chance(probability: f64) -> LeaseState {
    let mut standing = leased(1.0, MINUTE);
    if let LeaseState::Leased { sharing, .. } = &mut standing {
        *sharing = Sharing::Suppressed(Probability::new(probability).unwrap());
    }
    standing
}

#[tokio::test(start_paused = true)]
async fn suppressed_wait_counts_as_one_delay() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", by_chance(0.0));
    assert_eq!(admitted(&service, 3).await, 0);
    assert_outcomes(&counts, "api", &[("suppressed", 3)]);

    let rate = Rate::new(Arc::clone(&registry), "db");
    registry.publish("db", by_chance(0.0));
    let tries = tokio::time::timeout(Duration::from_secs(1), rate.wait(Cost::ONE));
    tries.await.unwrap_err();
    assert_outcomes(&counts, "db", &[("gone", 1)]);
    // It retries when the next response is due.
    registry.publish("db", by_chance(0.0));
    let lucky = tokio::spawn(async move { rate.wait(Cost::ONE).await.unwrap() });
    yield_now().await;
    registry.publish("db", by_chance(1.0));
    lucky.await.unwrap();
    assert_outcomes(&counts, "db", &[("delayed", 1), ("gone", 1)]);
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_described_and_begins_at_zero() {
    let counts = Counts::default();
    let _guard = counts.install();
    let (registry, _nudges) = leased_registry(10);
    send(&limited(&registry, [per_tenant()]), tenant("a")).await;
    let metric = |series: &String| series.split(' ').next().unwrap().to_owned();
    let metrics = counts.series().iter().map(metric).collect();
    assert_eq!(counts.described(), metrics);
    // Fourteen decisions, two fallbacks, three outcomes, invalid headers and the number of keys.
    assert_eq!(counts.series().len(), 14 + 2 + 3 + 1 + 1);
}
