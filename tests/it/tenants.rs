//! The example whose tenants are told apart by their tokens.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::support::{ControlPlane, Process, Response, curl, example, exclusive_load};

const DOCUMENT: &str = include_str!("../../examples/tenants.yaml");

/// What the document gives each tenant on one route: so many a second, of which those of one second may be saved up.
const RATE: u64 = 4;
/// How long both instances are flooded, in seconds.
const FLOOD: u64 = 6;

struct Instance {
    _process: Process,
    address: String,
    acme: String,
    globex: String,
}

impl Instance {
    fn start(server: &ControlPlane) -> Self {
        let args = ["--listen", "127.0.0.1:0", "--server", server.address()];
        let mut process = Process::start(&example("tenants"), &args);
        let address = process.wait_for_address();
        let mut token = |tenant: &str| {
            let said = format!("{tenant}: ");
            process.wait_for(|line| line.strip_prefix(&said).map(str::to_owned))
        };
        Self {
            acme: token("acme"),
            globex: token("globex"),
            address,
            _process: process,
        }
    }

    fn ask(&self, token: Option<&str>, path: &str) -> Response {
        ask(&self.address, token, path)
    }
}

fn ask(address: &str, token: Option<&str>, path: &str) -> Response {
    let url = format!("{address}{path}");
    let header = token.map(|token| format!("authorization: Bearer {token}"));
    match &header {
        Some(header) => curl(&[&url, "-H", header]),
        None => curl(&[&url]),
    }
}

/// Asks without a pause until it is told to stop.
fn flood(address: &str, token: &str, stop: &AtomicBool) -> Flood {
    let mut flood = Flood::default();
    while !stop.load(Ordering::Relaxed) {
        match ask(address, Some(token), "/orders").status {
            200 => flood.admitted += 1,
            429 => flood.refused += 1,
            other => panic!("status {other}"),
        }
    }
    flood
}

/// What became of one instance's requests.
#[derive(Debug, Default)]
struct Flood {
    admitted: u64,
    refused: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_are_told_apart_by_their_tokens_and_limited_over_all_instances() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let instances = [Instance::start(&server), Instance::start(&server)];
    let [first, second] = &instances;

    let unknown = first.ask(None, "/orders");
    assert_eq!(unknown.status, 401, "{unknown:?}");
    let forged = format!("{}x", first.acme);
    assert_eq!(first.ask(Some(&forged), "/orders").status, 401);

    // A token counts on every instance, and a tenant that floods all of them has one bucket.
    let stop = AtomicBool::new(false);
    let floods = thread::scope(|scope| {
        let (token, stop_it) = (second.acme.as_str(), &stop);
        let flooding = instances.each_ref().map(|instance| {
            let address = instance.address.as_str();
            scope.spawn(move || flood(address, token, stop_it))
        });
        thread::sleep(Duration::from_secs(FLOOD));
        stop.store(true, Ordering::Relaxed);
        flooding.map(|flood| flood.join().expect("every status is one of two"))
    });
    let one_bucket = RATE + RATE * FLOOD;
    let admitted: u64 = floods.iter().map(|flood| flood.admitted).sum();
    // At first each instance takes the bucket for its own, and until the next answer what is filled in; what is too much is owed. Two
    // buckets would have let pass twice as much as one.
    assert!(
        (one_bucket / 2..=one_bucket * 3 / 2).contains(&admitted),
        "{admitted} of {one_bucket}: {floods:?}"
    );
    assert!(floods.iter().all(|flood| flood.refused > 0), "{floods:?}");

    // Others, and other routes, are not touched by it.
    for instance in &instances {
        assert_eq!(instance.ask(Some(&instance.globex), "/orders").status, 200);
    }
    assert_eq!(second.ask(Some(&first.acme), "/orders/7").status, 200);
}
