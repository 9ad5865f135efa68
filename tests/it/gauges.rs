//! Gauges over a fleet of processes: what is in flight at a stand-in for a database, which counts.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

use crate::support::{ControlPlane, Service, TIMEOUT, exclusive_load, now};

const CAPACITY: i64 = 100;

fn document(lease_length: u32, refresh_interval: u32) -> String {
    format!(
        "
resources:
  - identifier_glob: db
    capacity: {CAPACITY}
    unit: gauge
    algorithm:
      {{kind: FAIR_SHARE, lease_length: {lease_length}, refresh_interval: {refresh_interval}}}
"
    )
}

/// A database: each connection is a query of so many milliseconds.
struct Database {
    address: SocketAddr,
    queries: Arc<Queries>,
}

#[derive(Default)]
struct Queries {
    in_flight: AtomicI64,
    most: AtomicI64,
}

impl Database {
    async fn start() -> Self {
        Self::counted_in(Arc::default()).await
    }

    /// One of several, whose queries count together.
    async fn counted_in(all: Arc<Queries>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it listens");
        let queries = Arc::new(Queries::default());
        let counted = [Arc::clone(&queries), all];
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(answer(connection, counted.clone()));
            }
        });
        Self { address, queries }
    }

    fn in_flight(&self) -> i64 {
        self.queries.in_flight.load(Ordering::SeqCst)
    }

    fn most(&self) -> i64 {
        self.queries.most.load(Ordering::SeqCst)
    }

    /// The mean over a second.
    async fn mean(&self) -> f64 {
        let mut sum = 0.0;
        for _ in 0..100 {
            sleep(Duration::from_millis(10)).await;
            sum += self.in_flight() as f64;
        }
        sum / 100.0
    }
}

async fn answer(connection: TcpStream, counted: [Arc<Queries>; 2]) {
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    if connection.read_line(&mut line).await.is_err() {
        return;
    }
    let Ok(milliseconds) = line.trim().parse() else {
        return;
    };
    for queries in &counted {
        let in_flight = queries.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        queries.most.fetch_max(in_flight, Ordering::SeqCst);
    }
    let mut rest = [0];
    let ended = tokio::select! {
        () = sleep(Duration::from_millis(milliseconds)) => true,
        // The process was killed.
        _ = connection.read(&mut rest) => false,
    };
    for queries in &counted {
        queries.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
    if ended {
        connection.write_all(b"ok\n").await.ok();
    }
}

/// Callers that send one query after the other.
struct Callers {
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Callers {
    fn start(service: &Service, callers: usize) -> Self {
        let mut it = Self {
            stop: Arc::default(),
            refused: Arc::default(),
            tasks: JoinSet::new(),
        };
        let client = reqwest::Client::new();
        let url = format!("{}/query", service.address());
        for _ in 0..callers {
            let (client, url) = (client.clone(), url.clone());
            let (stop, refused) = (Arc::clone(&it.stop), Arc::clone(&it.refused));
            it.tasks.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let milliseconds = fastrand::u64(50..400);
                    let query = client.get(format!("{url}/{milliseconds}"));
                    let response = query.send().await;
                    if !response.is_ok_and(|response| response.status() == 200) {
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        it
    }

    /// Lets the queries end, and returns how many were refused or failed.
    async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        while self.tasks.join_next().await.is_some() {}
        self.refused.load(Ordering::SeqCst)
    }
}

async fn until(condition: impl Fn() -> bool, longest: Duration) -> Duration {
    let began = now();
    while !condition() {
        assert!(now() - began < longest, "not after {longest:?}");
        sleep(Duration::from_millis(1)).await;
    }
    now() - began
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_exceeds_no_gauge() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(&document(4, 1));
    let database = Database::start().await;
    let services = [(); 3].map(|()| Service::pool(server.address(), database.address));
    let [killed, others @ ..] = services.each_ref().map(|it| Callers::start(it, 60));
    until(|| database.in_flight() >= 95, TIMEOUT).await;
    let before = database.mean().await;
    assert!(before > 90.0, "{before}");

    let [first, _second, _third] = services;
    first.kill();
    // Its lease ends 4.2 s after its last refresh.
    sleep(Duration::from_millis(4300)).await;
    until(|| database.in_flight() >= 95, Duration::from_secs(2)).await;
    let after = database.mean().await;
    assert!(after > 90.0, "{after}");
    assert!(database.most() <= CAPACITY, "{}", database.most());

    drop(killed);
    for callers in others {
        assert_eq!(callers.stop().await, 0);
    }
    assert_eq!(database.in_flight(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_move_with_the_demand_as_queries_end() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(&document(60, 20));
    let all: Arc<Queries> = Arc::default();
    let databases = [
        Database::counted_in(Arc::clone(&all)).await,
        Database::counted_in(Arc::clone(&all)).await,
    ];
    let services = databases
        .each_ref()
        .map(|database| Service::pool(server.address(), database.address));
    let [busy, quiet] = &databases;
    let callers = Callers::start(&services[0], 120);
    until(|| busy.in_flight() >= 95, TIMEOUT).await;

    let others = Callers::start(&services[1], 120);
    let refused = callers.stop().await;
    // Hints move the units: the next refresh would be 20 s later.
    let moved = until(|| quiet.in_flight() >= 95, Duration::from_secs(5)).await;
    println!("moved {moved:?} after the last query");
    let refused = refused + others.stop().await;
    assert_eq!(refused, 0);
    let most = all.most.load(Ordering::SeqCst);
    assert!(most <= CAPACITY, "{most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_in_flight_are_reported() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(&document(4, 1));
    let database = Database::start().await;
    let service = Service::pool(server.address(), database.address);
    let client = reqwest::Client::new();
    let query = |milliseconds: u64| {
        let url = format!("{}/query/{milliseconds}", service.address());
        let request = client.get(url);
        tokio::spawn(async move { request.send().await.map(|it| it.status().as_u16()) })
    };
    let long = query(2_000);
    until(|| database.in_flight() == 1, TIMEOUT).await;
    until(
        || {
            let leases = server.get("/v1/resources/db/leases");
            leases["leases"][0]["outstanding"] == 1.0
        },
        TIMEOUT,
    )
    .await;
    assert_eq!(long.await.expect("it runs").ok(), Some(200));
    until(
        || server.get("/v1/resources/db/leases")["leases"][0]["outstanding"] == 0.0,
        TIMEOUT,
    )
    .await;
    assert!(service.terminate().success());
    assert_eq!(server.get("/v1/resources/db")["clients"], 0);
}
