//! Bytes per lease in the ledger, 32-byte ids included, measured by a counting allocator.
//!
//! 1,000 clients lease 1,000 resources each, without and with polls for hints. The baseline is a
//! hash map from resource and client to lease. It could neither compute shares nor expire leases
//! without a scan.

use std::{alloc::System, collections::HashMap, error::Error, sync::Arc, time::Duration};

use cap::Cap;
use doorman_bench::{Options, Row, Samples, Table, Target};
use doorman_config::Document;
use doorman_core::ledger::{HolderId, Ledger, PollTicket, Predecessor, Settings, UnmatchedPolicy};
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, Epoch, HeldLease, Moment, ResourceId, ResourceRequest,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const START: Moment = Moment::from_nanos(3_600_000_000_000);
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_args();
    let clients = options.pick(1_000, 100);
    let mut table = Table::new("Memory of the ledger", "bytes per lease");
    let (joined, refreshed) = ledger_bytes(clients, false)?;
    let (_, polling) = ledger_bytes(clients, true)?;
    let subject = |when: &str| format!("{clients} clients × {clients} resources, {when}");
    let target = Target::AtMost(320.0);
    table.add(Row::figure(&subject("joined"), &joined, target));
    table.add(Row::figure(&subject("refreshed"), &refreshed, target));
    table.add(Row::figure(
        &subject("refreshed, polling"),
        &polling,
        target,
    ));
    table.add(Row::figure(
        "more for a poll",
        &polling.minus(&refreshed),
        Target::AtMost(40.0),
    ));
    let map = map_bytes(clients)?;
    table.add(Row::ratio(
        &subject("refreshed"),
        &refreshed,
        "hash map",
        &map,
        Target::None,
    ));
    table.print();
    Ok(())
}

/// The bytes per lease after all clients have joined, and after they have refreshed twice.
fn ledger_bytes(clients: usize, polls: bool) -> Result<(Samples, Samples), Box<dyn Error>> {
    let document = Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]",
        25 * clients
    ))?;
    let settings = Settings {
        max_leases: clients * clients,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
        epoch: Epoch::ZERO,
    };
    let document = Arc::new(document);
    let before = ALLOCATOR.allocated();
    let mut ledger = Ledger::new(document, settings, START);
    let mut now = START;
    let mut bytes = [0.0; 3];
    let mut open = HashMap::new();
    if polls {
        for client in 0..clients {
            open.insert(open_poll(&mut ledger, client, 0, now)?, client);
        }
    }
    for bytes in &mut bytes {
        for client in 0..clients {
            let request = request(client, clients)?;
            drop(ledger.refresh(&request.into(), now));
            // The holders act on hints in the next round.
            for (ticket, hints) in ledger.take_hints(now) {
                if let Some(client) = open.remove(&ticket) {
                    open.insert(open_poll(&mut ledger, client, hints.after, now)?, client);
                }
            }
        }
        now = now.after(REFRESH_INTERVAL);
        *bytes = per_lease(before, clients);
    }
    let [joined, _, refreshed] = bytes.map(Samples::constant);
    drop(ledger);
    Ok((joined, refreshed))
}

fn open_poll(
    ledger: &mut Ledger,
    client: usize,
    after: u64,
    now: Moment,
) -> Result<PollTicket, Box<dyn Error>> {
    let client = client_id(client)?;
    Ok(ledger.open_poll(&HolderId::Client(client.clone()), after, now))
}

fn client_id(client: usize) -> Result<ClientId, Box<dyn Error>> {
    Ok(ClientId::new(format!("client-{client:025}"))?)
}

fn request(client: usize, resources: usize) -> Result<CapacityRequest, Box<dyn Error>> {
    let resources = (0..resources).map(|number| {
        Ok(ResourceRequest {
            resource_id: ResourceId::new(format!("resource-{number:023}"))?,
            wants: Capacity::saturating(fastrand::f64() * 100.0),
            priority: None,
            bands: None,
            has: Some(HeldLease {
                capacity: Capacity::saturating(10.0),
            }),
            outstanding: Capacity::ZERO,
            used: Some(Capacity::saturating(1000.0)),
            unit: None,
            per: None,
        })
    });
    Ok(CapacityRequest {
        client_id: client_id(client)?,
        seq: None,
        heard_epoch: None,
        polls: false,
        resources: resources.collect::<Result<_, Box<dyn Error>>>()?,
    })
}

fn map_bytes(clients: usize) -> Result<Samples, Box<dyn Error>> {
    let before = ALLOCATOR.allocated();
    let mut leases: HashMap<(ResourceId, ClientId), (Capacity, Capacity, Moment)> = HashMap::new();
    for client in 0..clients {
        let request = request(client, clients)?;
        for resource in request.resources {
            let key = (resource.resource_id, request.client_id.clone());
            leases.insert(key, (resource.wants, resource.wants, START));
        }
    }
    let bytes = per_lease(before, clients);
    drop(leases);
    Ok(Samples::constant(bytes))
}

fn per_lease(before: usize, clients: usize) -> f64 {
    (ALLOCATOR.allocated() - before) as f64 / (clients * clients) as f64
}
