//! Bytes a lease in the books of the control plane: 1,000 clients with 1,000 resources each, identifiers of 32 bytes included, as a
//! counting allocator sees them.
//!
//! Beside it a plain map, from resource and client to what was leased, which could neither divide nor end anything without a scan.

use std::{alloc::System, collections::HashMap, error::Error, sync::Arc, time::Duration};

use cap::Cap;
use doorman_bench::{Effort, Figures, Row, Table, Target};
use doorman_config::Document;
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, HeldLease, Moment, ResourceId, ResourceRequest,
};
use doorman_server::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const START: Moment = Moment::from_nanos(3_600_000_000_000);
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let effort = Effort::asked();
    let clients = effort.pick(1_000, 100);
    let mut table = Table::new("Memory of the books", "bytes a lease");
    let (joined, renewed) = in_books(clients)?;
    let what = |when: &str| format!("{clients} clients × {clients} resources, {when}");
    let target = Target::AtMost(320.0);
    table.add(Row::figure(&what("joined"), &joined, target));
    table.add(Row::figure(&what("renewed"), &renewed, target));
    let plain = in_a_map(clients)?;
    let what = what("renewed");
    table.add(Row::ratio(
        &what,
        &renewed,
        "a plain map",
        &plain,
        Target::None,
    ));
    table.print();
    Ok(())
}

/// What the books take for each lease when all clients have joined, and when they have renewed all leases twice.
fn in_books(clients: usize) -> Result<(Figures, Figures), Box<dyn Error>> {
    let document = Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {}, algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]",
        25 * clients
    ))?;
    let settings = Settings {
        max_leases: clients * clients,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
    };
    let document = Arc::new(document);
    let before = ALLOCATOR.allocated();
    let mut core = Ledger::new(document, settings, START);
    let mut now = START;
    let mut told = [0.0; 3];
    for told in &mut told {
        for client in 0..clients {
            let request = request(client, clients)?;
            drop(core.refresh_client(&request, now));
        }
        now = now.after(REFRESH_INTERVAL);
        *told = taken_since(before, clients);
    }
    let [joined, _, renewed] = told.map(Figures::constant);
    drop(core);
    Ok((joined, renewed))
}

fn request(client: usize, resources: usize) -> Result<CapacityRequest, Box<dyn Error>> {
    let resources = (0..resources).map(|number| {
        Ok(ResourceRequest {
            resource_id: ResourceId::new(format!("resource-{number:023}"))?,
            wants: Capacity::saturating(fastrand::f64() * 100.0),
            priority: 0,
            has: Some(HeldLease {
                capacity: Capacity::saturating(10.0),
            }),
            outstanding: Capacity::ZERO,
            used: Some(Capacity::saturating(1000.0)),
        })
    });
    Ok(CapacityRequest {
        client_id: ClientId::new(format!("client-{client:025}"))?,
        seq: None,
        resources: resources.collect::<Result<_, Box<dyn Error>>>()?,
    })
}

fn in_a_map(clients: usize) -> Result<Figures, Box<dyn Error>> {
    let before = ALLOCATOR.allocated();
    let mut leases: HashMap<(ResourceId, ClientId), (Capacity, Capacity, Moment)> = HashMap::new();
    for client in 0..clients {
        let request = request(client, clients)?;
        for asked in request.resources {
            let key = (asked.resource_id, request.client_id.clone());
            leases.insert(key, (asked.wants, asked.wants, START));
        }
    }
    let taken = taken_since(before, clients);
    drop(leases);
    Ok(Figures::constant(taken))
}

fn taken_since(before: usize, clients: usize) -> f64 {
    (ALLOCATOR.allocated() - before) as f64 / (clients * clients) as f64
}
