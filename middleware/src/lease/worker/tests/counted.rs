//! Metrics of the worker.

use std::collections::BTreeMap;

use doorman_openapi::paths;

use super::*;
use crate::{
    meter::testing::Counts,
    rules::testing::{rule, rules_response},
};

const REQUESTS: &str = "doorman_layer_lease_requests_total";
const CHANGES: &str = "doorman_layer_lease_changes_total";
const CAPACITY: &str = "doorman_layer_leased_capacity";

fn counted<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts
        .map(|(labels, count)| (labels.to_owned(), count))
        .into()
}

#[tokio::test(start_paused = true)]
async fn requests_and_lease_changes_are_counted() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let capacity = || counts.gauge(&format!("{CAPACITY} resource=db"));
    assert_eq!(capacity(), Some(10.0));
    assert_eq!(counts.of(CHANGES), counted([("to=leased", 1)]));
    assert_eq!(counts.of(REQUESTS), counted([("outcome=answered", 1)]));

    // Refreshes are no changes.
    sleep(5 * SECOND).await;
    assert_eq!(counts.of(CHANGES), counted([("to=leased", 1)]));

    plane.set(|_| Reply::Disconnect);
    sleep(25 * SECOND).await;
    assert_eq!(capacity(), Some(0.0));
    assert_eq!(
        counts.of(CHANGES),
        counted([("to=leased", 1), ("to=lost", 1)])
    );
    let requests = counts.of(REQUESTS);
    let sum: u64 = requests.values().sum();
    assert_eq!(sum, u64::try_from(plane.calls().len()).unwrap());
    assert!(requests["outcome=unavailable"] > 1, "{requests:?}");

    plane.set(grants(4.0));
    sleep(10 * SECOND).await;
    assert_eq!(capacity(), Some(4.0));
    doorman.shutdown().await.unwrap();
    worker.await.unwrap();
    assert_eq!(capacity(), Some(0.0));
    assert_eq!(
        counts.of(CHANGES),
        counted([("to=leased", 2), ("to=lost", 2)])
    );
}

#[tokio::test(start_paused = true)]
async fn idle_constant_key_has_no_leased_capacity() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let capacity = || counts.gauge(&format!("{CAPACITY} resource=db"));
    assert_eq!(capacity(), Some(10.0));
    sleep(20 * SECOND).await;
    assert_eq!(capacity(), Some(0.0));
    rate.wait(Cost::ONE).await.unwrap();
    sleep(SECOND).await;
    assert_eq!(capacity(), Some(10.0));
    assert_eq!(counts.of(CHANGES), counted([("to=leased", 2)]), "not lost");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_kind() {
    let problem = Problem::new(ProblemType::Unavailable, "no");
    for (status, outcome) in [
        (503, "outcome=unavailable"),
        (307, "outcome=redirected"),
        (403, "outcome=refused"),
        (413, "outcome=too_large"),
    ] {
        let counts = Counts::default();
        let _guard = counts.install();
        let problem = problem.clone();
        let plane = Plane::new(move |_| Reply::json(status, &problem));
        let (doorman, _worker) = run(builder(), &plane);
        let _rate = doorman.rate("db");
        sleep(SECOND).await;
        let sum = u64::try_from(plane.calls().len()).unwrap();
        assert!(sum > 0);
        assert_eq!(counts.of(REQUESTS), counted([(outcome, sum)]));
    }
}

#[tokio::test(start_paused = true)]
async fn blocked_lease_is_counted_as_blocked() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(|call| {
        let mut response = grant_all(&call.capacity().unwrap(), 0.0);
        response.resources[0].reason = doorman_openapi::Reason::Blocked;
        response.into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(counts.of(CHANGES), counted([("to=blocked", 1)]));
}

#[tokio::test(start_paused = true)]
async fn dead_worker_leaves_no_leased_capacity() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    worker.abort();
    worker.await.unwrap_err();
    let capacity = counts.gauge(&format!("{CAPACITY} resource=db"));
    assert_eq!(capacity, Some(0.0));
}

/// Leases 10 of every resource and serves rules for a hundred resources with this prefix.
fn serves(version: &'static str, prefix: &'static str) -> impl FnMut(&Received) -> Reply + Send {
    let mut leases = grants(10.0);
    let ids = (0..100).map(|number| format!("{prefix}{number}"));
    let rules: Vec<_> = ids.map(|id| rule(&id, &id)).collect();
    move |call| match call.path.as_str() {
        paths::RULES => Reply::json(200, &rules_response(version, rules.clone())),
        _ => leases(call),
    }
}

#[tokio::test(start_paused = true)]
async fn removed_rule_frees_its_capacity_gauge() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(serves("1", "old"));
    // Nothing becomes idle.
    let (doorman, _worker) = run(builder().idle_after(3_600 * SECOND), &plane);
    let _layer = doorman.rules();
    doorman.ready(10 * SECOND).await.unwrap();
    let capacity = |name: &str| counts.gauge(&format!("{CAPACITY} resource={name}"));
    assert_eq!(capacity("old7"), Some(10.0));

    plane.set(serves("2", "new"));
    sleep(30 * SECOND).await;
    assert_eq!(capacity("old7"), Some(0.0));
    assert_eq!(capacity("new7"), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn keys_and_excess_names_have_no_series() {
    let counts = Counts::default();
    let _guard = counts.install();
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let key = Key::template("tenant/{header:x-tenant}").unwrap();
    let service = crate::testing::inner(&doorman.layer([Limit::rate(key)]).unwrap());
    for tenant in 0..10_000 {
        let request = http::Request::get("/").header("x-tenant", tenant.to_string());
        send(&service, request.body(()).unwrap()).await;
    }
    sleep(2 * SECOND).await;
    assert_eq!(counts.of(CHANGES), counted([("to=leased", 10_000)]));
    let capacities = || {
        let series = counts.series().into_iter();
        series.filter(|series| series.starts_with(CAPACITY)).count()
    };
    assert_eq!(capacities(), 0, "keys have none");

    let rates: Vec<_> = (0..1_000)
        .map(|name| doorman.rate(name.to_string()))
        .collect();
    doorman.ready(10 * SECOND).await.unwrap();
    assert_eq!(capacities(), 100, "of {} resources", rates.len());
}
