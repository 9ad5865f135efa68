//! Several control planes that elect a master in etcd.

use std::{fs, net::Ipv4Addr, thread, time::Duration};

use doorman_tests::connection;
use serde_json::Value;
use tempfile::TempDir;

use super::{Etcd, Process, Relay, Response, TIMEOUT, now, process};

/// Interval at which servers are asked for the master.
const POLL: Duration = Duration::from_millis(20);

/// Servers of one node, some of which may be killed or paused.
#[derive(Debug)]
pub(crate) struct Node {
    servers: Vec<Server>,
    home: TempDir,
}

#[derive(Debug)]
struct Server {
    process: Option<Process>,
    address: String,
    args: Vec<String>,
    /// Between the server and each member of etcd.
    relays: Vec<Relay>,
}

/// A master and its reign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) server: usize,
    pub(crate) epoch: u64,
}

impl Node {
    /// Starts three servers with further arguments, and waits for the first master.
    pub(crate) fn start(etcd: &Etcd, document: &str, args: &[&str]) -> (Self, Master) {
        let home = TempDir::new().expect("a temporary directory");
        let file = home.path().join("limits.yaml");
        let config = ["--config".to_owned(), format!("file:{}", file.display())];
        let node = Self::new(etcd, home, &config, args);
        node.set_document(document);
        node.begin()
    }

    /// Starts three servers of a node below the parent with these addresses.
    pub(crate) fn start_below(etcd: &Etcd, parent: &str, args: &[&str]) -> (Self, Master) {
        let home = TempDir::new().expect("a temporary directory");
        let parent = ["--parent".to_owned(), parent.to_owned()];
        Self::new(etcd, home, &parent, args).begin()
    }

    fn begin(mut self) -> (Self, Master) {
        for server in 0..3 {
            self.start_server(server);
        }
        let master = self.master_after(0, TIMEOUT);
        (self, master)
    }

    /// `source`: where the capacity is from.
    fn new(etcd: &Etcd, home: TempDir, source: &[String], args: &[&str]) -> Self {
        // A random loopback address has the port free, also after a restart.
        let [b, c, d] = [(); 3].map(|()| fastrand::u8(1..250));
        let servers = (0..3).map(|index: u8| {
            let ip = Ipv4Addr::new(127, b, c, d.wrapping_add(index));
            let relays: Vec<_> = etcd.endpoints().split(',').map(Relay::start).collect();
            let endpoints: Vec<_> = relays.iter().map(Relay::address).collect();
            let path = |name: &str| home.path().join(name).display().to_string();
            let listen = format!("{ip}:7300");
            let own = [
                ("--listen", listen.clone()),
                ("--data-dir", path(&format!("data{index}"))),
                ("--etcd-endpoints", endpoints.join(",")),
            ];
            let own = own
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value]);
            Server {
                process: None,
                address: format!("http://{listen}"),
                args: own
                    .chain(source.iter().cloned())
                    .chain(args.iter().map(|&it| it.to_owned()))
                    .collect(),
                relays,
            }
        });
        Self {
            servers: servers.collect(),
            home,
        }
    }

    /// Replaces the document of all servers.
    pub(crate) fn set_document(&self, document: &str) {
        let [new, file] = ["limits.new", "limits.yaml"].map(|name| self.home.path().join(name));
        fs::write(&new, document).expect("it is writable");
        fs::rename(new, file).expect("one file system");
    }

    /// Base address of a server.
    pub(crate) fn address(&self, server: usize) -> &str {
        &self.servers[server].address
    }

    /// Base addresses of all servers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|it| &*it.address)
    }

    /// Starts a server that was killed or terminated, with its data directory.
    pub(crate) fn start_server(&mut self, server: usize) {
        let Server {
            process,
            address,
            args,
            ..
        } = &mut self.servers[server];
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut started = Process::start(&process::doorman(), &args);
        started.wait_for(|line| line.contains(&**address).then_some(()));
        *process = Some(started);
    }

    /// Starts a server without etcd, on its data directory.
    pub(crate) fn start_alone(&mut self, server: usize) {
        let args = &mut self.servers[server].args;
        for flag in ["--etcd-endpoints", "--election-ttl"] {
            if let Some(at) = args.iter().position(|it| it == flag) {
                args.drain(at..at + 2);
            }
        }
        self.start_server(server);
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self, server: usize) {
        self.take(server).kill();
    }

    /// Sends SIGTERM, and does not wait.
    pub(crate) fn request_stop(&self, server: usize) {
        self.running(server).terminate();
    }

    /// Waits for the successful exit after SIGTERM.
    pub(crate) fn wait(&mut self, server: usize) {
        self.take(server).wait_for_success();
    }

    /// Sends SIGTERM, and waits for its successful exit.
    pub(crate) fn terminate(&mut self, server: usize) {
        self.request_stop(server);
        self.wait(server);
    }

    /// Suspends a server.
    pub(crate) fn pause(&self, server: usize) {
        self.running(server).pause();
    }

    /// Resumes a server.
    pub(crate) fn resume(&self, server: usize) {
        self.running(server).resume();
    }

    /// Drops everything between a server and etcd.
    pub(crate) fn partition(&self, server: usize) {
        self.servers[server]
            .relays
            .iter()
            .for_each(Relay::partition);
    }

    /// Ends the partition.
    pub(crate) fn heal(&self, server: usize) {
        self.servers[server].relays.iter().for_each(Relay::heal);
    }

    /// All output of a server up to now.
    pub(crate) fn output(&mut self, server: usize) -> String {
        let process = self.servers[server].process.as_mut();
        process.expect("it runs").output().join("\n")
    }

    /// Peak resident memory of a server in bytes.
    pub(crate) fn peak_memory(&self, server: usize) -> usize {
        self.running(server).peak_memory()
    }

    /// Waits for a master of a later epoch.
    ///
    /// # Panics
    /// After `limit`.
    pub(crate) fn master_after(&self, epoch: u64, limit: Duration) -> Master {
        let deadline = now() + limit;
        while now() < deadline {
            let masters = (0..self.servers.len()).filter_map(|it| self.as_master(it));
            if let Some(master) = masters.max_by_key(|it| it.epoch)
                && master.epoch > epoch
            {
                return master;
            }
            thread::sleep(POLL);
        }
        panic!("no master after epoch {epoch} within {limit:?}");
    }

    /// The reign of a server; `None` if it is not master, or does not answer.
    pub(crate) fn as_master(&self, server: usize) -> Option<Master> {
        self.servers[server].process.as_ref()?;
        let discovery = self.try_get(server, "/v1/discovery")?;
        let epoch = discovery["epoch"].as_u64().expect("a number");
        (discovery["is_master"] == true).then_some(Master { server, epoch })
    }

    /// The JSON at a path; `None` if the server does not answer soon.
    fn try_get(&self, server: usize, path: &str) -> Option<Value> {
        let limit = Duration::from_millis(500);
        let response = connection::request(self.address(server), path, None, limit).ok()?;
        serde_json::from_str(&response.body).ok()
    }

    /// The JSON at a path.
    pub(crate) fn get(&self, server: usize, path: &str) -> Value {
        let response = connection::request(self.address(server), path, None, TIMEOUT);
        let body = response.expect("a response").body;
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("not JSON: {body}"))
    }

    /// The response to a body of JSON.
    pub(crate) fn post(&self, server: usize, path: &str, body: &str) -> Response {
        let response = connection::request(self.address(server), path, Some(body), TIMEOUT);
        response.expect("a response")
    }

    fn running(&self, server: usize) -> &Process {
        self.servers[server].process.as_ref().expect("it runs")
    }

    fn take(&mut self, server: usize) -> Process {
        self.servers[server].process.take().expect("it runs")
    }
}
