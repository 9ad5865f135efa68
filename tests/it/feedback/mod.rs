//! Workers in processes of their own, and a target whose limit changes.
//!
//! `tests/run --test it -- --ignored --nocapture feedback` prints eight runs of each size.

mod fleet;
mod target;

use std::{iter, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

use self::{
    fleet::{Kind, Worker},
    target::{Target, WORK},
};
use crate::support::{ControlPlane, exclusive_load, now};

const WORKERS: usize = 5;
/// The demand, as a factor of the limit of the template.
const DEMAND: f64 = 1.5;
/// Seconds before the drop, and from it to the return.
const BEFORE: u64 = 12;
const LOW: u64 = 40;
/// Seconds within which the rate is to be back.
const BACK: u64 = 40;
/// The part of the right rate from which on it is back.
const IS_BACK: f64 = 0.93;
/// The seconds that a request to the database may take on average, by its template.
const LATENCY: f64 = 0.25;
/// Runs of the measurement.
const RUNS: usize = 8;

/// Figures of a run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// The part that the target refused, and the used part of what it would accept, while its
    /// limit is low.
    refused: f64,
    used: f64,
    /// Mean seconds of a request in the target in that time, and in its worst second.
    time: f64,
    longest: f64,
    /// Seconds from the return of the limit until the rate is back.
    back: f64,
}

impl Measured {
    fn mean(runs: &[Self]) -> Self {
        let mean = |read: fn(&Self) -> f64| runs.iter().map(read).sum::<f64>() / runs.len() as f64;
        Self {
            refused: mean(|it| it.refused),
            used: mean(|it| it.used),
            time: mean(|it| it.time),
            longest: mean(|it| it.longest),
            back: mean(|it| it.back),
        }
    }
}

/// The least that is promised of a size. The limit drops from `high` to `low` requests per second,
/// and returns. The low part counts from `settled` seconds after the drop on.
#[derive(Debug, Clone, Copy)]
struct Promise {
    kind: Kind,
    high: f64,
    low: f64,
    settled: u64,
    refused: f64,
    used: f64,
}

const LARGE: Promise = Promise {
    kind: Kind::Rate,
    high: 500.0,
    low: 200.0,
    settled: 6,
    refused: 0.01,
    used: 0.97,
};

const SMALL: Promise = Promise {
    kind: Kind::Rate,
    high: 50.0,
    low: 20.0,
    settled: 2,
    refused: 0.08,
    used: 0.9,
};

const PYTHON: Promise = Promise {
    kind: Kind::Python,
    ..SMALL
};

/// 30 workers, of which 10 remain.
const DATABASE: Promise = Promise {
    kind: Kind::Gauge,
    high: 30.0 / WORK,
    low: 10.0 / WORK,
    settled: 5,
    refused: 0.0,
    used: 0.97,
};

impl Promise {
    fn target(&self) -> Arc<Target> {
        match self.kind {
            Kind::Gauge => Target::database(self.high),
            Kind::Rate | Kind::Python => Target::partner(self.high),
        }
    }

    fn document(&self) -> String {
        match self.kind {
            Kind::Gauge => document_of_database(self.high),
            Kind::Rate | Kind::Python => document_of_partner(self.high),
        }
    }

    async fn measure(self) -> Measured {
        let target = self.target();
        let urls = vec![target.serve().await; WORKERS];
        let rate = self.high * DEMAND / WORKERS as f64;
        let fleet = start(self.kind, self.document(), urls, rate).await;
        sleep(Duration::from_secs(BEFORE)).await;
        let dropped = target.set(self.low);
        sleep(Duration::from_secs(LOW)).await;
        let returned = target.set(self.high);
        let back = self.wait_until_back(&target, returned).await;
        drop(fleet);
        let from = dropped + Duration::from_secs(self.settled);
        let low = target.counts(from, returned);
        Measured {
            refused: low.refused / (low.accepted + low.refused),
            used: low.accepted / (self.low * (returned - from).as_secs_f64()),
            time: low.time,
            longest: longest(&target, from, returned),
            back,
        }
    }

    async fn wait_until_back(&self, target: &Target, returned: Duration) -> f64 {
        while now() < returned + Duration::from_secs(2 * BACK) {
            sleep(Duration::from_millis(100)).await;
            let at = now();
            let before = at.saturating_sub(Duration::from_secs(1));
            if target.counts(before, at).accepted >= IS_BACK * self.high {
                return (at - returned).as_secs_f64();
            }
        }
        f64::INFINITY
    }

    /// The bars are for the mean of several runs. One may miss them by `factor`.
    fn assert(&self, measured: &Measured, factor: f64) {
        let unused = 1.0 - measured.used;
        assert!(measured.refused <= factor * self.refused, "{measured:?}");
        assert!(unused <= factor * (1.0 - self.used), "{measured:?}");
        assert!(measured.back <= factor * BACK as f64, "{measured:?}");
        assert!(measured.time <= 2.0 * LATENCY, "{measured:?}");
        // Without feedback it is three times the wanted time.
        assert!(measured.longest <= 2.5 * LATENCY, "{measured:?}");
    }
}

fn document_of_partner(rate: f64) -> String {
    format!(
        "resources: [{{identifier_glob: partner, capacity: {rate}, feedback: {{}}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    )
}

/// A gauge rises by a step in each refresh interval.
fn document_of_database(rate: f64) -> String {
    let units = rate * LATENCY;
    format!(
        "resources: [{{identifier_glob: db, unit: gauge, capacity: {units}, \
         feedback: {{latency: {LATENCY}}}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1}}}}]"
    )
}

/// The mean time in the target in the worst second.
fn longest(target: &Target, from: Duration, to: Duration) -> f64 {
    let second = Duration::from_secs(1);
    let begins = (0..).map(|n| from + n * second);
    let times = begins
        .take_while(|begin| *begin + second <= to)
        .map(|begin| target.counts(begin, begin + second).time);
    times.fold(0.0, f64::max)
}

/// A control plane, and a worker for each URL.
async fn start(
    kind: Kind,
    document: String,
    urls: Vec<String>,
    rate: f64,
) -> (Vec<Worker>, ControlPlane) {
    let start = move || {
        let server = ControlPlane::start(&document);
        let seconds = BEFORE + LOW + 2 * BACK;
        let workers = urls
            .iter()
            .map(|url| Worker::start(kind, &server, url, rate, seconds))
            .collect();
        (workers, server)
    };
    spawn_blocking(start).await.expect("they start")
}

/// Small fleets, side by side: they mostly wait.
const SMALL_FLEETS: [Promise; 3] = [SMALL, PYTHON, DATABASE];

async fn measure_small_fleets() -> [Measured; 3] {
    let [small, python, database] = SMALL_FLEETS.map(|it| tokio::spawn(it.measure()));
    let measured = tokio::join!(small, python, database);
    [measured.0, measured.1, measured.2].map(|it| it.expect("no panic"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_fleets_follow_a_target_that_shrinks() {
    let measured = measure_small_fleets().await;
    for (promise, measured) in SMALL_FLEETS.iter().zip(&measured) {
        println!("{promise:?}: {measured:?}");
        promise.assert(measured, 2.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 25 minutes; the figures of eight runs are in docs/FEEDBACK.md"]
async fn feedback_in_processes_is_as_good_as_promised() {
    let _exclusive = exclusive_load().await;
    let mut runs = [const { Vec::new() }; 4];
    let [large, small @ ..] = &mut runs;
    for _ in 0..RUNS {
        let measured = LARGE.measure().await;
        println!("{LARGE:?}: {measured:?}");
        large.push(measured);
    }
    for _ in 0..RUNS {
        let measured = measure_small_fleets().await;
        for ((promise, runs), measured) in SMALL_FLEETS.iter().zip(&mut *small).zip(measured) {
            println!("{promise:?}: {measured:?}");
            runs.push(measured);
        }
    }
    let means = runs.map(|it| Measured::mean(&it));
    println!("means: {means:#?}");
    for (promise, mean) in iter::once(&LARGE).chain(&SMALL_FLEETS).zip(&means) {
        promise.assert(mean, 1.0);
    }
}

/// A client whose requests are all refused claims what one that lies claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_always_claims_overload_takes_nothing_from_others() {
    const CLIENTS: u16 = 10;
    const CAPACITY: f64 = 100.0;
    const SECONDS: u64 = 30;
    let share = CAPACITY / f64::from(CLIENTS);
    let honest: Vec<_> = (1..CLIENTS).map(|_| Target::partner(CAPACITY)).collect();
    let liar = Target::partner(0.0);
    let mut urls = vec![liar.serve().await];
    for target in &honest {
        urls.push(target.serve().await);
    }
    let _fleet = start(
        Kind::Rate,
        document_of_partner(CAPACITY),
        urls,
        DEMAND * share,
    )
    .await;
    sleep(Duration::from_secs(BEFORE)).await;
    let from = now();
    sleep(Duration::from_secs(SECONDS)).await;
    let to = now();
    let counts = liar.counts(from, to);
    assert!(counts.accepted == 0.0 && counts.refused > 0.0, "{counts:?}");
    let fair = share * (to - from).as_secs_f64();
    let parts = honest.iter().map(|it| it.counts(from, to).accepted / fair);
    let parts: Vec<_> = parts.collect();
    println!("refused: {}, of the fair share: {parts:?}", counts.refused);
    let total = parts.iter().sum::<f64>() * fair / (CAPACITY * (to - from).as_secs_f64());
    assert!(parts.iter().all(|it| *it >= 0.99), "{parts:?}");
    assert!(total >= 0.95, "{total}");
}
