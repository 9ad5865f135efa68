//! The world: who is in it, and how it begins, goes on and ends.

use std::{collections::VecDeque, sync::Arc};

use doorman_config::Document;
use doorman_openapi::Moment;
use fastrand::Rng;

use super::{
    Plan, Rule, Tally, Violation,
    client::Client,
    clock::Clock,
    etcd::{Etcd, TERM},
    node::Node,
    referee::{Finding, Referee},
    schedule::{Event, Schedule},
    server::Server,
    terms::{self, RESOURCES, Terms},
    wire::{Network, Party},
};

/// How much of what happened before a violation is told.
const TRACE: usize = 400;

pub(super) struct World {
    seed: u64,
    plan: Plan,
    pub(super) now: Moment,
    pub(super) chance: Rng,
    pub(super) schedule: Schedule,
    pub(super) clients: Vec<Client>,
    pub(super) servers: Vec<Server>,
    pub(super) node: Option<Node>,
    /// There is one when there are several servers.
    pub(super) etcd: Option<Etcd>,
    pub(super) network: Network,
    pub(super) terms: Vec<Terms>,
    pub(super) document: Arc<Document>,
    /// The longest lease that any document of this world states.
    pub(super) longest: f64,
    /// Whether operators cut capacities here. Only in some worlds: what a cut excuses would hide other faults.
    pub(super) has_cuts: bool,
    pub(super) referee: Referee,
    pub(super) tally: Tally,
    pub(super) starved: Option<Finding>,
    trace: VecDeque<String>,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut chance = Rng::with_seed(seed);
        let resources = chance.usize(1..=RESOURCES);
        let terms: Vec<Terms> = (0..resources).map(|_| Terms::any(&mut chance)).collect();
        let servers = chance.usize(1..=2);
        let clients = chance.usize(2..=12);
        let without = plan.without;
        let clients = (0..clients)
            .map(|index| Client::new(index, Clock::any(&mut chance), servers, without))
            .collect();
        let etcd = (servers > 1).then(|| Etcd::new(Clock::any(&mut chance)));
        let servers = (0..servers)
            .map(|_| Server::new(Clock::any(&mut chance), without))
            .collect();
        let node = chance.bool().then(|| Node::new(Clock::any(&mut chance)));
        let longest = terms.iter().map(|terms| terms.lease).fold(0.0, f64::max);
        let has_cuts = without == Some(Rule::Cuts) || chance.u8(..3) == 0;
        Self {
            seed,
            plan,
            now: Moment::ORIGIN,
            chance,
            schedule: Schedule::default(),
            clients,
            servers,
            node,
            etcd,
            network: Network::default(),
            document: terms::document(&terms),
            terms,
            longest,
            has_cuts,
            referee: Referee::default(),
            tally: Tally::default(),
            starved: None,
            trace: VecDeque::new(),
        }
    }

    /// Lets everything happen, in order.
    pub(super) fn run(mut self) -> Result<Tally, Box<Violation>> {
        self.begin();
        while let Some((at, event)) = self.schedule.next() {
            self.now = at;
            let is_last = matches!(event, Event::Settled);
            let judged = self.happen(event).and_then(|()| self.judge());
            if let Err((broken, what)) = judged {
                return Err(Box::new(Violation {
                    seed: self.seed,
                    plan: self.plan,
                    at: self.now.seconds_since(Moment::ORIGIN),
                    broken,
                    what,
                    trace: self.trace.into(),
                }));
            }
            if is_last {
                break;
            }
        }
        self.tally.excused = self.referee.excused;
        Ok(self.tally)
    }

    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            self.start(Party::Server(server));
        }
        for client in 0..self.clients.len() {
            let after = 20.0 * self.chance.f64();
            self.clients[client].is_up = false;
            self.after(after, Event::Start(Party::Client(client)));
        }
        if self.node.is_some() {
            for position in 0..self.terms.len() {
                self.want_of_node(position);
            }
            self.after(5.0, Event::Wake(Party::Node));
            if let Some(node) = &mut self.node {
                node.wake = Moment::ORIGIN.after_seconds(5.0);
            }
        }
        self.after(5.0, Event::Demand);
        self.after(10.0, Event::Mishap);
        // Old leases end, and one pause of the election passes, before the last question is asked; then three refreshes.
        let rest = 2.5 * self.longest + 4.0 * TERM;
        self.after((self.plan.seconds - rest).max(30.0), Event::Calm);
    }

    pub(super) fn after(&mut self, seconds: f64, event: Event) {
        self.at(self.now.after_seconds(seconds), event);
    }

    pub(super) fn at(&mut self, at: Moment, event: Event) {
        self.schedule.add(at, event);
    }

    /// Notes what happens, when it is asked for.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.plan.traced {
            if self.trace.len() >= TRACE {
                self.trace.pop_front();
            }
            let at = self.now.seconds_since(Moment::ORIGIN);
            self.trace.push_back(format!("{at:10.3} {}", what()));
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Finding> {
        match event {
            Event::Arrive { from, to, message } => self.arrive(from, to, message),
            Event::Wake(party) => self.wake(party),
            Event::Resume(party) => self.resume(party),
            Event::Start(party) => self.start(party),
            Event::Campaign { server, life } => self.campaign(server, life),
            Event::Demand => {
                if !self.network.calm {
                    self.change_a_demand();
                    let after = 8.0 * self.chance.f64();
                    self.after(after, Event::Demand);
                }
            }
            Event::Mishap => {
                if !self.network.calm {
                    self.tally.mishaps += 1;
                    self.mishap();
                    let after = 12.0 * self.chance.f64();
                    self.after(after, Event::Mishap);
                }
            }
            Event::Calm => self.calm_down(),
            Event::Settle => self.settle(),
            Event::Settled => return self.judge_rest(),
        }
        self.starved.take().map_or(Ok(()), Err)
    }
}
