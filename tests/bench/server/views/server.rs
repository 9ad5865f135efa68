//! The server process, and tokens for it.

use std::{
    env,
    error::Error,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use doorman_bench::{ServerProcess, announce, wait_for_stdin_end};
use doorman_config::Document;
use doorman_openapi::Scopes;
use doorman_server::{AuthSettings, CallerLimit, Server, Settings, Token};
use tempfile::TempDir;

/// The folder with the secret and the data directory, passed to the process.
const HOME: &str = "DOORMAN_BENCH_HOME";

/// The demand exceeds every capacity. No lease expires during the benchmark.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 100, \
    algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 5}}]";

/// The folder, if this process was started as the server.
pub(crate) fn home_of_this_process() -> Option<PathBuf> {
    env::var_os(HOME).map(PathBuf::from)
}

#[derive(Debug)]
pub(crate) struct RunningServer {
    // Stops before its folder is removed.
    process: ServerProcess,
    home: TempDir,
}

impl RunningServer {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let home = tempfile::tempdir()?;
        let secret = "a secret of at least 32 bytes, no less";
        fs::write(secret_path(home.path()), secret)?;
        let process = ServerProcess::start(HOME, home.path())?;
        Ok(Self { process, home })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// A token that may lease and read. It is restricted to the given resources, if any.
    pub(crate) fn token(&self, resources: &[&str]) -> Result<String, Box<dyn Error>> {
        let token = Token {
            issuer: AuthSettings::NAME.to_owned(),
            audience: AuthSettings::NAME.to_owned(),
            subject: "bench".to_owned(),
            scopes: Scopes::from_claim("capacity status:read"),
            clients: Vec::new(),
            resources: resources.iter().map(|it| (*it).to_owned()).collect(),
            services: Vec::new(),
            max_priority: None,
            max_capacity: None,
            max_clients: None,
            lifetime: Duration::from_secs(24 * 3600),
        };
        Ok(token.sign(&secret_path(self.home.path()))?)
    }
}

fn secret_path(home: &Path) -> PathBuf {
    home.join("secret")
}

/// Serves until the standard input ends.
#[tokio::main]
pub(crate) async fn serve(home: &Path) -> Result<(), Box<dyn Error>> {
    let server = Server::bind(Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        data_dir: home.join("data"),
        document: Arc::new(Document::parse(DOCUMENT)?),
        auth: Some(AuthSettings {
            secret_files: vec![secret_path(home)],
            ..AuthSettings::default()
        }),
        callers: CallerLimit::Off,
        ..Settings::default()
    })
    .await?;
    announce(server.local_addr())?;
    let stop = async { drop(tokio::task::spawn_blocking(wait_for_stdin_end).await) };
    let stopped = server.run(stop).await;
    if stopped.cut_off > 0 {
        return Err("connections were closed before they had drained".into());
    }
    Ok(())
}
