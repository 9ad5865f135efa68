//! A tree of servers: a root, two regions, four leaves and twelve services, with real processes.
//!
//! One of the leaves has three servers, which elect their master in etcd.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tower_doorman::{Capacity, Doorman, Lease, LeaseSettings};

use crate::support::{ControlPlane, Etcd, Master, Node, TIMEOUT, exclusive_load, now, until};

/// Leases of 20 s. The refresh interval of the root's nodes is 4 s, of their nodes 2 s, and of
/// services 1 s.
const CAPACITY: f64 = 1200.0;

fn document(capacity: f64) -> String {
    format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: FAIR_SHARE, \
         lease_length: 20, refresh_interval: 4}}}}]"
    )
}

/// Interval at which leases are added up.
const SAMPLE: Duration = Duration::from_millis(2);

struct Tree {
    root: ControlPlane,
    regions: Vec<Option<ControlPlane>>,
    leaves: Vec<ControlPlane>,
    elected: Node,
    master: Master,
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
        let root = ControlPlane::start(&document(CAPACITY));
        let regions = ["eu", "us"].map(|name| start_below(root.address(), name));
        let leaves = [("eu-1", 0), ("eu-2", 0), ("us-1", 1)];
        let leaves: Vec<_> = leaves
            .into_iter()
            .map(|(name, region)| start_below(regions[region].address(), name))
            .collect();
        let etcd = Etcd::start();
        let args = ["--node", "us-2", "--election-ttl", "2"];
        let (elected, master) = Node::start_below(&etcd, regions[1].address(), &args);
        let addresses = leaves.iter().map(|it| vec![it.address().to_owned()]);
        let elected_addresses = elected.addresses().map(str::to_owned).collect();
        let addresses: Vec<Vec<String>> = addresses.chain([elected_addresses]).collect();
        let services: Vec<_> = (0..12)
            .map(|index| {
                let [first, others @ ..] = &addresses[index / 3][..] else {
                    unreachable!("each leaf has an address")
                };
                let builder = Doorman::builder(first).service(format!("service-{index}"));
                let builder = others.iter().fold(builder, tower_doorman::Builder::server);
                builder.spawn().expect("the settings are valid")
            })
            .collect();
        let leases = services.iter().map(|it| it.lease(LeaseSettings::new("db")));
        Self {
            leases: leases.collect(),
            root,
            regions: regions.into_iter().map(Some).collect(),
            leaves,
            elected,
            master,
            services,
            _etcd: etcd,
        }
    }

    fn set_wants(&self, wants: [f64; 12]) {
        for (lease, wants) in self.leases.iter().zip(wants) {
            lease.set_wants(Capacity::new(wants).expect("a valid demand"));
        }
    }

    fn held(&self) -> Vec<f64> {
        held(&self.leases)
    }

    /// Waits until all services hold these amounts, and prints how long that took.
    #[expect(clippy::print_stdout, reason = "shown with --nocapture")]
    fn settle(&self, what: &str, expected: [f64; 12]) {
        let start = now();
        loop {
            let held = self.held();
            let is_close =
                |(held, expected): (&f64, &f64)| (held - expected).abs() <= 0.01 * expected;
            if held.iter().zip(&expected).all(is_close) {
                println!("{what}: {} ms", (now() - start).as_millis());
                return;
            }
            assert!(
                now() - start < TIMEOUT,
                "{what}: {held:?}, not {expected:?}"
            );
            thread::sleep(SAMPLE);
        }
    }
}

fn held(leases: &[Lease]) -> Vec<f64> {
    let held = leases.iter().map(Lease::capacity);
    held.map(|it| if it.is_leased { it.amount } else { 0.0 })
        .collect()
}

/// The largest sum of all leases.
struct Peak {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<f64>,
}

impl Peak {
    fn watch(leases: &[Lease]) -> Self {
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

    fn end(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it samples")
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

    let equal = [200.0; 12];
    tree.set_wants(equal);
    tree.settle("start", shares(CAPACITY, equal));

    // Demand moves from one region to the other, and within one.
    let shifted = [
        10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 300.0, 300.0, 300.0, 400.0, 5.0, 5.0,
    ];
    for _ in 0..4 {
        tree.set_wants(shifted);
        tree.settle("shift", shares(CAPACITY, shifted));
        tree.set_wants(equal);
        tree.settle("shift back", shares(CAPACITY, equal));
    }

    // The parent of two leaves is lost, and restarts.
    let region = tree.regions[0].take().expect("it runs").kill();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(
        tree.held(),
        shares(CAPACITY, equal),
        "leases outlast their server"
    );
    tree.regions[0] = Some(region.restart());
    tree.set_wants(shifted);
    tree.settle("after the loss of a region", shares(CAPACITY, shifted));
    tree.set_wants(equal);
    tree.settle("again", shares(CAPACITY, equal));

    // A whole level is lost.
    let regions: Vec<_> = tree
        .regions
        .iter_mut()
        .map(|it| it.take().expect("it runs").kill())
        .collect();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(
        tree.held(),
        shares(CAPACITY, equal),
        "leases outlast their server"
    );
    tree.regions = regions.into_iter().map(|it| Some(it.restart())).collect();
    tree.set_wants(shifted);
    tree.settle("after the loss of all regions", shares(CAPACITY, shifted));

    // Another server of a leaf becomes its master.
    tree.elected.kill(tree.master.server);
    let master = tree.elected.master_after(tree.master.epoch, TIMEOUT);
    tree.set_wants(equal);
    tree.settle("after a fail-over of a leaf", shares(CAPACITY, equal));
    tree.elected.start_server(tree.master.server);
    tree.master = master;
    assert!(peak.end() <= CAPACITY * (1.0 + 1e-9));

    // A cut to a tenth, and back.
    let file = tree.root.home().join("limits.yaml");
    std::fs::write(&file, document(CAPACITY / 10.0)).expect("it is writable");
    tree.settle("cut", shares(CAPACITY / 10.0, equal));
    let peak = Peak::watch(&tree.leases);
    thread::sleep(Duration::from_secs(1));
    assert!(peak.end() <= CAPACITY / 10.0 * (1.0 + 1e-9));
    let peak = Peak::watch(&tree.leases);
    std::fs::write(&file, document(CAPACITY)).expect("it is writable");
    tree.settle("restored", shares(CAPACITY, equal));
    assert!(peak.end() <= CAPACITY * (1.0 + 1e-9));

    let view = tree.leaves[0].get("/v1/status");
    assert_eq!(view["level"], 2, "{view}");
    let runtime = tokio::runtime::Handle::current();
    for service in &tree.services {
        runtime
            .block_on(service.clone().shutdown())
            .expect("it releases its lease");
    }
    until("the root knows that nothing is leased", || {
        let response = tree.root.curl("/v1/resources/db/leases", &[]);
        response.status == 404 || {
            let body: Value = serde_json::from_str(&response.body).expect("it is JSON");
            let leases = body["leases"].as_array().expect("a list");
            leases.iter().all(|it| it["has"] == 0.0)
        }
    });
}
