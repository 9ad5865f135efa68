//! Comparisons and their targets.

use std::{error::Error, io, time::Duration};

use doorman_bench::{Options, Row, Samples, Table, Target, alternate_results};

use crate::{
    leases,
    polls::Polls,
    server::{Kind, resident_bytes},
};

/// Clients that lease and do not poll.
const CLIENTS: usize = 1_000;

pub(crate) fn run(options: Options) -> Result<(), Box<dyn Error>> {
    // A server of 10,000 connections has at most half as many.
    let count: usize = options.pick(10_000, 2_000);
    let pollers: Vec<_> = (0..count).map(|n| format!("polls-{n:05}")).collect();
    let bare = {
        let server = Kind::Bare.start()?;
        let before = resident_bytes(server.id())?;
        let _polls = Polls::open(server.address(), &pollers)?;
        resident_bytes(server.id())? - before
    };
    let (with, without) = (Kind::Doorman.start()?, Kind::Doorman.start()?);
    for server in [&with, &without] {
        leases::of_clients(&pollers).send_once(server.address())?;
    }
    let before = resident_bytes(with.id())?;
    let _polls = Polls::open(with.address(), &pollers)?;
    let bytes = resident_bytes(with.id())? - before;

    let per_poll = |bytes: f64| Samples::constant(bytes / count as f64);
    let mut table = Table::new("Resident memory of the server", "bytes per poll");
    let subject = format!("{count} open polls");
    let target = Target::AtMost(8.0 * 1024.0);
    table.add(Row::figure(&subject, &per_poll(bytes), target));
    table.add(Row::ratio(
        &subject,
        &per_poll(bytes),
        "axum handler that waits",
        &per_poll(bare),
        Target::None,
    ));
    table.print();

    let clients: Vec<_> = (0..CLIENTS).map(|n| format!("leases-{n:04}")).collect();
    let leases = leases::of_clients(&clients);
    let duration = Duration::from_millis(options.pick(5_000, 1_000));
    let rounds = options.pick(9, 3);
    let mut beside = || leases.send_for(with.address(), duration);
    let mut alone = || leases.send_for(without.address(), duration);
    let [with, without] = alternate_results(rounds, [&mut beside, &mut alone])
        .map(|rounds| rounds.into_iter().collect::<io::Result<Vec<_>>>());
    let (with, without) = (with?, without?);
    let mut table = Table::new(
        &format!("Refresh of one lease beside {count} open polls"),
        "ms",
    );
    let target = Target::AtMost(1.2);
    table.add_latencies(&with, "without polls", &without, target);
    table.print();
    Ok(())
}
