//! What is measured, and what it should come to.

use std::{
    error::Error,
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use doorman_bench::{Effort, Figures, Row, Table, Target, take_turns_of};

use crate::{
    connection::Connection,
    leases::{self, Fleet},
    pages::{self, Seen},
    server::Running,
};

/// A page may take so many milliseconds at the most.
const LONGEST: Target = Target::AtMost(50.0);

/// Measures, and prints.
pub(crate) fn run(effort: Effort) -> Result<(), Box<dyn Error>> {
    let resources = effort.pick(100_000, 10_000);
    let server = Running::start()?;
    let operator = server.token(&[])?;
    let middle = leases::resource(resources / 2);
    let tenant = middle
        .rsplit_once("/per-second")
        .map_or(middle.as_str(), |(tenant, _)| tenant);
    let tenants_own = server.token(&[&format!("{tenant}/*")])?;

    let fleet = Fleet::new(server.address, &operator, resources);
    fleet.join()?;
    let mut reader = Connection::open(server.address, &operator)?;

    // Halfway through, as one gets there.
    let mut cursor = String::new();
    for _ in 0..resources / 2_000 {
        let page = pages::read(
            &mut reader,
            &format!("/v1/resources?limit=1000&cursor={cursor}"),
        )?;
        cursor = page.1.ok_or("the list ends too early")?;
    }
    let times = effort.pick(500, 50);
    let mut table = Table::new(
        &format!(
            "Pages of {resources} resources with {} holders each, the longest of {times}",
            leases::HOLDERS
        ),
        "ms",
    );
    let prefix = tenant.replace('/', "%2F");
    for (what, path, count) in [
        ("the first page, of 50", "/v1/resources".to_owned(), 50),
        (
            "the first page, of 1,000",
            "/v1/resources?limit=1000".to_owned(),
            1000,
        ),
        (
            "a page in the middle, of 1,000",
            format!("/v1/resources?limit=1000&cursor={cursor}"),
            1000,
        ),
        (
            "a page with a prefix",
            format!("/v1/resources?limit=1000&prefix={prefix}"),
            100,
        ),
    ] {
        expect(pages::read(&mut reader, &path)?.0, count)?;
        add(
            &mut table,
            what,
            pages::longest(&mut reader, &path, times)?,
            LONGEST,
        );
    }
    let all = "/v1/resources?limit=1000";
    let mut bounded = Connection::open(server.address, &tenants_own)?;
    expect(pages::read(&mut bounded, all)?.0, 100)?;
    let took = pages::longest(&mut bounded, all, times / 5)?;
    add(
        &mut table,
        "all that a bounded token sees: 100 of them",
        took,
        LONGEST,
    );
    let id = middle.replace('/', "%2F");
    for (what, path) in [
        ("who holds one", format!("/v1/resources/{id}/leases")),
        ("the status", "/v1/status".to_owned()),
        ("the metrics", "/metrics".to_owned()),
    ] {
        let took = pages::longest(&mut reader, &path, times / 5)?;
        add(&mut table, what, took, Target::None);
    }
    table.print();

    let mut reader = Connection::open(server.address, &operator)?;
    beside_a_reader(effort, &fleet, &mut reader)
}

/// What lease requests pay for a reader that never stops.
fn beside_a_reader(
    effort: Effort,
    fleet: &Fleet,
    reader: &mut Connection,
) -> Result<(), Box<dyn Error>> {
    let length = Duration::from_millis(effort.pick(5_000, 1_000));
    let rounds = effort.pick(9, 3);
    let mut seen = Seen::default();
    let mut with = || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                give_way()?;
                pages::read_until(reader, &stop)
            });
            let took = fleet.renew_for(length);
            stop.store(true, Relaxed);
            let read = reading.join();
            let read = read.map_err(|_| io::Error::other("the reader has failed"))??;
            seen.pages += read.pages;
            seen.walks += read.walks;
            took
        })
    };
    let mut without = || fleet.renew_for(length);
    let [with, without] = take_turns_of(rounds, [&mut with, &mut without]);
    let (with, without) = (whole(with)?, whole(without)?);

    let title = format!(
        "A request that renews 100 leases, while a reader that never stops has read {} pages of 1,000, and {} times the status and the metrics",
        seen.pages, seen.walks
    );
    let mut table = Table::new(&title, "ms");
    for (what, part, target) in [
        ("the median", 0.5, Target::None),
        ("the 99th percentile", 0.99, Target::AtMost(2.0)),
        ("the slowest", 1.0, Target::None),
    ] {
        let figures = |rounds: &[Vec<f64>]| -> Figures {
            rounds.iter().map(|took| quantile(took, part)).collect()
        };
        table.add(Row::ratio(
            what,
            &figures(&with),
            "without a reader",
            &figures(&without),
            target,
        ));
    }
    table.print();
    Ok(())
}

/// From now on this thread runs when no other wants to: the one who reads would have processors of its own, and is not what is measured.
/// What the server does for it is not changed by that.
#[cfg(target_os = "linux")]
fn give_way() -> io::Result<()> {
    // setpriority(2): Linux takes 0 for the calling thread, not for its process.
    Ok(rustix::process::setpriority_process(None, 19)?)
}

#[cfg(not(target_os = "linux"))]
fn give_way() -> io::Result<()> {
    Ok(())
}

fn add(table: &mut Table, what: &str, took: f64, target: Target) {
    table.add(Row::figure(what, &Figures::constant(took), target));
}

fn expect(found: usize, expected: usize) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("a page has {found} resources, not {expected}"))
    }
}

fn whole(rounds: Vec<io::Result<Vec<f64>>>) -> io::Result<Vec<Vec<f64>>> {
    rounds.into_iter().collect()
}

/// The figure below which this part of all lies.
fn quantile(took: &[f64], part: f64) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() as f64 * part) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}
