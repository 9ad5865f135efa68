//! The server processes.

use std::{
    env, error::Error, fs, io, net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration,
};

use axum::{Router, routing::get};
use doorman_bench::{ServerProcess, announce, wait_for_stdin_end};
use doorman_config::Document;
use doorman_openapi::paths;
use doorman_server::{CallerLimit, Server, Settings};
use tokio::{net::TcpListener, time::sleep};

const VARIABLE: &str = "DOORMAN_BENCH_POLLS";

/// Polls take at most half of them.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");

/// All demands fit and nobody gets more, so that no holder is hinted. No lease expires during the
/// benchmark.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 1000000, algorithm: {\
    kind: FAIR_SHARE, lease_length: 600, refresh_interval: 60, \
    parameters: [{name: surplus, value: '0'}]}}]";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Doorman,
    /// A plain axum handler that waits as long.
    Bare,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Doorman, Self::Bare];

    fn name(self) -> &'static str {
        match self {
            Self::Doorman => "doorman",
            Self::Bare => "bare",
        }
    }

    /// The server to run, if this process was started as one.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = env::var(VARIABLE).ok()?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn start(self) -> io::Result<ServerProcess> {
        ServerProcess::start(VARIABLE, self.name())
    }
}

/// Serves until the standard input ends.
#[tokio::main]
pub(crate) async fn serve(kind: Kind) -> Result<(), Box<dyn Error>> {
    let stop = async { drop(tokio::task::spawn_blocking(wait_for_stdin_end).await) };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    match kind {
        Kind::Doorman => {
            let directory = tempfile::tempdir()?;
            let server = Server::bind(Settings {
                listen: address,
                data_dir: directory.path().join("data"),
                document: Arc::new(Document::parse(DOCUMENT)?),
                callers: CallerLimit::Off,
                max_connections: MAX_CONNECTIONS,
                ..Settings::default()
            })
            .await?;
            announce(server.local_addr())?;
            // Connections of killed peers may be cut off.
            let _stopped = server.run(stop).await;
        }
        Kind::Bare => {
            let wait = async || sleep(Duration::from_secs(60)).await;
            let router = Router::new().route(paths::HINTS, get(wait));
            let listener = TcpListener::bind(address).await?;
            announce(listener.local_addr()?)?;
            tokio::select! {
                served = axum::serve(listener, router) => served?,
                () = stop => {}
            }
        }
    }
    Ok(())
}

/// The resident memory of a process in bytes.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes(process: u32) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(
        1024.0
            * kilobytes.ok_or_else(|| io::Error::other("no VmRSS in the status of a process"))?,
    )
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn resident_bytes(_: u32) -> io::Result<f64> {
    Err(io::ErrorKind::Unsupported.into())
}
