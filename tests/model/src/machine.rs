//! The processes of the model: the product's state machines, each in a time of its own.
//!
//! A process is a value. A step takes an input and returns the next process and an output, both of
//! which depend on nothing else. Messages carry no absolute time, epoch or sequence number: an
//! [`Arrival`] says how a request compares with what its receiver knows.

use std::{fmt, sync::Arc};

use doorman_config::Document;
use doorman_core::{
    ledger::{Grant, LeaseCall, Ledger, Predecessor, ReleaseCall, Settings, UnmatchedPolicy},
    upstream::{Effect as UpstreamEffect, Event as UpstreamEvent, ParentLink, Upstream},
};
use doorman_holder::{Demand, Effect, Event, Failure, Holder, HolderSettings};
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, Moment, NodeId, ReleaseRequest,
    ResourceId, ResourceResponse, SafeCapacity, Seconds, Seq, ServerCapacityRequest,
    ServerCapacityResponse,
};
use doorman_sim::{
    Limit, Rule,
    ablation::{
        NodeAblation, change_client_request, change_client_response, change_grants,
        change_node_request,
    },
};

use crate::{
    model::Call,
    tables::{Id, Messages, Output, Process, Summary},
    value::{FAR, Value},
};

/// The most senders of requests: the node, and the clients of both servers.
pub const SENDERS: usize = 4;
/// The sender that is the node.
pub const NODE: usize = 0;

/// Servers that a holder may ask: enough that no search fails at all of them in a row, after which
/// it would pause at random.
const ENDPOINTS: usize = 1_000;
/// The refresh interval, in seconds. Requests are sent at any time.
const REFRESH_INTERVAL: f64 = 1.0;
/// The resource.
const RESOURCE: &str = "db";
/// The epoch of each reign of a server, in its own time.
const EPOCH: u64 = 100;

/// Settings of a model.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The capacity of the resource.
    pub capacity: f64,
    /// The length of a lease, in seconds.
    pub lease_length: f64,
    /// The length of a tick, in seconds.
    pub tick: f64,
    /// The rule that is disabled.
    pub without: Option<Rule>,
    limit: Limit,
    document: Arc<Document>,
}

impl Setup {
    /// A resource with FAIR_SHARE.
    ///
    /// # Panics
    /// If the document is invalid.
    #[must_use]
    pub fn new(capacity: f64, lease_length: f64, tick: f64, without: Option<Rule>) -> Self {
        let text = format!(
            "resources:\n  - {{identifier_glob: \"{RESOURCE}\", capacity: {capacity}, algorithm: \
             {{kind: FAIR_SHARE, lease_length: {lease_length}, refresh_interval: \
             {REFRESH_INTERVAL}}}}}\n"
        );
        Self {
            capacity,
            lease_length,
            tick,
            without,
            limit: Limit::fair(capacity, lease_length, REFRESH_INTERVAL),
            document: Arc::new(Document::parse(&text).expect("the document is valid")),
        }
    }

    /// A capacity of 2, and leases that last for two ticks.
    ///
    /// A lease of 2 s is booked for 2.1 s. A tick is half of that, so a booking ends as soon as the
    /// lease may have ended.
    #[must_use]
    pub fn usual(without: Option<Rule>) -> Self {
        Self::new(2.0, 2.0, 1.05, without)
    }

    fn is_without(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn ledger(&self, predecessor: Predecessor, now: Moment) -> Ledger {
        let settings = Settings {
            max_leases: 100,
            unmatched: UnmatchedPolicy::Refuse,
            predecessor: if self.is_without(Rule::LearningMode) {
                Predecessor::None
            } else {
                predecessor
            },
            epoch: epoch(EPOCH),
        };
        Ledger::new(Arc::clone(&self.document), settings, now)
    }
}

/// How a request compares with the last one of its sender that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Of an earlier master of the node.
    EarlierMaster,
    /// Not newer.
    Stale,
    /// Newer, or the first one.
    Newer,
    /// Of a later master of the node.
    LaterMaster,
}

/// A request as it arrives at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Its sender.
    pub sender: usize,
    /// Its order.
    pub order: Order,
    /// Whether it echoes the epoch of the server.
    pub echoes: bool,
    /// Whether its sender had heard of any epoch.
    pub has_heard: bool,
}

/// A request without its order and its epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Of a client.
    Client(CapacityRequest),
    /// Of a client that gives its lease back.
    Release(ReleaseRequest),
    /// Of the node.
    Node(ServerCapacityRequest),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(request) => {
                let asked = request.resources.iter();
                asked.into_iter().try_for_each(|it| {
                    write!(f, "wants {}", it.wants)?;
                    it.has
                        .map_or(Ok(()), |has| write!(f, ", has {}", has.capacity))
                })
            }
            Self::Release(_) => f.write_str("gives its lease back"),
            Self::Node(request) => request.resources.iter().try_for_each(|it| {
                let wants: f64 = it.wants.iter().map(|band| band.wants.get()).sum();
                write!(f, "wants {wants}")?;
                match it.has {
                    Some(has) => write!(f, ", has {}", has.capacity)?,
                    None => f.write_str(", does not know what it has")?,
                }
                write!(f, ", outstanding {}", it.outstanding)
            }),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases: Vec<_> = match self {
            Self::Unavailable => return f.write_str("no answer"),
            Self::Leases(Response::Client(response)) => {
                response.resources.iter().map(|it| it.gets).collect()
            }
            Self::Leases(Response::Node(response)) => {
                response.resources.iter().map(|it| it.answer.gets).collect()
            }
        };
        leases.iter().try_for_each(|it| {
            let length = it.lease_length.get();
            write!(f, "gets {} for {length:.2} s", it.capacity)
        })
    }
}

/// A response without its epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// To a client.
    Client(CapacityResponse),
    /// To the node.
    Node(ServerCapacityResponse),
}

impl Response {
    /// Makes equal what no decision depends on: when to refresh, and what to do without a lease.
    fn forget_schedule(&mut self) {
        let answers: Vec<&mut ResourceResponse> = match self {
            Self::Client(response) => response.resources.iter_mut().collect(),
            Self::Node(response) => {
                let resources = response.resources.iter_mut();
                resources.map(|it| &mut it.answer).collect()
            }
        };
        for answer in answers {
            answer.gets.refresh_interval = Seconds::saturating(REFRESH_INTERVAL);
            answer.gets.expiry_time = 0;
            // A node without an answer of its parent grants 0 for a minute.
            if answer.gets.lease_length.get() > FAR {
                answer.gets.lease_length = Seconds::saturating(2.0 * FAR);
            }
            answer.safe_capacity = SafeCapacity::Unlimited;
        }
    }
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Leases.
    Leases(Response),
    /// 503: the holder keeps its lease.
    Unavailable,
}

/// A request whose answer is awaited.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    seq: Seq,
    sent: Moment,
    deadline: Moment,
}

/// The invariant that a step broke, in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken(pub String);

/// The result of a request at a server.
struct Handled {
    answer: Answer,
    is_last: bool,
    broken: Option<Broken>,
}

/// What happens to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientInput {
    /// Time passes.
    Tick,
    /// It sends a request, after the one in flight has failed.
    Send(Call),
    /// The request in flight fails.
    Fail,
    /// The request in flight is answered.
    Answer {
        /// The answer.
        answer: Id,
        /// Its epoch less the highest one that the receiver has heard.
        ahead: i8,
    },
}

/// What happens to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeInput {
    /// Time passes.
    Tick,
    /// It has a new master.
    FailOver,
    /// A request of a client arrives.
    Handle {
        /// How it compares with others.
        arrival: Arrival,
        /// The request.
        request: Id,
    },
    /// It asks the root, after the request in flight has failed.
    Send,
    /// The request in flight fails.
    Fail,
    /// The request in flight is answered.
    Answer {
        /// The answer.
        answer: Id,
        /// As of a client.
        ahead: i8,
    },
}

/// What happens to the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RootInput {
    /// Time passes.
    Tick,
    /// It has a new master.
    Crash,
    /// A request arrives.
    Handle {
        /// How it compares with others.
        arrival: Arrival,
        /// The request.
        request: Id,
    },
}

impl Handled {
    fn into_output(mut self, messages: &mut Messages) -> Output {
        if let Answer::Leases(response) = &mut self.answer {
            response.forget_schedule();
        }
        Output {
            message: Some(messages.add_answer(self.answer)),
            is_last: self.is_last,
            broken: self.broken,
        }
    }

    fn unavailable() -> Self {
        Self {
            answer: Answer::Unavailable,
            is_last: false,
            broken: None,
        }
    }
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).expect("the epoch is small")
}

fn seq(number: u64) -> Seq {
    Seq::new(number).expect("the number is small")
}

fn resource() -> ResourceId {
    ResourceId::new(RESOURCE).expect("the name is valid")
}

/// The name of a sender.
#[must_use]
pub fn name(sender: usize) -> &'static str {
    ["node", "a", "b", "c"].get(sender).copied().unwrap_or("?")
}

// ---------------------------------------------------------------- clients

/// A client: the layer's state machine.
#[derive(Debug, Clone)]
pub struct Client {
    holder: Holder,
    now: Moment,
    in_flight: Option<InFlight>,
    /// The highest epoch that it has heard, in its own time.
    heard: u64,
}

impl Client {
    /// A client that has sent nothing.
    #[must_use]
    pub fn new(sender: usize) -> Self {
        let client_id = ClientId::new(name(sender)).expect("the name is valid");
        Self {
            holder: Holder::new(HolderSettings {
                client_id,
                run: None,
                replaces: Vec::new(),
                endpoints: ENDPOINTS,
                seed: 1,
            }),
            now: start(),
            in_flight: None,
            heard: EPOCH,
        }
    }

    /// The amount that it may use.
    fn usable(&self) -> f64 {
        let status = self.holder.status(&resource(), self.now);
        let lease = status.and_then(|it| it.lease);
        lease.map_or(0.0, |it| it.capacity.get())
    }

    /// Time passes.
    fn tick(&mut self, setup: &Setup) {
        let had_lease = self.has_lease();
        self.now = self.now.after_seconds(setup.tick);
        let is_overdue = self.in_flight.is_some_and(|it| it.deadline <= self.now);
        // Otherwise a tick would send.
        if had_lease && !self.has_lease() || is_overdue {
            drop(self.holder.handle(Event::Tick, self.now));
        }
        if is_overdue {
            self.in_flight = None;
        }
    }

    fn has_lease(&self) -> bool {
        let status = self.holder.status(&resource(), self.now);
        status.is_some_and(|it| it.lease.is_some())
    }

    /// Sends a request, after the one in flight has failed.
    fn send(&mut self, wants: f64) -> Option<Request> {
        self.fail();
        let demand = Demand {
            wants: Capacity::saturating(wants),
            ..Demand::default()
        };
        let resource = resource();
        drop(
            self.holder
                .handle(Event::Demand { resource, demand }, self.now),
        );
        self.holder.refresh_all(self.now);
        let effects = self.holder.handle(Event::Tick, self.now);
        let sent = effects.into_iter().find_map(|effect| match effect {
            Effect::Send {
                seq,
                request,
                timeout,
                ..
            } => Some((seq, request, timeout)),
            _ => None,
        });
        let (seq, mut request, timeout) = sent?;
        self.in_flight = Some(InFlight {
            seq,
            sent: self.now,
            deadline: self.now.after(timeout),
        });
        request.seq = None;
        request.heard_epoch = None;
        Some(Request::Client(request))
    }

    /// Gives its lease back, after the request in flight has failed.
    fn release(&mut self) -> Option<Request> {
        self.fail();
        let resource = resource();
        drop(self.holder.handle(Event::Forget { resource }, self.now));
        let effects = self.holder.handle(Event::Tick, self.now);
        let sent = effects.into_iter().find_map(|effect| match effect {
            Effect::SendRelease { request, .. } => Some(request),
            _ => None,
        });
        let mut request = sent?;
        request.seq = None;
        request.heard_epoch = None;
        Some(Request::Release(request))
    }

    /// The request in flight fails.
    fn fail(&mut self) {
        if let Some(InFlight { seq, .. }) = self.in_flight.take() {
            let failure = Failure::Unavailable { retry_after: None };
            drop(self.holder.handle(Event::Failed { seq, failure }, self.now));
        }
    }

    /// Takes an answer to the request in flight. `ahead` is the epoch less the highest one that it
    /// has heard.
    fn answer(&mut self, setup: &Setup, answer: &Answer, ahead: i8) -> Option<Broken> {
        let InFlight { seq, sent, .. } = self.in_flight.take()?;
        let Answer::Leases(Response::Client(response)) = answer else {
            let failure = Failure::Unavailable { retry_after: None };
            drop(self.holder.handle(Event::Failed { seq, failure }, self.now));
            return None;
        };
        let mut response = response.clone();
        if let Some(rule) = setup.without {
            change_client_response(rule, &mut response, self.now.seconds_since(sent));
        }
        let before = self.usable();
        let answered = self.heard.saturating_add_signed(i64::from(ahead));
        response.epoch = epoch(answered);
        drop(
            self.holder
                .handle(Event::Answered { seq, response }, self.now),
        );
        let after = self.usable();
        if before > 0.0 && after > 0.0 && ahead < 0 && after != before {
            return Some(Broken("a lease of an earlier epoch".to_owned()));
        }
        self.heard = self.heard.max(answered);
        None
    }
}

impl Process for Client {
    type Input = ClientInput;

    fn step(&mut self, setup: &Setup, messages: &mut Messages, input: ClientInput) -> Output {
        match input {
            ClientInput::Tick => self.tick(setup),
            ClientInput::Fail => self.fail(),
            ClientInput::Send(call) => {
                let sent = match call {
                    Call::Wants(wants) => self.send(f64::from(wants)),
                    Call::Release => self.release(),
                };
                return Output {
                    message: sent.map(|it| messages.add_request(it)),
                    ..Output::default()
                };
            }
            ClientInput::Answer { answer, ahead } => {
                return Output {
                    broken: self.answer(setup, messages.answer(answer), ahead),
                    ..Output::default()
                };
            }
        }
        Output::default()
    }

    fn summary(&self) -> Summary {
        let mut text = String::new();
        Value::of(&self.holder).write_canonical(self.now, self.heard, &mut text);
        Summary {
            text,
            usable: self.usable(),
            awaits_answer: self.in_flight.is_some(),
            has_order: [false; SENDERS],
        }
    }
}

fn start() -> Moment {
    Moment::from_nanos(1_000_000_000_000)
}

// ---------------------------------------------------------------- servers

/// The last order of each sender that a server has handled, in its own time.
type LastOrders = [(u64, u64); SENDERS];

/// The reign of a server.
#[derive(Debug, Clone)]
struct Reign {
    ledger: Ledger,
    now: Moment,
    /// Until then the next reign learns: the durable bound, which is written at once.
    bound: Moment,
    last: LastOrders,
    /// The most that the reign before booked for each holder, while this one learns.
    booked_before: [f64; SENDERS],
}

impl Reign {
    fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            now: start(),
            bound: Moment::ORIGIN,
            last: [(EPOCH, 1); SENDERS],
            booked_before: [0.0; SENDERS],
        }
    }

    fn next(self, setup: &Setup, is_node: bool) -> Self {
        let booked_before = self.bookings();
        let until = Predecessor::Until(self.bound);
        let ledger = setup.ledger(until, self.now);
        let ledger = if is_node { ledger.of_parent() } else { ledger };
        Self {
            ledger,
            last: [(EPOCH, 1); SENDERS],
            booked_before,
            ..self
        }
    }

    /// What is booked for each holder, or was by the reign before, if this one learns.
    fn bookings(&self) -> [f64; SENDERS] {
        let value = Value::of(&self.ledger);
        let holders = holders(&value);
        let mut booked = [0.0; SENDERS];
        for (sender, booked) in booked.iter_mut().enumerate() {
            let entry = holders[sender].and_then(|key| entry(&value, key));
            let hold = |name: &str| entry.and_then(|it| it.get(&["booking", name]));
            let amount = |name: &str| amount_of(hold(name), self.now);
            *booked = amount("lease").max(amount("claim"));
            // A reign that learns gives nobody what the reign before booked, and no holder has
            // confirmed.
            if self.may_learn() {
                *booked = booked.max(self.booked_before[sender]);
            }
        }
        booked
    }

    /// The order and the epoch that a request carries.
    fn stamp(&self, arrival: Arrival) -> ((u64, u64), Option<Epoch>) {
        let (reign, number) = self.last[arrival.sender];
        let order = match arrival.order {
            Order::EarlierMaster => (reign - 1, 1),
            Order::Stale => (reign, number),
            Order::Newer => (reign, number + 1),
            Order::LaterMaster => (reign + 1, 1),
        };
        let heard = match (arrival.echoes, arrival.has_heard) {
            (true, _) => Some(epoch(EPOCH)),
            (false, true) => Some(epoch(EPOCH - 1)),
            (false, false) => None,
        };
        (order, heard)
    }

    fn note_order(&mut self, arrival: Arrival, order: (u64, u64)) -> bool {
        let is_last = matches!(arrival.order, Order::Newer | Order::LaterMaster);
        if is_last {
            self.last[arrival.sender] = order;
        }
        is_last
    }

    /// Decides a request that does not wait for a parent. `claim` is that of a client.
    fn grant(&mut self, setup: &Setup, call: &LeaseCall, claim: Option<f64>) -> Vec<Grant> {
        self.ledger.sweep(self.now, 64);
        let mut grants = self.ledger.refresh(call, self.now);
        if let Some(rule) = setup.without {
            let holder = call.holder().as_str();
            let claims = Vec::from_iter(claim);
            let (ledger, limit) = (&self.ledger, |_: &ResourceId| &setup.limit);
            change_grants(rule, &mut grants, &claims, ledger, holder, limit, self.now);
        }
        grants
    }

    /// Gives a lease back.
    fn release(&mut self, setup: &Setup, arrival: Arrival, request: &ReleaseRequest) -> Handled {
        let (order, heard_epoch) = self.stamp(arrival);
        let mut request = request.clone();
        request.seq = Some(seq(order.1)).filter(|_| !setup.is_without(Rule::ReleaseSeq));
        request.heard_epoch = heard_epoch;
        let call: ReleaseCall = request.into();
        self.ledger.sweep(self.now, 64);
        self.ledger.release(&call, self.now);
        Handled {
            answer: Answer::Unavailable,
            is_last: self.note_order(arrival, order),
            broken: None,
        }
    }

    /// Raises the bound to the end of leases.
    fn cover(&mut self, setup: &Setup, grants: &[Grant]) {
        if setup.is_without(Rule::Bound) {
            return;
        }
        let leases = grants.iter().filter(|it| it.capacity > Capacity::ZERO);
        let ends = leases.map(|it| it.booked_until);
        self.bound = ends.fold(self.bound, Moment::max);
    }

    /// Whether a first confirmed claim of a sender is above what the reign before booked for it.
    fn check_confirmation(
        &self,
        before: Option<&Value>,
        sender: usize,
        has: f64,
        capacity: f64,
    ) -> Option<Broken> {
        let before = before?;
        let after = Value::of(&self.ledger);
        let is_first = !is_confirmed(before, sender) && is_confirmed(&after, sender);
        let pool = after.find("Learning").and_then(|it| it.get(&["pool"]));
        let pool = pool.map_or(0.0, Value::number);
        if is_first && pool > capacity * (1.0 + 1e-9) {
            return Some(Broken(format!("claims of {pool} are confirmed")));
        }
        let booked = self.booked_before[sender];
        (is_first && has > booked + 1e-6).then(|| {
            let name = name(sender);
            Broken(format!(
                "{name} confirms {has}, but the reign before booked {booked} for it"
            ))
        })
    }

    fn tick(&mut self, setup: &Setup) {
        self.now = self.now.after_seconds(setup.tick);
        self.ledger.sweep(self.now, 64);
        if !self.may_learn() {
            self.booked_before = [0.0; SENDERS];
        }
    }

    fn write_canonical(&self, ledger: &Value, out: &mut String) {
        ledger.write_canonical(self.now, EPOCH, out);
        let bound = self.bound.since(self.now).as_nanos();
        out.push_str(&format!("|{bound}|{:?}", self.booked_before));
    }

    /// Whether this reign may not know all leases of earlier ones.
    fn may_learn(&self) -> bool {
        self.now < self.ledger.learning_until()
    }
}

/// The keys of the holders in a ledger, by sender.
fn holders(ledger: &Value) -> [Option<u64>; SENDERS] {
    let registered = ledger.get(&["holders", "holders"]);
    let mut keys = [None; SENDERS];
    let Some(Value::Map(registered)) = registered else {
        return keys;
    };
    for (key, registration) in registered {
        let id = registration.get(&["id", "0"]).map_or("", Value::text);
        for (sender, known) in keys.iter_mut().enumerate() {
            if id.trim_matches('"') == name(sender) {
                *known = Some(key.number_u64());
            }
        }
    }
    keys
}

/// The entry of a holder.
fn entry(ledger: &Value, holder: u64) -> Option<&Value> {
    let entries = ledger.find_all("Entry").into_iter();
    let mut entries = entries.filter(|it| {
        let key = it.get(&["holder"]);
        key.is_some_and(|key| key.number_u64() == holder)
    });
    entries.next()
}

fn is_confirmed(ledger: &Value, sender: usize) -> bool {
    let slot = holders(ledger)[sender].and_then(|key| entry(ledger, key)?.get(&["slot"]));
    let confirmed = ledger
        .find("Learning")
        .and_then(|it| it.get(&["confirmed"]));
    match (slot, confirmed) {
        (Some(slot), Some(Value::List(confirmed))) => confirmed
            .get(slot.number_u64() as usize)
            .is_some_and(|it| it.text() == "true"),
        _ => false,
    }
}

/// The root.
#[derive(Debug, Clone)]
pub struct Root(Reign);

impl Root {
    /// The first reign.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        Self(Reign::new(setup.ledger(Predecessor::None, start())))
    }

    /// Handles a request.
    fn handle(&mut self, setup: &Setup, arrival: Arrival, request: &Request) -> Handled {
        let reign = &mut self.0;
        let ((master, number), heard_epoch) = reign.stamp(arrival);
        let before = reign.may_learn().then(|| Value::of(&reign.ledger));
        let (call, has): (LeaseCall, _) = match request {
            Request::Release(request) => return reign.release(setup, arrival, request),
            Request::Client(request) => {
                let mut request = request.clone();
                request.seq = Some(seq(number));
                request.heard_epoch = heard_epoch;
                if let Some(rule) = setup.without {
                    change_client_request(rule, &mut request, Some(epoch(EPOCH)));
                }
                let has = request.resources[0].has;
                (request.into(), has)
            }
            Request::Node(request) => {
                let mut request = request.clone();
                request.epoch = Some(epoch(master));
                request.seq = Some(seq(number));
                request.heard_epoch = heard_epoch;
                if let Some(rule) = setup.without {
                    let learns = reign.may_learn();
                    change_node_request(rule, &mut request, Some(epoch(EPOCH)), learns);
                }
                let has = request.resources[0].has;
                (request.into(), has)
            }
        };
        let claim = has.map_or(0.0, |it| it.capacity.get());
        let is_of_node = matches!(request, Request::Node(_));
        let grants = reign.grant(setup, &call, (!is_of_node).then_some(claim));
        let is_statement = is_of_node && has.is_none();
        if !(is_statement && setup.is_without(Rule::StatedWithinBound)) {
            reign.cover(setup, &grants);
        }
        let is_last = reign.note_order(arrival, (master, number));
        let broken =
            reign.check_confirmation(before.as_ref(), arrival.sender, claim, setup.capacity);
        let node = NodeId::new("root").expect("the name is valid");
        let response = match request {
            Request::Client(_) | Request::Release(_) => Response::Client(CapacityResponse {
                warnings: Vec::new(),
                node,
                epoch: Epoch::ZERO,
                resources: grants.into_iter().map(|it| it.into_response(0)).collect(),
            }),
            Request::Node(_) => Response::Node(ServerCapacityResponse {
                warnings: Vec::new(),
                node,
                epoch: Epoch::ZERO,
                level: 0,
                resources: (grants.into_iter().map(|it| it.into_server_response(0))).collect(),
            }),
        };
        Handled {
            answer: Answer::Leases(response),
            is_last,
            broken,
        }
    }
}

impl Process for Root {
    type Input = RootInput;

    fn step(&mut self, setup: &Setup, messages: &mut Messages, input: RootInput) -> Output {
        match input {
            RootInput::Tick => self.0.tick(setup),
            RootInput::Crash => self.0 = self.0.clone().next(setup, false),
            RootInput::Handle { arrival, request } => {
                let handled = self.handle(setup, arrival, messages.request(request));
                return handled.into_output(messages);
            }
        }
        Output::default()
    }

    fn summary(&self) -> Summary {
        let ledger = Value::of(&self.0.ledger);
        let mut text = String::new();
        self.0.write_canonical(&ledger, &mut text);
        Summary {
            text,
            usable: 0.0,
            awaits_answer: false,
            has_order: has_order(&ledger),
        }
    }
}

/// The node: a server that leases from the root.
#[derive(Debug, Clone)]
pub struct Node {
    reign: Reign,
    upstream: Upstream,
    in_flight: Option<InFlight>,
    /// The highest epoch of the root that this reign has heard, in its own time.
    heard: u64,
    /// Of a node without a rule.
    ablation: NodeAblation,
}

impl Node {
    /// The first reign.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let ledger = setup.ledger(Predecessor::None, start());
        Self {
            reign: Reign::new(ledger.of_parent()),
            upstream: upstream(),
            in_flight: None,
            heard: EPOCH,
            ablation: NodeAblation::default(),
        }
    }

    /// Another master begins.
    fn fail_over(self, setup: &Setup) -> Self {
        Self {
            reign: self.reign.next(setup, true),
            upstream: upstream(),
            in_flight: None,
            heard: EPOCH,
            ablation: NodeAblation::default(),
        }
    }

    /// Time passes.
    fn tick(&mut self, setup: &Setup) {
        let had_lease = self.has_lease();
        self.reign.tick(setup);
        let now = self.reign.now;
        let is_overdue = self.in_flight.is_some_and(|it| it.deadline <= now);
        // Otherwise it would send.
        if had_lease && !self.has_lease() || is_overdue {
            let effects = (self.upstream).handle(UpstreamEvent::Wake, &mut self.reign.ledger, now);
            if is_overdue {
                self.in_flight = None;
            }
            // A resource that is new again is asked for at once. The next step may be the same
            // request, so this one is lost.
            let failure = Failure::Unavailable { retry_after: None };
            for effect in effects {
                if let UpstreamEffect::Send { seq, .. } = effect {
                    let failure = failure.clone();
                    let event = UpstreamEvent::Failed { seq, failure };
                    drop((self.upstream).handle(event, &mut self.reign.ledger, now));
                }
            }
        }
    }

    fn has_lease(&self) -> bool {
        let status = self.upstream.holder().status(&resource(), self.reign.now);
        status.is_some_and(|it| it.lease.is_some())
    }

    /// Handles the request of a client.
    fn handle(&mut self, setup: &Setup, arrival: Arrival, request: &Request) -> Handled {
        let request = match request {
            Request::Client(request) => request,
            Request::Release(request) => return self.reign.release(setup, arrival, request),
            Request::Node(_) => return Handled::unavailable(),
        };
        let now = self.reign.now;
        let (order, heard_epoch) = self.reign.stamp(arrival);
        let mut request = request.clone();
        request.seq = Some(seq(order.1));
        request.heard_epoch = heard_epoch;
        if let Some(rule) = setup.without {
            change_client_request(rule, &mut request, Some(epoch(EPOCH)));
        }
        let has = request.resources[0].has;
        let before = (self.reign.may_learn()).then(|| Value::of(&self.reign.ledger));
        let call: LeaseCall = request.into();
        let (awaits, _) = self.reign.ledger.register_part(&call, 0, now);
        if awaits && !setup.is_without(Rule::AskParentFirst) {
            if setup.is_without(Rule::OwnLeasesOnly) {
                (self.ablation).note_claim(&resource(), name(arrival.sender), has);
            }
            if self.reign.ledger.may_have_lost_leases(now) {
                return Handled::unavailable();
            }
        }
        let claim = has.map_or(0.0, |it| it.capacity.get());
        let grants = self.reign.grant(setup, &call, Some(claim));
        self.reign.cover(setup, &grants);
        let is_last = self.reign.note_order(arrival, order);
        let broken =
            (self.reign).check_confirmation(before.as_ref(), arrival.sender, claim, setup.capacity);
        let response = CapacityResponse {
            warnings: Vec::new(),
            node: NodeId::new("eu").expect("the name is valid"),
            epoch: Epoch::ZERO,
            resources: grants.into_iter().map(|it| it.into_response(0)).collect(),
        };
        Handled {
            answer: Answer::Leases(Response::Client(response)),
            is_last,
            broken,
        }
    }

    /// Asks the root, after the request in flight has failed.
    fn send(&mut self, setup: &Setup) -> Option<Request> {
        let now = self.reign.now;
        self.fail();
        let ledger = &mut self.reign.ledger;
        drop(self.upstream.handle(
            UpstreamEvent::PollFailed {
                endpoint: 0,
                failure: Failure::Unavailable { retry_after: None },
            },
            ledger,
            now,
        ));
        let effects = self.upstream.handle(UpstreamEvent::Wake, ledger, now);
        let sent = effects.into_iter().find_map(|effect| match effect {
            UpstreamEffect::Send {
                seq,
                request,
                timeout,
                ..
            } => Some((seq, request, timeout)),
            _ => None,
        });
        let (seq, mut request, timeout) = sent?;
        self.in_flight = Some(InFlight {
            seq,
            sent: now,
            deadline: now.after(timeout),
        });
        if let Some(rule) = setup.without {
            let ledger = &self.reign.ledger;
            self.ablation
                .change_request(rule, seq, &mut request, ledger);
        }
        request.epoch = None;
        request.seq = None;
        request.heard_epoch = None;
        Some(Request::Node(request))
    }

    /// The request in flight fails.
    fn fail(&mut self) {
        if let Some(InFlight { seq, .. }) = self.in_flight.take() {
            let failure = Failure::Unavailable { retry_after: None };
            let event = UpstreamEvent::Failed { seq, failure };
            drop((self.upstream).handle(event, &mut self.reign.ledger, self.reign.now));
        }
    }

    /// Takes an answer of the root to the request in flight.
    fn answer(&mut self, setup: &Setup, answer: &Answer, ahead: i8) {
        let Some(InFlight { seq, sent, .. }) = self.in_flight.take() else {
            return;
        };
        let (ledger, now) = (&mut self.reign.ledger, self.reign.now);
        let Answer::Leases(Response::Node(response)) = answer else {
            let failure = Failure::Unavailable { retry_after: None };
            let event = UpstreamEvent::Failed { seq, failure };
            drop(self.upstream.handle(event, ledger, now));
            return;
        };
        let mut response = response.clone();
        let answered = self.heard.saturating_add_signed(i64::from(ahead));
        response.epoch = epoch(answered);
        if let Some(rule) = setup.without {
            let ablation = &mut self.ablation;
            ablation.change_response(rule, &mut response, sent, ledger, now);
        }
        if setup.is_without(Rule::LateClaim) {
            (self.ablation).take_late_answers(seq, sent, &response, ledger, now);
        }
        let is_late = ledger.is_parent_answer_late(&resource(), now);
        let taken = response.clone();
        let event = UpstreamEvent::Answered { seq, response };
        drop(self.upstream.handle(event, ledger, now));
        if setup.is_without(Rule::UnheardCover) && !is_late {
            (self.ablation).keep_booked_leases(&taken, sent, ledger, now);
        }
        self.heard = self.heard.max(answered);
    }
}

impl Process for Node {
    type Input = NodeInput;

    fn step(&mut self, setup: &Setup, messages: &mut Messages, input: NodeInput) -> Output {
        match input {
            NodeInput::Tick => self.tick(setup),
            NodeInput::FailOver => *self = self.clone().fail_over(setup),
            NodeInput::Fail => self.fail(),
            NodeInput::Handle { arrival, request } => {
                let handled = self.handle(setup, arrival, messages.request(request));
                return handled.into_output(messages);
            }
            NodeInput::Send => {
                return Output {
                    message: self.send(setup).map(|it| messages.add_request(it)),
                    ..Output::default()
                };
            }
            NodeInput::Answer { answer, ahead } => {
                self.answer(setup, messages.answer(answer), ahead);
            }
        }
        Output::default()
    }

    fn summary(&self) -> Summary {
        let ledger = Value::of(&self.reign.ledger);
        let now = self.reign.now;
        let mut text = String::new();
        self.reign.write_canonical(&ledger, &mut text);
        text.push('|');
        Value::of(&self.upstream).write_canonical(now, self.heard, &mut text);
        text.push('|');
        Value::of(&self.ablation).write_canonical(now, EPOCH, &mut text);
        Summary {
            text,
            usable: covered(&ledger, now),
            awaits_answer: self.in_flight.is_some(),
            has_order: has_order(&ledger),
        }
    }
}

/// The most that the leases of a node from its parent cover.
fn covered(ledger: &Value, now: Moment) -> f64 {
    let lease = ledger.find("ParentLease");
    let amount = |name: &str| amount_of(lease.and_then(|it| it.get(&[name])), now);
    amount("newest").max(amount("older"))
}

/// The amount of a hold until it ends.
fn amount_of(hold: Option<&Value>, now: Moment) -> f64 {
    hold.map_or(0.0, |hold| {
        let end = hold.get(&["end"]).map_or(0, Value::number_u64);
        let amount = hold.get(&["amount"]).map_or(0.0, Value::number);
        if end > now.as_nanos() { amount } else { 0.0 }
    })
}

/// Whether the order of each sender's last request is known.
fn has_order(ledger: &Value) -> [bool; SENDERS] {
    holders(ledger).map(|key| {
        let order = key.and_then(|key| entry(ledger, key)?.get(&["order", "seq"]));
        order.is_some_and(|it| it.number_u64() != 0)
    })
}

fn upstream() -> Upstream {
    let parent = ParentLink {
        node: NodeId::new("node").expect("the name is valid"),
        endpoints: ENDPOINTS,
        seed: 1,
        polls: false,
    };
    Upstream::new(parent, epoch(EPOCH))
}
