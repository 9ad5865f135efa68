//! The worker against a control plane in this process, under a clock that stands still until everybody waits.

use std::{path::Path, time::Duration};

use doorman_openapi::{
    CapacityResponse, Epoch, FieldError, Mastership, NodeId, Problem, ProblemType,
};
use tokio::{task::JoinHandle, time::sleep};

use super::plane::{Call, Plane, Reply};
use crate::{
    Builder, Cost, Credentials, Doorman, Key, Limit, NotReady, NotReleased, WorkerState, clock,
    lease::testing::{grant_all, id},
};

const SECOND: Duration = Duration::from_secs(1);

/// Grants everybody so much, for 20 s, to be refreshed every second.
fn grants(capacity: f64) -> impl FnMut(&Call) -> Reply + Send + 'static {
    move |call| match call.capacity() {
        Some(request) => grant_all(&request, capacity).into(),
        None => Reply::json(200, &serde_json::json!({})),
    }
}

fn builder() -> Builder {
    Doorman::builder("http://a")
        .server("http://b")
        .service("test")
}

fn run(builder: Builder, plane: &Plane) -> (Doorman, JoinHandle<()>) {
    let (doorman, worker) = builder.build_with(plane.clone()).unwrap();
    (doorman, tokio::spawn(worker.run()))
}

/// How much of a resource is held.
fn held(doorman: &Doorman, resource: &str) -> Option<f64> {
    let limits = doorman.snapshot().limits;
    let limit = limits.iter().find(|limit| limit.resource == id(resource));
    limit.unwrap().lease.and_then(|lease| lease.capacity)
}

fn take(rate: &crate::Rate, requests: u32) -> u32 {
    let admitted = (0..requests).filter(|_| rate.try_acquire(Cost::ONE).is_ok());
    u32::try_from(admitted.count()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn leases_for_what_the_program_names() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    let _layer = doorman.layer([Limit::rate("api")]);
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(doorman.worker_state(), WorkerState::Running);
    assert_eq!(held(&doorman, "db"), Some(10.0));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(take(&rate, 100), 10);
    assert_eq!(plane.calls().len(), 1, "both in one request");
    let client = plane.last_request().client_id;
    let process = format!("test-{}-", std::process::id());
    assert!(client.as_str().starts_with(&process), "{client}");
}

#[tokio::test(start_paused = true)]
async fn a_rate_over_many_seconds_is_spent_by_the_second() {
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
    // A hundred attempts within the second, and a tenth more, by the minute.
    sleep(SECOND).await;
    let wants = plane.last_request().resources[0].wants.get();
    assert!((6600.0..=6601.0).contains(&wants), "{wants}");
}

#[tokio::test(start_paused = true)]
async fn goes_to_the_next_server_and_stays_there() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Breaks,
        _ => grants(10.0)(call),
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    sleep(5 * SECOND).await;
    let hosts: Vec<_> = plane.calls().into_iter().map(|call| call.host).collect();
    assert_eq!(hosts[0], "a");
    assert!(hosts[1..].iter().all(|host| host == "b"), "{hosts:?}");
}

#[tokio::test(start_paused = true)]
async fn goes_on_when_a_server_hangs() {
    let plane = Plane::new(|call| match &*call.host {
        "a" => Reply::Hangs,
        _ => grants(10.0)(call),
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(3 * SECOND).await.unwrap();
    assert_eq!(held(&doorman, "db"), Some(10.0));
}

#[tokio::test(start_paused = true)]
async fn follows_the_name_of_the_master_if_it_is_configured() {
    let redirect = |address: &'static str| {
        move |call: &Call| {
            if call.host != "a" {
                return grants(10.0)(call);
            }
            let mut problem = Problem::new(ProblemType::Unavailable, "not the master");
            let master_address = Some(address.to_owned());
            problem.mastership = Some(Mastership { master_address });
            Reply::json(307, &problem)
        }
    };
    let plane = Plane::new(redirect("http://b"));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let hosts: Vec<_> = plane.calls().into_iter().map(|call| call.host).collect();
    assert_eq!(hosts[..2], ["a", "b"]);

    let plane = Plane::new(redirect("http://evil"));
    let (doorman, _worker) = run(Doorman::builder("http://a"), &plane);
    let _rate = doorman.rate("db");
    sleep(60 * SECOND).await;
    assert!(plane.calls().iter().all(|call| call.host == "a"));
    assert!(plane.calls().len() < 60, "and not in a hot loop");
}

#[tokio::test(start_paused = true)]
async fn obeys_and_reports_a_smaller_lease_at_once() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.now(grants(4.0));
    sleep(SECOND * 11 / 10).await;
    assert_eq!(held(&doorman, "db"), Some(4.0));
    let calls = plane.calls();
    let [.., told, reported] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(reported.at, told.at);
    let has = |call: &Call| call.capacity().unwrap().resources[0].has.unwrap().capacity;
    assert_eq!((has(told).get(), has(reported).get()), (10.0, 4.0));
}

#[tokio::test(start_paused = true)]
async fn a_demand_that_outgrows_the_lease_is_told_early() {
    let plane = Plane::new(|call| {
        let request = call.capacity().unwrap();
        let wants = request.resources[0].wants.get();
        grant_all(&request, wants).into()
    });
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(held(&doorman, "db"), Some(0.0));
    // 100 a second, from one moment to the next.
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
        early.at.seconds_since(start) <= 0.26,
        "a quarter of the interval"
    );
    let calls = calls.iter().filter(|call| call.at > start).count();
    assert!(calls <= 13, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn renews_the_others_without_a_refused_resource() {
    let plane = Plane::new(
        |call| match call.names().iter().position(|name| name == "secret") {
            None => grants(10.0)(call),
            Some(position) => {
                let mut problem = Problem::new(ProblemType::InvalidRequest, "not yours");
                problem.errors.push(FieldError {
                    pointer: format!("/resources/{position}/resource_id"),
                    detail: String::new(),
                });
                Reply::json(403, &problem)
            }
        },
    );
    let (doorman, _worker) = run(builder(), &plane);
    let _rates = ["db", "secret", "api"].map(|resource| doorman.rate(resource));
    assert_eq!(doorman.ready(SECOND).await, Err(NotReady::TimedOut));
    sleep(30 * SECOND).await;
    assert_eq!(held(&doorman, "db"), Some(10.0));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(held(&doorman, "secret"), None);
    let calls = plane.calls();
    let asked = calls
        .iter()
        .filter(|call| call.names().contains(&"secret".to_owned()));
    assert_eq!(asked.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_of_another_node_or_an_older_reign_do_not_count() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.now(|call| {
        let request = call.capacity().unwrap();
        let response = grant_all(&request, 99.0);
        let (node, epoch) = match &*call.host {
            "a" => ("other", 9),
            _ => ("root", 6),
        };
        CapacityResponse {
            node: NodeId::new(node).unwrap(),
            epoch: Epoch::new(epoch).unwrap(),
            ..response
        }
        .into()
    });
    for _ in 0..19 {
        sleep(SECOND).await;
        assert_eq!(held(&doorman, "db"), Some(10.0));
    }
    sleep(8 * SECOND).await;
    assert_eq!(held(&doorman, "db"), Some(99.0), "nothing else is left");
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_through_an_outage_to_its_end_and_no_longer() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    let sent = plane.calls()[0].at;
    plane.now(|_| Reply::Breaks);
    while clock::now() < sent.after_seconds(19.9) {
        sleep(SECOND / 10).await;
        assert_eq!(take(&rate, 1), 1);
    }
    sleep(SECOND / 10).await;
    assert_eq!(take(&rate, 1), 0);
    plane.now(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1, "it comes back within four seconds");
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_everything_back_and_the_limits_know() {
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
    assert_eq!(releases[0].resource_ids, None, "all of the client's");
    assert!(releases[0].seq > plane.last_request().seq);
    assert_eq!(other.worker_state(), WorkerState::Stopped);
    assert_eq!(
        other.shutdown().await,
        Err(NotReleased::NoWorker(WorkerState::Stopped))
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_goes_on_to_a_server_that_takes_the_leases_back() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder(), &plane);
    let _rate = doorman.rate("db");
    doorman.ready(SECOND).await.unwrap();
    plane.now(|call| match &*call.host {
        "a" => Reply::Breaks,
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
    plane.now(|_| Reply::Hangs);
    let start = clock::now();
    assert!(matches!(
        doorman.shutdown().await,
        Err(NotReleased::Failed(_))
    ));
    assert!(clock::now().seconds_since(start) <= 0.502);
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_dropped_gives_everything_back() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    let layer = doorman.layer([Limit::rate("api")]);
    doorman.ready(SECOND).await.unwrap();
    drop(doorman);
    sleep(5 * SECOND).await;
    assert!(!worker.is_finished(), "the layer is still worn");
    drop(layer);
    worker.await.unwrap();
    assert_eq!(plane.releases().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_leases_has_nothing_to_give_back() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = run(builder(), &plane);
    assert_eq!(doorman.shutdown().await, Ok(()));
    worker.await.unwrap();
    assert!(plane.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_is_given_back_and_forgotten() {
    let plane = Plane::new(grants(10.0));
    let (doorman, _worker) = run(builder().idle_after(10 * SECOND), &plane);
    let key = Key::header("x-tenant").unwrap();
    let layer = doorman.layer([Limit::rate("api"), Limit::rate(key)]);
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
    sleep(2 * SECOND).await;
    assert_eq!(names(&doorman), ["api"], "the fixed one stays");
    let releases = plane.releases();
    assert_eq!(
        releases[0].resource_ids.as_deref(),
        Some(&[id("x-tenant/acme")][..])
    );
    sleep(2 * SECOND).await;
    assert_eq!(plane.calls().last().unwrap().names(), ["api"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_file_is_read_again() {
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
async fn a_handle_can_tell_that_nobody_leases() {
    let plane = Plane::new(grants(10.0));
    let (doorman, worker) = builder().build_with(plane.clone()).unwrap();
    let nobody = NotReady::NoWorker(WorkerState::NotStarted);
    assert_eq!(doorman.ready(SECOND).await, Err(nobody));
    assert_eq!(doorman.snapshot().worker, WorkerState::NotStarted);
    let task = tokio::spawn(worker.run());
    doorman.ready(SECOND).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(doorman.snapshot().worker, WorkerState::Died);
    let died = NotReady::NoWorker(WorkerState::Died);
    assert_eq!(doorman.ready(SECOND).await, Err(died));
}

#[tokio::test(start_paused = true)]
async fn needs_no_server_to_be_built_and_recovers_when_one_comes() {
    let plane = Plane::new(|_| Reply::Breaks);
    let (doorman, _worker) = run(builder(), &plane);
    let rate = doorman.rate("db");
    assert_eq!(doorman.ready(60 * SECOND).await, Err(NotReady::TimedOut));
    let tries = plane.calls().len();
    assert!(
        (30..=60).contains(&tries),
        "two servers, at most 4 s apart: {tries}"
    );
    plane.now(grants(10.0));
    sleep(4 * SECOND).await;
    assert_eq!(take(&rate, 1), 1);
}

#[test]
fn without_a_runtime_there_are_unlimited_and_fixed_limits() {
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
    assert!(builder().spawn().is_err());
}
