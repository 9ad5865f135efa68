//! A fleet of clients that changes its master: how many refreshes come to the new one per second.
//!
//! Real holders and a real ledger, on a network without delay. The herd has three addresses: the
//! first is that of the old master, the second that of the next one, the third that of a standby.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use doorman_config::Document;
use doorman_core::ledger::{HolderId, Ledger, PollTicket, Predecessor, Settings, UnmatchedPolicy};
use doorman_openapi::{
    CLOCK_DRIFT, Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, HintsResponse,
    Moment, NodeId, ResourceId,
};
use fastrand::Rng;
use tower_doorman::lease::{Demand, Effect, Event as HolderEvent, Failure, Holder, HolderSettings};

/// The result of a lease request.
type Outcome = Result<CapacityResponse, Failure>;

const RESOURCE: &str = "db";
const SERVERS: usize = 3;
const LEASE_LENGTH: f64 = 60.0;
const REFRESH_INTERVAL: f64 = 5.0;
/// Seconds in which the clients join, and until the herd is calm. A herd that begins at once is in
/// step for long.
const JOINING: f64 = 20.0;
const CALM: f64 = 40.0;
/// Seconds after which the server ends a poll.
const WAIT: f64 = 25.0;

/// How a master ends, and what its successor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It is lost at once: the next master learns.
    Lost,
    /// It ends the polls and hands its ledger over.
    HandedOver,
}

/// Options of a herd.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HerdPlan {
    /// The number of clients.
    pub clients: usize,
    /// The sum of the demands, in parts of the capacity.
    pub demand: f64,
    /// Whether clients poll for hints.
    pub polls: bool,
    /// How the master ends.
    pub departure: Departure,
    /// Seconds without a master.
    pub outage: f64,
    /// Seconds for which the next master is watched.
    pub watched: f64,
}

/// Effects of a change of the master.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HerdReport {
    /// Refreshes per second while nothing happens.
    pub steady: f64,
    /// The most refreshes in any second of the new master, and when it began after its start.
    pub most: (usize, f64),
    /// Clients that had no lease at some time.
    pub lapsed: usize,
    /// Clients that were refreshed by the new master.
    pub arrived: usize,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Join(usize),
    Wake(usize),
    Poll(usize),
    EndPoll(usize, PollTicket),
    AnswerPolls,
    End,
    Succeed,
}

#[derive(Debug)]
struct Client {
    holder: Holder,
    id: ClientId,
    wake: Moment,
    /// The server of the last request.
    endpoint: usize,
    after: u64,
    has_lease: bool,
    lapsed: bool,
    arrived: bool,
}

struct Master {
    endpoint: usize,
    epoch: u64,
    ledger: Ledger,
    /// The clients with open polls.
    polls: HashMap<PollTicket, usize>,
    answers_at: Moment,
}

struct Herd {
    plan: HerdPlan,
    time: Moment,
    rng: Rng,
    events: BTreeMap<(Moment, u64), Event>,
    serial: u64,
    clients: Vec<Client>,
    document: Arc<Document>,
    master: Option<Master>,
    /// The ledger of a master that handed it over.
    handover: Option<Ledger>,
    /// When refreshes came to a master.
    refreshes: Vec<Moment>,
}

/// Lets a herd change its master once.
#[must_use]
pub fn change_master(seed: u64, plan: HerdPlan) -> HerdReport {
    let mut herd = Herd::new(seed, plan);
    herd.at(CALM, Event::End);
    herd.at(CALM + plan.outage, Event::Succeed);
    herd.run(CALM);
    let steady = herd.mean_per_second(CALM - 2.0 * REFRESH_INTERVAL, REFRESH_INTERVAL);
    herd.refreshes.clear();
    herd.run(CALM + plan.outage + plan.watched);
    let (most, at) = herd.busiest_second(CALM + plan.outage);
    HerdReport {
        steady,
        most: (most, at),
        lapsed: herd.clients.iter().filter(|it| it.lapsed).count(),
        arrived: herd.clients.iter().filter(|it| it.arrived).count(),
    }
}

impl Herd {
    fn new(seed: u64, plan: HerdPlan) -> Self {
        let document = Document::parse(&format!(
            "resources: [{{identifier_glob: {RESOURCE}, capacity: {}, minimum_refresh_interval: 0, \
             algorithm: {{kind: FAIR_SHARE, lease_length: {LEASE_LENGTH}, \
             refresh_interval: {REFRESH_INTERVAL}}}}}]",
            plan.clients
        ));
        let mut herd = Self {
            plan,
            time: Moment::ORIGIN,
            rng: Rng::with_seed(seed),
            events: BTreeMap::new(),
            serial: 0,
            clients: Vec::new(),
            document: Arc::new(document.expect("the document is valid")),
            master: None,
            handover: None,
            refreshes: Vec::new(),
        };
        herd.master = Some(herd.new_master(0, 1, Predecessor::None));
        for client in 0..plan.clients {
            let id = ClientId::new(format!("client-{client}")).expect("the id is valid");
            herd.clients.push(Client {
                holder: Holder::new(HolderSettings {
                    client_id: id.clone(),
                    endpoints: SERVERS,
                    seed: herd.rng.u64(..),
                }),
                id,
                wake: Moment::NEVER,
                endpoint: 0,
                after: 0,
                has_lease: false,
                lapsed: false,
                arrived: false,
            });
            let joins = JOINING * herd.rng.f64();
            herd.at(joins, Event::Join(client));
            if plan.polls {
                herd.at(joins, Event::Poll(client));
            }
        }
        herd
    }

    fn new_master(&self, endpoint: usize, epoch: u64, predecessor: Predecessor) -> Master {
        let settings = Settings {
            max_leases: 2 * self.plan.clients,
            unmatched: UnmatchedPolicy::Refuse,
            predecessor,
            epoch: Epoch::new(epoch).expect("the epoch is small"),
        };
        Master {
            endpoint,
            epoch,
            ledger: Ledger::new(Arc::clone(&self.document), settings, self.time),
            polls: HashMap::new(),
            answers_at: Moment::NEVER,
        }
    }

    fn at(&mut self, seconds: f64, event: Event) {
        self.push(Moment::ORIGIN.after_seconds(seconds), event);
    }

    fn push(&mut self, at: Moment, event: Event) {
        self.serial += 1;
        self.events.insert((at.max(self.time), self.serial), event);
    }

    fn run(&mut self, seconds: f64) {
        let end = Moment::ORIGIN.after_seconds(seconds);
        while let Some(next) = self.events.first_entry().filter(|it| it.key().0 < end) {
            self.time = next.key().0;
            let event = next.remove();
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Join(client) => {
                let demand = Demand {
                    wants: Capacity::saturating(self.plan.demand),
                    ..Demand::default()
                };
                let resource = ResourceId::new(RESOURCE).expect("the id is valid");
                self.tell(client, HolderEvent::Demand { resource, demand });
            }
            Event::Wake(client) => {
                if self.clients[client].wake == self.time {
                    self.tell(client, HolderEvent::Tick);
                }
            }
            Event::Poll(client) => self.poll(client),
            Event::EndPoll(client, ticket) => {
                if let Some(master) = &mut self.master
                    && master.polls.get(&ticket) == Some(&client)
                {
                    master.polls.remove(&ticket);
                    master.ledger.close_poll(ticket, self.time);
                    self.poll(client);
                }
            }
            Event::AnswerPolls => self.answer_polls(),
            Event::End => self.end_master(),
            Event::Succeed => self.elect(),
        }
    }

    /// Passes an event to a holder, and the effects to the servers and back.
    fn tell(&mut self, client: usize, event: HolderEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.clients[client].holder.handle(event, self.time) {
                match effect {
                    Effect::Send {
                        seq,
                        endpoint,
                        request,
                        ..
                    } => events.push(match self.refresh(client, endpoint, &request) {
                        Ok(response) => HolderEvent::Answered { seq, response },
                        Err(failure) => HolderEvent::Failed { seq, failure },
                    }),
                    Effect::Changed { status, .. } => {
                        let client = &mut self.clients[client];
                        client.lapsed |= client.has_lease && status.lease.is_none();
                        client.has_lease |= status.lease.is_some();
                    }
                    Effect::SendRelease { .. } | Effect::Warn(_) => {}
                }
            }
        }
        let wake = self.clients[client].holder.wake_at().max(self.time);
        if wake != self.clients[client].wake || wake == self.time {
            self.clients[client].wake = wake;
            self.push(wake, Event::Wake(client));
        }
    }

    fn refresh(&mut self, client: usize, endpoint: usize, request: &CapacityRequest) -> Outcome {
        let process = &mut self.clients[client];
        process.endpoint = endpoint;
        let has_old_master_ended = self.master.as_ref().is_none_or(|it| it.endpoint != 0);
        let Some(master) = self.master.as_mut().filter(|it| it.endpoint == endpoint) else {
            // The process of the old master has ended.
            return Err(if endpoint == 0 && has_old_master_ended {
                Failure::Unavailable { retry_after: None }
            } else {
                let to = self.master.as_ref().map(|master| master.endpoint);
                Failure::Redirected { to }
            });
        };
        process.arrived |= master.epoch > 1;
        self.refreshes.push(self.time);
        let grants = master.ledger.refresh(&request.clone().into(), self.time);
        let response = CapacityResponse {
            node: node(),
            epoch: Epoch::new(master.epoch).expect("the epoch is small"),
            resources: grants.into_iter().map(|it| it.into_response(0)).collect(),
        };
        self.plan_answers();
        Ok(response)
    }

    /// Polls the server of the last request. One that is not the master sends the poll on.
    fn poll(&mut self, client: usize) {
        let process = &self.clients[client];
        let epoch = self.master.as_ref().map(|master| master.epoch);
        if let Some(master) = self.master.as_mut()
            && master.endpoint == process.endpoint
        {
            let holder = &HolderId::Client(process.id.clone());
            let ticket = master.ledger.open_poll(holder, process.after, self.time);
            master.polls.insert(ticket, client);
            let end = self.time.after_seconds(WAIT);
            self.push(end, Event::EndPoll(client, ticket));
            self.plan_answers();
            return;
        }
        if let Some(epoch) = epoch.filter(|_| process.endpoint > 0) {
            self.leave(client, process.endpoint, epoch);
        }
        self.poll_later(client);
    }

    fn poll_later(&mut self, client: usize) {
        self.clients[client].after = 0;
        let pause = REFRESH_INTERVAL * self.rng.f64();
        self.push(self.time.after_seconds(pause), Event::Poll(client));
    }

    fn leave(&mut self, client: usize, endpoint: usize, epoch: u64) {
        let hints = HintsResponse {
            leaving: true,
            ..no_hints(epoch)
        };
        self.tell(client, HolderEvent::Hinted { endpoint, hints });
    }

    fn answer_polls(&mut self) {
        let Some(master) = &mut self.master else {
            return;
        };
        let (endpoint, epoch) = (master.endpoint, master.epoch);
        master.answers_at = Moment::NEVER;
        master.ledger.sweep(self.time, 64);
        for (ticket, batch) in master.ledger.take_hints(self.time) {
            let polls = self.master.as_mut().map(|master| &mut master.polls);
            let Some(client) = polls.and_then(|polls| polls.remove(&ticket)) else {
                continue;
            };
            self.clients[client].after = batch.after;
            let hints = HintsResponse {
                after: batch.after,
                refresh: batch.refresh,
                all: batch.all,
                ..no_hints(epoch)
            };
            self.tell(client, HolderEvent::Hinted { endpoint, hints });
            self.poll(client);
        }
        self.plan_answers();
    }

    fn plan_answers(&mut self) {
        if let Some(master) = &mut self.master
            && let Some(due) = master.ledger.hints_due()
            && due.max(self.time) < master.answers_at
        {
            master.answers_at = due.max(self.time);
            let at = master.answers_at;
            self.push(at, Event::AnswerPolls);
        }
    }

    fn end_master(&mut self) {
        let Some(master) = self.master.take() else {
            return;
        };
        let mut polling: Vec<usize> = master.polls.into_values().collect();
        polling.sort_unstable();
        for client in polling {
            if self.plan.departure == Departure::HandedOver {
                self.leave(client, master.endpoint, master.epoch);
            }
            self.poll_later(client);
        }
        self.handover =
            Some(master.ledger).filter(|_| self.plan.departure == Departure::HandedOver);
    }

    fn elect(&mut self) {
        let mut master = match self.handover.take() {
            Some(ledger) => {
                let mut master = self.new_master(1, 2, Predecessor::None);
                for record in ledger.snapshot(self.time) {
                    let restored = master.ledger.restore(&record, self.time);
                    restored.expect("the names are valid");
                }
                master
            }
            None => {
                let longest = CLOCK_DRIFT * LEASE_LENGTH - self.plan.outage;
                let until = self.time.after_seconds(longest);
                self.new_master(1, 2, Predecessor::Until(until))
            }
        };
        master.ledger.sweep(self.time, 64);
        self.master = Some(master);
    }

    /// The mean number of refreshes per second, from a moment on for so many seconds.
    fn mean_per_second(&self, from: f64, seconds: f64) -> f64 {
        let from = Moment::ORIGIN.after_seconds(from);
        let window = from..from.after_seconds(seconds);
        let refreshes = self.refreshes.iter().filter(|at| window.contains(at));
        refreshes.count() as f64 / seconds
    }

    /// The most refreshes within a second, and when it began, in seconds since a moment.
    fn busiest_second(&self, since: f64) -> (usize, f64) {
        let since = Moment::ORIGIN.after_seconds(since);
        let mut most = (0, 0.0);
        let mut end = 0;
        for (start, at) in self.refreshes.iter().enumerate() {
            while (self.refreshes.get(end)).is_some_and(|it| *it < at.after_seconds(1.0)) {
                end += 1;
            }
            if end - start > most.0 {
                most = (end - start, at.seconds_since(since));
            }
        }
        most
    }
}

fn node() -> NodeId {
    NodeId::new("root").expect("the name is valid")
}

fn no_hints(epoch: u64) -> HintsResponse {
    HintsResponse {
        node: node(),
        epoch: Epoch::new(epoch).expect("the epoch is small"),
        after: 0,
        refresh: Vec::new(),
        all: false,
        rules: false,
        leaving: false,
    }
}
