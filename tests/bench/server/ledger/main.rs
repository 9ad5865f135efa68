//! Cost of one ledger decision: a client refreshes its lease of one resource with a new demand.
//!
//! Up to 1,000,000 clients refresh in random order, so that most of a large ledger is not in the
//! CPU caches. The baselines are fewer clients, and a decision that scans all clients.

mod fleet;
mod scan;

use std::{error::Error, sync::Arc};

use doorman_bench::{Options, Row, Table, Target, alternate};
use doorman_config::Document;
use doorman_core::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};
use doorman_openapi::{Capacity, CapacityRequest, Epoch, MAX_BANDS, Moment};

use self::{
    fleet::{Algorithm, CAPACITY_PER_CLIENT, Decide, Fleet, LEASE_LENGTH, REFRESH_INTERVAL, START},
    scan::Scan,
};

/// The scans of one round visit about this many clients.
const VISITS_PER_ROUND: usize = 3_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args();
    let sizes = options.pick([100, 10_000, 1_000_000], [100, 1_000, 100_000]);
    let algorithms = [
        Algorithm::Fair,
        Algorithm::Proportional,
        Algorithm::Priority(1),
        Algorithm::Priority(MAX_BANDS as i32),
    ];

    let mut table = Table::new("Ledger decision, by number of clients", "ns per decision");
    for algorithm in algorithms {
        compare_sizes(options, algorithm, sizes, &mut table)?;
    }
    table.print();

    let mut table = Table::new(
        "Ledger decision, compared with a scan of all clients",
        "ns per decision",
    );
    // Doorman has no algorithm with priorities.
    for algorithm in [Algorithm::Fair, Algorithm::Proportional] {
        for clients in sizes {
            compare_with_scan(options, algorithm, clients, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

fn compare_sizes(
    options: Options,
    algorithm: Algorithm,
    [few, some, many]: [usize; 3],
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let (decisions, rounds) = options.pick((20_000, 21), (5_000, 5));
    let mut fleet_of_few = ledger_fleet(algorithm, few)?;
    let mut fleet_of_some = ledger_fleet(algorithm, some)?;
    let mut fleet_of_many = ledger_fleet(algorithm, many)?;
    let [cost_of_few, cost_of_some, cost_of_many] = alternate(
        rounds,
        [
            &mut || fleet_of_few.round(decisions),
            &mut || fleet_of_some.round(decisions),
            &mut || fleet_of_many.round(decisions),
        ],
    );
    for (clients, cost, target) in [
        (some, cost_of_some, Target::None),
        (many, cost_of_many, Target::AtMost(10.0)),
    ] {
        let baseline = format!("{few} clients");
        let subject = subject(algorithm, clients);
        table.add(Row::ratio(&subject, &cost, &baseline, &cost_of_few, target));
    }
    Ok(())
}

fn compare_with_scan(
    options: Options,
    algorithm: Algorithm,
    clients: usize,
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let rounds = options.pick(9, 3);
    let decisions = options.pick(5_000, 500);
    let scans = (VISITS_PER_ROUND / clients).clamp(3, decisions);
    let mut ledger = ledger_fleet(algorithm, clients)?;
    let mut scan = Fleet::new(Scan::new(algorithm, clients)?, algorithm, clients)?;
    let [ledger_cost, scan_cost] = alternate(
        rounds,
        [&mut || ledger.round(decisions), &mut || scan.round(scans)],
    );
    let subject = subject(algorithm, clients);
    table.add(Row::ratio(
        &subject,
        &ledger_cost,
        "scan",
        &scan_cost,
        Target::None,
    ));
    Ok(())
}

fn subject(algorithm: Algorithm, clients: usize) -> String {
    let kind = algorithm.kind();
    match algorithm {
        Algorithm::Priority(1) => format!("{kind}, 1 priority, {clients} clients"),
        Algorithm::Priority(priorities) => {
            format!("{kind}, {priorities} priorities, {clients} clients")
        }
        Algorithm::Fair | Algorithm::Proportional => format!("{kind}, {clients} clients"),
    }
}

/// A ledger in which all clients hold leases.
fn ledger_fleet(algorithm: Algorithm, clients: usize) -> Result<Fleet<Ledger>, Box<dyn Error>> {
    let document = Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {}, \
         algorithm: {{kind: {}, lease_length: {}, refresh_interval: {}{}}}}}]",
        CAPACITY_PER_CLIENT * clients as f64,
        algorithm.kind(),
        LEASE_LENGTH.as_secs(),
        REFRESH_INTERVAL.as_secs(),
        algorithm.parameters(),
    ))?;
    let settings = Settings {
        max_leases: clients,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
        epoch: Epoch::ZERO,
    };
    let ledger = Ledger::new(Arc::new(document), settings, START);
    Ok(Fleet::new(ledger, algorithm, clients)?.join()?)
}

impl Decide for Ledger {
    fn decide(&mut self, request: CapacityRequest, now: Moment) -> Capacity {
        let grants = self.refresh(&request.into(), now);
        grants
            .first()
            .map_or(Capacity::ZERO, |grant| grant.capacity)
    }
}
