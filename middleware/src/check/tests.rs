use http::{Request, Response};

use super::*;
use crate::{Cost, Doorman, RefusalReason, clock};

fn one(resource: &str) -> [ResourceUse; 1] {
    [ResourceUse::rate(resource)]
}

fn to_refused(error: CheckError) -> RefusedCheck {
    match error {
        CheckError::Refused(refused) => refused,
        CheckError::OtherUnit(index) => panic!("other unit at {index}"),
    }
}

#[tokio::test]
async fn resource_of_the_other_unit_is_not_taken() {
    let checks = Doorman::fixed([("a", 9.0), ("b", 9.0), ("c", 1.0)]).checks();
    let (rate, gauge) = ([ResourceUse::rate("a")], [ResourceUse::gauge("b")]);
    assert!(checks.check(&rate).await.is_ok());
    let held = checks.check(&gauge).await;
    for wrong in [ResourceUse::gauge("a"), ResourceUse::rate("b")] {
        let error = checks.check(&[ResourceUse::rate("c"), wrong]).await;
        assert!(matches!(error, Err(CheckError::OtherUnit(1))), "{error:?}");
    }
    drop(held);
    assert!(checks.check(&one("c")).await.is_ok(), "nothing was taken");
}

#[tokio::test]
async fn refused_check_spends_nothing_elsewhere() {
    let checks = Doorman::fixed([("a", 1.0)]).checks();
    let both = [ResourceUse::rate("a"), ResourceUse::rate("closed")];
    let refused = checks
        .check(&both)
        .await
        .map(drop)
        .map_err(to_refused)
        .unwrap_err();
    assert_eq!(refused.refusal().limit(), "closed");
    assert_eq!(refused.refusal().reason(), RefusalReason::Blocked);
    assert!(checks.check(&one("a")).await.is_ok());
    let refused = checks
        .check(&one("a"))
        .await
        .map(drop)
        .map_err(to_refused)
        .unwrap_err();
    assert_eq!(refused.refusal().reason(), RefusalReason::Spent);
}

#[tokio::test]
async fn responses_name_the_resources() {
    let checks = Doorman::fixed([("a", 5.0), ("tx", 2.0)]).checks();
    let uses = [ResourceUse::rate("a"), ResourceUse::gauge("tx")];
    let admitted = checks.check(&uses).await.unwrap();
    let mut headers = HeaderMap::new();
    admitted.append_headers(&mut headers);
    assert_eq!(
        headers["ratelimit-policy"],
        r#""a";q=5;w=1, "tx";q=2;qu="concurrent-requests""#
    );
    assert_eq!(headers["ratelimit"], r#""a";r=4;t=1, "tx";r=1"#);

    let refused = checks
        .check(&one("none"))
        .await
        .map(drop)
        .map_err(to_refused)
        .unwrap_err();
    let request = Request::new(());
    let response = refused.to_response(&RequestHead::of(&request));
    assert_eq!(response.status(), 429);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(response.headers()["ratelimit"], r#""none";r=0;t=60"#);
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["none"]));
}

#[tokio::test]
async fn each_permit_gives_back_its_own_gauge() {
    let checks = Doorman::fixed([("a", 1.0), ("b", 2.0), ("rate", 1e6)]).checks();
    let uses = [
        ResourceUse::gauge("b").cost(Cost::new(1.5).unwrap()),
        ResourceUse::rate("rate"),
        ResourceUse::gauge("a"),
    ];
    let admitted = checks.check(&uses).await.unwrap();
    let mut permits = admitted.into_permits();
    let names: Vec<_> = permits.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let [a, b] = ["a", "b"].map(|it| [ResourceUse::gauge(it)]);
    assert!(checks.check(&a).await.is_err());
    drop(permits.pop());
    assert!(checks.check(&a).await.is_ok());
    assert!(checks.check(&b).await.is_err());
    permits.clear();
    assert!(checks.check(&b).await.is_ok());
}

#[tokio::test]
async fn uses_of_one_resource_add_up() {
    let checks = Doorman::fixed([("a", 2.0), ("tx", 3.0)]).checks();
    let twice = ["tx", "tx"].map(ResourceUse::gauge);
    let permits = checks.check(&twice).await.unwrap().into_permits();
    assert_eq!(permits.len(), 1);
    assert!(checks.check(&twice).await.is_err());
    drop(permits);
    let rates = ["a", "a"].map(ResourceUse::rate);
    assert!(checks.check(&rates).await.is_ok());
    assert!(checks.check(&one("a")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn first_check_of_a_gauge_waits_for_its_lease() {
    let (transport, _handle) = tower_test::mock::pair::<Request<Bytes>, Response<Bytes>>();
    let builder = Doorman::builder("http://a:7300");
    let (doorman, _worker) = builder.build_with(transport).unwrap();
    let began = clock::now();
    let checks = doorman.checks();
    let refused = checks
        .check(&[ResourceUse::gauge("tx")])
        .await
        .map(drop)
        .map_err(to_refused)
        .unwrap_err();
    assert_eq!(refused.refusal().reason(), RefusalReason::NoLease);
    assert_eq!(clock::now().since(began).as_secs(), 1);
    assert!(checks.check(&one("a")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn check_waits_in_the_queue() {
    let checks = Doorman::fixed([("a", 1.0), ("b", 2.0), ("tx", 1.0)]).checks();
    let both = ["a", "b"].map(ResourceUse::rate);
    let wait = Duration::from_millis;
    assert!(checks.check_within(&both, wait(1_000)).await.is_ok());
    let began = clock::now();
    assert!(checks.check_within(&both, wait(1_000)).await.is_ok());
    assert_eq!(clock::now().since(began), wait(1_000));
    // Its turn would come too late.
    assert!(checks.check_within(&both, wait(900)).await.is_err());
    assert_eq!(clock::now().since(began), wait(1_000));

    let unit = [ResourceUse::gauge("tx")];
    let held = checks.check(&unit).await.unwrap();
    assert!(checks.check_within(&unit, wait(1_000)).await.is_err());
    assert_eq!(clock::now().since(began), wait(2_000));
    // A caller that is gone holds up nobody.
    let gone = timeout(wait(1_000), checks.check_within(&unit, wait(9_000)));
    assert!(gone.await.is_err());
    drop(held);
    assert!(checks.check(&unit).await.is_ok());
}

#[tokio::test]
async fn named_resources_are_bounded_like_keys() {
    let (transport, _handle) = tower_test::mock::pair::<Request<Bytes>, Response<Bytes>>();
    let builder = Doorman::builder("http://a:7300").max_keys(2);
    let (doorman, _worker) = builder.build_with(transport).unwrap();
    let checks = doorman.checks();
    for number in 0..10 {
        let admitted = checks.check(&one(&number.to_string())).await;
        assert!(admitted.is_ok());
    }
    let limits = doorman.snapshot().limits;
    let names: Vec<_> = limits.iter().map(|it| it.resource.as_str()).collect();
    assert_eq!(names, ["0", "1", "check/rate/(overflow)"]);
}
