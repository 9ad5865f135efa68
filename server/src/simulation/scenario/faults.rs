//! Faults, at given times and at random.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{InvalidScenario, check, check_seconds, invalid};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::simulation) enum FaultKind {
    /// The master crashes, and no server can be elected before the end.
    LoseMaster,
    /// A server crashes, and starts again at the end.
    CrashServer,
    /// A server stops cleanly, and starts again at the end.
    StopServer,
    /// A server does nothing until the end.
    PauseServer,
    /// A server does not reach etcd.
    PartitionServer,
    /// etcd answers nothing.
    StopEtcd,
    /// Clients crash, and start again at the end.
    CrashClients,
    /// Clients do nothing until the end.
    PauseClients,
    /// Clients reach no server.
    PartitionClients,
    /// Clients stop cleanly, one after the other, and a new one takes the place of each.
    RestartClients,
}

impl FaultKind {
    fn is_of_one_server(self) -> bool {
        matches!(
            self,
            Self::CrashServer | Self::StopServer | Self::PauseServer | Self::PartitionServer
        )
    }

    pub(in crate::simulation) fn is_of_clients(self) -> bool {
        matches!(
            self,
            Self::CrashClients | Self::PauseClients | Self::PartitionClients | Self::RestartClients
        )
    }

    /// Whether it has no effect without an election.
    fn needs_etcd(self) -> bool {
        matches!(self, Self::PartitionServer | Self::StopEtcd)
    }
}

/// A fault at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::simulation) struct Fault {
    pub(in crate::simulation) kind: FaultKind,
    pub(in crate::simulation) at: f64,
    #[serde(rename = "for")]
    pub(in crate::simulation) seconds: f64,
    /// The number of the server; the master by default.
    pub(in crate::simulation) server: Option<usize>,
    /// How many clients, chosen at random; all by default.
    pub(in crate::simulation) clients: Option<usize>,
}

/// Faults at random times, of random servers and single clients.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::simulation) struct RandomFaults {
    pub(in crate::simulation) kinds: Vec<FaultKind>,
    /// The mean time between two faults, in seconds.
    pub(in crate::simulation) every: f64,
    /// The longest fault, in seconds.
    #[serde(rename = "for")]
    pub(in crate::simulation) longest: f64,
}

impl Fault {
    pub(super) fn check(
        &self,
        field: &str,
        servers: usize,
        clients: usize,
        length: f64,
    ) -> Result<(), InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        check(&name("at"), self.at, 0.0..=length)?;
        check_seconds(&name("for"), self.seconds)?;
        self.kind.check(&name("kind"), servers)?;
        if let Some(server) = self.server {
            if !self.kind.is_of_one_server() {
                let message = "does not apply: the fault is not one of a server";
                return Err(invalid(&name("server"), message));
            }
            check(&name("server"), server as f64, 0.0..=(servers - 1) as f64)?;
        }
        if let Some(count) = self.clients {
            if !self.kind.is_of_clients() {
                let message = "does not apply: the fault is not one of clients";
                return Err(invalid(&name("clients"), message));
            }
            check(&name("clients"), count as f64, 1.0..=clients as f64)?;
        }
        Ok(())
    }
}

impl FaultKind {
    fn check(self, field: &str, servers: usize) -> Result<(), InvalidScenario> {
        if servers == 1 && self.needs_etcd() {
            let message = "has no effect: a single server needs no etcd";
            return Err(invalid(field, message));
        }
        Ok(())
    }
}

impl RandomFaults {
    pub(super) fn check(&self, servers: usize) -> Result<(), InvalidScenario> {
        check_seconds("random_faults.every", self.every)?;
        check_seconds("random_faults.for", self.longest)?;
        if self.kinds.is_empty() {
            return Err(invalid("random_faults.kinds", "must name at least one"));
        }
        let mut seen = BTreeSet::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let field = format!("random_faults.kinds[{index}]");
            kind.check(&field, servers)?;
            if !seen.insert(*kind as u8) {
                return Err(invalid(&field, "is named twice"));
            }
        }
        Ok(())
    }
}
