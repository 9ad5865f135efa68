//! `Doorman::fixed` in tests of services, with a paused clock.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tokio::time::advance;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_doorman::{
    Cost, Doorman, Limit, LimitLayer, OnLimit, RateSettings, RefusalReason, per_second,
};

const SECOND: Duration = Duration::from_secs(1);

fn layer(doorman: &Doorman, limit: Limit) -> LimitLayer {
    doorman.layer(limit).expect("a valid limit")
}

async fn status(layer: &LimitLayer) -> StatusCode {
    let respond = async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()));
    let service = layer.layer(service_fn(respond));
    let Ok(response) = service.oneshot(Request::new(())).await;
    response.status()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test measures waits by the clock that it pauses"
)]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

fn amount(doorman: &Doorman, resource: &str) -> f64 {
    doorman.lease(resource).capacity().amount
}

#[test]
fn resources_match_as_templates_of_a_document() {
    let limits = [
        ("tenant/*", 5.0),
        ("tenant/acme", 7.0),
        ("tenant/b*", 9.0),
        ("db-[0-9]", 3.0),
        (r"a\*b", 2.0),
    ];
    let doorman = Doorman::fixed(limits);
    for (resource, expected) in [
        ("tenant/acme", 7.0),
        ("tenant/bolt/eu", 5.0),
        ("db-7", 3.0),
        ("db-x", 0.0),
        ("a*b", 2.0),
        ("axb", 0.0),
        ("other", 0.0),
    ] {
        assert_eq!(amount(&doorman, resource), expected, "{resource}");
    }
    let with_default = Doorman::fixed([("db", 5.0), ("*", f64::INFINITY)]);
    assert_eq!(amount(&with_default, "db"), 5.0);
    assert_eq!(amount(&with_default, "other"), f64::INFINITY);
    let keys = Doorman::fixed([("tenant/*", 1.0)]).keyed_rate("tenant");
    for key in ["acme", "bolt"] {
        assert!(keys.try_acquire(key, Cost::ONE).is_ok());
        assert!(keys.try_acquire(key, Cost::ONE).is_err());
    }
}

#[test]
fn text_that_is_no_glob_is_a_name() {
    let doorman = Doorman::fixed([("shard[", 5.0), ("none", -1.0), ("nan", f64::NAN)]);
    for (resource, expected) in [("shard[", 5.0), ("none", 0.0), ("nan", 0.0)] {
        assert_eq!(amount(&doorman, resource), expected, "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_come_back_with_the_paused_clock() {
    let doorman = Doorman::fixed([("api", 2.0), ("*", f64::INFINITY)]);
    let rate = doorman.rate("direct/api");
    let local = layer(&doorman, Limit::local(per_second(2)));
    let alone = layer(
        &Doorman::unlimited(),
        Limit::local_per("all", per_second(2)),
    );
    let api = layer(&doorman, Limit::rate("api"));
    for layer in [&api, &local, &alone] {
        for _ in 0..3 {
            assert_eq!(status(layer).await, StatusCode::OK);
            assert_eq!(status(layer).await, StatusCode::OK);
            assert_eq!(status(layer).await, StatusCode::TOO_MANY_REQUESTS);
            advance(SECOND).await;
        }
    }
    assert!(rate.try_acquire(Cost::ONE).is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_wait_by_the_paused_clock() {
    let doorman = Doorman::fixed([("*", 2.0)]);
    let start = now();
    let rate = doorman.rate("db");
    for _ in 0..10 {
        rate.wait(Cost::ONE).await.expect("no deadline");
    }
    assert_eq!(now() - start, 4 * SECOND);

    let max_delay = SECOND;
    let delayed = Limit::rate("api").on_limit(OnLimit::Delay { max_delay });
    let delayed = layer(&doorman, delayed);
    let start = now();
    for _ in 0..4 {
        assert_eq!(status(&delayed).await, StatusCode::OK);
    }
    assert_eq!(now() - start, SECOND);

    let rate = doorman.rate(RateSettings::new("late").max_wait(SECOND));
    rate.wait(Cost::new(6.0).expect("a cost"))
        .await
        .expect("a full bucket admits a larger request");
    let refusal = rate.wait(Cost::ONE).await.expect_err("four are owed");
    assert_eq!(refusal.reason(), RefusalReason::Spent);
    assert_eq!(refusal.retry_after(), 3 * SECOND / 2);
}
