//! Gauges of several processes, with the real ledger and its hints.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::{
    plane::Received,
    real_ledger::{ROUND_TRIP, gauge},
    *,
};
use crate::{Gauge, Permit, ResourceUse};

const CAPACITY: u32 = 100;

struct Process {
    doorman: Doorman,
    worker: JoinHandle<()>,
    gauge: Gauge,
}

impl Process {
    fn start(plane: &Plane) -> Self {
        let (doorman, worker) = run(builder(), plane);
        Self {
            gauge: doorman.gauge("tx"),
            doorman,
            worker,
        }
    }

    /// Waits for so many units, in as many calls.
    async fn acquire(&self, units: u32) -> Vec<Permit> {
        let mut permits = Vec::new();
        for _ in 0..units {
            permits.push(self.gauge.acquire().await.unwrap());
        }
        permits
    }

    fn waiting(&self, units: u32) -> JoinHandle<Vec<Permit>> {
        let gauge = self.gauge.clone();
        let calls = (0..units).map(move |_| {
            let gauge = gauge.clone();
            async move { gauge.acquire().await.unwrap() }
        });
        tokio::spawn(futures_util::future::join_all(calls))
    }

    fn lease(&self) -> f64 {
        held(&self.doorman, "tx").unwrap_or_default()
    }

    fn in_flight(&self) -> f64 {
        let snapshot = self.doorman.snapshot();
        let mut limits = snapshot.limits.iter();
        let limit = limits.find(|limit| limit.resource == id("tx"));
        limit.unwrap().in_flight.unwrap()
    }
}

/// The units in use of all processes, and the most at once.
#[derive(Default)]
struct Fleet {
    in_use: AtomicU32,
    most: AtomicU32,
}

impl Fleet {
    fn in_flight(&self) -> u32 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Callers of one process, each with one operation after the other.
    fn load(self: &Arc<Self>, process: &Process, callers: u64) -> Vec<JoinHandle<()>> {
        let callers = (0..callers).map(|seed| {
            let (fleet, gauge) = (Arc::clone(self), process.gauge.clone());
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                loop {
                    let permit = gauge.acquire().await.unwrap();
                    let in_use = InUse::new(&fleet);
                    sleep(Duration::from_millis(random.u64(20..400))).await;
                    drop(in_use);
                    drop(permit);
                }
            })
        });
        callers.collect()
    }

    /// The mean over so many seconds.
    async fn mean(&self, seconds: u32) -> f64 {
        let mut sum = 0.0;
        for _ in 0..100 * seconds {
            sleep(Duration::from_millis(10)).await;
            sum += f64::from(self.in_flight());
        }
        sum / f64::from(100 * seconds)
    }
}

struct InUse<'f>(&'f Fleet);

impl<'f> InUse<'f> {
    fn new(fleet: &'f Fleet) -> Self {
        let before = fleet.in_use.fetch_add(1, Ordering::Relaxed);
        fleet.most.fetch_max(before + 1, Ordering::Relaxed);
        Self(fleet)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn units_move_in_five_round_trips_once_they_are_free() {
    for seed in 1..=5 {
        fastrand::seed(seed);
        let plane = gauge(5, CAPACITY);
        let [busy, other] = [(); 2].map(|()| Process::start(&plane));
        let permits = busy.acquire(CAPACITY).await;
        let waiting = other.waiting(CAPACITY);
        // Between two refreshes, which are a second apart.
        sleep(10 * SECOND + SECOND / 2).await;
        assert_eq!((busy.in_flight(), other.in_flight()), (100.0, 0.0));

        let free = clock::now();
        drop(permits);
        let permits = waiting.await.unwrap();
        let passed = clock::now().since(free);
        assert!(passed <= 5 * ROUND_TRIP, "{passed:?}");
        drop(permits);
    }
}

#[tokio::test(start_paused = true)]
async fn units_move_as_operations_end() {
    let plane = gauge(5, CAPACITY);
    let [busy, other] = [(); 2].map(|()| Process::start(&plane));
    let mut permits = busy.acquire(CAPACITY).await;
    let waiting = other.waiting(CAPACITY);
    for ended in 1..=10 {
        sleep(SECOND).await;
        permits.truncate(permits.len() - 5);
        sleep(SECOND / 10).await;
        // The waiting process gets its share, and no more than the units that ended.
        assert_eq!(other.in_flight(), f64::from(5 * ended));
    }
    assert_eq!((busy.lease(), other.lease()), (50.0, 50.0));
    drop(permits);
    drop(waiting.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn killed_process_gives_its_units_back_when_its_lease_ends() {
    let plane = gauge(1, CAPACITY);
    let fleet = Arc::new(Fleet::default());
    let processes = [(); 3].map(|()| Process::start(&plane));
    let [killed, _second, _third] = &processes;
    let loads = processes.each_ref().map(|it| fleet.load(it, 60));
    sleep(2 * SECOND).await;
    let before = fleet.mean(5).await;
    assert!(before > 95.0, "{before}");

    let lost = killed.lease();
    assert!(lost > 25.0, "{lost}");
    killed.worker.abort();
    for caller in &loads[0] {
        caller.abort();
    }
    let meanwhile = fleet.mean(15).await;
    assert!(meanwhile < 105.0 - lost, "{meanwhile}");
    // Leases last 20 s, and are booked for 1.05 times as long.
    sleep(7 * SECOND).await;
    let after = fleet.mean(5).await;
    assert!(after > 95.0, "{after}");
    assert_eq!(fleet.most.load(Ordering::Relaxed), CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn idle_process_keeps_a_unit_while_nobody_lacks_it() {
    let plane = gauge(5, CAPACITY);
    let [idle, busy] = [(); 2].map(|()| Process::start(&plane));
    for process in [&idle, &busy] {
        process.doorman.ready(SECOND).await.unwrap();
    }
    assert!(idle.gauge.try_acquire().is_ok());
    sleep(30 * SECOND).await;
    assert_eq!(idle.lease(), 1.0);
    // At the latest with the next refresh.
    let permits = tokio::time::timeout(6 * SECOND, busy.waiting(CAPACITY)).await;
    let permits = permits.expect("the idle process gave its unit up").unwrap();
    sleep(20 * SECOND).await;
    assert_eq!((idle.lease(), busy.lease()), (0.0, 100.0));
    // It gets one back as soon as one is free.
    let waiting = idle.waiting(1);
    sleep(SECOND).await;
    assert!(!waiting.is_finished());
    drop(permits);
    drop(waiting.await.unwrap());
    sleep(100 * SECOND).await;
    assert_eq!(
        held(&idle.doorman, "tx"),
        None,
        "it is released after a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn growing_use_finds_room_while_units_are_free() {
    let plane = gauge(5, CAPACITY);
    let process = Process::start(&plane);
    process.doorman.ready(SECOND).await.unwrap();
    let mut permits = Vec::new();
    for _ in 0..CAPACITY {
        sleep(SECOND / 20).await;
        permits.push(process.gauge.try_acquire().unwrap());
    }
    assert!(process.gauge.try_acquire().is_err());
}

#[tokio::test(start_paused = true)]
async fn requests_report_the_units_in_use() {
    let plane = gauge(1, CAPACITY);
    let process = Process::start(&plane);
    let permits = process.acquire(7).await;
    sleep(2 * SECOND).await;
    let outstanding = || plane.last_request().resources[0].outstanding.get();
    assert_eq!(outstanding(), 7.0);
    drop(permits);
    sleep(2 * SECOND).await;
    assert_eq!(outstanding(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_no_gauge_in_use() {
    let plane = gauge(1, CAPACITY);
    let process = Process::start(&plane);
    let unused = process.doorman.gauge("other");
    let permit = process.gauge.acquire().await.unwrap();
    drop(unused.acquire().await.unwrap());
    process.doorman.clone().shutdown().await.unwrap();
    let releases: Vec<_> = plane.calls().iter().filter_map(Received::release).collect();
    let released = releases[0].resource_ids.clone().unwrap();
    assert_eq!(released, [id("other")]);
    assert_eq!(process.in_flight(), 1.0);
    drop(permit);
}

/// How many of so many requests the first ones of a process are admitted, with so long a pause
/// between two of them, and how long the last one waits. Their units stay in use.
async fn admitted_of(doorman: &Doorman, requests: u32, pause: Duration) -> (usize, Duration) {
    let service = doorman.layer(Limit::gauge("tx")).unwrap().layer(Inner);
    let checks = doorman.checks();
    let began = clock::now();
    let responses = futures_util::future::join_all((0..requests).map(async |number| {
        sleep(pause * number).await;
        send(&service, http::Request::new(())).await
    }));
    let checked = futures_util::future::join_all((0..requests).map(async |number| {
        sleep(pause * number).await;
        checks.check(&[ResourceUse::gauge("checked")]).await
    }));
    let (responses, checked) = tokio::join!(responses, checked);
    let waited = clock::now().since(began).saturating_sub(pause * requests);
    let admitted = responses.iter().filter(|it| it.status() == 200).count();
    assert_eq!(checked.iter().filter(|it| it.is_ok()).count(), admitted);
    (admitted, waited)
}

#[tokio::test(start_paused = true)]
async fn cold_gauge_admits_up_to_its_limit_at_once() {
    for pause in [0, 1, 2, 5, 20] {
        for (requests, expected) in [(8, 4), (4, 4), (3, 3)] {
            let plane = gauge(5, 4);
            let (doorman, _worker) = run(builder(), &plane);
            let pause = Duration::from_millis(pause);
            let (admitted, waited) = admitted_of(&doorman, requests, pause).await;
            assert_eq!(admitted, expected, "{requests}, {pause:?}");
            assert!(waited <= 20 * ROUND_TRIP, "{waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unit_that_is_given_back_ends_the_wait_for_a_larger_lease() {
    let plane = gauge(5, 10);
    let (doorman, _worker) = run(builder(), &plane);
    let checks = doorman.checks();
    let unit = [ResourceUse::gauge("db")];
    let mut held = vec![checks.check(&unit).await.unwrap()];
    plane.set(|_: &Received| Reply::Hang);
    let began = clock::now();
    while clock::now() == began {
        held.extend(checks.check(&unit).await.ok());
    }
    let returned = async {
        sleep(SECOND / 10).await;
        drop(held);
    };
    let began = clock::now();
    let (admitted, ()) = futures_util::future::join(checks.check(&unit), returned).await;
    drop(admitted.unwrap());
    assert_eq!(clock::now().since(began), SECOND / 10);
}
