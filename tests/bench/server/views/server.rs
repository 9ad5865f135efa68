//! The server runs as a process of its own: this benchmark's executable, started anew with a folder in its environment.

use std::{
    env,
    error::Error,
    fs,
    io::{self, BufRead, BufReader, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use doorman_config::Document;
use doorman_openapi::Scopes;
use doorman_server::{AuthSettings, CallerLimit, Server, Settings, Token};
use tempfile::TempDir;

const HOME: &str = "DOORMAN_BENCH_HOME";

/// There is less than is wanted of everything. No lease ends while pages are measured.
const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 5}}]";

/// The folder of this process, when it was started to serve.
pub(crate) fn home_of_this_process() -> Option<PathBuf> {
    env::var_os(HOME).map(PathBuf::from)
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    home: TempDir,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Starts it, and waits until it listens.
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let home = tempfile::tempdir()?;
        fs::write(
            secret(home.path()),
            "a secret of at least 32 bytes, no less",
        )?;
        let mut child = Command::new(env::current_exe()?)
            .env(HOME, home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().parse()?;
        Ok(Self {
            child,
            home,
            address,
        })
    }

    /// A token that lets its bearer lease and look, at these resources if there are any, else at all.
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
            lifetime: Duration::from_secs(24 * 3600),
        };
        Ok(token.sign(&secret(self.home.path()))?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends when its standard input does, also when this process is killed.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

fn secret(home: &Path) -> PathBuf {
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
            secret_files: vec![secret(home)],
            ..AuthSettings::default()
        }),
        callers: CallerLimit::Off,
        ..Settings::default()
    })
    .await?;
    let mut out = io::stdout();
    writeln!(out, "{}", server.local_addr())?;
    out.flush()?;
    let ended = async {
        let read = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink()));
        drop(read.await);
    };
    let stopped = server.run(ended).await;
    if stopped.cut_off > 0 {
        return Err("connections had to be cut off".into());
    }
    Ok(())
}
