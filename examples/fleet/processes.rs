//! The processes of the fleet: a control plane and its services, each this program in another role.
//!
//! A child runs until its standard input, a pipe from the parent, is closed. So it stops in good
//! order however the parent ends.

use std::{
    env,
    error::Error,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Stdio,
    sync::Arc,
    thread,
    time::Duration,
};

use doorman_config::{Document, ValidationErrors};
use doorman_server::{Server, Settings};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{self, ChildStdin, Command},
    sync::oneshot,
    time,
};

use crate::plan::INSTANCES;

/// How long a child may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// All child processes. They stop when this is dropped; [`stop`](Self::stop) waits for it.
#[derive(Debug)]
pub(crate) struct Processes {
    control_plane: Child,
    services: [Child; INSTANCES],
}

impl Processes {
    /// Starts all processes, and waits until each listens.
    pub(crate) async fn start(port: u16, limit: f64) -> Result<Self, Box<dyn Error>> {
        // For a clear message: the control plane could not listen there either.
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            format!("cannot listen on port {port}: {error}; choose another with --port")
        })?;
        let control_plane = Child::start(&[
            "control-plane",
            &format!("--port={port}"),
            &format!("--limit={limit}"),
        ])
        .await?;
        let server = format!("--server=http://{}", control_plane.address);
        let service = ["service", "--listen=127.0.0.1:0", &server];
        let (first, second, third) = tokio::try_join!(
            Child::start(&service),
            Child::start(&service),
            Child::start(&service),
        )?;
        Ok(Self {
            control_plane,
            services: [first, second, third],
        })
    }

    pub(crate) fn control_plane(&self) -> SocketAddr {
        self.control_plane.address
    }

    pub(crate) fn services(&self) -> [SocketAddr; INSTANCES] {
        self.services.each_ref().map(|service| service.address)
    }

    /// Waits until a child exits by itself, which is an error, and describes it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ended(&mut self) -> String {
        let [first, second, third] = &mut self.services;
        tokio::select! {
            status = self.control_plane.wait() => format!("the control plane exited: {status}"),
            status = first.wait() => format!("the first service exited: {status}"),
            status = second.wait() => format!("the second service exited: {status}"),
            status = third.wait() => format!("the third service exited: {status}"),
        }
    }

    /// Stops the services, which release their leases, and then the control plane.
    pub(crate) async fn stop(self) -> io::Result<()> {
        let [first, second, third] = self.services.map(Child::stop);
        tokio::try_join!(first, second, third)?;
        self.control_plane.stop().await
    }
}

/// A running child that listens.
#[derive(Debug)]
struct Child {
    process: process::Child,
    /// Apart from the process, because waiting for the process closes its standard input.
    stdin: ChildStdin,
    address: SocketAddr,
}

impl Child {
    /// Starts this program with `arguments`, and reads its address from the first line of output.
    async fn start(arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in the terminal goes to the parent only.
            .process_group(0)
            .spawn()?;
        let stdin = process
            .stdin
            .take()
            .ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).await?;
        }
        let address = line
            .trim_end()
            .strip_prefix("listening on http://")
            .and_then(|address| address.parse().ok())
            .ok_or_else(|| format!("{} did not start", arguments.join(" ")))?;
        Ok(Self {
            process,
            stdin,
            address,
        })
    }

    async fn wait(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    async fn stop(mut self) -> io::Result<()> {
        drop(self.stdin);
        match time::timeout(STOP_TIMEOUT, self.process.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_elapsed) => self.process.kill().await,
        }
    }
}

/// In a child: completes when the parent closes the pipe or exits.
pub(crate) async fn parent_exit() {
    let (open, closed) = oneshot::channel::<()>();
    // A thread of its own: the runtime would wait for one of its own at exit.
    thread::spawn(move || {
        let read = io::stdin().lock().read_to_end(&mut Vec::new());
        drop(open);
        read
    });
    // Always an error: the sender is only dropped.
    closed.await.unwrap_or_default();
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlPlaneArguments {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    limit: f64,
}

/// Runs a control plane with one limit until `stop` completes. Prints its address.
pub(crate) async fn control_plane(
    arguments: ControlPlaneArguments,
    stop: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let data_dir = TempDir::with_prefix("doorman-fleet-")?;
    let server = Server::bind(Settings {
        listen: ([127, 0, 0, 1], arguments.port).into(),
        data_dir: data_dir.path().to_owned(),
        document: Arc::new(document(arguments.limit)?),
        ..Settings::default()
    })
    .await?;
    writeln!(io::stdout(), "listening on http://{}", server.local_addr())?;
    let _stopped = server.run(stop).await;
    Ok(data_dir.close()?)
}

/// One resource, shared fairly, whose leases follow the load within seconds.
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
