//! A tree of servers: a root, two regions, four leaves and twelve services, with real processes.
//!
//! The root, one region and one leaf have three servers each, which elect their master in etcd.
//! `cargo test -p doorman-tests --test it tree:: -- --nocapture` prints how soon shares are exact,
//! and all of the capacity is leased, after each event.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tower_doorman::{Builder, Capacity, Doorman, Lease, LeaseSettings};

use crate::support::{
    ControlPlane, Etcd, Master, Node, Stopped, TIMEOUT, exclusive_load, now, until,
};

/// Leases of 10 s. The refresh interval of the root's nodes is 4 s, of their nodes 2 s, and of
/// services 1 s.
const CAPACITY: f64 = 1200.0;

fn document(capacity: f64) -> String {
    format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: FAIR_SHARE, \
         lease_length: 10, refresh_interval: 4}}}}]"
    )
}

/// Interval at which leases are added up.
const SAMPLE: Duration = Duration::from_millis(2);

/// How long shares may take until they are exact. Without hints they take up to five refresh
/// intervals of the root, which is 20 s.
const LONGEST: Duration = Duration::from_secs(10);

const EQUAL: [f64; 12] = [200.0; 12];
/// Demand that has moved from one region to the other, and within that one.
const SHIFTED: [f64; 12] = [
    10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 300.0, 300.0, 300.0, 400.0, 5.0, 5.0,
];

/// A node of several servers, and its master.
struct Elected {
    node: Node,
    master: Master,
}

impl Elected {
    fn args(name: &str) -> [&str; 6] {
        [
            "--node",
            name,
            "--election-prefix",
            name,
            "--election-ttl",
            "2",
        ]
    }

    fn root(etcd: &Etcd) -> Self {
        let (node, master) = Node::start(etcd, &document(CAPACITY), &Self::args("root"));
        Self { node, master }
    }

    fn below(etcd: &Etcd, parent: &str, name: &str) -> Self {
        let (node, master) = Node::start_below(etcd, parent, &Self::args(name));
        Self { node, master }
    }

    fn addresses(&self) -> String {
        self.node.addresses().collect::<Vec<_>>().join(",")
    }

    /// Kills the master, and waits for the next one.
    fn fail_over(&mut self) {
        let Master { server, epoch } = self.master;
        self.node.kill(server);
        self.master = self.node.master_after(epoch, TIMEOUT);
        self.node.start_server(server);
    }

    fn kill_all(&mut self) {
        (0..3).for_each(|server| self.node.kill(server));
    }

    fn start_all(&mut self) {
        (0..3).for_each(|server| self.node.start_server(server));
    }
}

struct Tree {
    root: Elected,
    eu: Option<ControlPlane>,
    us: Elected,
    leaves: Vec<ControlPlane>,
    elected_leaf: Elected,
    services: Vec<Doorman>,
    leases: Vec<Lease>,
    _etcd: Etcd,
}

fn start_below(parent: &str, node: &str) -> ControlPlane {
    let home = TempDir::new().expect("a temporary directory");
    ControlPlane::start_with_flags(home, &["--parent", parent, "--node", node])
}

impl Tree {
    fn start() -> Self {
        let etcd = Etcd::start();
        let root = Elected::root(&etcd);
        let eu = start_below(&root.addresses(), "eu");
        let us = Elected::below(&etcd, &root.addresses(), "us");
        let leaves = [
            start_below(eu.address(), "eu-1"),
            start_below(eu.address(), "eu-2"),
            start_below(&us.addresses(), "us-1"),
        ];
        let elected_leaf = Elected::below(&etcd, &us.addresses(), "us-2");
        let addresses = leaves.iter().map(|it| it.address().to_owned());
        let addresses: Vec<String> = addresses.chain([elected_leaf.addresses()]).collect();
        let services: Vec<_> = (0..12)
            .map(|index| {
                let mut servers = addresses[index / 3].split(',');
                let first = servers.next().expect("each leaf has an address");
                let builder = Doorman::builder(first).service(format!("service-{index}"));
                let builder = servers.fold(builder, Builder::server);
                builder.spawn().expect("the settings are valid")
            })
            .collect();
        let leases = services.iter().map(|it| it.lease(LeaseSettings::new("db")));
        Self {
            leases: leases.collect(),
            root,
            eu: Some(eu),
            us,
            leaves: leaves.into(),
            elected_leaf,
            services,
            _etcd: etcd,
        }
    }

    fn set_wants(&self, wants: [f64; 12]) {
        for (lease, wants) in self.leases.iter().zip(wants) {
            lease.set_wants(Capacity::new(wants).expect("a valid demand"));
        }
    }

    /// Changes the demand, and waits until all services hold their shares within 1 %.
    fn shift(&self, event: &str, capacity: f64, wants: [f64; 12]) {
        self.set_wants(wants);
        self.settle(event, &shares(capacity, wants));
    }

    /// Waits until all services hold these amounts within 1 %, and prints how long it takes until
    /// all of it is leased, and until each amount is right.
    #[expect(clippy::print_stdout, reason = "shown with --nocapture")]
    fn settle(&self, event: &str, expected: &[f64]) {
        let start = now();
        let mut in_full = None;
        loop {
            let held = held(&self.leases);
            let took = now() - start;
            if held.iter().sum::<f64>() >= 0.99 * expected.iter().sum::<f64>() {
                in_full.get_or_insert(took);
            }
            if are_close(&held, expected) {
                let in_full = in_full.unwrap_or(took).as_millis();
                println!(
                    "{event}: all leased after {in_full} ms, exact after {} ms",
                    took.as_millis()
                );
                return;
            }
            assert!(took < LONGEST, "{event}: {held:?}, not {expected:?}");
            thread::sleep(SAMPLE);
        }
    }

    /// Leases outlast the servers that granted them.
    fn wait_and_check_leases(&self) {
        thread::sleep(Duration::from_secs(3));
        let held = held(&self.leases);
        assert!(are_close(&held, &shares(CAPACITY, EQUAL)), "{held:?}");
    }

    /// The sum booked at the root for its nodes.
    fn booked_at_root(&self) -> f64 {
        let server = self.root.master.server;
        let body = self.root.node.get(server, "/v1/resources/db/leases");
        let leases = body["leases"].as_array().map(Vec::as_slice);
        let booked = leases.unwrap_or_default().iter();
        booked.filter_map(|it| it["booked"].as_f64()).sum()
    }

    fn kill_regions(&mut self) -> Stopped {
        self.us.kill_all();
        self.eu.take().expect("it runs").kill()
    }
}

fn are_close(held: &[f64], expected: &[f64]) -> bool {
    let is_close = |(held, expected): (&f64, &f64)| (held - expected).abs() <= 0.01 * expected;
    held.iter().zip(expected).all(is_close)
}

pub(crate) fn held(leases: &[Lease]) -> Vec<f64> {
    let held = leases.iter().map(Lease::capacity);
    held.map(|it| if it.is_leased { it.amount } else { 0.0 })
        .collect()
}

/// The largest sum of all leases.
pub(crate) struct Peak {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<f64>,
}

impl Peak {
    pub(crate) fn watch(leases: &[Lease]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let leases = leases.to_vec();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut peak = 0.0_f64;
            while !stopped.load(Ordering::Relaxed) {
                peak = peak.max(held(&leases).iter().sum());
                thread::sleep(SAMPLE);
            }
            peak
        });
        Self { stop, thread }
    }

    #[track_caller]
    pub(crate) fn assert_at_most(self, capacity: f64) {
        self.stop.store(true, Ordering::Relaxed);
        let peak = self.thread.join().expect("it samples");
        assert!(peak <= capacity * (1.0 + 1e-9), "{peak} of {capacity}");
    }
}

/// The max-min fair shares.
fn shares(capacity: f64, wants: [f64; 12]) -> [f64; 12] {
    let mut sorted = wants;
    sorted.sort_unstable_by(f64::total_cmp);
    let mut left = capacity;
    let mut level = f64::INFINITY;
    for (index, wants) in sorted.iter().enumerate() {
        let equal = left / (12 - index) as f64;
        if *wants > equal {
            level = equal;
            break;
        }
        left -= wants;
    }
    wants.map(|wants| wants.min(level))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_three_levels_share_the_capacity_of_the_root() {
    let _exclusive = exclusive_load().await;
    let tree = tokio::task::spawn_blocking(run);
    tree.await.expect("it does not panic");
}

fn run() {
    let mut tree = Tree::start();
    let peak = Peak::watch(&tree.leases);
    tree.shift("start", CAPACITY, EQUAL);
    for _ in 0..4 {
        tree.shift("shift", CAPACITY, SHIFTED);
        tree.shift("shift back", CAPACITY, EQUAL);
    }

    // The parent of two leaves is lost, and restarts.
    let eu = tree.eu.take().expect("it runs").kill();
    tree.wait_and_check_leases();
    tree.eu = Some(eu.restart());
    tree.shift("a region was lost", CAPACITY, SHIFTED);
    tree.shift("shift back", CAPACITY, EQUAL);

    // A whole level is lost.
    let eu = tree.kill_regions();
    tree.wait_and_check_leases();
    tree.us.start_all();
    tree.eu = Some(eu.restart());
    tree.us.master = tree.us.node.master_after(tree.us.master.epoch, TIMEOUT);
    tree.shift("all regions were lost", CAPACITY, SHIFTED);

    // Other servers become masters, at each level.
    tree.elected_leaf.fail_over();
    tree.shift("a leaf has another master", CAPACITY, EQUAL);
    tree.us.fail_over();
    tree.shift("a region has another master", CAPACITY, SHIFTED);
    tree.root.fail_over();
    tree.shift("the root has another master", CAPACITY, EQUAL);

    // A whole level is lost until all leases have ended.
    let eu = tree.kill_regions();
    until("no lease is left at any level", || {
        tree.booked_at_root() == 0.0
    });
    assert!(held(&tree.leases).iter().all(|it| *it == 0.0));
    tree.us.start_all();
    tree.eu = Some(eu.restart());
    tree.us.master = tree.us.node.master_after(tree.us.master.epoch, TIMEOUT);
    tree.settle("all leases had ended", &shares(CAPACITY, EQUAL));
    peak.assert_at_most(CAPACITY);

    // A cut to a tenth, and back.
    let cut = Peak::watch(&tree.leases);
    tree.root.node.set_document(&document(CAPACITY / 10.0));
    tree.settle("cut to a tenth", &shares(CAPACITY / 10.0, EQUAL));
    cut.assert_at_most(CAPACITY);
    let peak = Peak::watch(&tree.leases);
    thread::sleep(Duration::from_secs(1));
    peak.assert_at_most(CAPACITY / 10.0);
    let peak = Peak::watch(&tree.leases);
    tree.root.node.set_document(&document(CAPACITY));
    tree.settle("restored", &shares(CAPACITY, EQUAL));
    peak.assert_at_most(CAPACITY);

    let status = tree.leaves[0].get("/v1/status");
    assert_eq!(status["level"], 2, "{status}");
    assert_eq!(status["parent"]["node"], "eu", "{status}");
    assert!(status["parent"]["leases_end_in"].is_number(), "{status}");
    let runtime = tokio::runtime::Handle::current();
    for service in &tree.services {
        runtime
            .block_on(service.clone().shutdown())
            .expect("it releases its lease");
    }
    until("the root knows that nothing is leased", || {
        tree.booked_at_root() == 0.0
    });
}
