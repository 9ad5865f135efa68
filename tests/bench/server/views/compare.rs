//! Comparisons and their targets.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use doorman_bench::{Options, PacedRequests, Row, Samples, Table, Target, alternate_results};

use crate::{
    clients,
    reader::{self, ReadCounts, Reader},
    server::RunningServer,
};

/// The longest latency of a page, in milliseconds.
const PAGE_TARGET: Target = Target::AtMost(50.0);

pub(crate) fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let resources = options.pick(100_000, 10_000);
    let server = RunningServer::start()?;
    let operator = server.token(&[])?;
    let middle = clients::resource_id(resources / 2);
    let tenant = middle
        .rsplit_once("/per-second")
        .map_or(middle.as_str(), |(tenant, _)| tenant);
    let tenant_token = server.token(&[&format!("{tenant}/*")])?;

    let requests = clients::requests(&operator, resources);
    requests.send_once(server.address())?;
    let mut reader = Reader::open(server.address(), &operator)?;

    let all = "/v1/resources?limit=1000";
    let mut middle_page = all.to_owned();
    for _ in 0..resources / 2_000 {
        let (_, cursor) = reader::read_page(&mut reader, &middle_page)?;
        let cursor = cursor.ok_or("the list ends too early")?;
        middle_page = format!("{all}&cursor={cursor}");
    }
    let times = options.pick(500, 50);
    let mut table = Table::new(
        &format!(
            "Pages of {resources} resources with {} holders each, longest of {times} reads",
            clients::HOLDERS
        ),
        "ms",
    );
    let prefix_page = format!("{all}&prefix={}", tenant.replace('/', "%2F"));
    for (subject, path, resources) in [
        ("first page of 50", "/v1/resources", 50),
        ("first page of 1,000", all, 1000),
        ("middle page of 1,000", &middle_page, 1000),
        ("page by prefix", &prefix_page, 100),
    ] {
        expect_resources(reader::read_page(&mut reader, path)?.0, resources)?;
        let latency = reader::max_latency(&mut reader, path, times)?;
        add_latency(&mut table, subject, latency, PAGE_TARGET);
    }
    let mut restricted = Reader::open(server.address(), &tenant_token)?;
    expect_resources(reader::read_page(&mut restricted, all)?.0, 100)?;
    let latency = reader::max_latency(&mut restricted, all, times / 5)?;
    let subject = "all 100 resources of a restricted token";
    add_latency(&mut table, subject, latency, PAGE_TARGET);
    let id = middle.replace('/', "%2F");
    for (subject, path) in [
        ("leases of a resource", format!("/v1/resources/{id}/leases")),
        ("status", "/v1/status".to_owned()),
        ("metrics", "/metrics".to_owned()),
    ] {
        let latency = reader::max_latency(&mut reader, &path, times / 5)?;
        add_latency(&mut table, subject, latency, Target::None);
    }
    table.print();

    let mut reader = Reader::open(server.address(), &operator)?;
    compare_with_reader(options, server.address(), &requests, &mut reader)
}

/// Compares the latency of lease requests with and without a constant reader.
fn compare_with_reader(
    options: Options,
    server: SocketAddr,
    requests: &PacedRequests,
    reader: &mut Reader,
) -> Result<(), Box<dyn Error>> {
    let duration = Duration::from_millis(options.pick(5_000, 1_000));
    let rounds = options.pick(9, 3);
    let mut total = ReadCounts::default();
    let mut with_reader = || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                lower_priority()?;
                reader::read_until(reader, &stop)
            });
            let latencies = requests.send_for(server, duration);
            stop.store(true, Relaxed);
            let counts = reader
                .join()
                .map_err(|_| io::Error::other("the reader panicked"))??;
            total.pages += counts.pages;
            total.walks += counts.walks;
            latencies
        })
    };
    let mut without_reader = || requests.send_for(server, duration);
    let [with, without] = alternate_results(rounds, [&mut with_reader, &mut without_reader])
        .map(|rounds| rounds.into_iter().collect::<io::Result<Vec<_>>>());
    let (with, without) = (with?, without?);

    let title = format!(
        "Refresh of 100 leases during constant reads ({} pages of 1,000, {} status and metrics)",
        total.pages, total.walks
    );
    let mut table = Table::new(&title, "ms");
    let target = Target::AtMost(2.0);
    table.add_latencies(&with, "without reader", &without, target);
    table.print();
    Ok(())
}

/// Gives this thread the lowest priority. A real reader has its own machine, so its CPU time must
/// not slow the clients. The server's work for it stays the same.
#[cfg(target_os = "linux")]
fn lower_priority() -> io::Result<()> {
    // On Linux, 0 names the calling thread (setpriority(2)).
    Ok(rustix::process::setpriority_process(None, 19)?)
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() -> io::Result<()> {
    Ok(())
}

fn add_latency(table: &mut Table, subject: &str, millis: f64, target: Target) {
    table.add(Row::figure(subject, &Samples::constant(millis), target));
}

fn expect_resources(found: usize, expected: usize) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("page has {found} resources instead of {expected}"))
    }
}
