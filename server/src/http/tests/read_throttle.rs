//! The read throttle: views must not delay leases.

use std::{sync::mpsc, thread, time::Duration};

use doorman_openapi::paths;
use futures_util::future::join_all;
use tokio::time::advance;

use super::*;
use crate::quota::ReadKind;

const LEASE_OF_DB: &str = r#"{"client_id": "a", "resources": [{"resource_id": "db", "wants": 1}]}"#;

/// How long a future takes, on tokio's clock.
async fn waits(request: impl Future) -> Duration {
    let began = clock::now();
    request.await;
    clock::now().since(began)
}

#[tokio::test(start_paused = true)]
async fn sustained_reads_are_delayed_and_leases_are_not() {
    let router = router();
    let lease = || post(&router, paths::CAPACITY, LEASE_OF_DB);
    assert_eq!(lease().await.status, 200);
    let lists = [
        paths::RESOURCES,
        "/v1/resources/db/leases",
        "/v1/resources?prefix=nothing",
    ];
    let reading = async |times| {
        for path in lists.into_iter().cycle().take(times) {
            assert_eq!(get(&router, path).await.status, 200);
        }
    };
    // Occasional reads use the burst.
    assert_eq!(waits(reading(80)).await, Duration::ZERO);
    // Then 5,000 chunks per second for all readers together.
    let waited = waits(async { tokio::join!(reading(400), reading(400), reading(200)) }).await;
    let expected = Duration::from_millis(180)..Duration::from_millis(250);
    assert!(expected.contains(&waited), "{waited:?}");
    assert_eq!(waits(lease()).await, Duration::ZERO);

    advance(Duration::from_secs(1)).await;
    assert_eq!(waits(reading(80)).await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn excess_readers_are_rejected_and_scrapes_continue() {
    let router = router();
    assert_eq!(
        post(&router, paths::CAPACITY, LEASE_OF_DB).await.status,
        200
    );
    let crowd = join_all((0..7_000).map(|_| get(&router, paths::RESOURCES)));
    let scrape = waits(async {
        assert_eq!(get(&router, paths::METRICS).await.status, 200);
    });
    let (read, scraped) = tokio::join!(crowd, scrape);
    assert_eq!(scraped, Duration::ZERO);
    let (read, rejected): (Vec<_>, Vec<_>) = read.into_iter().partition(|it| it.status == 200);
    // The rate of a second and the burst.
    assert!((5_000..5_300).contains(&read.len()), "{}", read.len());
    for rejected in rejected {
        assert_eq!(rejected.header("retry-after"), "1");
        let detail = rejected.problem(429).detail;
        assert!(detail.contains("overloaded"), "{detail}");
    }
    assert_eq!(get(&router, paths::RESOURCES).await.status, 200);

    let crowd = join_all((0..7_000).map(|_| get(&router, paths::METRICS)));
    let page = waits(get(&router, paths::RESOURCES));
    let (scraped, waited) = tokio::join!(crowd, page);
    assert_eq!(waited, Duration::ZERO);
    assert!(scraped.iter().any(|it| it.status == 429));
}

#[tokio::test(start_paused = true)]
async fn status_in_learning_mode_waits_for_no_reader() {
    let settings = ledger::Settings {
        predecessor: Predecessor::Until(clock::now().after(Duration::from_secs(1000))),
        ..SETTINGS
    };
    let app = app_of(Document::built_in(), settings, Moment::NEVER);
    let router = crate::http::router(app.clone());
    post(&router, paths::CAPACITY, LEASE_OF_DB).await;
    let mut permits = Vec::new();
    while let Ok(permit) = app.quotas.begin_read(ReadKind::All).await {
        permits.push(permit);
    }
    get(&router, paths::METRICS).await.problem(429);
    let waited = waits(async {
        let status = get(&router, paths::STATUS).await.json();
        assert_eq!(status["resources_learning"], 1, "{status}");
    });
    assert_eq!(waited.await, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn reader_yields_while_others_wait_for_the_ledger() {
    let app = app();
    let permit = app.quotas.begin_read(ReadKind::Page).await.unwrap();
    assert_eq!(
        waits(app.ledger.yield_to_waiters(permit.delay(clock::now()))).await,
        Duration::ZERO
    );

    let (take, taken) = mpsc::channel();
    let (give_back, given_back) = mpsc::channel::<()>();
    let holds = thread::spawn({
        let ledger = Arc::clone(&app.ledger);
        move || {
            ledger.with(|_, _| {
                take.send(()).unwrap();
                given_back.recv().ok();
            })
        }
    });
    taken.recv().unwrap();
    assert_eq!(
        waits(app.ledger.yield_to_waiters(permit.delay(clock::now()))).await,
        Duration::ZERO
    );
    let waiter = thread::spawn({
        let ledger = Arc::clone(&app.ledger);
        move || ledger.with(|_, _| ())
    });
    // The other thread starts to wait at some moment.
    let mut rested = false;
    for _ in 0..1_000_000 {
        // Keeps the throttle itself from delaying.
        advance(Duration::from_millis(1)).await;
        rested = waits(app.ledger.yield_to_waiters(permit.delay(clock::now()))).await
            >= Duration::from_millis(1);
        if rested {
            break;
        }
        thread::yield_now();
    }
    assert!(rested, "the reader did not yield");
    drop(give_back);
    holds.join().unwrap().unwrap();
    waiter.join().unwrap().unwrap();
    assert_eq!(
        waits(app.ledger.yield_to_waiters(permit.delay(clock::now()))).await,
        Duration::ZERO
    );
}
