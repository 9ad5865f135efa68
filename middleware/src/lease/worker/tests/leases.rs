//! Leases of limits, and when they are requested.

use doorman_openapi::Unit;

use super::*;
use crate::LimitFault;

#[tokio::test(start_paused = true)]
async fn named_resources_are_leased() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    let _layer = doorman.layer([Limit::rate("api")]).unwrap();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(doorman.worker_state(), WorkerState::Running);
    assert_eq!(held(&doorman, "db"), Some(10.0));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(take(&rate, 100), 10);
    assert_eq!(plane.calls().len(), 1, "both in one request");
    let client = plane.last_request().client_id;
    let process = format!("test-{}-", std::process::id());
    assert!(client.as_str().starts_with(&process), "{client}");
    assert!(plane.last_request().run.is_some());
}

#[tokio::test(start_paused = true)]
async fn rate_per_minute_is_spent_per_second() {
    let plane = Plane::new(|call| {
        let mut response = grant_all(&call.capacity().unwrap(), 600.0);
        response.resources[0].per = doorman_openapi::Seconds::new(60.0).ok();
        response.into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(take(&rate, 100), 10);
    assert_eq!(held(&doorman, "db"), Some(600.0));
    // A hundred attempts per second, per minute.
    sleep(SECOND).await;
    let wants = plane.last_request().resources[0].wants.get();
    assert_eq!(wants, 6_000.0);
}

#[tokio::test(start_paused = true)]
async fn smaller_lease_is_applied_and_reported_immediately() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(grants(4.0));
    sleep(SECOND * 11 / 10).await;
    assert_eq!(held(&doorman, "db"), Some(4.0));
    let calls = plane.calls();
    let [.., shrunk, reported] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(reported.at, shrunk.at);
    let has = |call: &Received| call.capacity().unwrap().resources[0].has.unwrap().capacity;
    assert_eq!((has(shrunk).get(), has(reported).get()), (10.0, 4.0));
}

#[tokio::test(start_paused = true)]
async fn outgrown_lease_is_requested_early() {
    let plane = Plane::new(|call| {
        let request = call.capacity().unwrap();
        let wants = request.resources[0].wants.get();
        grant_all(&request, wants).into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(held(&doorman, "db"), Some(0.0));
    // From 0 to 100 per second.
    sleep(5 * SECOND + SECOND / 2).await;
    let start = clock::now();
    let mut refused_late = 0;
    for attempt in 0..300 {
        sleep(SECOND / 100).await;
        if rate.try_acquire(Cost::ONE).is_err() && attempt > 150 {
            refused_late += 1;
        }
    }
    assert_eq!(refused_late, 0, "after a second and a half");
    let calls = plane.calls();
    let early = calls.iter().find(|call| call.at > start).unwrap();
    assert!(
        early.at.seconds_since(start) <= 0.12,
        "a tenth of a second, plus one sample"
    );
    let calls = calls.iter().filter(|call| call.at > start).count();
    assert!(calls <= 13, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_leased_for() {
    let plane = Plane::new(|call| {
        let request = call.capacity().unwrap();
        let wants = request.resources[0].wants.get();
        grant_all(&request, wants.min(1000.0)).into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let start = clock::now();
    let waiting = (0..1000).map(|_| {
        let rate = rate.clone();
        tokio::spawn(async move { rate.wait(Cost::ONE).await.unwrap() })
    });
    for waits in waiting.collect::<Vec<_>>() {
        waits.await.unwrap();
    }
    let seconds = clock::now().seconds_since(start);
    assert!(
        seconds <= 4.0,
        "a thousand per second are free: {seconds} s"
    );
}

#[tokio::test(start_paused = true)]
async fn token_file_is_read_for_every_request() {
    let path = std::env::temp_dir().join(format!("doorman-worker-{}", fastrand::u64(..)));
    let write = |token: &str| std::fs::write(Path::new(&path), token).unwrap();
    write("one");
    let plane = Plane::new(grants(10.0));
    let builder = builder().credentials(Credentials::file(&path));
    let (doorman, _worker) = run(builder, &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    write("two");
    sleep(2 * SECOND).await;
    std::fs::remove_file(&path).unwrap();
    let calls = plane.calls();
    let tokens = [calls.first(), calls.last()].map(|call| call.unwrap().authorization.clone());
    assert_eq!(
        tokens,
        [Some("Bearer one".into()), Some("Bearer two".into())]
    );
}

#[tokio::test(start_paused = true)]
async fn request_has_the_highest_priority_of_its_limits() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman
        .layer([
            Limit::rate("api"),
            Limit::rate("db").priority(-1),
            Limit::rate("api").priority(5),
        ])
        .unwrap();
    doorman.ready(SECOND).await.unwrap();
    let resources = plane.last_request().resources;
    let mut asked: Vec<_> = resources
        .iter()
        .map(|asked| (asked.resource_id.as_str(), asked.priority.unwrap_or(0)))
        .collect();
    asked.sort_unstable();
    assert_eq!(asked, [("api", 5), ("db", -1)]);
}

#[tokio::test(start_paused = true)]
async fn snapshot_shows_gauge_used_as_rate() {
    let in_use = |unit| {
        move |call: &Received| match call.capacity() {
            Some(request) => {
                let mut response = grant_all(&request, 10.0);
                for answer in &mut response.resources {
                    answer.unit = Some(unit);
                }
                response.into()
            }
            None => Reply::json(200, &serde_json::json!({})),
        }
    };
    let plane = Plane::new(in_use(Unit::Gauge));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    let fault = || doorman.snapshot().limits[0].fault;
    assert_eq!(fault(), None);
    doorman.ready(SECOND).await.unwrap_err();
    assert_eq!(
        (fault(), held(&doorman, "db")),
        (Some(LimitFault::NotARate), None)
    );
    let shown = serde_json::to_value(doorman.snapshot()).unwrap();
    assert_eq!(shown["limits"][0]["fault"], "not_a_rate");

    plane.set(in_use(Unit::Rate));
    sleep(5 * SECOND).await;
    assert_eq!((fault(), held(&doorman, "db")), (None, Some(10.0)));
}

#[tokio::test(start_paused = true)]
async fn refund_lowers_no_reported_usage() {
    let plane = Plane::new(grants(100.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let used = || plane.last_request().resources[0].used.unwrap().get();
    let charge = rate.try_charge(Cost::new(50.0).unwrap()).unwrap();
    sleep(2 * SECOND).await;
    assert_eq!(used(), 50.0);
    charge.settle(20.0);
    for (admitted, expected) in [(10, 50.0), (20, 50.0), (25, 75.0)] {
        assert_eq!(take(&rate, admitted), admitted);
        sleep(2 * SECOND).await;
        assert_eq!(used(), expected);
    }
    charge.settle(35.0);
    sleep(2 * SECOND).await;
    assert_eq!(used(), 90.0, "a late charge is used, too");
}

#[tokio::test(start_paused = true)]
async fn demand_is_measured_in_corrected_costs() {
    // A second has ten charges or eleven, of which the newest may not be corrected yet.
    let cases = [(1.0, 91.0..=111.0), (20.0, 90.0..=120.0)];
    for (seed, (estimate, expected)) in (1..=20).flat_map(|seed| cases.clone().map(|it| (seed, it)))
    {
        begin(seed);
        let plane = Plane::new(grants(1_000.0));
        let (doorman, _worker) = run(builder(), &plane);
        let rate = doorman.rate("db");
        doorman.ready(SECOND).await.unwrap();
        for _ in 0..100 {
            let charge = rate.try_charge(Cost::new(estimate).unwrap()).unwrap();
            sleep(SECOND / 20).await;
            charge.settle(10.0);
            sleep(SECOND / 20).await;
        }
        let wants = plane.last_request().resources[0].wants.get();
        assert!(expected.contains(&wants), "{wants} for {estimate}");
    }
}

#[tokio::test(start_paused = true)]
async fn demand_is_measured_after_refunds_of_a_peak() {
    let plane = Plane::new(grants(10_000.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let charges: Vec<_> = (0..50)
        .map(|_| rate.try_charge(Cost::new(200.0).unwrap()).unwrap())
        .collect();
    sleep(SECOND).await;
    for charge in charges {
        charge.settle(2.0);
    }
    // Until the burst is forgotten, and before as much was admitted again.
    for _ in 0..1_000 {
        assert_eq!(take(&rate, 5), 5);
        sleep(SECOND / 10).await;
    }
    let wants = plane.last_request().resources[0].wants.get();
    assert!((45.0..=60.0).contains(&wants), "{wants}");
}
