mod canceled;
mod delayed;
mod first_lease;
mod keys;
mod local;
mod priorities;
mod retry_after;
mod several_limits;
mod shadow;
mod shared_limiter;
mod without_a_lease;

use std::{borrow::Cow, time::Duration};

use http::{HeaderValue, Request};
use tokio::time::advance;

use super::*;
use crate::{
    Cost, Fallback, Key, LimitService, OnLimit, OnMissingKey, RefusalReason, clock,
    limiter::{
        Growth, LeaseState, Nudge, SafeRate, Shortage, Tally,
        testing::{leased, leased_as_requested, leased_registry, no_lease, static_registry},
    },
    testing::{Inner, Logged, TestResponse, admitted, header, inner, limited, send, status},
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

fn reason(response: &TestResponse) -> RefusalReason {
    response.extensions().get::<Refusal>().unwrap().reason()
}

/// Sends a request in a task.
fn spawn(service: &LimitService<Inner>) -> tokio::task::JoinHandle<u16> {
    let service = service.clone();
    tokio::spawn(async move { status(&service).await })
}

/// Runs all tasks that are ready.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn cost_above_the_burst_passes_a_full_bucket() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 10.0 });
    let limit = Limit::rate("api").cost_by(|head| match head.uri().path() {
        "/report" => Cost::new(30.0).unwrap(),
        _ => Cost::ONE,
    });
    let service = limited(&registry, [limit]);
    let report = || Request::builder().uri("/report").body(()).unwrap();

    assert_eq!(send(&service, report()).await.status(), 200);
    // Thirty of ten leave a debt of twenty.
    let response = send(&service, Request::new(())).await;
    let wait = response
        .extensions()
        .get::<Refusal>()
        .unwrap()
        .retry_after();
    assert_eq!(wait, millis(2_100));
    advance(millis(2_100)).await;
    assert_eq!(status(&service).await, 200);
    assert_eq!(send(&service, report()).await.status(), 429, "not in debt");
}

#[tokio::test(start_paused = true)]
async fn worker_is_notified_of_shortages() {
    let (registry, mut nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(10.0, MINUTE));
    let limiter = registry.known("api");
    nudges.try_recv().unwrap();

    assert_eq!(admitted(&service, 2).await, 2);
    assert!(nudges.try_recv().is_err(), "most of the bucket is left");
    status(&service).await;
    assert!(nudges.try_recv().is_ok());
    limiter.clear_demand_signal();
    assert_eq!(admitted(&service, 10).await, 7);
    let shortages = [(); 2].map(|()| match nudges.try_recv() {
        Ok(Nudge::Shortage(_, shortage)) => shortage,
        other => panic!("{other:?}"),
    });
    assert_eq!(shortages, [Shortage::RunningLow, Shortage::Denied]);
    assert!(nudges.try_recv().is_err(), "one message each");
}

#[tokio::test(start_paused = true)]
async fn worker_is_notified_of_waiting_requests() {
    let (registry, mut nudges) = leased_registry(10);
    let delay = OnLimit::Delay { max_delay: SECOND };
    let service = limited(&registry, [Limit::rate("api").on_limit(delay)]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(admitted(&service, 10).await, 10);
    while nudges.try_recv().is_ok() {}
    registry.known("api").clear_demand_signal();
    let waiting = spawn(&service);
    settle().await;
    assert!(matches!(nudges.try_recv(), Ok(Nudge::Shortage(..))));
    assert_eq!(waiting.await.unwrap(), 200);
}
