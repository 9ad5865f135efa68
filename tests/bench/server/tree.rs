//! Load of a root with 100 nodes of 1,000 clients each, beside the same clients at the root itself.
//!
//! The ledgers, the requests to the parent and the hints are those of the server, in virtual time;
//! bytes are those of bodies in JSON. All holders poll for hints, and ask again when they should.
//! The clients want 1.25 times the capacity. Time is that of the root's CPU, with JSON but without
//! HTTP.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark is not suspended while it measures"
)]

use std::{
    collections::HashMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use doorman_bench::{Options, Row, Samples, Table, Target};
use doorman_config::Document;
use doorman_core::{
    ledger::{
        Grant, HintBatch, HolderId, Ledger, PollTicket, Predecessor, Settings, UnmatchedPolicy,
    },
    upstream::{Effect, Event, ParentLink, Upstream},
};
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, HeldLease, HintsResponse, Moment,
    NodeId, ResourceId, ResourceRequest, Seq, ServerCapacityRequest, ServerCapacityResponse,
};
use serde::{Serialize, de::DeserializeOwned};

const NODES: usize = 100;
const START: Moment = Moment::from_nanos(3_600_000_000_000);
const STEP: Duration = Duration::from_millis(10);
/// Steps of a second.
const SECOND: usize = 100;
/// Seconds before the measurement, for all to join and settle.
const WARM_UP: usize = 30;
/// The mean demand of a client.
const DEMAND: f64 = 100.0;
/// The part of the demand that the capacity covers.
const COVERED: f64 = 0.8;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let options = Options::from_args();
    let (clients, seconds) = options.pick((1_000, 60), (20, 20));
    let names = [
        "constant demand",
        "each second 1 % of the clients want another amount",
    ];
    let mut tables = [
        Table::new("Load of a root", "requests and polls per second"),
        Table::new("Load of a root", "bytes per second"),
        Table::new("Load of a root", "µs of CPU per second"),
    ];
    for (name, changing) in names.into_iter().zip([0.0, 0.01]) {
        let flat = measure(1, NODES * clients, changing, seconds, false)?;
        let tree = measure(NODES, clients, changing, seconds, true)?;
        let subject = format!("{NODES} nodes of {clients} clients, {name}");
        let baseline = format!("{} clients", NODES * clients);
        for ((table, tree), flat) in tables.iter_mut().zip(tree).zip(flat) {
            let (tree, flat) = (Samples::constant(tree), Samples::constant(flat));
            table.add(Row::ratio(&subject, &tree, &baseline, &flat, Target::None));
        }
    }
    for table in tables {
        table.print();
    }
    Ok(())
}

/// Requests, bytes and microseconds of the root per second.
fn measure(
    nodes: usize,
    clients: usize,
    changing: f64,
    seconds: usize,
    is_tree: bool,
) -> Result<[f64; 3]> {
    let capacity = (nodes * clients) as f64 * DEMAND * COVERED;
    let document = Arc::new(Document::parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: FAIR_SHARE, \
         lease_length: 60, refresh_interval: 8}}}}]"
    ))?);
    let mut random = fastrand::Rng::with_seed(7);
    let ledger = |document| Ledger::new(document, SETTINGS, START);
    let mut root = Root::new(ledger(Arc::clone(&document)));
    let mut fleets = Vec::new();
    for index in 0..nodes {
        let below =
            is_tree.then(|| Node::new(index, ledger(Arc::new(Document::built_in())).of_parent()));
        fleets.push(Fleet::new(index, clients, below.transpose()?, &mut random)?);
    }
    let mut now = START;
    for step in 0..(WARM_UP + seconds) * SECOND {
        if step == WARM_UP * SECOND {
            root.load = Load::default();
        }
        now = now.after(STEP);
        for fleet in &mut fleets {
            if step > WARM_UP * SECOND / 2 && step.is_multiple_of(SECOND) {
                fleet.change_demands(changing, &mut random);
            }
            fleet.step(&mut root, now)?;
        }
        root.deliver_hints(&mut fleets, now)?;
    }
    let per_second = |total: f64| total / seconds as f64;
    let Load {
        requests,
        bytes,
        time,
    } = root.load;
    Ok([
        per_second(requests as f64),
        per_second(bytes as f64),
        per_second(time.as_secs_f64() * 1e6),
    ])
}

const SETTINGS: Settings = Settings {
    max_leases: 1_000_000,
    unmatched: UnmatchedPolicy::Grant,
    predecessor: Predecessor::None,
    epoch: Epoch::ZERO,
};

#[derive(Debug, Default)]
struct Load {
    requests: u64,
    bytes: usize,
    time: Duration,
}

/// Whom a poll at the root belongs to.
#[derive(Debug, Clone, Copy)]
enum Poller {
    Client { fleet: usize, client: usize },
    Node { fleet: usize },
}

struct Root {
    ledger: Ledger,
    load: Load,
    polls: HashMap<PollTicket, Poller>,
    name: NodeId,
}

impl Root {
    fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            load: Load::default(),
            polls: HashMap::new(),
            name: NodeId::new("root").unwrap_or_else(|_| unreachable!("a valid name")),
        }
    }

    /// Handles one request, with its JSON.
    fn serve<Request: Serialize + DeserializeOwned, Response: Serialize>(
        &mut self,
        request: &Request,
        handle: impl FnOnce(&mut Ledger, &Request) -> Response,
    ) -> Result<Response> {
        let body = serde_json::to_vec(request)?;
        let start = Instant::now();
        let request = serde_json::from_slice(&body)?;
        let response = handle(&mut self.ledger, &request);
        let answer = serde_json::to_vec(&response)?;
        self.load.time += start.elapsed();
        self.load.requests += 1;
        self.load.bytes += body.len() + answer.len();
        Ok(response)
    }

    fn poll(&mut self, holder: &HolderId, poller: Poller, after: u64, now: Moment) {
        let ticket = self.ledger.open_poll(holder, after, now);
        self.polls.insert(ticket, poller);
    }

    fn deliver_hints(&mut self, fleets: &mut [Fleet], now: Moment) -> Result<()> {
        let start = Instant::now();
        self.ledger.sweep(now, 1000);
        let hints = self.ledger.take_hints(now);
        self.load.time += start.elapsed();
        for (ticket, batch) in hints {
            let Some(poller) = self.polls.remove(&ticket) else {
                continue;
            };
            let hints = response(batch, &self.name);
            self.load.requests += 1;
            self.load.bytes += serde_json::to_vec(&hints)?.len();
            let after = hints.after;
            match poller {
                Poller::Client { fleet, client } => {
                    let fleet = fleets.get_mut(fleet).ok_or("an unknown fleet")?;
                    let client = fleet.hint(client)?;
                    self.poll(&HolderId::Client(client.clone(), None), poller, after, now);
                }
                Poller::Node { fleet } => {
                    let fleet = fleets.get_mut(fleet).ok_or("an unknown fleet")?;
                    let Fleet {
                        below: Some(node), ..
                    } = fleet
                    else {
                        continue;
                    };
                    let name = node.name.clone();
                    self.poll(&HolderId::Node(name.clone()), poller, after, now);
                    node.handle(Event::Hinted { endpoint: 0, hints }, self, now)?;
                }
            }
        }
        Ok(())
    }
}

fn response(batch: HintBatch, name: &NodeId) -> HintsResponse {
    HintsResponse {
        refresh: batch.refresh,
        all: batch.all,
        ..HintsResponse::none(name.clone(), Epoch::ZERO, batch.after)
    }
}

/// A node below the root.
struct Node {
    name: NodeId,
    ledger: Ledger,
    upstream: Upstream,
    polls: HashMap<PollTicket, usize>,
    is_polling: bool,
}

impl Node {
    fn new(index: usize, ledger: Ledger) -> Result<Self> {
        let name = NodeId::new(format!("node-{index}"))?;
        let parent = ParentLink {
            node: name.clone(),
            endpoints: 1,
            seed: index as u64,
            polls: false,
        };
        Ok(Self {
            name,
            ledger,
            upstream: Upstream::new(parent, Epoch::ZERO),
            polls: HashMap::new(),
            is_polling: false,
        })
    }

    fn handle(&mut self, event: Event, root: &mut Root, now: Moment) -> Result<()> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.upstream.handle(event, &mut self.ledger, now) {
                if let Effect::Send { seq, request, .. } = effect {
                    let name = root.name.clone();
                    let response =
                        root.serve(&request, |ledger, request: &ServerCapacityRequest| {
                            let grants = ledger.refresh(&request.clone().into(), now);
                            ServerCapacityResponse {
                                warnings: Vec::new(),
                                node: name,
                                epoch: Epoch::ZERO,
                                level: 0,
                                resources: grants
                                    .into_iter()
                                    .map(|it| it.into_server_response(0))
                                    .collect(),
                            }
                        })?;
                    events.push(Event::Answered { seq, response });
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, fleet: usize, root: &mut Root, now: Moment) -> Result<()> {
        if !self.is_polling {
            self.is_polling = true;
            let name = self.name.clone();
            root.poll(
                &HolderId::Node(name.clone()),
                Poller::Node { fleet },
                0,
                now,
            );
        }
        self.ledger.sweep(now, 1000);
        // More than once: an answer can be followed by the next request.
        for _ in 0..8 {
            if self.upstream.wake_at() > now && !self.ledger.has_parent_updates() {
                break;
            }
            self.handle(Event::Wake, root, now)?;
        }
        Ok(())
    }
}

struct Client {
    request: CapacityRequest,
    seq: u64,
    due: Moment,
}

/// The clients of one node, or of the root.
struct Fleet {
    index: usize,
    clients: Vec<Client>,
    /// `None`: they ask the root.
    below: Option<Node>,
}

impl Fleet {
    fn new(
        index: usize,
        clients: usize,
        below: Option<Node>,
        random: &mut fastrand::Rng,
    ) -> Result<Self> {
        let resource_id = ResourceId::new("db")?;
        let clients = (0..clients).map(|client| {
            let resource = ResourceRequest {
                resource_id: resource_id.clone(),
                wants: demand(random),
                priority: None,
                bands: None,
                has: None,
                outstanding: Capacity::ZERO,
                used: None,
                unit: None,
                limited_as: None,
                bucket: None,
                per: None,
                outcomes: None,
                pause: None,
                seen: None,
            };
            Ok(Client {
                request: CapacityRequest {
                    client_id: ClientId::new(format!("client-{index:06}-{client:018}"))?,
                    run: None,
                    seq: None,
                    heard_epoch: Some(Epoch::ZERO),
                    polls: false,
                    replaces: Vec::new(),
                    resources: vec![resource],
                },
                seq: 0,
                // All join within 8 s.
                due: START.after_seconds(8.0 * random.f64()),
            })
        });
        Ok(Self {
            index,
            clients: clients.collect::<Result<_>>()?,
            below,
        })
    }

    fn change_demands(&mut self, part: f64, random: &mut fastrand::Rng) {
        for client in &mut self.clients {
            if random.f64() < part
                && let Some(resource) = client.request.resources.first_mut()
            {
                resource.wants = demand(random);
                client.due = START;
            }
        }
    }

    /// A client is to ask now.
    fn hint(&mut self, client: usize) -> Result<ClientId> {
        let client = self.clients.get_mut(client).ok_or("an unknown client")?;
        client.due = START;
        Ok(client.request.client_id.clone())
    }

    #[expect(clippy::too_many_lines, reason = "not yet cut into its steps")]
    fn step(&mut self, root: &mut Root, now: Moment) -> Result<()> {
        for index in 0..self.clients.len() {
            let Some(client) = self.clients.get_mut(index).filter(|it| it.due <= now) else {
                continue;
            };
            let is_first = client.seq == 0;
            client.seq += 1;
            client.request.seq = Some(Seq::new(client.seq)?);
            let id = client.request.client_id.clone();
            let grant = match &mut self.below {
                None => {
                    if is_first {
                        let poller = Poller::Client {
                            fleet: self.index,
                            client: index,
                        };
                        root.poll(&HolderId::Client(id.clone(), None), poller, 0, now);
                    }
                    let name = root.name.clone();
                    let response = root.serve(&client.request, |ledger, request| {
                        let grants = ledger.refresh(&request.clone().into(), now);
                        CapacityResponse {
                            warnings: Vec::new(),
                            node: name,
                            epoch: Epoch::ZERO,
                            resources: grants.into_iter().map(|it| it.into_response(0)).collect(),
                        }
                    })?;
                    let gets = response.resources.first().ok_or("no response")?.gets;
                    (gets.capacity, gets.refresh_interval)
                }
                Some(node) => {
                    if is_first {
                        let ticket =
                            node.ledger
                                .open_poll(&HolderId::Client(id.clone(), None), 0, now);
                        node.polls.insert(ticket, index);
                    }
                    if node
                        .ledger
                        .register_part(&client.request.clone().into(), 0, now)
                        .0
                    {
                        node.step(self.index, root, now)?;
                    }
                    let grants = node.ledger.refresh(&client.request.clone().into(), now);
                    let grant: &Grant = grants.first().ok_or("no response")?;
                    (grant.capacity, grant.refresh_interval)
                }
            };
            let (capacity, refresh_interval) = grant;
            client.due = now.after(refresh_interval.duration());
            if let Some(resource) = client.request.resources.first_mut() {
                resource.has = Some(HeldLease::from(capacity));
            }
        }
        let Some(node) = &mut self.below else {
            return Ok(());
        };
        node.step(self.index, root, now)?;
        for (ticket, batch) in node.ledger.take_hints(now) {
            let Some(index) = node.polls.remove(&ticket) else {
                continue;
            };
            let client = self.clients.get_mut(index).ok_or("an unknown client")?;
            client.due = START;
            let id = &HolderId::Client(client.request.client_id.clone(), None);
            let ticket = node.ledger.open_poll(id, batch.after, now);
            node.polls.insert(ticket, index);
        }
        Ok(())
    }
}

fn demand(random: &mut fastrand::Rng) -> Capacity {
    Capacity::saturating(2.0 * DEMAND * random.f64())
}
