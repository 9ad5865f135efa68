//! The control plane, as it is run: its own listener, time limits, metrics, checks, books, and the bound on the disk.

use std::{error::Error, future::Future, net::SocketAddr, sync::Arc};

use doorman_config::Document;
use doorman_server::{Server, Settings};

use crate::process;

/// There is less than is wanted of everything, so that every decision divides.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 25000, minimum_refresh_interval: 0, \
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]";

/// Serves until `ended` is ready.
pub(crate) async fn serve(ended: impl Future<Output = ()>) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let server = Server::bind(Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data_dir: directory.path().to_owned(),
        document: Arc::new(Document::parse(DOCUMENT)?),
        ..Settings::default()
    })
    .await?;
    process::tell(server.local_addr())?;
    let stopped = server.run(ended).await;
    if stopped.cut_off > 0 {
        return Err("connections had to be cut off".into());
    }
    Ok(())
}
