//! The control plane with its listener, metrics, checks and data directory.

use std::{error::Error, future::Future, net::SocketAddr, num::NonZeroU32, sync::Arc};

use doorman_bench::announce;
use doorman_config::Document;
use doorman_server::{CallerLimit, Server, Settings};

use crate::tokens::{self, Signature};

/// The demand exceeds the capacity, so that every decision computes shares.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 25000, \
    minimum_refresh_interval: 0, \
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]";

/// The whole load has one token. Its rate limit is checked, but never reached.
const CALLERS: CallerLimit = CallerLimit::Of {
    rate: NonZeroU32::new(100_000_000).expect("it is not zero"),
    burst: NonZeroU32::new(200_000_000).expect("it is not zero"),
};

/// Serves until `stop` completes. Requires tokens if there is a signature.
pub(crate) async fn serve(
    signature: Option<Signature>,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let auth = signature.map(|signature| tokens::auth_settings(signature, directory.path()));
    let callers = match signature {
        Some(_) => CALLERS,
        None => CallerLimit::Usual,
    };
    let server = Server::bind(Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data_dir: directory.path().join("data"),
        document: Arc::new(Document::parse(DOCUMENT)?),
        auth: auth.transpose()?,
        callers,
        ..Settings::default()
    })
    .await?;
    announce(server.local_addr())?;
    let stopped = server.run(stop).await;
    if stopped.cut_off > 0 {
        return Err("connections were closed before they had drained".into());
    }
    Ok(())
}
