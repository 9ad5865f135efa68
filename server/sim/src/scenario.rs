//! Scenarios: servers, clients with demand patterns, a network and faults, read from YAML.
//!
//! Everything that the format accepts has an effect. An unknown key, a value out of its range, and
//! a field that does not apply are errors that name the field.

mod changes;
mod clients;
mod demand;
mod faults;
mod nodes;
mod script;
pub(crate) mod steps;
mod targets;
pub(crate) mod wave;

use std::{
    fmt, iter,
    ops::{Range, RangeInclusive},
    sync::Arc,
    time::Duration,
};

use doorman_config::Document;
use doorman_core::ledger::Tuning;
use doorman_openapi::AlgorithmKind;
use serde::Deserialize;
use tower_doorman::lease::SimulatedLayer;

pub use self::clients::Resource;
pub(super) use self::{
    changes::Change,
    clients::{Claims, ClientGroup, DemandSource, Load, OwnLimits, Requests, Use, Window},
    demand::{DemandPattern, MAX_WANTS},
    faults::{DemandChange, FaultKind, RandomFaults, ScenarioFault},
    nodes::ScenarioNode,
    targets::{RateLimit, ScenarioTarget, Steps, TargetKind},
};
use self::{
    changes::{FileChange, check_changes},
    clients::{Context, FileClients, check_clients, check_loads, check_requests},
    faults::{FaultContext, FileFault, FileRandomFaults, most_added},
    nodes::{FileNode, check_nodes},
    targets::{FileTarget, check_targets},
};

use crate::limits::{Algorithm, Glob, Limit, LimitUnit, resource_id};

/// The longest run, in seconds.
const MAX_SECONDS: f64 = 86_400.0;
/// The most seconds times resources of clients: what all samples of a run hold.
const MAX_SAMPLES: f64 = 5e6;

/// Whether clients poll, and what becomes of the hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollMode {
    /// Clients do not poll.
    Off,
    /// Hints are messages like others.
    On,
    /// Clients also receive invented hints.
    Mad,
    /// All hints are lost.
    Lost,
}

/// A valid scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    title: Option<String>,
    pub(super) seconds: f64,
    pub(super) measure_from: f64,
    pub(super) measure_until: f64,
    /// The root, and the nodes below it.
    pub(super) nodes: Vec<ScenarioNode>,
    pub(super) election_lease: u32,
    pub(super) polls: PollMode,
    pub(super) clock_drift: f64,
    pub(super) network: NetworkQuality,
    pub(super) groups: Vec<ClientGroup>,
    pub(super) loads: Vec<Load>,
    pub(super) targets: Vec<ScenarioTarget>,
    /// The time after which the units of an overloaded request to a gauge return.
    pub(super) cool_down: Duration,
    pub(super) changes: Vec<Change>,
    pub(super) faults: Vec<ScenarioFault>,
    pub(super) random_faults: Option<RandomFaults>,
    pub(super) document: Arc<Document>,
    resources: Vec<Resource>,
    /// At the beginning.
    capacities: Vec<f64>,
    /// The constants of the ledgers.
    pub(super) tuning: &'static Tuning,
}

/// A resource of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioHolder {
    /// The number of the client, from 0 on.
    pub client: usize,
    /// The name of its group, with a number if there are several.
    pub name: String,
    /// The position in [`Scenario::resources`].
    pub resource: usize,
    /// Whether it sends requests, instead of stating its demand.
    pub sends_requests: bool,
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
    /// Seconds until a lost message is sent again. `None`: it is not.
    #[serde(skip)]
    pub(super) retransmission: Option<f64>,
}

impl Default for NetworkQuality {
    fn default() -> Self {
        Self {
            delay: 0.000_5,
            jitter: 0.0,
            loss: 0.0,
            duplication: 0.0,
            retransmission: None,
        }
    }
}

/// The format of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    seconds: f64,
    #[serde(default)]
    measure_from: f64,
    measure_until: Option<f64>,
    #[serde(default)]
    servers: FileServers,
    #[serde(default)]
    nodes: Vec<FileNode>,
    document: Option<serde_json::Value>,
    clients: Vec<FileClients>,
    #[serde(default)]
    loads: Vec<Load>,
    #[serde(default)]
    targets: Vec<FileTarget>,
    #[serde(default)]
    changes: Vec<FileChange>,
    #[serde(default)]
    network: NetworkQuality,
    #[serde(default)]
    clock_drift: f64,
    hints: Option<bool>,
    #[serde(default)]
    faults: Vec<FileFault>,
    random_faults: Option<FileRandomFaults>,
}

/// The servers of the root.
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
    /// The same with other constants of the ledgers.
    #[must_use]
    pub fn with_tuning(self, tuning: &'static Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// The limit of a scenario whose clients all use the first of the known resources, if its
    /// algorithm divides.
    pub(crate) fn limit(&self) -> Option<Limit> {
        let [resource] = self.resources() else {
            return None;
        };
        let template = self.document.lookup(&resource.id)?;
        let algorithm = template.algorithm();
        Some(Limit {
            capacity: resource.capacity,
            unit: LimitUnit::Rate { per: 1.0 },
            glob: Glob::Exact,
            algorithm: match algorithm.kind {
                AlgorithmKind::FairShare => Algorithm::Fair,
                AlgorithmKind::ProportionalShare => Algorithm::Proportional,
                _ => return None,
            },
            lease_length: algorithm.lease_length.get(),
            refresh_interval: algorithm.refresh_interval.get(),
            minimum_refresh_interval: 0.0,
            feedback: None,
        })
        .filter(|_| resource.id == resource_id(0))
    }

    /// For each use of a client of this group an even part of the capacity, in requests a second.
    pub(crate) fn even_rates(&self, group: &ClientGroup) -> Vec<f64> {
        let rate = |resource: usize| {
            let users = self.groups.iter().map(|other| {
                let same = other.uses.iter();
                let same = same.filter(|it| other.resources[it.slot] == resource);
                other.count * same.count()
            });
            let users: usize = users.sum();
            self.capacities[resource] / self.resources[resource].per / users as f64
        };
        let uses = group.uses.iter().map(|it| group.resources[it.slot]);
        uses.map(rate).collect()
    }

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

    /// Lets the units of an overloaded request to a gauge return at once, as no layer does.
    #[must_use]
    pub fn without_cool_down(mut self) -> Self {
        self.cool_down = Duration::ZERO;
        self
    }

    /// For charts.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// The resources that clients use.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The capacities of the resources in force at a second.
    #[must_use]
    pub fn capacities(&self, second: f64) -> &[f64] {
        let past = self.changes.iter().take_while(|it| it.at <= second);
        past.last().map_or(&self.capacities, |it| &it.capacities)
    }

    /// The most that may be leased of a resource at a second: leases from before a cut may last.
    pub(super) fn leasable(&self, resource: usize, second: f64) -> f64 {
        // A server that crashes after a cut learns for one lease, and lets clients keep their
        // capacity for another.
        let lease = self.document.longest_lease().get();
        let elections = f64::from(self.election_lease);
        let levels = (0..self.nodes.len()).map(|node| self.level(node)).max();
        let levels = 1.0 + levels.unwrap_or(0) as f64;
        let earliest = second - 4.0 * (lease + elections) * levels;
        let before = self.capacities(earliest)[resource];
        let changes = self.changes.iter();
        let since = changes.filter(|it| it.at > earliest && it.at <= second);
        let since = since.map(|it| it.capacities[resource]);
        since.fold(before, f64::max)
    }

    /// The level of a node in the tree: 0 for the root.
    fn level(&self, node: usize) -> usize {
        iter::successors(Some(node), |it| self.nodes[*it].parent).count() - 1
    }

    /// The numbers of the servers of a node. They count over all nodes.
    pub(super) fn servers_of(&self, node: usize) -> Range<usize> {
        let before = self.nodes.iter().take(node).map(|it| it.servers);
        let first: usize = before.sum();
        first..first + self.nodes[node].servers
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

    /// The second up to which shares are measured.
    #[must_use]
    pub fn measure_until(&self) -> f64 {
        self.measure_until
    }

    /// Each resource of each client, in the order of [`Sample::holders`](super::Sample::holders).
    pub fn holders(&self) -> impl Iterator<Item = ScenarioHolder> {
        let members = self.groups.iter().flat_map(|group| {
            let name = group.name();
            (0..group.count).map(move |number| match group.count {
                1 => (group, name.to_owned()),
                _ => (group, format!("{name} {number}")),
            })
        });
        members.enumerate().flat_map(|(client, (group, name))| {
            let resources = group.resources.iter();
            resources.map(move |resource| ScenarioHolder {
                client,
                name: name.clone(),
                resource: *resource,
                sends_requests: group.requests.is_some(),
            })
        })
    }

    /// The seconds at which the level that is right for a target may change, in order.
    pub(super) fn level_changes(&self, target: &ScenarioTarget) -> Vec<f64> {
        let demands = self.faults.iter();
        let demands = demands.filter(|it| it.kind == FaultKind::ChangeDemand);
        let mut changes: Vec<_> = target.changes();
        changes.extend(demands.map(|it| it.at));
        changes.extend(self.changes.iter().map(|it| it.at));
        changes.sort_by(f64::total_cmp);
        changes.dedup();
        changes
    }

    /// The changes with their times, in order. Random faults are not part of it.
    pub(super) fn events(&self) -> Vec<(f64, String)> {
        let starts = self.groups.iter().filter(|it| it.start.at > 0.0);
        let starts = starts.map(|it| (it.start.at, format!("{} starts", it.name())));
        let stops = self.groups.iter().filter_map(|it| {
            let stop = it.stop?;
            Some((stop.at, format!("{} stops", it.name())))
        });
        let mut before = &self.capacities;
        let changes = self.changes.iter().flat_map(|change| {
            let after = &change.capacities;
            let pairs = self
                .resources
                .iter()
                .zip(std::mem::replace(&mut before, after).iter().zip(after));
            let changed = pairs.filter(|(_, (before, after))| before != after);
            changed.map(|(resource, (before, after))| {
                (
                    change.at,
                    format!("capacity of {}: {before} → {after}", resource.id),
                )
            })
        });
        let targets = self.targets.iter().flat_map(|target| {
            let id = &self.resources[target.resource].id;
            let changes = target.changes().into_iter();
            changes.map(move |at| {
                let accepts = target.accepts(at);
                (at, format!("target of {id} accepts {accepts} a second"))
            })
        });
        let faults = self.faults.iter().flat_map(|fault| {
            let name = fault.kind.name();
            let at = match fault.nodes[..] {
                [node] if self.nodes.len() > 1 && !fault.kind.is_of_clients() => {
                    format!(" at {}", self.nodes[node].name)
                }
                _ => String::new(),
            };
            if fault.kind.lasts() {
                let begin = (fault.at, format!("{name}{at} begins"));
                vec![
                    begin,
                    (fault.at + fault.seconds, format!("{name}{at} ends")),
                ]
            } else {
                vec![(fault.at, format!("{name}{at}"))]
            }
        });
        let mut events: Vec<_> = starts
            .chain(stops)
            .chain(changes)
            .chain(targets)
            .chain(faults)
            .collect();
        events.retain(|(at, _)| *at < self.seconds);
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        events
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
        let measure_until = self.measure_until.unwrap_or(self.seconds);
        let measurable = self.measure_from..=self.seconds;
        check("measure_until", measure_until, measurable)?;
        check("clock_drift", self.clock_drift, 0.0..=0.05)?;
        self.network.check()?;
        let nodes = self.check_nodes()?;
        let document = match document {
            Some(document) => document,
            None => own_document(self.document.as_ref())?,
        };
        check_loads(&self.loads)?;
        let context = Context {
            document: &document,
            loads: &self.loads,
            nodes: &nodes,
            seconds: self.seconds,
        };
        let (groups, mut resources) = check_clients(&self.clients, &context)?;
        let holders = groups.iter().map(|it| it.count * it.resources.len());
        let most = (MAX_SAMPLES / holders.sum::<usize>() as f64).floor();
        check("seconds", self.seconds, 1.0..=most)?;
        let targets = check_targets(&self.targets, &mut resources, &groups, self.seconds)?;
        let changes = check_changes(&self.changes, &document, &resources, self.seconds)?;
        let fault_context = FaultContext {
            nodes: &nodes,
            groups: &groups,
            seconds: self.seconds,
        };
        let (faults, random_faults) = self.check_faults(&fault_context)?;
        let added = most_added(&faults, random_faults.as_ref(), &fault_context);
        check_requests(&groups, &resources, added, &context)?;
        Ok(Scenario {
            title: self.title,
            seconds: self.seconds,
            measure_from: self.measure_from,
            measure_until,
            nodes,
            election_lease: self.servers.election_lease.unwrap_or(5),
            polls: match self.hints {
                Some(false) => PollMode::Off,
                _ => PollMode::On,
            },
            clock_drift: self.clock_drift,
            network: self.network,
            groups,
            loads: self.loads,
            targets,
            cool_down: SimulatedLayer::COOL_DOWN,
            changes,
            tuning: &Tuning::DEFAULT,
            faults,
            random_faults,
            document: Arc::new(document),
            capacities: resources.iter().map(|it| it.capacity).collect(),
            resources,
        })
    }

    fn check_nodes(&self) -> Result<Vec<ScenarioNode>, InvalidScenario> {
        let nodes = check_nodes(self.servers.count, &self.nodes)?;
        if let Some(lease) = self.servers.election_lease {
            check("servers.election_lease", f64::from(lease), 2.0..=60.0)?;
            if nodes.iter().all(|it| it.servers == 1) {
                let message = "does not apply: a single server needs no election";
                return Err(invalid("servers.election_lease", message));
            }
        }
        Ok(nodes)
    }

    fn check_faults(
        &self,
        context: &FaultContext<'_>,
    ) -> Result<(Vec<ScenarioFault>, Option<RandomFaults>), InvalidScenario> {
        let faults = self.faults.iter().enumerate();
        let faults = faults.map(|(index, it)| it.check(&format!("faults[{index}]"), context));
        let random = self.random_faults.as_ref();
        let random = random.map(|it| it.check(context)).transpose()?;
        Ok((faults.collect::<Result<_, _>>()?, random))
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

impl NetworkQuality {
    fn check(&self) -> Result<(), InvalidScenario> {
        check("network.delay", self.delay, 0.0..=10.0)?;
        check("network.jitter", self.jitter, 0.0..=10.0)?;
        check("network.loss", self.loss, 0.0..=0.5)?;
        check("network.duplication", self.duplication, 0.0..=0.5)
    }
}

fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
