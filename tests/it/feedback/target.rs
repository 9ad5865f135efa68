//! Targets whose limit changes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};

use crate::support::now;

/// Seconds that a worker of a database needs for a request.
pub(super) const WORK: f64 = 0.15;

/// A server that counts its responses.
#[derive(Debug)]
pub(super) struct Target {
    limit: Limit,
    responses: Mutex<Vec<Response>>,
}

#[derive(Debug)]
enum Limit {
    /// Refuses the requests that it has no token for.
    Bucket(Mutex<Bucket>),
    /// Serves requests in their order, and refuses none.
    Workers(Workers),
}

#[derive(Debug)]
struct Response {
    at: Duration,
    accepted: bool,
    /// From the request to the response.
    took: Duration,
}

/// Responses of a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) accepted: f64,
    pub(super) refused: f64,
    /// Mean seconds from request to response.
    pub(super) time: f64,
}

impl Target {
    /// Refuses more than `rate` requests per second.
    pub(super) fn partner(rate: f64) -> Arc<Self> {
        Self::new(Limit::Bucket(Mutex::new(Bucket::new(rate))))
    }

    /// Serves `rate` requests per second, each in [`WORK`].
    pub(super) fn database(rate: f64) -> Arc<Self> {
        Self::new(Limit::Workers(Workers::new(rate)))
    }

    fn new(limit: Limit) -> Arc<Self> {
        let responses = Mutex::default();
        Arc::new(Self { limit, responses })
    }

    /// Changes its rate, and returns the time.
    pub(super) fn set(&self, rate: f64) -> Duration {
        match &self.limit {
            Limit::Bucket(bucket) => bucket.lock().expect("no panic").rate = rate,
            Limit::Workers(workers) => workers.set(rate),
        }
        now()
    }

    async fn respond(&self) -> StatusCode {
        let came = now();
        let accepted = match &self.limit {
            Limit::Bucket(bucket) => bucket.lock().expect("no panic").accepts(came),
            Limit::Workers(workers) => {
                workers.work().await;
                true
            }
        };
        let at = now();
        let took = at - came;
        let response = Response { at, accepted, took };
        self.responses.lock().expect("no panic").push(response);
        if accepted {
            StatusCode::OK
        } else {
            StatusCode::TOO_MANY_REQUESTS
        }
    }

    /// The responses of a time.
    pub(super) fn counts(&self, from: Duration, to: Duration) -> Counts {
        let (mut accepted, mut refused, mut took) = (0.0, 0.0, Duration::ZERO);
        let responses = self.responses.lock().expect("no panic");
        for response in responses.iter().filter(|it| it.at >= from && it.at < to) {
            *(if response.accepted {
                &mut accepted
            } else {
                &mut refused
            }) += 1.0;
            took += response.took;
        }
        Counts {
            accepted,
            refused,
            time: took.as_secs_f64() / (accepted + refused),
        }
    }

    /// Listens on a free port, and returns its URL.
    pub(super) async fn serve(self: &Arc<Self>) -> String {
        let target = Arc::clone(self);
        let respond = async move || target.respond().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let app = Router::new().fallback(respond);
        tokio::spawn(async { axum::serve(listener, app).await });
        format!("http://{address}/")
    }
}

#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Duration,
}

impl Bucket {
    /// Seconds of the rate that it holds.
    const BURST: f64 = 0.2;

    fn new(rate: f64) -> Self {
        Self {
            rate,
            tokens: rate * Self::BURST,
            at: now(),
        }
    }

    fn accepts(&mut self, at: Duration) -> bool {
        let most = (self.rate * Self::BURST).max(1.0);
        let new = self.rate * at.saturating_sub(self.at).as_secs_f64();
        self.tokens = (self.tokens + new).min(most);
        self.at = at;
        let accepted = self.tokens >= 1.0;
        if accepted {
            self.tokens -= 1.0;
        }
        accepted
    }
}

#[derive(Debug)]
struct Workers {
    free: Arc<Semaphore>,
    count: AtomicUsize,
}

impl Workers {
    fn new(rate: f64) -> Self {
        let count = Self::needed(rate);
        Self {
            free: Arc::new(Semaphore::new(count)),
            count: count.into(),
        }
    }

    fn needed(rate: f64) -> usize {
        (rate * WORK).round() as usize
    }

    /// Those that leave finish their request before.
    fn set(&self, rate: f64) {
        let count = Self::needed(rate);
        let before = self.count.swap(count, Ordering::SeqCst);
        self.free.add_permits(count.saturating_sub(before));
        for _ in count..before {
            let free = Arc::clone(&self.free);
            tokio::spawn(async move {
                let worker = free.acquire_owned().await;
                worker.expect("it stays open").forget();
            });
        }
    }

    async fn work(&self) {
        let _worker = self.free.acquire().await.expect("it stays open");
        sleep(Duration::try_from_secs_f64(WORK).expect("few")).await;
    }
}
