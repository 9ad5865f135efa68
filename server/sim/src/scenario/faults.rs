//! Faults, at given times and at random.

use std::{collections::BTreeSet, ops::Range};

use serde::Deserialize;

use super::{
    InvalidScenario, ScenarioNode, check, check_seconds, clients::ClientGroup, demand::MAX_WANTS,
    invalid, nodes::find_nodes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// The master of a node crashes, and no server of it reaches etcd until the end of the fault.
    LoseMaster,
    /// The master of a node crashes and starts again at once. The next master is elected when the
    /// election lease ends.
    ElectMaster,
    /// A server crashes, and starts again at the end.
    CrashServer,
    /// A server stops cleanly, and starts again at the end.
    StopServer,
    /// A server does nothing until the end.
    PauseServer,
    /// A server does not reach etcd.
    PartitionServer,
    /// The requests of a server to etcd take longer.
    DelayEtcdRequests,
    /// The etcd of a node answers nothing.
    StopEtcd,
    /// A node and its parent do not reach each other.
    PartitionNode,
    /// A node does not receive the answers of its parent.
    LoseNodeAnswers,
    /// The requests of a node to its parent take longer.
    DelayNodeRequests,
    /// The requests of a node to its parent arrive a second time.
    RepeatNodeRequests,
    /// Clients crash, and start again at the end.
    CrashClients,
    /// Clients do nothing until the end.
    PauseClients,
    /// Clients reach no server.
    PartitionClients,
    /// Clients do not receive the answers of the servers.
    LoseClientAnswers,
    /// The requests of clients take longer.
    DelayClientRequests,
    /// The requests of clients arrive a second time.
    RepeatClientRequests,
    /// Clients release all leases, and ask for them again at once.
    ReleaseClients,
    /// Clients stop cleanly, one after the other, and a new one takes the place of each.
    RestartClients,
    /// Clients have another demand from then on.
    ChangeDemand,
    /// The machine of a server crashes: writes that were not synchronized are lost.
    #[serde(skip)]
    CrashMachine,
    /// The disk of a server is full.
    #[serde(skip)]
    FillDisk,
    /// The calls of a server to etcd are lost.
    #[serde(skip)]
    LoseEtcdCalls,
    /// The answers of etcd to a server are lost.
    #[serde(skip)]
    LoseEtcdAnswers,
    /// The etcd of a node has another leader: no lease ends before its full time.
    #[serde(skip)]
    ElectEtcdLeader,
    /// The etcd of a node loses all data.
    #[serde(skip)]
    RebuildEtcd,
    /// The etcd of a node has another leader, and the one before answers on.
    #[serde(skip)]
    DeposeEtcdLeader,
    /// All servers of a node crash.
    #[serde(skip)]
    CrashNode,
    /// The requests of clients are lost.
    #[serde(skip)]
    LoseClientRequests,
    /// Clients stop cleanly, and start again at the end.
    #[serde(skip)]
    StopClients,
}

impl FaultKind {
    pub(crate) fn is_of_one_server(self) -> bool {
        matches!(
            self,
            Self::CrashServer
                | Self::CrashMachine
                | Self::FillDisk
                | Self::LoseEtcdCalls
                | Self::LoseEtcdAnswers
                | Self::StopServer
                | Self::PauseServer
                | Self::PartitionServer
                | Self::DelayEtcdRequests
        )
    }

    pub(crate) fn is_of_clients(self) -> bool {
        matches!(
            self,
            Self::CrashClients
                | Self::PauseClients
                | Self::PartitionClients
                | Self::LoseClientAnswers
                | Self::DelayClientRequests
                | Self::RepeatClientRequests
                | Self::ReleaseClients
                | Self::RestartClients
                | Self::ChangeDemand
                | Self::LoseClientRequests
                | Self::StopClients
        )
    }

    /// Whether it concerns the messages between a node and its parent.
    fn is_of_parent(self) -> bool {
        matches!(
            self,
            Self::PartitionNode
                | Self::LoseNodeAnswers
                | Self::DelayNodeRequests
                | Self::RepeatNodeRequests
        )
    }

    /// Whether messages arrive later than otherwise.
    fn is_late(self) -> bool {
        matches!(
            self,
            Self::DelayEtcdRequests
                | Self::DelayNodeRequests
                | Self::RepeatNodeRequests
                | Self::DelayClientRequests
                | Self::RepeatClientRequests
        )
    }

    /// Its name in a scenario.
    pub(super) fn name(self) -> String {
        let mut name = String::new();
        for char in format!("{self:?}").chars() {
            if char.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(char.to_ascii_lowercase());
        }
        name
    }

    /// Whether it takes time, and then ends.
    pub(super) fn lasts(self) -> bool {
        !matches!(
            self,
            Self::ElectMaster | Self::ReleaseClients | Self::ChangeDemand
        )
    }

    /// Checks that it has an effect on a node.
    fn check_node(self, node: &ScenarioNode) -> Result<(), &'static str> {
        match self {
            Self::PartitionServer | Self::DelayEtcdRequests | Self::StopEtcd
                if node.servers == 1 =>
            {
                Err("a single server needs no etcd")
            }
            _ if self.is_of_parent() && node.parent.is_none() => Err("the root has no parent"),
            _ => Ok(()),
        }
    }

    /// Checks that clients have demands that it can change.
    fn check_clients(self, field: &str, groups: &[ClientGroup]) -> Result<(), InvalidScenario> {
        if self == Self::ChangeDemand && !groups.iter().any(ClientGroup::has_steady_demand) {
            let message = "has no effect: no client has a constant demand or a random walk";
            return Err(invalid(field, message));
        }
        Ok(())
    }
}

/// A change of a demand, to an amount or by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DemandChange {
    To(f64),
    By(f64),
}

impl DemandChange {
    fn amount(self) -> f64 {
        match self {
            Self::To(amount) | Self::By(amount) => amount,
        }
    }

    /// Reads the change of a fault or of the random faults. `is_needed`: whether there must be one.
    fn check(
        field: &str,
        wants: Option<f64>,
        more: Option<f64>,
        is_needed: bool,
    ) -> Result<Option<Self>, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        let change = match (wants, more) {
            (Some(wants), None) => Some(("wants", Self::To(wants))),
            (None, Some(more)) => Some(("more", Self::By(more))),
            (Some(_), Some(_)) => {
                return Err(invalid(&name("more"), "does not apply beside wants"));
            }
            (None, None) if is_needed => {
                let message = "is missing; must be the demand, or `more` what is added to it";
                return Err(invalid(&name("wants"), message));
            }
            (None, None) => None,
        };
        let Some((given, change)) = change else {
            return Ok(None);
        };
        if !is_needed {
            return Err(invalid(
                &name(given),
                "does not apply without change_demand",
            ));
        }
        check(&name(given), change.amount(), 0.0..=MAX_WANTS)?;
        Ok(Some(change))
    }
}

/// A fault at a given time, in the format of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileFault {
    kind: FaultKind,
    at: f64,
    #[serde(rename = "for")]
    seconds: Option<f64>,
    /// The root by default.
    node: Option<String>,
    /// The number of the server within its node; the master by default.
    server: Option<usize>,
    /// How many clients, chosen at random; all by default.
    clients: Option<usize>,
    /// The name of the clients that it may affect; all by default.
    group: Option<String>,
    /// Seconds by which messages are late.
    by: Option<f64>,
    wants: Option<f64>,
    more: Option<f64>,
}

/// Faults of random nodes and single clients, in the format of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRandomFaults {
    kinds: Vec<FaultKind>,
    every: f64,
    from: Option<f64>,
    #[serde(rename = "for")]
    longest: Option<f64>,
    wants: Option<f64>,
    more: Option<f64>,
}

/// A fault at a given time, whose random choices are open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScenarioFault {
    pub(crate) kind: FaultKind,
    pub(crate) at: f64,
    pub(crate) seconds: f64,
    /// One of these nodes, at random.
    pub(crate) nodes: Vec<usize>,
    /// The number of the server within its node; the master by default.
    pub(crate) server: Option<usize>,
    /// How many clients, chosen at random; all by default.
    pub(crate) clients: Option<usize>,
    /// The numbers of the clients that it may affect; all by default.
    pub(crate) group: Option<Range<usize>>,
    /// Seconds by which messages are late.
    pub(crate) late: f64,
    pub(crate) change: Option<DemandChange>,
}

/// Faults of random nodes and single clients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RandomFaults {
    /// The kinds, each with the nodes on which it has an effect.
    pub(crate) kinds: Vec<(FaultKind, Vec<usize>)>,
    /// The time of the first fault; then one follows every `every` seconds. `None`: at random
    /// times, `every` seconds apart on average.
    pub(crate) from: Option<f64>,
    pub(crate) every: f64,
    /// The longest fault, in seconds.
    pub(crate) longest: f64,
    pub(crate) change: Option<DemandChange>,
}

/// The parts of a scenario that faults refer to.
pub(super) struct FaultContext<'a> {
    pub(super) nodes: &'a [ScenarioNode],
    pub(super) groups: &'a [ClientGroup],
    pub(super) seconds: f64,
}

impl FaultContext<'_> {
    fn clients(&self) -> usize {
        self.groups.iter().map(|it| it.count).sum()
    }

    /// The numbers of the clients with this name.
    fn group(&self, name: &str) -> Option<Range<usize>> {
        let has_name = |it: &ClientGroup| it.name.as_deref() == Some(name);
        let index = self.groups.iter().position(has_name)?;
        let before = self.groups.iter().take(index).map(|it| it.count);
        let first: usize = before.sum();
        Some(first..first + self.groups[index].count)
    }
}

impl FileFault {
    pub(super) fn check(
        &self,
        field: &str,
        context: &FaultContext<'_>,
    ) -> Result<ScenarioFault, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        let kind = self.kind;
        check(&name("at"), self.at, 0.0..=context.seconds)?;
        check_length(&name("for"), self.seconds, kind.lasts())?;
        kind.check_clients(&name("kind"), context.groups)?;
        let nodes = self.check_nodes(field, context)?;
        if let Some(server) = self.server {
            if !kind.is_of_one_server() {
                let message = "does not apply: the fault is not one of a server";
                return Err(invalid(&name("server"), message));
            }
            let servers = nodes.iter().map(|it| context.nodes[*it].servers);
            let last = servers.min().unwrap_or(1) - 1;
            check(&name("server"), server as f64, 0.0..=last as f64)?;
        }
        let group = self.check_group(&name("group"), context)?;
        if let Some(count) = self.clients {
            if !kind.is_of_clients() {
                let message = "does not apply: the fault is not one of clients";
                return Err(invalid(&name("clients"), message));
            }
            let most = group.as_ref().map_or(context.clients(), Range::len);
            check(&name("clients"), count as f64, 1.0..=most as f64)?;
        }
        let late = match self.by {
            Some(seconds) if kind.is_late() => {
                check_seconds(&name("by"), seconds)?;
                seconds
            }
            Some(_) => {
                let message = "does not apply: the fault delays no messages";
                return Err(invalid(&name("by"), message));
            }
            None if kind.is_late() => {
                let message = "is missing; must be the seconds by which messages are late";
                return Err(invalid(&name("by"), message));
            }
            None => 0.0,
        };
        let is_change = kind == FaultKind::ChangeDemand;
        Ok(ScenarioFault {
            kind,
            at: self.at,
            seconds: self.seconds.unwrap_or_default(),
            nodes,
            server: self.server,
            clients: self.clients,
            group,
            late,
            change: DemandChange::check(field, self.wants, self.more, is_change)?,
        })
    }

    fn check_group(
        &self,
        field: &str,
        context: &FaultContext<'_>,
    ) -> Result<Option<Range<usize>>, InvalidScenario> {
        let Some(name) = &self.group else {
            return Ok(None);
        };
        if !self.kind.is_of_clients() {
            let message = "does not apply: the fault is not one of clients";
            return Err(invalid(field, message));
        }
        let Some(group) = context.group(name) else {
            return Err(invalid(field, format!("no clients have the name {name:?}")));
        };
        Ok(Some(group))
    }

    fn check_nodes(
        &self,
        field: &str,
        context: &FaultContext<'_>,
    ) -> Result<Vec<usize>, InvalidScenario> {
        let node_field = format!("{field}.node");
        let (nodes, field) = match &self.node {
            Some(_) if self.kind.is_of_clients() => {
                return Err(invalid(
                    &node_field,
                    "does not apply: the fault is one of clients",
                ));
            }
            Some(name) => (find_nodes(context.nodes, name, &node_field)?, node_field),
            None => (vec![0], format!("{field}.kind")),
        };
        for node in &nodes {
            let checked = self.kind.check_node(&context.nodes[*node]);
            checked.map_err(|reason| invalid(&field, format!("has no effect: {reason}")))?;
        }
        Ok(nodes)
    }
}

impl FileRandomFaults {
    pub(super) fn check(
        &self,
        context: &FaultContext<'_>,
    ) -> Result<RandomFaults, InvalidScenario> {
        check_seconds("random_faults.every", self.every)?;
        if let Some(from) = self.from {
            check("random_faults.from", from, 0.0..=context.seconds)?;
        }
        let lasts = self.kinds.iter().any(|it| it.lasts());
        if self.kinds.is_empty() {
            return Err(invalid("random_faults.kinds", "must name at least one"));
        }
        check_length("random_faults.for", self.longest, lasts)?;
        let mut seen = BTreeSet::new();
        let mut kinds = Vec::new();
        for (index, kind) in self.kinds.iter().copied().enumerate() {
            let field = format!("random_faults.kinds[{index}]");
            kind.check_clients(&field, context.groups)?;
            if kind.is_late() {
                let message = "does not apply to random faults, which have no `by`";
                return Err(invalid(&field, message));
            }
            let nodes = context.nodes.iter().enumerate();
            let nodes: Vec<_> = nodes
                .filter_map(|(node, it)| kind.check_node(it).is_ok().then_some(node))
                .collect();
            if let Err(reason) = kind.check_node(&context.nodes[0])
                && nodes.is_empty()
            {
                return Err(invalid(&field, format!("has no effect: {reason}")));
            }
            if !seen.insert(kind as u8) {
                return Err(invalid(&field, "is named twice"));
            }
            kinds.push((kind, nodes));
        }
        let is_change = self.kinds.contains(&FaultKind::ChangeDemand);
        Ok(RandomFaults {
            kinds,
            from: self.from,
            every: self.every,
            longest: self.longest.unwrap_or_default(),
            change: DemandChange::check("random_faults", self.wants, self.more, is_change)?,
        })
    }
}

fn check_length(field: &str, given: Option<f64>, lasts: bool) -> Result<(), InvalidScenario> {
    match given {
        Some(seconds) if lasts => check_seconds(field, seconds),
        Some(_) => Err(invalid(field, "does not apply: the fault does not last")),
        None if lasts => Err(invalid(
            field,
            "is missing; must be the seconds of the fault",
        )),
        None => Ok(()),
    }
}

/// An upper bound of what faults add to the demand of clients by the end.
pub(super) fn most_added(
    faults: &[ScenarioFault],
    random: Option<&RandomFaults>,
    context: &FaultContext<'_>,
) -> f64 {
    let faults = faults.iter().filter_map(|fault| {
        let clients = fault.clients.unwrap_or(context.clients());
        Some(fault.change?.amount() * clients as f64)
    });
    let random = random.and_then(|it| Some(it.change?.amount() * context.seconds / it.every));
    faults.chain(random).sum()
}
