//! A tree of servers under one limit: a root, two regions, four leaves and eight clients.
//!
//! Run with: `cargo run --release --example tree`
//!
//! All servers and clients are in this process. The table shows what the clients of each leaf want
//! and have while the demand moves between the regions. `--seconds 60` stops it after a minute,
//! Ctrl-C stops it immediately. Nothing is left behind.

use std::{
    error::Error,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use doorman_config::{Document, Source};
use doorman_server::{ParentSettings, Server, Settings};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet, time};
use tower_doorman::{Capacity, Doorman, Lease, LeaseSettings};

const RESOURCE: &str = "api";
const LIMIT: f64 = 1200.0;

/// Each node, its level, and the position of its parent.
const NODES: [(&str, usize, Option<usize>); 7] = [
    ("root", 0, None),
    ("eu", 1, Some(0)),
    ("eu-1", 2, Some(1)),
    ("eu-2", 2, Some(1)),
    ("us", 1, Some(0)),
    ("us-1", 2, Some(4)),
    ("us-2", 2, Some(4)),
];

/// The positions of the nodes that clients talk to.
const LEAVES: [usize; 4] = [2, 3, 5, 6];
const CLIENTS_PER_LEAF: usize = 2;

/// The demand of each leaf's clients, by turns.
const DEMANDS: [[f64; 4]; 3] = [
    [200.0, 200.0, 200.0, 200.0],
    [400.0, 50.0, 50.0, 50.0],
    [50.0, 50.0, 50.0, 400.0],
];
const TURN: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
#[command(about = "A tree of servers under one limit")]
struct Arguments {
    /// Stop after this many seconds; without it, on Ctrl-C
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Port of the root on 127.0.0.1; the other servers have the next six. 0: any free ports
    #[arg(long, default_value_t = 7400, value_parser = clap::value_parser!(u16).range(..=65_000))]
    port: u16,
}

#[tokio::main]
#[expect(clippy::print_stderr, reason = "a program reports its errors")]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tree: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let stop = doorman_examples::shutdown_signal()?;
    let home = TempDir::with_prefix("doorman-tree-")?;
    let (stop_servers, stopped) = watch::channel(());
    let mut servers = JoinSet::new();
    let mut addresses: Vec<String> = Vec::new();
    for (position, (name, _, parent)) in (0..).zip(NODES) {
        let port = match arguments.port {
            0 => 0,
            first => first.saturating_add(position),
        };
        let parent = parent.and_then(|parent| addresses.get(parent));
        let settings = settings(name, port, parent, home.path())?;
        let server = Server::bind(settings).await?;
        addresses.push(format!("http://{}", server.local_addr()));
        let mut stopped = stopped.clone();
        // A dropped sender stops it, too.
        let stop = async move { drop(stopped.changed().await) };
        servers.spawn(async move { server.run(stop).await });
    }
    let mut out = io::stdout();
    introduce(&mut out, &addresses)?;

    let clients = LEAVES.map(|leaf| start_clients(addresses.get(leaf)));
    let clients: Vec<Vec<Client>> = clients.into_iter().collect::<Result<_, _>>()?;
    tokio::select! {
        () = stop => {}
        shown = show(&mut out, &clients, arguments.seconds) => shown?,
    }
    for client in clients.into_iter().flatten() {
        client.doorman.shutdown().await?;
    }
    drop(stop_servers);
    while servers.join_next().await.is_some() {}
    Ok(home.close()?)
}

/// The root has a store. The others lease what it has from their parent.
fn settings(
    name: &str,
    port: u16,
    parent: Option<&String>,
    home: &Path,
) -> Result<Settings, Box<dyn Error>> {
    let data_dir = home.join(name);
    let document = format!(
        "resources: [{{identifier_glob: {RESOURCE}, capacity: {LIMIT}, algorithm: \
         {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 4}}}}]"
    );
    let mut settings = Settings {
        listen: ([127, 0, 0, 1], port).into(),
        node: Some(name.parse()?),
        ..Settings::default()
    };
    match parent {
        Some(parent) => {
            settings.config_source = format!("parent {parent}");
            settings.parent = Some(ParentSettings {
                servers: vec![parent.parse()?],
                token_file: None,
                ca_file: None,
            });
        }
        None => {
            settings.document = Arc::new(Document::parse(&document)?);
            settings.document_source = Some(Source::Sqlite(data_dir.join("doorman.db")));
        }
    }
    settings.data_dir = data_dir;
    Ok(settings)
}

fn introduce(out: &mut impl Write, addresses: &[String]) -> io::Result<()> {
    let [root, .., last] = addresses else {
        return Ok(());
    };
    for ((name, level, _), address) in NODES.iter().zip(addresses) {
        let indent = "  ".repeat(*level);
        writeln!(out, "{:10} {address}", format!("{indent}{name}"))?;
    }
    writeln!(
        out,
        "\nIn another terminal:\n\
         \x20 doorman show {RESOURCE} --tree --server {root}\n\
         \x20 curl -s {root}/v1/resources/{RESOURCE}/leases\n\
         \x20 curl -s {last}/v1/status\n\
         \x20 curl -s -X PATCH {root}/v1/templates/{RESOURCE} -H 'content-type: application/json' \
         -d '{{\"capacity\": 600}}'\n"
    )
}

struct Client {
    doorman: Doorman,
    lease: Lease,
}

fn start_clients(leaf: Option<&String>) -> Result<Vec<Client>, Box<dyn Error>> {
    let leaf = leaf.ok_or("a leaf has no address")?;
    let clients = (0..CLIENTS_PER_LEAF).map(|_| {
        let doorman = Doorman::builder(leaf).service("shop").spawn()?;
        let lease = doorman.lease(LeaseSettings::new(RESOURCE));
        Ok(Client { doorman, lease })
    });
    clients.collect()
}

/// Moves the demand, and prints what the clients of each leaf want and have, every second.
async fn show(out: &mut impl Write, clients: &[Vec<Client>], end: Option<u64>) -> io::Result<()> {
    write!(out, "second")?;
    for (name, _, _) in LEAVES.iter().filter_map(|leaf| NODES.get(*leaf)) {
        write!(out, "{:>14}", format!("{name}"))?;
    }
    writeln!(out, "{:>14}", "all")?;
    let mut seconds = time::interval(Duration::from_secs(1));
    for second in 0_u64.. {
        seconds.tick().await;
        let turn = (second / TURN.as_secs()) as usize % DEMANDS.len();
        let demands = DEMANDS.get(turn).into_iter().flatten();
        write!(out, "{second:6}")?;
        let (mut all_want, mut all_have) = (0.0, 0.0);
        for (clients, demand) in clients.iter().zip(demands) {
            let mut has = 0.0;
            for Client { lease, .. } in clients {
                let held = lease.capacity();
                has += if held.is_leased { held.amount } else { 0.0 };
                lease.set_wants(Capacity::new(*demand).unwrap_or(Capacity::ZERO));
            }
            let wants = demand * clients.len() as f64;
            write!(out, "{:>14}", format!("{has:.0} of {wants:.0}"))?;
            all_want += wants;
            all_have += has;
        }
        writeln!(out, "{:>14}", format!("{all_have:.0} of {all_want:.0}"))?;
        if end.is_some_and(|end| second >= end) {
            break;
        }
    }
    Ok(())
}
