//! The control plane, as it is run: its own listener, time limits, metrics, checks, books, and the bound on the disk.

use std::{error::Error, future::Future, net::SocketAddr, num::NonZeroU32, sync::Arc};

use doorman_config::Document;
use doorman_server::{CallerLimit, Server, Settings};

use crate::{
    process,
    tokens::{self, Signed},
};

/// There is less than is wanted of everything, so that every decision divides.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 25000, minimum_refresh_interval: 0, \
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]";

/// All load has one token: what it may ask for counts, but is more than it does.
const CALLERS: CallerLimit = CallerLimit::Of {
    rate: NonZeroU32::new(100_000_000).expect("it is not zero"),
    burst: NonZeroU32::new(200_000_000).expect("it is not zero"),
};

/// Serves until `ended` is ready; those who have a token that is `signed` so, or everybody.
pub(crate) async fn serve(
    signed: Option<Signed>,
    ended: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let auth = signed.map(|signed| tokens::settings(signed, directory.path()));
    let callers = match signed {
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
    process::tell(server.local_addr())?;
    let stopped = server.run(ended).await;
    if stopped.cut_off > 0 {
        return Err("connections had to be cut off".into());
    }
    Ok(())
}
