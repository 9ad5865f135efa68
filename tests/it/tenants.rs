//! The example `tenants`: limits by the tenant of a token.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::support::{ControlPlane, Process, Response, curl, example, exclusive_load};

const DOCUMENT: &str = include_str!("../../examples/tenants.yaml");

/// Requests per second of each tenant on one route. Its bucket holds one second's worth.
const RATE: u64 = 4;

/// Seconds for which a tenant floods both instances.
const FLOOD: u64 = 6;

struct Instance {
    _process: Process,
    address: String,
    /// Tokens of the two tenants.
    acme: String,
    globex: String,
}

impl Instance {
    fn start(server: &ControlPlane) -> Self {
        let args = ["--listen", "127.0.0.1:0", "--server", server.address()];
        let mut process = Process::start(&example("tenants"), &args);
        let address = process.wait_for_address();
        let mut token = |tenant: &str| {
            let prefix = format!("{tenant}: ");
            process.wait_for(|line| line.strip_prefix(&prefix).map(str::to_owned))
        };
        Self {
            acme: token("acme"),
            globex: token("globex"),
            address,
            _process: process,
        }
    }

    fn get(&self, token: Option<&str>, path: &str) -> Response {
        get(&self.address, token, path)
    }
}

fn get(address: &str, token: Option<&str>, path: &str) -> Response {
    let url = format!("{address}{path}");
    let header = token.map(|token| format!("authorization: Bearer {token}"));
    match &header {
        Some(header) => curl(&[&url, "-H", header]),
        None => curl(&[&url]),
    }
}

/// Responses to one instance's flood.
#[derive(Debug, Default)]
struct Flood {
    admitted: u64,
    rejected: u64,
}

/// Sends requests without pause until it is stopped.
fn flood(address: &str, token: &str, stop: &AtomicBool) -> Flood {
    let mut flood = Flood::default();
    while !stop.load(Ordering::Relaxed) {
        match get(address, Some(token), "/orders").status {
            200 => flood.admitted += 1,
            429 => flood.rejected += 1,
            other => panic!("status {other}"),
        }
    }
    flood
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_tenant_is_limited_over_all_instances_alone() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let instances = [Instance::start(&server), Instance::start(&server)];
    let [first, second] = &instances;

    let anonymous = first.get(None, "/orders");
    assert_eq!(anonymous.status, 401, "{anonymous:?}");
    let forged = format!("{}x", first.acme);
    assert_eq!(first.get(Some(&forged), "/orders").status, 401);

    // One token is valid on every instance, and its tenant has one bucket.
    let stop = AtomicBool::new(false);
    let floods = thread::scope(|scope| {
        let (token, stop_it) = (second.acme.as_str(), &stop);
        let flooding = instances.each_ref().map(|instance| {
            let address = instance.address.as_str();
            scope.spawn(move || flood(address, token, stop_it))
        });
        thread::sleep(Duration::from_secs(FLOOD));
        stop.store(true, Ordering::Relaxed);
        flooding.map(|flood| flood.join().expect("no other status"))
    });
    let one_bucket = RATE + RATE * FLOOD;
    let admitted: u64 = floods.iter().map(|flood| flood.admitted).sum();
    // Until the first signal each instance spends the whole bucket, then the excess is owed. Two
    // buckets would have admitted twice as much as one.
    assert!(
        (one_bucket / 2..=one_bucket * 3 / 2).contains(&admitted),
        "{admitted} of {one_bucket}: {floods:?}"
    );
    assert!(floods.iter().all(|flood| flood.rejected > 0), "{floods:?}");

    // Other tenants and routes are unaffected.
    for instance in &instances {
        assert_eq!(instance.get(Some(&instance.globex), "/orders").status, 200);
    }
    assert_eq!(second.get(Some(&first.acme), "/orders/7").status, 200);
}
