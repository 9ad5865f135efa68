//! An example service with the layer.

use std::{net::SocketAddr, path::Path, process::ExitStatus};

use doorman_examples::load::Target;
use serde_json::Value;

use super::{Process, curl, process};

#[derive(Debug)]
pub(crate) struct Service {
    process: Process,
    address: String,
}

impl Service {
    /// Starts the example `service` on a free port.
    pub(crate) fn start(server: &str, args: &[&str]) -> Self {
        Self::start_program(&process::example("service"), server, args)
    }

    /// Starts the example `rules`.
    pub(crate) fn follow_rules(server: &str, args: &[&str]) -> Self {
        Self::start_program(&process::example("rules"), server, args)
    }

    /// Starts the example `hyper`.
    pub(crate) fn on_hyper(server: &str) -> Self {
        Self::start_program(&process::example("hyper"), server, &[])
    }

    /// Starts the example `costs`.
    pub(crate) fn costs(server: &str) -> Self {
        Self::start_program(&process::example("costs"), server, &[])
    }

    /// Starts the example `pool`.
    pub(crate) fn pool(server: &str, database: SocketAddr) -> Self {
        let database = database.to_string();
        Self::start_program(
            &process::example("pool"),
            server,
            &["--database", &database],
        )
    }

    fn start_program(program: &Path, server: &str, args: &[&str]) -> Self {
        let mut all = vec!["--listen", "127.0.0.1:0", "--server", server];
        all.extend(args);
        let mut process = Process::start(program, &all);
        let address = process.wait_for_address();
        Self { process, address }
    }

    /// Base address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Target of a load generator.
    pub(crate) fn target(&self) -> Target {
        let address = self.address.trim_start_matches("http://");
        let address: SocketAddr = address.parse().expect("an address");
        Target::new(address).expect("services listen on loopback")
    }

    /// Snapshot of its layer.
    pub(crate) fn snapshot(&self) -> Value {
        let response = curl(&[&format!("{}/doorman", self.address)]);
        serde_json::from_str(&response.body)
            .unwrap_or_else(|_| panic!("not JSON: {}", response.body))
    }

    /// Resources in its snapshot.
    pub(crate) fn resources(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        let ids = limits.iter().filter_map(|limit| limit["resource"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// Leased capacity of a resource.
    pub(crate) fn lease(&self, resource: &str) -> Option<f64> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        limits.iter().find(|limit| limit["resource"] == resource)?["lease"]["capacity"].as_f64()
    }

    /// The whole limit of a resource, once known.
    pub(crate) fn limit(&self, resource: &str) -> Option<f64> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        limits.iter().find(|limit| limit["resource"] == resource)?["limit"].as_f64()
    }

    /// Measured demand for a resource.
    pub(crate) fn wants(&self, resource: &str) -> f64 {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        let limit = limits.iter().find(|limit| limit["resource"] == resource);
        limit.expect("it is limited")["wants"]
            .as_f64()
            .expect("a number")
    }

    /// Suspends the process.
    pub(crate) fn pause(&self) {
        self.process.pause();
    }

    /// Resumes the process.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(self) {
        self.process.kill();
    }

    /// Sends SIGTERM, and waits for its exit.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.process.terminate();
        self.process.wait()
    }
}
