//! Workers in processes of their own, and a partner whose limit changes.
//!
//! `tests/run --test it -- --ignored --nocapture feedback` prints eight runs of each size.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpListener, task::spawn_blocking, time::sleep};

use crate::support::{ControlPlane, Process, example, exclusive_load, now};

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
/// Runs of the measurement.
const RUNS: usize = 8;

/// A server with a bucket, which refuses the requests that it has no token for.
#[derive(Debug)]
struct Partner {
    rate: f64,
    /// Seconds of the rate that the bucket holds.
    burst: f64,
    tokens: f64,
    at: Duration,
    /// When each request came, and whether it was accepted.
    requests: Vec<(Duration, bool)>,
}

impl Partner {
    fn new(rate: f64) -> Self {
        Self {
            rate,
            burst: 0.2,
            tokens: rate * 0.2,
            at: now(),
            requests: Vec::new(),
        }
    }

    fn accepts(&mut self) -> bool {
        let at = now();
        let most = (self.rate * self.burst).max(1.0);
        let new = self.rate * (at - self.at).as_secs_f64();
        self.tokens = (self.tokens + new).min(most);
        self.at = at;
        let accepted = self.tokens >= 1.0;
        if accepted {
            self.tokens -= 1.0;
        }
        self.requests.push((at, accepted));
        accepted
    }

    /// The accepted and the refused requests of a time.
    fn counts(&self, from: Duration, to: Duration) -> (f64, f64) {
        let within = self
            .requests
            .iter()
            .filter(|(at, _)| *at >= from && *at < to);
        within.fold(
            (0.0, 0.0),
            |(accepted, refused), (_, is_accepted)| match is_accepted {
                true => (accepted + 1.0, refused),
                false => (accepted, refused + 1.0),
            },
        )
    }
}

async fn serve(partner: Arc<Mutex<Partner>>) -> String {
    let respond = async move || {
        if partner.lock().expect("no panic").accepts() {
            StatusCode::OK
        } else {
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let app = Router::new().route("/", get(respond));
    tokio::spawn(async { axum::serve(listener, app).await });
    format!("http://{address}/")
}

/// Figures of a run.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// The part that the partner refused, and the used part of what it would accept, while its
    /// limit is low.
    refused: f64,
    used: f64,
    /// Seconds from the return of the limit until the rate is back.
    back: f64,
}

/// The limit drops from `high` to `low` and returns. The low part counts from `settled` seconds
/// after the drop on.
async fn run(high: f64, low: f64, settled: u64) -> Measured {
    let document = format!(
        "resources: [{{identifier_glob: partner, capacity: {high}, feedback: {{}}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    );
    let partner = Arc::new(Mutex::new(Partner::new(high)));
    let url = serve(Arc::clone(&partner)).await;
    let server = spawn_blocking(move || ControlPlane::start(&document));
    let server = server.await.expect("it starts");
    let rate = (high * DEMAND / WORKERS as f64).to_string();
    let seconds = (BEFORE + LOW + 2 * BACK).to_string();
    let args = [
        "--server",
        server.address(),
        "--url",
        &url,
        "--rate",
        &rate,
        "--seconds",
        &seconds,
    ];
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| Process::start(&example("worker"), &args))
        .collect();
    let set = |rate| {
        let mut partner = partner.lock().expect("no panic");
        partner.rate = rate;
        now()
    };
    sleep(Duration::from_secs(BEFORE)).await;
    let dropped = set(low);
    sleep(Duration::from_secs(LOW)).await;
    let returned = set(high);
    let mut back = f64::INFINITY;
    while now() < returned + Duration::from_secs(2 * BACK) {
        sleep(Duration::from_millis(100)).await;
        let at = now();
        let (accepted, _) = (partner.lock().expect("no panic"))
            .counts(at.saturating_sub(Duration::from_secs(1)), at);
        if accepted >= IS_BACK * high {
            back = (at - returned).as_secs_f64();
            break;
        }
    }
    let from = dropped + Duration::from_secs(settled);
    let (accepted, refused) = partner.lock().expect("no panic").counts(from, returned);
    drop(workers);
    Measured {
        refused: refused / (accepted + refused),
        used: accepted / (low * (returned - from).as_secs_f64()),
        back,
    }
}

/// The least that is promised of a size.
#[derive(Debug, Clone, Copy)]
struct Promise {
    high: f64,
    low: f64,
    settled: u64,
    refused: f64,
    used: f64,
}

const LARGE: Promise = Promise {
    high: 500.0,
    low: 200.0,
    settled: 6,
    refused: 0.01,
    used: 0.97,
};

const SMALL: Promise = Promise {
    high: 50.0,
    low: 20.0,
    settled: 2,
    refused: 0.08,
    used: 0.9,
};

impl Promise {
    async fn measure(&self) -> Measured {
        run(self.high, self.low, self.settled).await
    }

    /// The bars are for the mean of several runs. One may miss them by `factor`.
    fn assert(&self, measured: &Measured, factor: f64) {
        let unused = 1.0 - measured.used;
        assert!(measured.refused <= factor * self.refused, "{measured:?}");
        assert!(unused <= factor * (1.0 - self.used), "{measured:?}");
        assert!(measured.back <= factor * BACK as f64, "{measured:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_follows_a_small_partner_that_shrinks() {
    let measured = SMALL.measure().await;
    println!("{measured:?}");
    SMALL.assert(&measured, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 25 minutes; the means of eight runs are in docs/FEEDBACK.md"]
async fn feedback_in_processes_is_as_good_as_promised() {
    let _exclusive = exclusive_load().await;
    for promise in [LARGE, SMALL] {
        let mut all = Vec::new();
        for _ in 0..RUNS {
            let measured = promise.measure().await;
            println!("{promise:?}: {measured:?}");
            all.push(measured);
        }
        let mean = |read: fn(&Measured) -> f64| all.iter().map(read).sum::<f64>() / RUNS as f64;
        let mean = Measured {
            refused: mean(|it| it.refused),
            used: mean(|it| it.used),
            back: mean(|it| it.back),
        };
        println!("mean: {mean:?}");
        promise.assert(&mean, 1.0);
    }
}
