//! The control plane of the fleet: a [`Server`] with one limit, and what it tells of it.

use std::{
    error::Error,
    io::{self, Write},
    sync::Arc,
};

use doorman_config::{Document, ValidationErrors};
use doorman_server::{Server, Settings};
use tempfile::TempDir;

/// What a control plane is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    limit: f64,
}

/// Serves until `stop` is ready. Says on standard output where it listens.
pub(crate) async fn run(
    arguments: Arguments,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    // Removed at the end: the next fleet begins anew.
    let data_dir = TempDir::with_prefix("doorman-fleet-")?;
    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], arguments.port).into(),
        data_dir: data_dir.path().to_owned(),
        document: Arc::new(document(arguments.limit)?),
        ..Settings::default()
    })
    .await?;
    writeln!(io::stdout(), "listening on http://{}", server.local_addr())?;
    // Connections that did not end in time are cut off: nobody is left to be served.
    let _stopped = server.run(stop).await;
    Ok(data_dir.close()?)
}

/// One resource, shared fairly, with leases that follow the load within seconds.
fn document(limit: f64) -> Result<Document, ValidationErrors> {
    Document::parse(&format!(
        "resources:
  - identifier_glob: api
    capacity: {limit}
    description: requests per second of the whole fleet
    algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}}
"
    ))
}
