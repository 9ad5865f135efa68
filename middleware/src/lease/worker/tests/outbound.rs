//! Requests to others, from a cold start on.

use std::sync::{Arc, Mutex};

use http::Request;

use super::{real_ledger::with_hints, *};
use crate::OnLimit;

const PROCESSES: usize = 5;
/// Requests of each process that wait or are in flight at once.
const PARALLEL: usize = 20;
const LIMIT: f64 = 50.0;

/// When requests reach the partner, in the seconds since the start.
type Sent = Arc<Mutex<Vec<f64>>>;

/// Starts a process that sends as many requests as it may.
fn start(plane: &Plane, sent: &Sent, is_outbound: bool) -> Doorman {
    let (doorman, _) = run(builder(), plane);
    let on_limit = OnLimit::Delay {
        max_delay: 2 * SECOND,
    };
    let layer = doorman.layer(Limit::rate("partner").on_limit(on_limit));
    let mut layer = layer.unwrap();
    if is_outbound {
        layer = layer.outbound();
    }
    let began = clock::now();
    for _ in 0..PARALLEL {
        let (service, sent) = (layer.layer(Inner), Arc::clone(sent));
        tokio::spawn(async move {
            loop {
                let response = send(&service, Request::new(())).await;
                if response.status() == 200 {
                    sent.lock().unwrap().push(clock::now().seconds_since(began));
                }
                // The partner takes its time.
                sleep(SECOND / 100).await;
            }
        });
    }
    doorman
}

async fn sent_per_second(is_outbound: bool) -> Vec<usize> {
    clock::restart();
    fastrand::seed(1);
    let plane = with_hints(5, "FAIR_SHARE", LIMIT);
    let sent = Sent::default();
    let fleet = [(); PROCESSES].map(|()| start(&plane, &sent, is_outbound));
    sleep(10 * SECOND).await;
    drop(fleet);
    let mut seconds = vec![0; 10];
    for at in sent.lock().unwrap().iter().filter(|at| **at < 10.0) {
        seconds[*at as usize] += 1;
    }
    seconds
}

/// Without a wait each process sends what it has before its first lease, and pays for it later.
#[tokio::test(start_paused = true)]
async fn fleet_that_starts_sends_no_more_than_the_limit_and_a_bucket() {
    let seconds = sent_per_second(true).await;
    println!("{seconds:?}");
    assert!(seconds[0] <= 100, "{seconds:?}");
    let later = &seconds[1..];
    assert!(later.iter().all(|it| (48..=51).contains(it)), "{seconds:?}");
    let inbound = sent_per_second(false).await;
    println!("{inbound:?}");
    assert!(inbound[0] > 110 && inbound[1] < 40, "{inbound:?}");
}

#[tokio::test(start_paused = true)]
async fn outbound_requests_wait_five_seconds_for_a_lease() {
    let plane = Plane::new(|_| Reply::Hang);
    let sent = Sent::default();
    let _doorman = start(&plane, &sent, true);
    sleep(SECOND * 49 / 10).await;
    assert!(sent.lock().unwrap().is_empty());
    sleep(SECOND / 5).await;
    // The safe capacity is unknown, so the fallback admits all.
    assert!(sent.lock().unwrap().len() >= PARALLEL);
}

/// The demand of each process falls when no more requests come, but those that wait need its lease.
#[tokio::test(start_paused = true)]
async fn waiting_requests_keep_the_leases_of_their_processes() {
    for phase in 0..5 {
        let plane = with_hints(5, "FAIR_SHARE", 50.0);
        let mut requests = Vec::new();
        for index in 0..3_u32 {
            let delay = OnLimit::Delay {
                max_delay: 5 * SECOND,
            };
            let (doorman, service) = process(&plane, Limit::rate("db").on_limit(delay));
            sleep(SECOND * phase / 50).await;
            requests.extend((0..80).map(|number| {
                let (service, doorman) = (service.clone(), doorman.clone());
                tokio::spawn(async move {
                    sleep(SECOND * number / 40 + SECOND * index / 120).await;
                    let status = send(&service, Request::new(())).await.status();
                    drop(doorman);
                    status.as_u16()
                })
            }));
        }
        let mut statuses = Vec::new();
        for request in requests {
            statuses.push(request.await.unwrap());
        }
        let refused = statuses.iter().filter(|it| **it != 200).count();
        assert_eq!(refused, 0, "phase {phase}");
    }
}
