//! Bytes per lease in the ledger, 32-byte ids included, measured by a counting allocator.
//!
//! 1,000 clients lease 1,000 resources each, without and with polls for hints. The baseline is a
//! hash map from resource and client to lease. It could neither compute shares nor expire leases
//! without a scan.

mod leases;

use std::{alloc::System, collections::HashMap, error::Error};

use cap::Cap;
use doorman_bench::{Options, Row, Samples, Table, Target};
use doorman_core::ledger::{HolderId, Ledger, PollTicket};
use doorman_openapi::{Capacity, ClientId, Moment, ResourceId};

use crate::leases::{REFRESH_INTERVAL, START, client_id, request};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

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
    let before = ALLOCATOR.allocated();
    let mut ledger = leases::ledger(clients)?;
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
    Ok(ledger.open_poll(&HolderId::Client(client.clone(), None), after, now))
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
