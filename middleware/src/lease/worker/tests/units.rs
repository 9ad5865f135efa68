//! A rate that is asked of a gauge, and the reverse.

use doorman_core::ledger::Tuning;
use doorman_openapi::{Fallback, Unit};
use futures_util::future::{join, join_all};
use http::Request;

use super::{
    real_ledger::{Server, gauge, with_hints},
    *,
};
use crate::{CheckError, GaugeSettings, LimitFault, NotReady, RefusalReason, ResourceUse};

/// A control plane with a resource `db` of 10 in this unit.
fn plane(unit: Unit) -> Plane {
    match unit {
        Unit::Rate => with_hints(5, "FAIR_SHARE", 10.0),
        Unit::Gauge => gauge(5, 10),
    }
}

fn limit_in(unit: Unit) -> Limit {
    match unit {
        Unit::Rate => Limit::rate("db"),
        Unit::Gauge => Limit::gauge("db"),
    }
}

/// A use in this unit, and one in the other.
fn right_and_wrong(unit: Unit) -> ([ResourceUse; 1], [ResourceUse; 1]) {
    let (rate, gauge) = ([ResourceUse::rate("db")], [ResourceUse::gauge("db")]);
    match unit {
        Unit::Gauge => (gauge, rate),
        Unit::Rate => (rate, gauge),
    }
}

/// The last request states that nothing is wanted, after a lease was granted or none.
fn wants_nothing(plane: &Plane) -> bool {
    plane.last_request().resources[0].wants.get() == 0.0
}

/// The units that the control plane is told as those of the limiter.
fn told(plane: &Plane) -> Vec<Unit> {
    let calls = plane.calls().into_iter();
    let requests = calls.filter_map(|call| call.capacity());
    let told = requests.filter_map(|request| request.resources[0].limited_as);
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn layer_rejects_in_another_unit_and_leases_nothing() {
    for (is, used) in [(Unit::Gauge, Unit::Rate), (Unit::Rate, Unit::Gauge)] {
        for (fallback, admitted) in [
            (Fallback::Safe, 0),
            (Fallback::Pessimistic, 0),
            (Fallback::Optimistic, 60),
        ] {
            let plane = plane(is);
            let (logged, _guard) = Logged::at(tracing::Level::ERROR);
            let (doorman, service) = process(&plane, limit_in(used).fallback(fallback));
            let ready = doorman.ready(SECOND).await;
            assert_eq!(ready, Err(NotReady::OtherUnit(id("db"))));
            let mut statuses = Vec::new();
            // Often, and seldom: a limit that is idle must not be forgotten or sleep.
            for pause in [SECOND / 10, 7 * SECOND, 90 * SECOND] {
                for _ in 0..20 {
                    statuses.push(send(&service, Request::new(())).await.status().as_u16());
                    sleep(pause).await;
                }
            }
            let passed = statuses.iter().filter(|it| **it == 200).count();
            assert_eq!(passed, admitted, "{used:?}, {fallback:?}: {statuses:?}");
            assert!(statuses.iter().all(|it| [200, 503].contains(it)));
            assert!(wants_nothing(&plane), "{:?}", plane.last_request());
            let told = told(&plane);
            assert_eq!(told, [used], "to the control plane");
            assert_eq!(logged.count(), 1, "{:?}", logged.lines());
            let fault = match used {
                Unit::Rate => LimitFault::NotARate,
                Unit::Gauge => LimitFault::NotAGauge,
            };
            assert_eq!(doorman.snapshot().limits[0].fault, Some(fault));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn direct_use_in_another_unit_does_not_wait() {
    let of_gauge = plane(Unit::Gauge);
    let (doorman, _) = run(builder(), &of_gauge);
    let refusal = doorman.rate("db").wait(Cost::ONE).await.unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::OtherUnit);

    let of_rate = plane(Unit::Rate);
    let (doorman, _) = run(builder(), &of_rate);
    let gauge = doorman.gauge(GaugeSettings::new("db"));
    let refusal = gauge.acquire().await.unwrap_err();
    assert_eq!(refusal.reason(), RefusalReason::OtherUnit);
}

#[tokio::test(start_paused = true)]
async fn check_in_another_unit_is_an_error_and_gives_way_to_the_right_one() {
    for is in [Unit::Gauge, Unit::Rate] {
        let plane = plane(is);
        let (doorman, _) = run(builder(), &plane);
        let checks = doorman.checks();
        let (right, wrong) = right_and_wrong(is);
        // The first one may pass before the answer.
        drop(checks.check(&wrong).await);
        sleep(SECOND / 10).await;
        for _ in 0..60 {
            let error = checks.check(&wrong).await.unwrap_err();
            assert!(matches!(error, CheckError::OtherUnit(0)), "{error:?}");
        }
        assert!(wants_nothing(&plane));
        let requests = plane.calls().len();
        for _ in 0..60 {
            drop(checks.check(&right).await.unwrap());
            let error = checks.check(&wrong).await.unwrap_err();
            assert!(matches!(error, CheckError::OtherUnit(0)), "{error:?}");
            sleep(SECOND / 5).await;
        }
        // Two for the new limiter, and one each time that its lease is renewed.
        assert!(plane.calls().len() - requests <= 6, "{:?}", plane.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn first_checks_in_both_units_wait_for_the_answer() {
    for is in [Unit::Gauge, Unit::Rate] {
        let plane = plane(is);
        let (doorman, _) = run(builder(), &plane);
        let checks = doorman.checks();
        let (right, wrong) = right_and_wrong(is);
        let [wrong, right] = [wrong, right].map(Vec::from);
        // The first one may pass before the answer.
        let wrong_ones = (0..5).map(|_| checks.check(&wrong));
        let right_ones = (0..5).map(|_| checks.check(&right));
        let (_, admitted) = join(join_all(wrong_ones), join_all(right_ones)).await;
        assert!(admitted.iter().all(Result::is_ok), "{admitted:?}");
    }
}

/// Operations that began before a gauge became a rate keep the limiter.
#[tokio::test(start_paused = true)]
async fn check_in_the_new_unit_waits_until_no_units_are_in_use() {
    let plane = plane(Unit::Gauge);
    let (doorman, _) = run(builder(), &plane);
    let checks = doorman.checks();
    let (gauge, rate) = right_and_wrong(Unit::Gauge);
    let held = checks.check(&gauge).await.unwrap();
    plane.set(grants(10.0));
    sleep(6 * SECOND).await;
    let began = clock::now();
    let error = checks.check(&rate).await.unwrap_err();
    assert!(matches!(error, CheckError::OtherUnit(0)), "{error:?}");
    assert_eq!(clock::now().since(began), SECOND);
    let returned = async {
        sleep(SECOND / 2).await;
        drop(held);
    };
    let (admitted, ()) = join(checks.check(&rate), returned).await;
    drop(admitted.unwrap());
    assert!(clock::now().since(began) < 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn ready_is_about_the_limits_of_the_service() {
    let plane = plane(Unit::Gauge);
    let (doorman, _) = run(builder(), &plane);
    drop(doorman.checks().check(&[ResourceUse::rate("db")]).await);
    sleep(SECOND).await;
    doorman.ready(SECOND).await.unwrap();
    let _rate = doorman.rate("db");
    let error = doorman.ready(SECOND).await.unwrap_err();
    assert_eq!(error, NotReady::OtherUnit(id("db")));
}

#[tokio::test(start_paused = true)]
async fn check_in_another_unit_than_a_limit_stays_an_error() {
    let plane = plane(Unit::Gauge);
    let (doorman, _service) = process(&plane, Limit::rate("db"));
    doorman.ready(SECOND).await.unwrap_err();
    let error = doorman.checks().check(&[ResourceUse::gauge("db")]).await;
    assert!(matches!(error, Err(CheckError::OtherUnit(0))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn limit_applies_once_the_resource_has_its_unit() {
    let plane = plane(Unit::Gauge);
    let (doorman, service) = process(&plane, Limit::rate("db"));
    doorman.ready(SECOND).await.unwrap_err();
    assert_eq!(send(&service, Request::new(())).await.status(), 503);
    plane.set(grants(10.0));
    sleep(6 * SECOND).await;
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(send(&service, Request::new(())).await.status(), 200);
}

/// A process guesses the template of a new resource from those that it has seen.
#[tokio::test(start_paused = true)]
async fn gauge_beside_a_rate_of_a_wider_glob_waits_for_its_answer() {
    let document = "resources: [\
                    {identifier_glob: jobs, capacity: 4, unit: gauge, algorithm: {kind: FAIR_SHARE}}, \
                    {identifier_glob: '*', capacity: 10, algorithm: {kind: FAIR_SHARE}}]";
    let server = Server::start(document.to_owned(), &Tuning::DEFAULT);
    let (doorman, _) = run(builder(), &server.plane);
    let checks = doorman.checks();
    drop(checks.check(&[ResourceUse::rate("api")]).await.unwrap());
    sleep(SECOND).await;
    let gauge = [ResourceUse::gauge("jobs")];
    drop(checks.check(&gauge).await.unwrap());
    let layer = doorman.layer(Limit::gauge("jobs")).unwrap();
    let service = layer.layer(Inner);
    assert_eq!(send(&service, Request::new(())).await.status(), 200);
}
