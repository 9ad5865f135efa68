//! Clients: what they use, when they start and stop, and whether they send requests.

use std::collections::BTreeSet;

use doorman_config::Document;
use doorman_openapi::{AlgorithmKind, ResourceId, Seconds, Unit};
use serde::Deserialize;

use super::{
    InvalidScenario, ScenarioNode, check,
    demand::DemandPattern,
    invalid,
    nodes::{find_nodes, leaves},
};

/// The most clients of a scenario.
const MAX_CLIENTS: usize = 10_000;
/// The most demands of one client.
const MAX_USES: usize = 16;
/// The most requests of a run.
const MAX_REQUESTS: f64 = 1e8;
/// The highest rate that a network passes, in requests a second.
const MAX_RATE: f64 = 1e6;
/// Seconds within which clients start that do not say when.
const JOINING: f64 = 5.0;

/// A resource that clients of the scenario use.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Its id.
    pub id: ResourceId,
    /// Its capacity in the document, at the beginning.
    pub capacity: f64,
    /// Its algorithm.
    pub algorithm: AlgorithmKind,
    /// Its unit.
    pub unit: Unit,
    /// The seconds that amounts are per: the period of a rate; of a gauge with requests the mean
    /// time of one at its target, else 1.
    pub per: f64,
    /// The mean time of a request above which a gauge is overloaded, in seconds.
    pub(crate) slow_from: Option<f64>,
    /// The template of the document.
    pub(crate) template: String,
}

impl Resource {
    /// Whether the sum of its leases stays within the capacity.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        matches!(
            self.algorithm,
            AlgorithmKind::FairShare
                | AlgorithmKind::ProportionalShare
                | AlgorithmKind::PriorityShare
        )
    }

    /// Whether each lease is the whole capacity, so that only admitted requests tell what a client
    /// gets.
    #[must_use]
    pub fn is_leased_whole(&self) -> bool {
        matches!(
            self.algorithm,
            AlgorithmKind::SharedBucket | AlgorithmKind::Suppression
        )
    }
}

/// A demand that a balancer spreads evenly over the running clients that use it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    name: String,
    pub(crate) demand: DemandPattern,
}

/// Clients of the same kind. Each has its own random numbers.
#[derive(Debug, Clone)]
pub(crate) struct ClientGroup {
    /// For charts and tables.
    pub(super) name: Option<String>,
    pub(crate) count: usize,
    /// The nodes over which the clients are spread evenly.
    pub(crate) nodes: Vec<usize>,
    /// The indices of the resources, each once.
    pub(crate) resources: Vec<usize>,
    pub(crate) uses: Vec<Use>,
    /// `None`: clients state their demand instead of sending requests.
    pub(crate) requests: Option<Requests>,
    /// Their claim about requests to targets; `None`: the truth.
    pub(crate) claims: Option<Claims>,
    /// The requests a second that their network passes, of all of them together.
    pub(crate) passes: Option<f64>,
    /// How they limit themselves; `None`: by leases.
    pub(crate) limits: Option<OwnLimits>,
    pub(crate) start: Window,
    pub(crate) stop: Option<Window>,
}

impl ClientGroup {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("client")
    }
}

/// A demand of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    /// The position among the resources of the group.
    pub(crate) slot: usize,
    pub(crate) priority: i32,
    pub(crate) demand: DemandSource,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DemandSource {
    Own(DemandPattern),
    /// By its index.
    Load(usize),
}

/// The claim of a client about its requests.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(from = "FileClaims")]
pub(crate) enum Claims {
    /// This part of the requests that were served was refused.
    Refused(f64),
    /// None was refused.
    Served,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be always, never or a number from 0 to 1")]
enum FileClaims {
    Word(ClaimsWord),
    Part(f64),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClaimsWord {
    Always,
    Never,
}

impl From<FileClaims> for Claims {
    fn from(claims: FileClaims) -> Self {
        match claims {
            FileClaims::Word(ClaimsWord::Always) => Self::Refused(1.0),
            FileClaims::Word(ClaimsWord::Never) => Self::Served,
            FileClaims::Part(part) => Self::Refused(part),
        }
    }
}

/// How a client limits itself without leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnLimits {
    /// Additive increase, multiplicative decrease after an overload.
    Aimd,
}

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Requests {
    /// At equal distances.
    Even,
    /// Independently of each other, at random.
    Random,
}

/// A time within which something happens to each client, at random moments.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    pub(crate) at: f64,
    #[serde(default)]
    pub(crate) within: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileClients {
    name: Option<String>,
    count: usize,
    node: Option<String>,
    resource: Option<String>,
    priority: Option<i32>,
    demand: Option<DemandPattern>,
    load: Option<String>,
    uses: Option<Vec<FileUse>>,
    requests: Option<Requests>,
    claims: Option<Claims>,
    passes: Option<f64>,
    limits: Option<OwnLimits>,
    start: Option<Window>,
    stop: Option<Window>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileUse {
    resource: Option<String>,
    priority: Option<i32>,
    demand: Option<DemandPattern>,
    load: Option<String>,
}

/// The parts of a scenario that clients refer to.
pub(super) struct Context<'a> {
    pub(super) document: &'a Document,
    pub(super) loads: &'a [Load],
    pub(super) nodes: &'a [ScenarioNode],
    pub(super) seconds: f64,
}

pub(super) fn check_loads(loads: &[Load]) -> Result<(), InvalidScenario> {
    let mut names = BTreeSet::new();
    for (index, load) in loads.iter().enumerate() {
        let field = format!("loads[{index}]");
        load.demand.check(&format!("{field}.demand"))?;
        if !names.insert(&load.name) {
            return Err(invalid(&format!("{field}.name"), "is used twice"));
        }
    }
    Ok(())
}

/// Returns the groups, and the resources that they use.
pub(super) fn check_clients(
    clients: &[FileClients],
    context: &Context<'_>,
) -> Result<(Vec<ClientGroup>, Vec<Resource>), InvalidScenario> {
    let mut resources: Vec<Resource> = Vec::new();
    let mut groups = Vec::new();
    let mut total = 0_usize;
    for (index, group) in clients.iter().enumerate() {
        let field = format!("clients[{index}]");
        let count = group.count as f64;
        check(&format!("{field}.count"), count, 1.0..=MAX_CLIENTS as f64)?;
        total = total.saturating_add(group.count);
        groups.push(group.check(&field, context, &mut resources)?);
    }
    if !(1..=MAX_CLIENTS).contains(&total) {
        let message = format!("must be 1 to {MAX_CLIENTS} clients together, not {total}");
        return Err(invalid("clients", message));
    }
    for (index, load) in context.loads.iter().enumerate() {
        let is_it = |it: &Use| it.demand == DemandSource::Load(index);
        if !groups.iter().flat_map(|it| &it.uses).any(is_it) {
            let message = format!("has no effect: no client has `load: {}`", load.name);
            return Err(invalid(&format!("loads[{index}]"), message));
        }
    }
    Ok((groups, resources))
}

/// Checks the number of requests, if faults add `added` to the demand of each resource.
pub(super) fn check_requests(
    groups: &[ClientGroup],
    resources: &[Resource],
    added: f64,
    context: &Context<'_>,
) -> Result<(), InvalidScenario> {
    let rates = groups.iter();
    let rates = rates.map(|it| it.requests_per_second(context.loads, resources, added));
    let requests = rates.sum::<f64>() * context.seconds;
    if requests > MAX_REQUESTS {
        let message = format!("must send at most {MAX_REQUESTS} requests in a run, not {requests}");
        return Err(invalid("clients", message));
    }
    Ok(())
}

impl FileClients {
    fn check(
        &self,
        field: &str,
        context: &Context<'_>,
        resources: &mut Vec<Resource>,
    ) -> Result<ClientGroup, InvalidScenario> {
        let own = FileUse {
            resource: self.resource.clone(),
            priority: self.priority,
            demand: self.demand,
            load: self.load.clone(),
        };
        let has_own = own.resource.is_some()
            || own.priority.is_some()
            || own.demand.is_some()
            || own.load.is_some();
        let uses = match &self.uses {
            None => vec![(field.to_owned(), own)],
            Some(_) if has_own => {
                let message = "does not apply beside resource, priority, demand and load";
                return Err(invalid(&format!("{field}.uses"), message));
            }
            Some(uses) => {
                let name = format!("{field}.uses");
                if !(1..=MAX_USES).contains(&uses.len()) {
                    let message = format!("must be 1 to {MAX_USES}, not {}", uses.len());
                    return Err(invalid(&name, message));
                }
                let named = uses.iter().enumerate();
                let named = named.map(|(index, it)| (format!("{name}[{index}]"), it.clone()));
                named.collect()
            }
        };
        let nodes = match &self.node {
            Some(name) => find_nodes(context.nodes, name, &format!("{field}.node"))?,
            None => leaves(context.nodes),
        };
        let mut group = ClientGroup {
            name: self.name.clone(),
            count: self.count,
            nodes,
            resources: Vec::new(),
            uses: Vec::new(),
            requests: self.requests,
            claims: self.claims,
            passes: self.passes,
            limits: self.limits,
            start: self.start.unwrap_or(Window {
                at: 0.0,
                within: JOINING,
            }),
            stop: self.stop,
        };
        for (field, it) in &uses {
            it.check(field, context, resources, &mut group)?;
        }
        group.choose_requests(resources);
        group.check_way_to_targets(field)?;
        group.check_times(field, context)?;
        Ok(group)
    }
}

impl FileUse {
    fn check(
        &self,
        field: &str,
        context: &Context<'_>,
        resources: &mut Vec<Resource>,
        group: &mut ClientGroup,
    ) -> Result<(), InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        let Some(resource) = &self.resource else {
            return Err(invalid(
                &name("resource"),
                "is missing; must be a resource id",
            ));
        };
        let id = ResourceId::new(&**resource).map_err(|error| invalid(&name("resource"), error))?;
        let demand = self.check_demand(field, context)?;
        let index = match resources.iter().position(|it| it.id == id) {
            Some(known) => known,
            None => {
                let resource = find_resource(context.document, id)
                    .map_err(|message| invalid(&name("resource"), message))?;
                resources.push(resource);
                resources.len() - 1
            }
        };
        let has_priorities = resources[index].algorithm == AlgorithmKind::PriorityShare;
        if self.priority.is_some() && !has_priorities {
            let message = "does not apply: the algorithm of the resource is not PRIORITY_SHARE";
            return Err(invalid(&name("priority"), message));
        }
        let priority = self.priority.unwrap_or(0);
        let slot = match group.resources.iter().position(|it| *it == index) {
            None => {
                group.resources.push(index);
                group.resources.len() - 1
            }
            Some(slot) => {
                let is_same = |it: &Use| (it.slot, it.priority) == (slot, priority);
                if group.uses.iter().any(is_same) {
                    let message = "is used before; one use of a resource must have one priority";
                    return Err(invalid(&name("resource"), message));
                }
                slot
            }
        };
        group.uses.push(Use {
            slot,
            priority,
            demand,
        });
        Ok(())
    }

    fn check_demand(
        &self,
        field: &str,
        context: &Context<'_>,
    ) -> Result<DemandSource, InvalidScenario> {
        let name = |name: &str| format!("{field}.{name}");
        match (self.demand, &self.load) {
            (Some(demand), None) => {
                demand.check(&name("demand"))?;
                Ok(DemandSource::Own(demand))
            }
            (None, Some(load)) => {
                let index = context.loads.iter().position(|it| it.name == *load);
                let message = || format!("no entry of loads has the name {load:?}");
                let index = index.ok_or_else(|| invalid(&name("load"), message()))?;
                Ok(DemandSource::Load(index))
            }
            (None, None) => {
                let message = "is missing; must be a pattern, or `load` the name of a load";
                Err(invalid(&name("demand"), message))
            }
            (Some(_), Some(_)) => Err(invalid(&name("load"), "does not apply beside a demand")),
        }
    }
}

impl ClientGroup {
    /// Sends requests where only they show anything.
    fn choose_requests(&mut self, resources: &[Resource]) {
        let mut used = self.resources.iter().map(|it| &resources[*it]);
        if used.any(Resource::is_leased_whole) && self.requests.is_none() {
            self.requests = Some(Requests::Random);
        }
    }

    fn check_times(&self, field: &str, context: &Context<'_>) -> Result<(), InvalidScenario> {
        self.start.check(&format!("{field}.start"), context)?;
        let Some(stop) = self.stop else {
            return Ok(());
        };
        stop.check(&format!("{field}.stop"), context)?;
        let started = self.start.at + self.start.within;
        check(
            &format!("{field}.stop.at"),
            stop.at,
            started..=context.seconds,
        )
    }

    fn check_way_to_targets(&self, field: &str) -> Result<(), InvalidScenario> {
        if let Some(Claims::Refused(part)) = self.claims {
            check(&format!("{field}.claims"), part, 0.0..=1.0)?;
        }
        if let Some(rate) = self.passes {
            check(&format!("{field}.passes"), rate, 0.0..=MAX_RATE)?;
        }
        Ok(())
    }

    pub(super) fn sends_requests_for(&self, resource: usize) -> bool {
        self.requests.is_some() && self.resources.contains(&resource)
    }

    /// Whether a client has a demand that is constant or a random walk.
    pub(super) fn has_steady_demand(&self) -> bool {
        let is_steady = |it: &Use| matches!(it.demand, DemandSource::Own(own) if own.is_steady());
        self.uses.iter().any(is_steady)
    }

    /// The most requests of all its clients in a second, as far as it is known, if `added` is added
    /// to each demand.
    fn requests_per_second(&self, loads: &[Load], resources: &[Resource], added: f64) -> f64 {
        if self.requests.is_none() {
            return 0.0;
        }
        let rates = self.uses.iter().map(|it| {
            let per = resources[self.resources[it.slot]].per;
            match it.demand {
                DemandSource::Own(demand) => (self.count as f64 * demand.most() + added) / per,
                DemandSource::Load(load) => loads[load].demand.most() / per,
            }
        });
        rates.sum()
    }
}

impl Window {
    fn check(self, field: &str, context: &Context<'_>) -> Result<(), InvalidScenario> {
        check(&format!("{field}.at"), self.at, 0.0..=context.seconds)?;
        let most = context.seconds - self.at;
        check(&format!("{field}.within"), self.within, 0.0..=most)
    }
}

fn find_resource(document: &Document, id: ResourceId) -> Result<Resource, String> {
    let Some(template) = document.lookup(&id) else {
        return Err(format!("no template of the document matches {id:?}"));
    };
    Ok(Resource {
        id,
        capacity: template.capacity().get(),
        algorithm: template.algorithm().kind,
        unit: template.unit(),
        per: match template.unit() {
            Unit::Rate => template.per().get(),
            Unit::Gauge => 1.0,
        },
        slow_from: template
            .feedback()
            .and_then(|it| it.latency)
            .map(Seconds::get),
        template: template.identifier_glob().to_owned(),
    })
}
