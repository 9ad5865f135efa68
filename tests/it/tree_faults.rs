//! A cut link, a fail-over and a crash of the root, one lease apart, with real processes.
//!
//! `cargo test -p doorman-tests --test it tree_faults:: -- --ignored` runs the same with the default
//! settings, in two and a half minutes.

use std::{thread, time::Duration};

use tempfile::TempDir;
use tower_doorman::{Builder, Capacity, Doorman, Lease, LeaseSettings};

use crate::{
    support::{ControlPlane, Etcd, Node, Relay, TIMEOUT, now, until},
    tree::{Peak, held},
};

const CAPACITY: f64 = 100.0;

/// How long a booking outlasts its lease.
const CLOCK_DRIFT: f64 = 1.05;

/// A client of these servers that wants so much.
fn client<'a>(servers: impl IntoIterator<Item = &'a str>, wants: f64) -> (Doorman, Lease) {
    let mut servers = servers.into_iter();
    let first = servers.next().expect("a node has a server");
    let builder = servers.fold(Doorman::builder(first), Builder::server);
    let client = builder.spawn().expect("the settings are valid");
    let lease = client.lease(LeaseSettings::new("db"));
    lease.set_wants(Capacity::new(wants).expect("a valid demand"));
    (client, lease)
}

/// `lease_length` and `refresh_interval` are those of the document, in seconds.
fn run(lease_length: u32, refresh_interval: u32) {
    let lease = Duration::from_secs(lease_length.into());
    let etcd = Etcd::start();
    let document = format!(
        "resources: [{{identifier_glob: db, capacity: {CAPACITY}, algorithm: {{kind: FAIR_SHARE, \
         lease_length: {lease_length}, refresh_interval: {refresh_interval}}}}}]"
    );
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limits.yaml");
    std::fs::write(&file, document).expect("the directory is new");
    let config = format!("file:{}", file.display());
    let root = ControlPlane::start_with_flags(home, &["--config", &config, "--node", "root"]);
    let link = Relay::start(root.address());
    let args = [
        "--node",
        "eu",
        "--election-prefix",
        "eu",
        "--election-ttl",
        "2",
    ];
    let (mut eu, master) = Node::start_below(&etcd, link.address(), &args);
    let (clients, leases): (Vec<_>, Vec<_>) = [
        client(eu.addresses(), 0.6 * CAPACITY),
        client([root.address()], CAPACITY),
    ]
    .into_iter()
    .unzip();
    until("both have half", || held(&leases) == [0.5 * CAPACITY; 2]);
    let peak = Peak::watch(&leases);

    // The node's clients keep their leases, and its next master knows none of its own.
    link.partition();
    let cut = now();
    eu.kill(master.server);
    let next = eu.master_after(master.epoch, TIMEOUT);
    // The root's booking for the node ends, and the other client gets all.
    let ends = cut + lease.mul_f64(CLOCK_DRIFT);
    thread::sleep(ends.saturating_sub(now() + Duration::from_secs(1)));
    until("the booking has ended", || held(&leases)[1] == CAPACITY);
    let stopped = root.kill();
    link.heal();
    let root = stopped.restart();

    // The root learns that the other client has all.
    let restarted = now();
    while now() < restarted + lease {
        let held = held(&leases);
        assert!(
            held.iter().sum::<f64>() <= CAPACITY * (1.0 + 1e-9),
            "{held:?}"
        );
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(eu.as_master(next.server), Some(next));
    until("both have half again", || {
        held(&leases) == [0.5 * CAPACITY; 2]
    });
    peak.assert_at_most(CAPACITY);
    let exceptions = root.curl("/metrics", &[]).body;
    let counted = exceptions.lines().filter(|line| {
        line.starts_with("doorman_safety_exceptions_total") && !line.ends_with(" 0")
    });
    assert_eq!(counted.collect::<Vec<_>>(), [""; 0]);
    drop(clients);
}

async fn run_in_background(lease_length: u32, refresh_interval: u32) {
    let run = tokio::task::spawn_blocking(move || run(lease_length, refresh_interval));
    run.await.expect("it does not panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_after_a_failover_behind_a_cut_link_leases_nothing_twice() {
    run_in_background(10, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes two and a half minutes"]
async fn crash_leases_nothing_twice_with_default_settings() {
    run_in_background(60, 5).await;
}
