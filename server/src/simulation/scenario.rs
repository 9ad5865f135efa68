//! Scenarios: servers, clients with demand patterns, a network and faults, read from YAML.
//!
//! Everything that the format accepts has an effect. An unknown key, a value out of its range, and
//! a field that does not apply are errors that name the field.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{AlgorithmKind, ResourceId};
use serde::Deserialize;

/// The most clients of a scenario.
const MAX_CLIENTS: usize = 5_000;
/// The longest run, in seconds.
const MAX_SECONDS: f64 = 86_400.0;
/// The most seconds times clients: what all samples of a run hold.
const MAX_SAMPLES: f64 = 5e6;
/// The largest demand.
pub(super) const MAX_WANTS: f64 = 1e15;
/// The most arrivals that a Poisson demand counts at once.
const MAX_ARRIVALS: f64 = 1e5;

/// A valid scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub(super) seconds: f64,
    pub(super) measure_from: f64,
    pub(super) servers: usize,
    pub(super) election_lease: u32,
    pub(super) hints: bool,
    pub(super) clock_drift: f64,
    pub(super) network: NetworkQuality,
    pub(super) groups: Vec<ClientGroup>,
    pub(super) faults: Vec<Fault>,
    pub(super) random_faults: Option<RandomFaults>,
    pub(super) document: Arc<Document>,
    resources: Vec<Resource>,
}

/// A resource that clients of the scenario want.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Its id.
    pub id: ResourceId,
    /// Its capacity in the document.
    pub capacity: f64,
}

/// Clients with the same pattern of demand. Each has its own random numbers.
#[derive(Debug, Clone)]
pub(super) struct ClientGroup {
    /// For charts.
    name: Option<String>,
    pub(super) count: usize,
    /// The index of the resource.
    pub(super) resource: usize,
    pub(super) priority: i32,
    pub(super) demand: DemandPattern,
}

/// A demand over time. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum DemandPattern {
    Constant {
        wants: f64,
    },
    /// Changes every so often by up to a part of itself.
    RandomWalk {
        start: f64,
        step: f64,
        every: f64,
    },
    Sine {
        mean: f64,
        amplitude: f64,
        period: f64,
    },
    /// A base demand with peaks at random moments, so many seconds apart on average.
    Spikes {
        base: f64,
        peak: f64,
        every: f64,
        #[serde(rename = "for")]
        length: f64,
    },
    /// The rate of random arrivals, counted over such a time.
    Poisson {
        mean: f64,
        every: f64,
    },
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NetworkQuality {
    /// Seconds that every message takes.
    pub(super) delay: f64,
    /// Up to so many seconds more, at random.
    pub(super) jitter: f64,
    /// The part of the messages that is lost.
    pub(super) loss: f64,
    /// The part of the messages that arrives twice.
    pub(super) duplication: f64,
}

impl Default for NetworkQuality {
    fn default() -> Self {
        Self {
            delay: 0.000_5,
            jitter: 0.0,
            loss: 0.0,
            duplication: 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FaultKind {
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
}

impl FaultKind {
    fn is_of_one_server(self) -> bool {
        matches!(
            self,
            Self::CrashServer | Self::StopServer | Self::PauseServer | Self::PartitionServer
        )
    }

    pub(super) fn is_of_clients(self) -> bool {
        matches!(
            self,
            Self::CrashClients | Self::PauseClients | Self::PartitionClients
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
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) at: f64,
    #[serde(rename = "for")]
    pub(super) seconds: f64,
    /// The number of the server; the master by default.
    pub(super) server: Option<usize>,
    /// How many clients, chosen at random; all by default.
    pub(super) clients: Option<usize>,
}

/// Faults at random times, of random servers and single clients.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RandomFaults {
    pub(super) kinds: Vec<FaultKind>,
    /// The mean time between two faults, in seconds.
    pub(super) every: f64,
    /// The longest fault, in seconds.
    #[serde(rename = "for")]
    pub(super) longest: f64,
}

/// The format of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seconds: f64,
    #[serde(default)]
    measure_from: f64,
    #[serde(default)]
    servers: FileServers,
    document: Option<serde_json::Value>,
    clients: Vec<FileClients>,
    #[serde(default)]
    network: NetworkQuality,
    #[serde(default)]
    clock_drift: f64,
    hints: Option<bool>,
    #[serde(default)]
    faults: Vec<Fault>,
    random_faults: Option<RandomFaults>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileServers {
    count: usize,
    election_lease: Option<u32>,
}

impl Default for FileServers {
    fn default() -> Self {
        Self {
            count: 1,
            election_lease: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileClients {
    name: Option<String>,
    count: usize,
    resource: String,
    priority: Option<i32>,
    demand: DemandPattern,
}

/// An invalid scenario: the field, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidScenario(String);

impl fmt::Display for InvalidScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidScenario {}

fn invalid(field: &str, message: impl fmt::Display) -> InvalidScenario {
    InvalidScenario(format!("{field}: {message}"))
}

fn check(field: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), InvalidScenario> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    let message = format!("must be a number from {least} to {most}, not {value}");
    Err(invalid(field, message))
}

/// A time after which something is repeated, or for which it lasts.
fn check_seconds(field: &str, value: f64) -> Result<(), InvalidScenario> {
    check(field, value, 0.1..=MAX_SECONDS)
}

impl Scenario {
    /// Parses and checks a scenario. A given document replaces that of the scenario.
    ///
    /// # Errors
    /// The first invalid field, and what it must be.
    pub fn parse(text: &str, document: Option<Document>) -> Result<Self, InvalidScenario> {
        let value: serde_json::Value = serde_saphyr::from_str(text)
            .map_err(|error| InvalidScenario(first_line(&error.to_string())))?;
        let file: File = serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            match &*path {
                "." => InvalidScenario(error.inner().to_string()),
                path => invalid(path, error.inner()),
            }
        })?;
        file.check(document)
    }

    /// The resources that clients want.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The length of a run in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The second from which shares are measured.
    #[must_use]
    pub fn measure_from(&self) -> f64 {
        self.measure_from
    }

    /// The resource of each client.
    pub fn client_resources(&self) -> impl Iterator<Item = &Resource> {
        let groups = self.groups.iter();
        groups.flat_map(|it| std::iter::repeat_n(&self.resources[it.resource], it.count))
    }

    /// A name for each client: that of its group, with a number if there are several.
    pub fn client_names(&self) -> impl Iterator<Item = String> {
        self.groups.iter().flat_map(|group| {
            let name = group.name.as_deref().unwrap_or("client");
            (0..group.count).map(move |number| match group.count {
                1 => name.to_owned(),
                _ => format!("{name} {number}"),
            })
        })
    }

    /// The number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.groups.iter().map(|group| group.count).sum()
    }
}

impl File {
    fn check(self, document: Option<Document>) -> Result<Scenario, InvalidScenario> {
        check("seconds", self.seconds, 1.0..=MAX_SECONDS)?;
        // There is a sample at each whole second.
        let last_sample = self.seconds.floor();
        check("measure_from", self.measure_from, 0.0..=last_sample)?;
        check("clock_drift", self.clock_drift, 0.0..=0.05)?;
        self.network.check()?;
        let servers = self.servers.count;
        check("servers.count", servers as f64, 1.0..=9.0)?;
        if let Some(lease) = self.servers.election_lease {
            check("servers.election_lease", f64::from(lease), 2.0..=60.0)?;
            if servers == 1 {
                let message = "does not apply: a single server needs no election";
                return Err(invalid("servers.election_lease", message));
            }
        }
        let document = match document {
            Some(document) => document,
            None => own_document(self.document.as_ref())?,
        };
        let (groups, resources) = check_clients(&self.clients, &document)?;
        let clients = groups.iter().map(|group| group.count).sum();
        check(
            "seconds",
            self.seconds,
            1.0..=(MAX_SAMPLES / clients as f64).floor(),
        )?;
        for (index, fault) in self.faults.iter().enumerate() {
            fault.check(&format!("faults[{index}]"), servers, clients, self.seconds)?;
        }
        if let Some(random) = &self.random_faults {
            random.check(servers)?;
        }
        Ok(Scenario {
            seconds: self.seconds,
            measure_from: self.measure_from,
            servers,
            election_lease: self.servers.election_lease.unwrap_or(5),
            hints: self.hints.unwrap_or(true),
            clock_drift: self.clock_drift,
            network: self.network,
            groups,
            faults: self.faults,
            random_faults: self.random_faults,
            document: Arc::new(document),
            resources,
        })
    }
}

/// The document within a scenario.
fn own_document(value: Option<&serde_json::Value>) -> Result<Document, InvalidScenario> {
    let Some(value) = value else {
        let message = "is missing; must be here or in a file of its own";
        return Err(invalid("document", message));
    };
    Document::parse_json(&value.to_string()).map_err(|errors| {
        let first = errors.list().first().map(ToString::to_string);
        InvalidScenario(format!("document: {}", first.unwrap_or_default()))
    })
}

fn check_clients(
    clients: &[FileClients],
    document: &Document,
) -> Result<(Vec<ClientGroup>, Vec<Resource>), InvalidScenario> {
    let mut resources: Vec<Resource> = Vec::new();
    let mut groups = Vec::new();
    let mut total = 0_usize;
    for (index, group) in clients.iter().enumerate() {
        let field = |name: &str| format!("clients[{index}].{name}");
        check(
            &field("count"),
            group.count as f64,
            1.0..=MAX_CLIENTS as f64,
        )?;
        total = total.saturating_add(group.count);
        group.demand.check(&field("demand"))?;
        let id = ResourceId::new(&*group.resource)
            .map_err(|error| invalid(&field("resource"), error))?;
        let known = resources.iter().position(|it| it.id == id);
        let resource = match known {
            Some(known) => known,
            None => {
                let capacity = simulated_capacity(document, &id)
                    .map_err(|message| invalid(&field("resource"), message))?;
                resources.push(Resource { id, capacity });
                resources.len() - 1
            }
        };
        let template = document.lookup(&resources[resource].id);
        let kind = template.map(|it| it.algorithm().kind);
        if group.priority.is_some() && kind != Some(AlgorithmKind::PriorityShare) {
            let message = "does not apply: the algorithm of the resource is not PRIORITY_SHARE";
            return Err(invalid(&field("priority"), message));
        }
        groups.push(ClientGroup {
            name: group.name.clone(),
            count: group.count,
            resource,
            priority: group.priority.unwrap_or(0),
            demand: group.demand,
        });
    }
    if !(1..=MAX_CLIENTS).contains(&total) {
        let message = format!("must be 1 to {MAX_CLIENTS} clients together, not {total}");
        return Err(invalid("clients", message));
    }
    Ok((groups, resources))
}

/// The capacity of a resource whose algorithm divides it.
fn simulated_capacity(document: &Document, id: &ResourceId) -> Result<f64, String> {
    let Some(template) = document.lookup(id) else {
        return Err(format!("no template of the document matches {id:?}"));
    };
    match template.algorithm().kind {
        AlgorithmKind::FairShare
        | AlgorithmKind::ProportionalShare
        | AlgorithmKind::PriorityShare => Ok(template.capacity().get()),
        _ => Err(format!(
            "the algorithm of {:?} must be FAIR_SHARE, PROPORTIONAL_SHARE or PRIORITY_SHARE, \
             which divide the capacity",
            template.identifier_glob()
        )),
    }
}

impl NetworkQuality {
    fn check(&self) -> Result<(), InvalidScenario> {
        check("network.delay", self.delay, 0.0..=10.0)?;
        check("network.jitter", self.jitter, 0.0..=10.0)?;
        check("network.loss", self.loss, 0.0..=0.5)?;
        check("network.duplication", self.duplication, 0.0..=0.5)
    }
}

impl DemandPattern {
    fn check(&self, field: &str) -> Result<(), InvalidScenario> {
        let wants = |name: &str, value| check(&format!("{field}.{name}"), value, 0.0..=MAX_WANTS);
        let seconds = |name: &str, value| check_seconds(&format!("{field}.{name}"), value);
        match *self {
            Self::Constant { wants: value } => wants("constant.wants", value),
            Self::RandomWalk { start, step, every } => {
                wants("random_walk.start", start)?;
                check(&format!("{field}.random_walk.step"), step, 0.0..=1.0)?;
                seconds("random_walk.every", every)
            }
            Self::Sine {
                mean,
                amplitude,
                period,
            } => {
                wants("sine.mean", mean)?;
                check(&format!("{field}.sine.amplitude"), amplitude, 0.0..=mean)?;
                seconds("sine.period", period)
            }
            Self::Spikes {
                base,
                peak,
                every,
                length,
            } => {
                wants("spikes.base", base)?;
                wants("spikes.peak", peak)?;
                seconds("spikes.every", every)?;
                seconds("spikes.for", length)
            }
            Self::Poisson { mean, every } => {
                seconds("poisson.every", every)?;
                let most = MAX_ARRIVALS / every;
                check(&format!("{field}.poisson.mean"), mean, 0.0..=most)
            }
        }
    }
}

impl Fault {
    fn check(
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
    fn check(&self, servers: usize) -> Result<(), InvalidScenario> {
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

fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
