//! A fleet held to one limit, live.
//!
//! Run with: `cargo run --release --example fleet`
//!
//! It starts a control plane, three services with the layer, each a process of its own, and a load
//! of up to three times the limit that shifts between them. The table shows how the leases follow
//! the load. `--seconds 60` stops it after a minute; Ctrl-C stops it immediately. Nothing is left
//! behind.

mod plan;
mod processes;
#[path = "../service.rs"]
#[expect(dead_code, reason = "its `main` belongs to the example of that name")]
mod service;
mod summary;
mod view;

use std::{error::Error, io, pin::pin, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use doorman_examples::load::{Load, Target};
use tokio::time;

use self::{
    plan::Split,
    processes::Processes,
    summary::Summary,
    view::{Screen, Table, Views},
};

/// Connections to each service.
const CONNECTIONS: usize = 32;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
#[command(about = "A fleet held to one limit, live")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Stop after this many seconds; without it, on Ctrl-C
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Port of the control plane on 127.0.0.1
    #[arg(long, default_value_t = 7300)]
    port: u16,
    /// Limit of the whole fleet, requests per second
    #[arg(long, default_value_t = 1000.0, value_parser = positive)]
    limit: f64,
    /// Full load on the whole fleet, requests per second
    #[arg(long, default_value_t = 3000.0, value_parser = positive)]
    load: f64,
}

/// The child processes run this program, too.
#[derive(Debug, Subcommand)]
enum Role {
    #[command(hide = true)]
    ControlPlane(processes::ControlPlaneArguments),
    #[command(hide = true)]
    Service(service::Arguments),
}

fn positive(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 1e6 => Ok(number),
        Ok(_) | Err(_) => Err("must be a number above 0, up to 1000000"),
    }
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a program reports its errors")]
async fn main() -> ExitCode {
    let Arguments { options, role } = Arguments::parse();
    match run(options, role).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {}", service::error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options, role: Option<Role>) -> Result<(), Box<dyn Error>> {
    match role {
        Some(Role::ControlPlane(arguments)) => {
            processes::control_plane(arguments, processes::parent_exit()).await
        }
        Some(Role::Service(arguments)) => service::run(arguments, processes::parent_exit()).await,
        None => {
            let stop = doorman_examples::shutdown_signal()?;
            let mut processes = Processes::start(options.port, options.limit).await?;
            let result = show(&options, &mut processes, stop).await;
            processes.stop().await?;
            match result {
                // The reader of a pipe has closed it.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                result => Ok(result?),
            }
        }
    }
}

/// Runs the load and draws the table, until `stop` completes or the time is over.
async fn show(
    options: &Options,
    processes: &mut Processes,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let services = processes.services();
    let views = Views::new(processes.control_plane(), services).map_err(io::Error::other)?;
    let [first, second, third] =
        services.map(|service| Target::new(service).map_err(io::Error::other));
    let load = Load::start([first?, second?, third?], CONNECTIONS);
    let mut split = Split::at(Duration::ZERO);
    load.offer(split.rates(options.load));

    let mut screen = Screen::new();
    let mut summary = Summary::new(options.limit);
    let mut elapsed = Duration::ZERO;
    let mut seconds = time::interval(SECOND);
    let start = seconds.tick().await;
    let mut stop = pin!(stop);
    while options.seconds.is_none_or(|end| elapsed.as_secs() < end) {
        tokio::select! {
            () = &mut stop => break,
            ended = processes.ended() => return Err(io::Error::other(ended)),
            now = seconds.tick() => elapsed = now.duration_since(start),
        }
        let (ledger, leases) = tokio::join!(views.ledger(), views.leases());
        let (now, second) = {
            let history = load.history();
            summary.add_windows(&history);
            (history.now(), history.last(SECOND))
        };
        if let Some(second) = &second {
            let table = Table {
                elapsed,
                split,
                limit: options.limit,
                services,
                second,
                leases,
                ledger: ledger.as_ref(),
            };
            screen.draw(&table.to_string())?;
        }
        let next = Split::at(elapsed);
        if next != split {
            split = next;
            load.offer(split.rates(options.load));
            summary.shift(now, split.overloads(options.load, options.limit));
        }
    }
    let history = load.history();
    summary.add_windows(&history);
    summary.finish(history.now(), load.totals().into_iter().sum());
    screen.print(&summary.to_string())
}
