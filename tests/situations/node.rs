//! Three control planes that elect a master in a real etcd.

use std::{net::Ipv4Addr, path::PathBuf, thread, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    Error, now,
    process::{Process, start},
};
use crate::connection;

/// Interval at which servers are asked for a lease.
const POLL: Duration = Duration::from_millis(5);
/// The longest wait for a response.
const TIMEOUT: Duration = Duration::from_millis(200);
/// The longest wait for a master.
const NO_MASTER: Duration = Duration::from_secs(30);

/// The servers of a node, and etcd.
#[derive(Debug)]
pub(super) struct Node {
    program: PathBuf,
    servers: Vec<Server>,
    endpoint: String,
    etcd: Process,
    home: TempDir,
}

#[derive(Debug)]
struct Server {
    address: String,
    process: Option<Process>,
}

/// A server that grants leases in an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Master {
    pub(super) server: usize,
    pub(super) epoch: u64,
}

impl Node {
    /// Starts etcd and three servers with the default settings, and waits for the first master.
    pub(super) fn start(program: PathBuf, document: &str) -> Result<Self, Error> {
        let home = TempDir::with_prefix("doorman-situations-")?;
        std::fs::write(home.path().join("limits.yaml"), document)?;
        // A random loopback address has the usual ports free.
        let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
        let ip = Ipv4Addr::new(127, b, c, d);
        let [endpoint, peer] = [2379, 2380].map(|port| format!("http://{ip}:{port}"));
        let data = home.path().join("etcd").display().to_string();
        let cluster = format!("etcd={peer}");
        let etcd = Process::start(
            "etcd".as_ref(),
            &[
                "--name",
                "etcd",
                "--data-dir",
                &data,
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &cluster,
            ],
        )?;
        let servers = (7300..7303).map(|port| Server {
            address: format!("http://{ip}:{port}"),
            process: None,
        });
        let mut node = Self {
            program,
            servers: servers.collect(),
            endpoint,
            etcd,
            home,
        };
        for server in 0..node.servers.len() {
            node.start_server(server)?;
        }
        node.master_after(0)?;
        Ok(node)
    }

    /// Starts a server that is not running, with its data directory.
    pub(super) fn start_server(&mut self, server: usize) -> Result<(), Error> {
        let path = |name: &str| self.home.path().join(name).display().to_string();
        let data = path(&format!("data{server}"));
        let config = format!("file:{}", path("limits.yaml"));
        let Some(Server { address, process }) = self.servers.get_mut(server) else {
            return Err("no such server".into());
        };
        let args = [
            "--listen",
            address.trim_start_matches("http://"),
            "--config",
            &config,
            "--data-dir",
            &data,
            "--etcd-endpoints",
            &self.endpoint,
        ];
        *process = Some(start(&self.program, &args)?.0);
        Ok(())
    }

    /// The process of a server that is not to be asked any more.
    pub(super) fn take(&mut self, server: usize) -> Result<Process, Error> {
        let server = self.servers.get_mut(server);
        let process = server.and_then(|server| server.process.take());
        process.ok_or_else(|| "the server does not run".into())
    }

    /// The process of etcd.
    pub(super) fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// Base addresses of all servers.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|it| it.address.clone()).collect()
    }

    /// Waits until a running server grants leases in a later epoch.
    pub(super) fn master_after(&self, epoch: u64) -> Result<Master, Error> {
        let from = now();
        while now() < from + NO_MASTER {
            let mut masters = (0..self.servers.len()).filter_map(|it| self.as_master(it));
            if let Some(master) = masters.find(|it| it.epoch > epoch) {
                return Ok(master);
            }
            thread::sleep(POLL);
        }
        Err("no master was elected".into())
    }

    /// Asks a server for a lease.
    fn as_master(&self, server: usize) -> Option<Master> {
        const REQUEST: &str =
            r#"{"client_id":"probe","resources":[{"resource_id":"probe","wants":1}]}"#;
        let Server { address, process } = self.servers.get(server)?;
        process.as_ref()?;
        let response = connection::request(address, "/v1/capacity", Some(REQUEST), TIMEOUT).ok()?;
        let answer: Value = serde_json::from_str(&response.body).ok()?;
        let epoch = answer.get("epoch")?.as_u64()?;
        (response.status == 200).then_some(Master { server, epoch })
    }

    /// Seconds for which a server still learns the leases of earlier masters.
    pub(super) fn learning(&self, server: usize) -> Option<f64> {
        let Server { address, .. } = self.servers.get(server)?;
        let response = connection::request(address, "/v1/status", None, TIMEOUT).ok()?;
        let status: Value = serde_json::from_str(&response.body).ok()?;
        let learning = status.get("learning_ends_in");
        learning.map_or(Some(0.0), Value::as_f64)
    }
}
