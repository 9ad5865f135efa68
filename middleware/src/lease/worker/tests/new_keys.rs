//! First requests of new keys, before the worker has seen their limiters.

use doorman_openapi::{Capacity, Reason, SafeCapacity};
use http::{Request, StatusCode};
use tower_layer::Layer as _;

use super::*;
use crate::{
    LimitService, Refusal, RefusalReason,
    lease::testing::{grant, response},
    testing::{Inner, TestResponse, header, send},
};

/// Ten a second per tenant, three of them safe.
fn tenants() -> Plane {
    Plane::new(|call| {
        let Some(request) = call.capacity() else {
            return Reply::json(200, &serde_json::json!({}));
        };
        let grants = request.resources.iter().map(|asked| {
            let mut grant = grant(asked.resource_id.as_str(), 10.0);
            grant.reason = Reason::Share;
            grant.template = Some("tenant/*".to_owned());
            grant.limit = Some(Capacity::saturating(10.0));
            grant.safe_capacity = SafeCapacity::AtMost(Capacity::saturating(3.0));
            grant
        });
        response(grants.collect()).into()
    })
}

/// A service with a limit for each value of a header.
fn limited(doorman: &Doorman, key: &str) -> LimitService<Inner> {
    let key = Key::template(key).unwrap();
    doorman.layer([Limit::rate(key)]).unwrap().layer(Inner)
}

const TENANT: &str = "tenant/{header:x-tenant}";

async fn request(service: &LimitService<Inner>, tenant: &str) -> TestResponse {
    let request = Request::builder().header("x-tenant", tenant);
    send(service, request.body(()).unwrap()).await
}

/// Sends sixty requests in the same moment. Returns how many were admitted, and the last rejection.
async fn sixty(service: &LimitService<Inner>, tenant: &str) -> (usize, TestResponse) {
    let mut admitted = 0;
    let mut rejected = None;
    for _ in 0..60 {
        let response = request(service, tenant).await;
        match response.status() {
            StatusCode::OK => admitted += 1,
            _ => rejected = Some(response),
        }
    }
    (admitted, rejected.expect("some are rejected"))
}

fn reason(response: &TestResponse) -> RefusalReason {
    response.extensions().get::<Refusal>().unwrap().reason()
}

#[tokio::test(start_paused = true)]
async fn new_key_of_known_template_gets_one_bucket_at_once() {
    let (doorman, _worker) = run(builder(), &tenants());
    let service = limited(&doorman, TENANT);
    request(&service, "old").await;
    sleep(SECOND / 10).await;

    let (admitted, rejected) = sixty(&service, "new").await;
    assert_eq!(admitted, 10);
    assert_eq!(
        (rejected.status(), reason(&rejected)),
        (StatusCode::TOO_MANY_REQUESTS, RefusalReason::Growing)
    );
    assert_eq!(header(&rejected, "retry-after"), "1");
    let policy = header(&rejected, "ratelimit-policy");
    assert!(policy.ends_with(";q=10;w=1"), "{policy}");

    let mut later = 0;
    for _ in 0..40 {
        sleep(SECOND / 40).await;
        let response = request(&service, "new").await;
        assert_ne!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        later += usize::from(response.status() == StatusCode::OK);
    }
    assert!((9..=11).contains(&later), "{later} in the next second");
}

#[tokio::test(start_paused = true)]
async fn new_key_of_unknown_template_is_admitted_until_the_answer() {
    let (doorman, _worker) = run(builder(), &tenants());
    let service = limited(&doorman, TENANT);
    request(&service, "old").await;
    sleep(SECOND / 10).await;
    let users = limited(&doorman, "user/{header:x-tenant}");
    for _ in 0..60 {
        assert_eq!(request(&users, "new").await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn new_key_after_the_end_of_the_worker_gets_the_safe_capacity() {
    let (doorman, worker) = run(builder(), &tenants());
    let service = limited(&doorman, TENANT);
    request(&service, "old").await;
    sleep(SECOND / 10).await;
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());

    let (admitted, rejected) = sixty(&service, "new").await;
    assert_eq!(admitted, 3);
    assert_eq!(
        (rejected.status(), reason(&rejected)),
        (StatusCode::SERVICE_UNAVAILABLE, RefusalReason::NoLease)
    );
}
