//! Bursts, rises and waiting requests of one process while capacity is free, with the real ledger.

use http::{Request, StatusCode};
use tracing::Level;

use super::{
    real_ledger::{learning, refreshed_every, with_hints, with_parameters, with_surplus},
    *,
};
use crate::{OnLimit, Rate, Refusal, RefusalReason, testing::TestResponse};

/// A process with one limit, which has its first lease.
struct Process {
    plane: Plane,
    doorman: Doorman,
    service: LimitService<Inner>,
}

impl Process {
    async fn start(plane: Plane) -> Self {
        Self::with(plane, Limit::rate("api")).await
    }

    async fn with(plane: Plane, limit: Limit) -> Self {
        let (doorman, service) = process(&plane, limit);
        doorman.ready(SECOND).await.unwrap();
        Self {
            plane,
            doorman,
            service,
        }
    }

    /// Sends requests at one moment and returns how many were admitted. The others get 429.
    async fn burst(&self, requests: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..requests {
            let response = send(&self.service, Request::new(())).await;
            admitted += u32::from(is_admitted(&response));
        }
        admitted
    }

    /// Sends requests after pauses of this mean length and returns how many were not admitted.
    async fn rejected(&self, per_second: f64, seconds: f64, load: &mut Load) -> u32 {
        let end = clock::now().after_seconds(seconds);
        let mut rejected = 0;
        while clock::now() < end {
            sleep(load.pause(per_second)).await;
            rejected += 1 - self.burst(1).await;
        }
        rejected
    }

    fn lease_requests(&self) -> usize {
        let calls = self.plane.calls();
        calls.iter().filter_map(Received::capacity).count()
    }
}

fn is_admitted(response: &TestResponse) -> bool {
    if response.status() == StatusCode::OK {
        return true;
    }
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    false
}

enum Load {
    Even,
    Poisson(fastrand::Rng),
}

impl Load {
    fn both() -> [Self; 2] {
        [Self::Even, Self::Poisson(fastrand::Rng::with_seed(7))]
    }

    fn pause(&mut self, per_second: f64) -> Duration {
        let mean = 1.0 / per_second;
        SECOND.mul_f64(match self {
            Self::Even => mean,
            Self::Poisson(chance) => -mean * (1.0 - chance.f64()).ln(),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn one_request_causes_at_most_one_lease_request_an_interval() {
    for plane in [
        refreshed_every(5, "FAIR_SHARE", 1_000.0),
        with_surplus(5, 1_000.0),
    ] {
        let process = Process::start(plane).await;
        sleep(7 * SECOND).await;
        assert_eq!(process.burst(1).await, 1);
        let before = process.lease_requests();
        sleep(300 * SECOND).await;
        let requests = process.lease_requests() - before;
        // Refreshes come early by up to a twentieth.
        assert!(requests <= 64, "{requests} in 60 intervals");
    }
}

#[tokio::test(start_paused = true)]
async fn forgotten_key_causes_no_lease_request() {
    let key = Limit::rate(Key::template("method/{method}").unwrap());
    let process = Process::with(refreshed_every(5, "FAIR_SHARE", 1_000.0), key).await;
    assert_eq!(process.burst(1).await, 1);
    sleep(1_000 * SECOND).await;
    let before = process.plane.calls().len();
    sleep(1_000 * SECOND).await;
    assert_eq!(process.plane.calls().len(), before);
}

#[tokio::test(start_paused = true)]
async fn parallel_requests_of_a_page_are_admitted_each_time() {
    let process = Process::start(with_surplus(5, 1_000.0)).await;
    for page in 0..6 {
        assert_eq!(process.burst(6).await, 6, "page {page}");
        sleep(15 * SECOND).await;
    }
}

/// Sends the requests of a page one after the other and returns how many were admitted.
async fn page(process: &Process, requests: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += process.burst(1).await;
        sleep(SECOND / 500).await;
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn pages_are_admitted_by_a_small_limit_after_hints() {
    for (limit, requests, pause) in [
        (10.0, 6, 7),
        (10.0, 6, 15),
        (10.0, 6, 30),
        (10.0, 8, 15),
        (10.0, 10, 15),
        (1_000.0, 200, 30),
    ] {
        // Each page seems a demand beyond the limit at first, which the control plane has measured
        // again.
        let plane = with_hints(5, "FAIR_SHARE", limit);
        let key = Limit::rate(Key::template("tenant/{method}").unwrap());
        let process = Process::with(plane, key).await;
        page(&process, requests).await;
        for round in 0..8 {
            sleep(pause * SECOND).await;
            let admitted = page(&process, requests).await;
            assert_eq!(admitted, requests, "{limit} {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_beside_a_process_without_demand_are_admitted() {
    let plane = with_hints(5, "FAIR_SHARE", 10.0);
    let process = Process::start(plane.clone()).await;
    let _other = Process::start(plane).await;
    page(&process, 6).await;
    for round in 0..8 {
        sleep(15 * SECOND).await;
        assert_eq!(page(&process, 6).await, 6, "{round}");
    }
}

#[tokio::test(start_paused = true)]
async fn hint_makes_bursts_give_way_to_a_demand() {
    let plane = with_hints(5, "FAIR_SHARE", 100.0);
    let quiet = Process::start(plane.clone()).await;
    page(&quiet, 40).await;
    sleep(10 * SECOND).await;
    assert!(held(&quiet.doorman, "api") >= Some(40.0));
    let busy = Process::start(plane).await;
    busy.rejected(200.0, 2.0, &mut Load::Even).await;
    let rejected = busy.rejected(200.0, 10.0, &mut Load::Even).await;
    assert!(rejected <= 1_100, "{rejected} of 2,000");
    let held = held(&quiet.doorman, "api").unwrap();
    assert!(held < 5.0, "{held}");
}

#[tokio::test(start_paused = true)]
async fn bucket_for_recent_bursts_is_kept_without_surplus() {
    for (limit, burst, pause) in [(10.0, 10, 10), (1_000.0, 6, 15), (1_000.0, 200, 30)] {
        let process = Process::start(refreshed_every(5, "FAIR_SHARE", limit)).await;
        process.burst(burst).await;
        for round in 0..6 {
            sleep(pause * SECOND).await;
            assert_eq!(process.burst(burst).await, burst, "{limit} {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn idle_key_alone_gets_its_limit_at_once() {
    let process = Process::start(with_surplus(5, 10.0)).await;
    sleep(60 * SECOND).await;
    let first = process.burst(60).await;
    assert!(first >= 5, "{first}");
    let mut admitted = first;
    for _ in 0..49 {
        sleep(SECOND / 100).await;
        admitted += process.burst(1).await;
    }
    assert!(admitted >= 9, "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn quiet_poisson_load_is_admitted() {
    for load in [0.5, 2.0, 20.0] {
        let process = Process::start(with_surplus(5, 1_000.0)).await;
        let [_, mut poisson] = Load::both();
        assert_eq!(process.rejected(load, 300.0, &mut poisson).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rise_of_a_trickle_is_admitted() {
    for interval in [5, 60] {
        for mut load in Load::both() {
            let process = Process::start(with_surplus(interval, 1_000.0)).await;
            assert_eq!(process.rejected(1.0, 20.0, &mut load).await, 0);
            assert_eq!(process.rejected(100.0, 60.0, &mut load).await, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rise_beyond_the_lease_loses_few_requests() {
    for mut load in Load::both() {
        // A lease of about 70/s for 45/s, or a little more for bursts.
        let plane = with_parameters(
            5,
            "FAIR_SHARE",
            1_000.0,
            "parameters: [{name: surplus, value: '0.026'}]",
        );
        let process = Process::start(plane).await;
        process.rejected(45.0, 30.0, &mut load).await;
        let held = held(&process.doorman, "api").unwrap();
        assert!((60.0..=90.0).contains(&held), "{held}");
        let rejected = process.rejected(825.0, 10.0, &mut load).await;
        assert!(rejected <= 15, "{rejected}");
    }
}

#[tokio::test(start_paused = true)]
async fn rise_is_not_asked_for_too_little() {
    let process = Process::start(refreshed_every(5, "FAIR_SHARE", 1_000.0)).await;
    let mut even = Load::Even;
    process.rejected(1.0, 20.0, &mut even).await;
    process.rejected(100.0, 1.0, &mut even).await;
    assert_eq!(process.rejected(100.0, 30.0, &mut even).await, 0);
    let wants = process.plane.last_request().resources[0].wants.get();
    assert!((99.0..=102.0).contains(&wants), "{wants}: no headroom");
}

#[tokio::test(start_paused = true)]
async fn fallen_load_leaves_only_its_noise() {
    let process = Process::start(refreshed_every(5, "FAIR_SHARE", 1_000.0)).await;
    let [_, mut poisson] = Load::both();
    process.rejected(800.0, 30.0, &mut poisson).await;
    process.rejected(45.0, 20.0, &mut poisson).await;
    let wants = process.plane.last_request().resources[0].wants.get();
    assert!(wants <= 250.0, "{wants}");
}

async fn closed_loop(rate: Rate, seconds: f64) -> u32 {
    let end = clock::now().after_seconds(seconds);
    let mut admitted = 0;
    while clock::now() < end {
        rate.wait(Cost::ONE).await.unwrap();
        admitted += 1;
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn waiting_loop_gets_the_whole_limit_within_a_second() {
    for plane in [
        refreshed_every(5, "FAIR_SHARE", 100.0),
        with_surplus(5, 100.0),
    ] {
        let (doorman, _worker) = run(builder(), &plane);
        let rate = doorman.rate("db");
        doorman.ready(SECOND).await.unwrap();
        closed_loop(rate.clone(), 1.0).await;
        for second in 1..=30 {
            let admitted = closed_loop(rate.clone(), 1.0).await;
            assert!(admitted >= 95, "{admitted} in second {second}");
        }
        let requests = plane.calls().len();
        assert!(requests <= 7 + 2 * 8, "{requests} in 31 s");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_loops_of_two_processes_share_the_limit() {
    let plane = refreshed_every(1, "FAIR_SHARE", 100.0);
    let loops = [(); 2].map(|()| {
        let (doorman, _worker) = run(builder(), &plane);
        let rate = doorman.rate("db");
        tokio::spawn(async move {
            let _doorman = doorman;
            closed_loop(rate.clone(), 5.0).await;
            closed_loop(rate, 10.0).await
        })
    });
    for admitted in loops {
        let admitted = admitted.await.unwrap();
        assert!((450..=550).contains(&admitted), "{admitted} in 10 s");
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_connection_gets_the_whole_limit_within_a_second() {
    let max_delay = SECOND;
    let limit = Limit::rate("api").on_limit(OnLimit::Delay { max_delay });
    let process = Process::with(refreshed_every(5, "FAIR_SHARE", 100.0), limit).await;
    process.rejected(10_000.0, 1.0, &mut Load::Even).await;
    let start = clock::now();
    for _ in 0..950 {
        assert_eq!(process.burst(1).await, 1);
    }
    let seconds = clock::now().seconds_since(start);
    assert!(seconds <= 10.0, "{seconds} s for 950 of 100/s");
}

#[tokio::test(start_paused = true)]
async fn bursts_of_a_quiet_key_are_forgotten_when_capacity_is_scarce() {
    let plane = refreshed_every(1, "FAIR_SHARE", 100.0);
    let quiet = Process::start(plane.clone()).await;
    let busy = Process::start(plane).await;
    quiet.burst(80).await;
    sleep(2 * SECOND).await;
    assert_eq!(held(&quiet.doorman, "api"), Some(80.0));
    busy.rejected(200.0, 5.0, &mut Load::Even).await;
    let held = held(&quiet.doorman, "api").unwrap();
    assert!(held < 10.0, "{held}");
}

#[tokio::test(start_paused = true)]
async fn safe_capacity_begins_with_a_bucket_in_learning_mode() {
    let (logged, _guard) = Logged::at(Level::INFO);
    let process = Process::start(learning(50.0, 30 * SECOND)).await;
    for request in 0..9 {
        let response = send(&process.service, Request::new(())).await;
        assert!(is_admitted(&response), "{request}");
        let left = response.headers()["ratelimit"].to_str().unwrap();
        assert!(left.starts_with("\"api\";r=4"), "{request}: {left}");
        sleep(SECOND / 100).await;
    }
    let is_learning = |line: &&String| line.contains("learning of earlier leases");
    assert_eq!(logged.lines().iter().filter(is_learning).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn new_key_of_a_known_template_passes_and_is_charged() {
    let tenant = |name: &str| {
        Request::builder()
            .header("x-tenant", name)
            .body(())
            .unwrap()
    };
    let limit = Limit::rate(Key::header("x-tenant").unwrap());
    let process = Process::with(with_surplus(5, 100.0), limit).await;
    send(&process.service, tenant("known")).await;
    sleep(SECOND).await;

    let mut statuses = Vec::new();
    for request in 0..150 {
        let response = send(&process.service, tenant("new")).await;
        if !is_admitted(&response) {
            let refusal = response.extensions().get::<Refusal>().unwrap();
            assert_eq!(refusal.reason(), RefusalReason::Growing);
            assert_eq!(refusal.retry_after_seconds(), 1);
        }
        statuses.push(response.status());
        if request == 0 {
            // The worker learns of the key.
            tokio::task::yield_now().await;
        }
    }
    let admitted = statuses.iter().filter(|it| it.is_success()).count();
    assert_eq!(admitted, 100, "one bucket of the whole limit");
    sleep(SECOND / 2).await;
    let mut later = 0;
    for _ in 0..100 {
        later += u32::from(is_admitted(&send(&process.service, tenant("new")).await));
    }
    assert!(later <= 50, "{later} half a second later");
}
