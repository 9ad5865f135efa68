//! Buckets that hold far more than the tokens of a lease: with a burst of the period, quotas.

use doorman_core::ledger::Tuning;
use doorman_openapi::Fallback;
use futures_util::future::join_all;
use http::Request;

use super::{real_ledger::Server, *};
use crate::{OnLimit, Rate, RateSettings, ResourceUse};

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
        let responses = join_all(requests).await;
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
        // An idle process has given the refill back, and asks for it.
        let first = take(&process.rate, 2);
        sleep(SECOND).await;
        assert_eq!(first + take(&process.rate, 2), 1, "{fallback:?}");
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
        assert!(retry_after(&second) <= 66 * SECOND, "{hourly}");
    }
}

/// A process whose callers name a resource.
async fn checking(server: &Server) -> (Doorman, JoinHandle<()>) {
    let (doorman, worker) = run(builder(), &server.plane);
    doorman.ready(SECOND).await.unwrap();
    (doorman, worker)
}

/// How many of so many checks at once are admitted.
async fn check(doorman: &Doorman, requests: u32) -> usize {
    let checks = doorman.checks();
    let uses = [ResourceUse::rate("export")];
    let decided = join_all((0..requests).map(|_| checks.check(&uses))).await;
    decided.iter().filter(|it| it.is_ok()).count()
}

/// The bucket of such a limit holds one token, which takes minutes.
#[tokio::test(start_paused = true)]
async fn slow_limit_does_not_begin_anew_with_each_process() {
    for hourly in [2, 6, 60] {
        let server = server(hourly);
        let mut admitted = 0;
        for is_crash in [false, false, true, false] {
            let (doorman, worker) = checking(&server).await;
            admitted += check(&doorman, 1).await;
            sleep(SECOND).await;
            if is_crash {
                sleep(6 * SECOND).await;
                worker.abort();
            } else {
                doorman.shutdown().await.unwrap();
            }
        }
        assert_eq!(admitted, 1, "{hourly} an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn first_checks_of_a_slow_limit_wait_for_its_lease() {
    for hourly in [0, 5, 60] {
        let server = server(hourly);
        let (doorman, _worker) = checking(&server).await;
        let admitted = check(&doorman, 200).await;
        assert_eq!(admitted, usize::from(hourly > 0), "{hourly} an hour");
    }
}

/// An idle process holds up nobody: neither by a key nor by a limit that stays.
#[tokio::test(start_paused = true)]
async fn idle_process_leaves_the_rest_of_its_quota_to_others() {
    let by_key = || Limit::rate(Key::header("x-tenant").unwrap());
    for limit in [by_key(), Limit::rate("export")] {
        for spent in [1, 3, 5] {
            let server = server(6);
            let service = || {
                let (doorman, _) = run(builder(), &server.plane);
                let limit = limit.clone().burst(HOUR);
                let service = doorman.layer(limit).unwrap().layer(Inner);
                (doorman, service)
            };
            let admits = async |(_, service): &(Doorman, LimitService<Inner>)| {
                let request = Request::builder().header("x-tenant", "export");
                let answer = send(service, request.body(()).unwrap()).await;
                answer.status() == 200
            };
            let first = service();
            for _ in 0..spent {
                assert!(admits(&first).await);
            }
            let second = service();
            let mut admitted = 0;
            for _ in 0..50 {
                let ok = admits(&second).await;
                admitted += u32::from(ok);
                sleep(2 * SECOND).await;
            }
            // Parts of a token stay with each.
            assert!(
                (5..=6).contains(&(spent + admitted)),
                "{limit:?}: {admitted}"
            );
        }
    }
}

/// Nobody keeps what is spent of leases that are not parts of one capacity.
#[tokio::test(start_paused = true)]
async fn idle_key_of_a_static_quota_does_not_begin_anew() {
    let document = "resources: [{identifier_glob: '*', capacity: 6, per: 3600, algorithm: \
                    {kind: STATIC, lease_length: 60, refresh_interval: 5}}]";
    let server = Server::start(document.to_owned(), &Tuning::DEFAULT);
    let (doorman, _worker) = checking(&server).await;
    assert_eq!(check(&doorman, 9).await, 1);
    for _ in 0..4 {
        sleep(100 * SECOND).await;
        assert_eq!(check(&doorman, 1).await, 0);
    }
}

/// Each request comes long after the lease of the one before was given up.
#[tokio::test(start_paused = true)]
async fn seldom_requests_of_a_slow_key_are_not_admitted_on_credit() {
    let server = server(6);
    let (doorman, _worker) = run(builder(), &server.plane);
    let layer = doorman.layer(Limit::rate(Key::header("x-tenant").unwrap()));
    let service = layer.unwrap().layer(Inner);
    let mut admitted = 0;
    for _ in 0..40 {
        let request = Request::builder().header("x-tenant", "acme").body(());
        admitted += u32::from(send(&service, request.unwrap()).await.status() == 200);
        sleep(66 * SECOND).await;
    }
    // 44 minutes, and a token that was there before.
    assert!((4..=6).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn first_request_of_a_slow_limit_is_admitted() {
    for (capacity, per) in [(2, 3600), (6, 3600), (1, 604_800)] {
        let document = format!(
            "resources: [{{identifier_glob: '*', capacity: {capacity}, per: {per}, algorithm: \
             {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
        );
        let server = Server::start(document, &Tuning::DEFAULT);
        let (doorman, service) = process(&server.plane, Limit::rate("export"));
        doorman.ready(SECOND).await.unwrap();
        let first = send(&service, Request::new(())).await;
        assert_eq!(first.status(), 200, "{capacity} in {per}");
        let second = send(&service, Request::new(())).await;
        assert_eq!(second.status(), 429, "{capacity} in {per}");
    }
}
