//! Shutdown of workers and release of leases.

use super::*;

#[tokio::test(start_paused = true)]
async fn shutdown_releases_leases_and_stops_limits() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    let other = doorman.clone();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(take(&rate, 1), 1);
    assert_eq!(doorman.shutdown().await, Ok(()));
    worker.await.unwrap();
    assert_eq!(take(&rate, 1), 0);
    let releases = plane.releases();
    assert_eq!(releases.len(), 1);
    assert_eq!(releases[0].resource_ids, None, "all leases of the client");
    assert!(releases[0].seq > plane.last_request().seq);
    assert_eq!(releases[0].run, plane.last_request().run);
    assert_eq!(other.worker_state(), WorkerState::Stopped);
    assert_eq!(
        other.shutdown().await,
        Err(NotReleased::NoWorker(WorkerState::Stopped))
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_tries_the_next_server() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(|call| match &*call.host {
        "a" => Reply::Disconnect,
        _ => grants(10.0)(call),
    });
    assert_eq!(doorman.shutdown().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_hanging_server() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(|call| match &*call.host {
        "a" => Reply::Hang,
        _ => grants(10.0)(call),
    });
    assert_eq!(doorman.shutdown().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn shutdown_takes_half_a_second_at_most() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.set(|_| Reply::Hang);
    let start = clock::now();
    assert!(matches!(
        doorman.shutdown().await,
        Err(NotReleased::Failed(_))
    ));
    assert!(clock::now().seconds_since(start) <= 0.502);
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_releases_leases() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let layer = doorman.layer([Limit::rate("api")]).unwrap();
    doorman.ready(SECOND).await.unwrap();
    drop(doorman);
    sleep(5 * SECOND).await;
    assert!(!worker.is_finished(), "the layer still exists");
    drop(layer);
    worker.await.unwrap();
    assert_eq!(plane.releases().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn worker_without_leases_releases_nothing() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    assert_eq!(doorman.shutdown().await, Ok(()));
    worker.await.unwrap();
    assert!(plane.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn idle_key_is_released_and_forgotten() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let key = Key::header("x-tenant").unwrap();
    let layer = doorman
        .layer([Limit::rate("api"), Limit::rate(key)])
        .unwrap();
    let mut service = tower_layer::Layer::layer(
        &layer,
        tower::service_fn(async |_: http::Request<bytes::Bytes>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Empty::<
                bytes::Bytes,
            >::new()))
        }),
    );
    let request = http::Request::get("/").header("x-tenant", "acme");
    let request = request.body(bytes::Bytes::new()).unwrap();
    let response = tower_service::Service::call(&mut service, request).await;
    assert!(response.unwrap().status().is_success());
    sleep(9 * SECOND).await;
    let names = |doorman: &Doorman| {
        let limits = doorman.snapshot().limits.into_iter();
        limits
            .map(|limit| limit.resource.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&doorman), ["api", "x-tenant/acme"]);
    // Idle limiters are sampled once a second.
    sleep(3 * SECOND).await;
    assert_eq!(names(&doorman), ["api"], "the named resource stays");
    assert_eq!(released(&plane), ["api", "x-tenant/acme"]);
}

/// The resources that were released before the end of the worker.
fn released(plane: &Plane) -> Vec<String> {
    let releases = plane.releases().into_iter();
    let ids = releases.flat_map(|release| release.resource_ids.unwrap_or_default());
    let mut names: Vec<_> = ids.map(|id| id.to_string()).collect();
    names.sort_unstable();
    names
}

#[tokio::test(start_paused = true)]
async fn idle_constant_key_is_released_and_leased_anew() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let kept = Limit::rate("kept").wants(doorman_openapi::Capacity::saturating(5.0));
    let layer = doorman.layer([Limit::rate("api"), kept]).unwrap();
    let service = crate::testing::inner(&layer);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    for cycle in 1..=3 {
        assert_eq!(crate::testing::status(&service).await, 200);
        let waited = tokio::time::timeout(SECOND, rate.wait(Cost::ONE)).await;
        waited.expect("a lease comes at once").unwrap();
        sleep(5 * SECOND).await;
        for resource in ["api", "db", "kept"] {
            assert_eq!(held(&doorman, resource), Some(10.0), "{resource}");
        }
        assert_eq!(take(&rate, 100), 10, "one bucket");
        sleep(25 * SECOND).await;
        for (resource, capacity) in [("api", None), ("db", None), ("kept", Some(10.0))] {
            assert_eq!(held(&doorman, resource), capacity, "{resource}");
        }
        assert_eq!(released(&plane).len(), 2 * cycle);
        let calls = plane.calls();
        let last = calls.iter().rfind(|call| call.capacity().is_some());
        assert_eq!(last.unwrap().names(), ["kept"]);
        assert!(doorman.ready(SECOND).await.is_ok());
    }
    let used = plane.calls().into_iter().filter_map(|call| call.capacity());
    let used = used.flat_map(|request| request.resources);
    let used = used
        .filter(|it| it.resource_id.as_str() == "db")
        .filter_map(|it| Some(it.used?.get()));
    assert_eq!(
        used.fold(0.0, f64::max),
        11.0,
        "counted from the last sleep"
    );
}

#[tokio::test(start_paused = true)]
async fn resource_of_a_dropped_rate_is_forgotten() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let layer = doorman.layer(Limit::rate("api")).unwrap();
    for number in 0..10 {
        let rate = doorman.rate(format!("job/{number}"));
        rate.wait(Cost::ONE).await.unwrap();
    }
    sleep(30 * SECOND).await;
    assert_eq!(doorman.snapshot().limits.len(), 1, "the layer exists");
    drop(layer);
    sleep(30 * SECOND).await;
    assert_eq!(doorman.snapshot().limits.len(), 0);
    assert_eq!(released(&plane).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn first_requests_after_a_sleep_pass_on_credit() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let service = crate::testing::inner(&doorman.layer(Limit::rate("api")).unwrap());
    doorman.ready(SECOND).await.unwrap();
    sleep(30 * SECOND).await;
    assert_eq!(held(&doorman, "api"), None);
    // The limit is 1000 a second, and no answer comes between these requests.
    let admitted = crate::testing::admitted(&service, 1_100).await;
    assert!((1_000..=1_010).contains(&admitted), "{admitted}");
    sleep(SECOND).await;
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(
        crate::testing::status(&service).await,
        429,
        "charged to the lease"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_caller_does_not_find_a_full_bucket() {
    let plane = Plane::new(|call| {
        let Some(request) = call.capacity() else {
            return Reply::json(200, &serde_json::json!({}));
        };
        let mut response = grant_all(&request, 0.0);
        for (answer, asked) in response.resources.iter_mut().zip(&request.resources) {
            answer.gets.capacity =
                doorman_openapi::Capacity::saturating(asked.wants.get().min(10.0));
            answer.per = doorman_openapi::Seconds::new(3600.0).ok();
        }
        response.into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let key = Key::header("x-login").unwrap();
    let layer = doorman.layer([Limit::rate(key)]).unwrap();
    let service = tower_layer::Layer::layer(&layer, Inner);
    let start = clock::now();
    let mut admitted = 0;
    while clock::now().seconds_since(start) < 3600.0 {
        let mut request = http::Request::new(());
        let login = http::HeaderValue::from_static("eve");
        request.headers_mut().insert("x-login", login);
        let response = send(&service, request).await;
        admitted += u32::from(response.status().is_success());
        sleep(70 * SECOND).await;
    }
    assert!((8..=12).contains(&admitted), "ten an hour: {admitted}");
    sleep(3600 * SECOND).await;
    assert!(
        doorman.snapshot().limits.is_empty(),
        "the bucket is full again"
    );
}

#[tokio::test(start_paused = true)]
async fn first_request_after_a_sleep_waits_for_its_lease() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let limit = Limit::rate("api")
        .fallback(crate::Fallback::Pessimistic)
        .wait_for_lease(SECOND);
    let service = crate::testing::inner(&doorman.layer(limit).unwrap());
    for _ in 0..3 {
        let before = clock::now();
        assert_eq!(crate::testing::status(&service).await, 200);
        assert!(clock::now().seconds_since(before) < 0.1);
        sleep(30 * SECOND).await;
        assert_eq!(held(&doorman, "api"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn handle_reports_missing_worker() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = builder().build_with(plane.clone()).unwrap();
    let not_started = NotReady::NoWorker(WorkerState::NotStarted);
    assert_eq!(doorman.ready(SECOND).await, Err(not_started));
    assert_eq!(doorman.snapshot().worker, WorkerState::NotStarted);
    let task = tokio::spawn(worker.run());
    doorman.ready(SECOND).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(doorman.snapshot().worker, WorkerState::Died);
    let died = NotReady::NoWorker(WorkerState::Died);
    assert_eq!(doorman.ready(SECOND).await, Err(died));
}

#[test]
fn unlimited_and_fixed_limits_need_no_runtime() {
    let doorman = Doorman::unlimited();
    assert_eq!(take(&doorman.rate("db"), 1000), 1000);
    let doorman = Doorman::fixed([("db", 10.0), ("broken", f64::NAN)]);
    assert_eq!(take(&doorman.rate("db"), 1000), 10);
    assert_eq!(take(&doorman.rate("broken"), 10), 0);
    assert_eq!(take(&doorman.rate("other"), 10), 0);
    assert_eq!(doorman.snapshot().worker, WorkerState::NotNeeded);
    let json = serde_json::to_value(doorman.snapshot()).unwrap();
    assert_eq!(json["worker"], "not_needed");
    assert_eq!(json["limits"][1]["lease"]["capacity"], 10.0);
}
