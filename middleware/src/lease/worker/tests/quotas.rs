//! Buckets that hold far more than the tokens of a lease: with a burst of the period, quotas.

use doorman_core::ledger::Tuning;
use doorman_openapi::Fallback;
use http::Request;

use super::{real_ledger::Server, *};
use crate::{OnLimit, Rate, RateSettings};

const HOUR: Duration = Duration::from_secs(3600);

/// A control plane with so many an hour.
fn server(hourly: u32) -> Server {
    let document = format!(
        "resources: [{{identifier_glob: '*', capacity: {hourly}, per: 3600, algorithm: \
         {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    );
    Server::start(document, &Tuning::DEFAULT)
}

struct Process {
    doorman: Doorman,
    worker: JoinHandle<()>,
    rate: Rate,
}

impl Process {
    async fn start(server: &Server) -> Self {
        Self::with_fallback(server, Fallback::Pessimistic).await
    }

    async fn with_fallback(server: &Server, fallback: Fallback) -> Self {
        let (doorman, worker) = run(builder().instance("pod-7"), &server.plane);
        let settings = RateSettings::new("export").burst(HOUR);
        let rate = doorman.rate(settings.fallback(fallback));
        doorman.ready(SECOND).await.unwrap();
        Self {
            doorman,
            worker,
            rate,
        }
    }

    /// Makes a request in each of so many pauses. Returns how many are admitted.
    async fn spend(&self, requests: u32, pause: Duration) -> u32 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += take(&self.rate, 1);
            sleep(pause).await;
        }
        admitted
    }
}

#[tokio::test(start_paused = true)]
async fn first_process_has_the_whole_quota() {
    for hourly in [6, 1000] {
        let server = server(hourly);
        let process = Process::start(&server).await;
        let admitted = process.spend(2 * hourly, SECOND / hourly).await;
        assert!(
            (hourly..=hourly + 1).contains(&admitted),
            "{admitted} of {hourly}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn stop_and_start_do_not_begin_the_quota_anew() {
    for (hourly, spent) in [(6, 6), (6, 2), (1000, 700)] {
        let server = server(hourly);
        let mut left = hourly;
        for spent in [spent, hourly, hourly] {
            let process = Process::start(&server).await;
            let admitted = process.spend(spent, SECOND / spent).await;
            assert!(
                admitted.abs_diff(spent.min(left)) <= 1,
                "{admitted} of {left}"
            );
            left -= admitted.min(left);
            process.doorman.shutdown().await.unwrap();
            sleep(SECOND).await;
        }
        sleep(HOUR / 2).await;
        let process = Process::start(&server).await;
        let admitted = process.spend(hourly, SECOND / hourly).await;
        assert!(admitted.abs_diff(hourly / 2) <= 1, "{admitted} of {hourly}");
    }
}

#[tokio::test(start_paused = true)]
async fn process_after_a_crash_continues_the_quota() {
    for is_fast in [true, false] {
        let server = server(1000);
        let first = Process::start(&server).await;
        assert_eq!(first.spend(600, SECOND / 100).await, 600);
        sleep(6 * SECOND).await;
        first.worker.abort();
        // Before the lease of the first one ends, or after it.
        sleep(if is_fast { SECOND } else { 120 * SECOND }).await;
        let next = Process::start(&server).await;
        let admitted = next.spend(3000, SECOND / 100).await;
        assert!((400..480).contains(&admitted), "{admitted}");
    }
}

#[tokio::test(start_paused = true)]
async fn processes_share_one_quota() {
    let server = server(1000);
    let first = Process::start(&server).await;
    let mut admitted = first.spend(300, SECOND / 100).await;
    let second = Process::start(&server).await;
    for _ in 0..3 {
        // Each takes over from the other, several times.
        admitted += first.spend(400, SECOND / 100).await;
        admitted += second.spend(400, SECOND / 100).await;
        sleep(20 * SECOND).await;
    }
    let refilled = 100 * 1000 / 3600;
    assert!((950..=1000 + refilled).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn quota_survives_a_lost_server_while_its_process_lives() {
    let server = server(1000);
    let process = Process::start(&server).await;
    assert_eq!(process.spend(600, SECOND / 100).await, 600);
    sleep(6 * SECOND).await;
    server.lose();
    sleep(SECOND).await;
    server.replace(2, 60 * SECOND);
    sleep(120 * SECOND).await;
    let admitted = process.spend(1000, SECOND / 100).await;
    assert!((400..450).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn quota_continues_after_an_outage_longer_than_the_lease() {
    for fallback in [Fallback::Safe, Fallback::Pessimistic] {
        let server = server(1000);
        let process = Process::with_fallback(&server, fallback).await;
        assert_eq!(process.spend(600, SECOND / 100).await, 600);
        sleep(6 * SECOND).await;
        server.lose();
        sleep(120 * SECOND).await;
        server.recover();
        sleep(30 * SECOND).await;
        let admitted = process.spend(1000, SECOND / 100).await;
        assert!((400..460).contains(&admitted), "{fallback:?}: {admitted}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_before_the_first_lease_are_charged_to_it() {
    let server = server(1000);
    let (doorman, _worker) = run(builder(), &server.plane);
    let settings = RateSettings::new("export").burst(HOUR);
    let rate = doorman.rate(settings.fallback(Fallback::Optimistic));
    let before = take(&rate, 300);
    assert_eq!(before, 300);
    doorman.ready(SECOND).await.unwrap();
    let mut admitted = before;
    for _ in 0..1000 {
        admitted += take(&rate, 1);
        sleep(SECOND / 1000).await;
    }
    assert!((1000..=1001).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn service_spends_one_quota_over_restarts_and_crashes() {
    let server = server(20);
    let mut admitted = 0;
    for is_clean in [true, true, false, false, true] {
        let (doorman, worker) = run(builder().instance("pod-7"), &server.plane);
        let layer = doorman.layer(Limit::rate("export").burst(HOUR)).unwrap();
        let service = layer.layer(Inner);
        let requests = (0..40).map(|_| send(&service, Request::new(())));
        let responses = futures_util::future::join_all(requests).await;
        admitted += responses.iter().filter(|it| it.status() == 200).count();
        // A crash after its last report.
        sleep(6 * SECOND).await;
        if is_clean {
            doorman.shutdown().await.unwrap();
        } else {
            worker.abort();
        }
    }
    assert!((20..=21).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn processes_beside_each_other_have_no_token_of_their_own() {
    let server = server(6);
    let mut admitted = 0;
    let mut processes = Vec::new();
    for _ in 0..5 {
        let process = Process::start(&server).await;
        admitted += process.spend(10, SECOND / 2).await;
        processes.push(process);
    }
    for process in &processes {
        admitted += process.spend(10, SECOND / 2).await;
    }
    assert!((5..=6).contains(&admitted), "{admitted}");
}

fn retry_after(process: &Process) -> Duration {
    process
        .rate
        .try_acquire(Cost::ONE)
        .unwrap_err()
        .retry_after()
}

#[tokio::test(start_paused = true)]
async fn spent_quota_tells_when_the_next_token_comes() {
    for fallback in [Fallback::Safe, Fallback::Pessimistic] {
        let server = server(20);
        let process = Process::with_fallback(&server, fallback).await;
        assert_eq!(process.spend(20, SECOND / 20).await, 20);
        sleep(10 * SECOND).await;
        // After the end of the present lease, which is renewed before.
        let wait = retry_after(&process);
        assert!(
            wait.abs_diff(169 * SECOND) < SECOND,
            "{fallback:?}: {wait:?}"
        );
        sleep(wait).await;
        assert_eq!(take(&process.rate, 2), 1, "{fallback:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_the_quota_beyond_the_lease() {
    let server = server(20);
    let (doorman, _worker) = run(builder(), &server.plane);
    let max_delay = 200 * SECOND;
    let limit = Limit::rate("export")
        .burst(HOUR)
        .fallback(Fallback::Pessimistic);
    let layer = doorman.layer(limit.on_limit(OnLimit::Delay { max_delay }));
    let service = layer.unwrap().layer(Inner);
    doorman.ready(SECOND).await.unwrap();
    let began = clock::now();
    for _ in 0..21 {
        assert_eq!(send(&service, Request::new(())).await.status(), 200);
    }
    let waited = clock::now().since(began);
    assert!(waited.abs_diff(180 * SECOND) < SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn small_first_share_is_retried_with_the_next_answer() {
    for hourly in [6, 20] {
        let server = server(hourly);
        let first = Process::start(&server).await;
        assert_eq!(first.spend(1, SECOND).await, 1);
        sleep(20 * SECOND).await;
        let second = Process::start(&server).await;
        let mut retries = 0;
        while take(&second.rate, 1) == 0 {
            let wait = retry_after(&second);
            assert!(wait <= 5 * SECOND, "{wait:?} of {hourly}");
            sleep(wait.max(SECOND)).await;
            retries += 1;
        }
        assert!(retries <= 6, "{retries} of {hourly}");
        // The first process may release its share.
        second.spend(hourly, Duration::ZERO).await;
        assert!(retry_after(&second) <= 60 * SECOND, "{hourly}");
    }
}
