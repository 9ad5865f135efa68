//! An example service that wears the layer.

use std::{path::Path, process::ExitStatus};

use serde_json::Value;

use super::{Process, curl, programs};

/// A running service.
#[derive(Debug)]
pub(crate) struct Service {
    process: Process,
    address: String,
}

impl Service {
    /// Starts one that leases from `server`, on a free port, with these further arguments.
    pub(crate) fn start(server: &str, args: &[&str]) -> Self {
        Self::start_program(&programs::example("service"), server, args)
    }

    /// The same of the service that has no limits in code, and follows the rules.
    pub(crate) fn follow_rules(server: &str, args: &[&str]) -> Self {
        Self::start_program(&programs::example("rules"), server, args)
    }

    /// The same of the service on plain hyper, which has limits of its own.
    pub(crate) fn on_hyper(server: &str) -> Self {
        Self::start_program(&programs::example("hyper"), server, &[])
    }

    fn start_program(program: &Path, server: &str, args: &[&str]) -> Self {
        let mut all = vec!["--listen", "127.0.0.1:0", "--server", server];
        all.extend(args);
        let mut process = Process::start(program, &all);
        let address = process.wait_for_address();
        Self { process, address }
    }

    /// The base address.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What it says of its limits.
    pub(crate) fn snapshot(&self) -> Value {
        let answer = curl(&[&format!("{}/doorman", self.address)]);
        serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("not JSON: {}", answer.body))
    }

    /// The resources that it limits.
    pub(crate) fn resources(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        let ids = limits.iter().filter_map(|limit| limit["resource"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// The capacity of its lease on a resource, if it has one.
    pub(crate) fn lease(&self, resource: &str) -> Option<f64> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        limits.iter().find(|limit| limit["resource"] == resource)?["lease"]["capacity"].as_f64()
    }

    /// The whole limit of a resource, once it has been told.
    pub(crate) fn limit(&self, resource: &str) -> Option<f64> {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        limits.iter().find(|limit| limit["resource"] == resource)?["limit"].as_f64()
    }

    /// What it wants of a resource.
    pub(crate) fn wants(&self, resource: &str) -> f64 {
        let snapshot = self.snapshot();
        let limits = snapshot["limits"].as_array().expect("a list of limits");
        let limit = limits.iter().find(|limit| limit["resource"] == resource);
        limit.expect("it is limited")["wants"]
            .as_f64()
            .expect("a number")
    }

    /// Stops it in the middle of whatever it does, until it is told to [go on](Self::resume).
    pub(crate) fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.process.resume();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn terminate(self) -> ExitStatus {
        self.process.terminate();
        self.process.wait()
    }
}
