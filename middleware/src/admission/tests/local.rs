//! Local limits, skipped requests, and a missing worker.

use super::*;
use crate::{Doorman, LimitLayer, Quota, Worker, lease::Transport, per_minute, per_second};

/// A handle whose worker is not spawned.
fn without_worker(max_keys: usize) -> (Doorman, Worker<impl Transport>) {
    let (plane, _) =
        tower_test::mock::pair::<Request<bytes::Bytes>, http::Response<bytes::Bytes>>();
    let builder = Doorman::builder("http://a").max_keys(max_keys);
    builder.build_with(plane).unwrap()
}

fn local_per_tenant(quota: Quota) -> Limit {
    Limit::local_per(Key::template("tenant/{header:x-tenant}").unwrap(), quota)
}

fn keys(doorman: &Doorman) -> Vec<String> {
    let limits = doorman.snapshot().limits.into_iter();
    limits.map(|limit| limit.resource.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn local_limit_needs_no_lease() {
    let limits = || [Limit::local(per_minute(600)).burst(6 * SECOND)];
    let (not_served, _worker) = without_worker(10);
    for doorman in [Doorman::unlimited(), not_served] {
        let service = inner(&doorman.layer(limits()).unwrap());
        let response = send(&service, Request::new(())).await;
        assert_eq!(
            header(&response, "ratelimit-policy"),
            r#""local";q=600;w=60"#
        );
        assert_eq!(header(&response, "ratelimit"), r#""local";r=59;t=1"#);
        assert_eq!(admitted(&service, 100).await, 59);
        let response = send(&service, Request::new(())).await;
        assert_eq!(
            (response.status().as_u16(), reason(&response)),
            (429, RefusalReason::Spent)
        );
        advance(SECOND).await;
        assert_eq!(admitted(&service, 100).await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn local_limit_is_shared_by_clones_only() {
    let doorman = Doorman::unlimited();
    let limit = Limit::local(per_second(5));
    let layer = doorman.layer([limit.clone()]).unwrap();
    let connections = [inner(&layer), inner(&layer.clone())];
    assert_eq!(admitted(&connections[0], 3).await, 3);
    assert_eq!(admitted(&connections[1], 3).await, 2);
    assert_eq!(
        admitted(&inner(&doorman.layer([limit]).unwrap()), 9).await,
        5
    );
}

#[tokio::test(start_paused = true)]
async fn local_limit_and_resource_of_one_name_differ() {
    let doorman = Doorman::fixed([("api", 3.0)]);
    let local = Limit::local(per_second(2)).named("api");
    let service = inner(&doorman.layer([Limit::rate("api"), local]).unwrap());
    assert_eq!(admitted(&service, 9).await, 2);
    let limits = doorman.snapshot().limits;
    let seen: Vec<_> = limits
        .iter()
        .map(|limit| {
            (
                limit.resource.as_str(),
                limit.local,
                limit.admitted,
                limit.limit,
            )
        })
        .collect();
    // A refusal by one spends nothing of the other.
    let expected = [
        ("api", false, 2.0, Some(3.0)),
        ("api", true, 2.0, Some(2.0)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        admitted(&inner(&doorman.layer([Limit::rate("api")]).unwrap()), 9).await,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn local_limit_can_delay() {
    let delay = OnLimit::Delay { max_delay: SECOND };
    let limit = Limit::local(per_second(1)).on_limit(delay);
    let service = inner(&Doorman::unlimited().layer([limit]).unwrap());
    assert_eq!(status(&service).await, 200);
    let before = clock::now();
    assert_eq!(status(&service).await, 200);
    assert_eq!(clock::now().since(before), SECOND);
}

#[tokio::test(start_paused = true)]
async fn queue_and_burst_are_clamped() {
    let delay = OnLimit::Delay { max_delay: SECOND };
    let limit = Limit::local(per_second(1)).on_limit(delay).queue(0);
    let service = inner(&Doorman::unlimited().layer([limit]).unwrap());
    assert_eq!(admitted(&service, 2).await, 2);

    let endless = Limit::local(per_minute(1)).burst(Duration::MAX);
    let service = inner(&Doorman::unlimited().layer([endless]).unwrap());
    assert_eq!(admitted(&service, 2_000).await, 24 * 60);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_local_limit() {
    let doorman = Doorman::unlimited();
    let service = inner(&doorman.layer([local_per_tenant(per_second(1))]).unwrap());
    for (name, expected) in [("a", 200), ("b", 200), ("a", 429), ("b", 429)] {
        assert_eq!(
            send(&service, tenant(name)).await.status(),
            expected,
            "{name}"
        );
    }
    assert_eq!(keys(&doorman), ["tenant/a", "tenant/b"]);
}

#[tokio::test(start_paused = true)]
async fn new_keys_replace_idle_keys_only() {
    let (doorman, _worker) = without_worker(3);
    let service = inner(
        &doorman
            .layer([local_per_tenant(per_minute(60)).burst(MINUTE)])
            .unwrap(),
    );
    let spend = async || send(&service, tenant("a")).await.status();
    for _ in 0..60 {
        assert_eq!(spend().await, 200);
    }
    // `a` gets one token a second; a new limiter would have sixty.
    for _ in 0..30 {
        advance(SECOND).await;
        assert_eq!([spend().await, spend().await], [200, 429]);
        for name in ["b", "c", "d", "e"] {
            send(&service, tenant(name)).await;
        }
        let kept = keys(&doorman);
        assert!(kept.len() <= 4, "three and the overflow: {kept:?}");
        assert!(kept.contains(&"tenant/a".to_owned()), "{kept:?}");
    }
    // When all buckets are full again, new keys replace them.
    advance(10 * MINUTE).await;
    for name in ["x", "y", "z", "x", "y", "z"] {
        send(&service, tenant(name)).await;
    }
    let kept = keys(&doorman);
    for name in ["x", "y", "z"] {
        assert!(kept.contains(&format!("tenant/{name}")), "{kept:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn skipped_request_is_not_limited() {
    let limit = local_per_tenant(per_second(1))
        .on_missing_key(OnMissingKey::Reject)
        .skip(|head| head.uri().path() == "/healthz")
        .skip(|head| head.method() == "OPTIONS");
    let service = inner(&Doorman::unlimited().layer([limit]).unwrap());
    let requests = [Request::get("/healthz"), Request::options("/")];
    for request in requests {
        let response = send(&service, request.body(()).unwrap()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit"), "");
    }
    assert_eq!(status(&service).await, 400, "no tenant");
    assert_eq!(send(&service, tenant("a")).await.status(), 200);
    assert_eq!(send(&service, tenant("a")).await.status(), 429);
}

async fn send_one_a_second(layer: &LimitLayer, seconds: u64) {
    for _ in 0..seconds {
        assert_eq!(status(&inner(layer)).await, 200);
        advance(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn missing_worker_is_logged_once() {
    let (errors, _guard) = Logged::at(tracing::Level::ERROR);
    let (doorman, worker) = without_worker(10);
    let layer = doorman.layer([Limit::rate("api")]).unwrap();
    let local = doorman.layer([Limit::local(per_second(50))]).unwrap();
    advance(MINUTE).await;
    send_one_a_second(&local, 60).await;
    send_one_a_second(&layer, 3).await;
    assert_eq!(errors.count(), 0, "within the grace period");
    send_one_a_second(&layer, 60).await;
    assert_eq!(errors.count(), 1);
    assert_eq!(doorman.snapshot().worker, crate::WorkerState::NotStarted);
    drop((doorman, layer, local, worker));
}

#[tokio::test(start_paused = true)]
async fn missing_worker_is_logged_for_a_wait() {
    let (errors, _guard) = Logged::at(tracing::Level::ERROR);
    let (doorman, _worker) = without_worker(10);
    let rate = doorman.rate("db");
    let waiting = tokio::time::timeout(MINUTE, rate.wait(Cost::ONE)).await;
    assert!(waiting.is_err(), "no lease comes");
    assert_eq!(errors.count(), 1);
}
