//! A client: the real state machine in a process that pauses, crashes and comes back under another name.

use std::collections::VecDeque;

use doorman_openapi::{Capacity, ClientId, Moment, Reason, Seconds, Seq};
use tower_doorman::lease::{Demand, Effect, Event, Holder, HolderSettings};

use super::{
    Rule,
    clock::Clock,
    terms::{RESOURCES, position, resource},
    wire::Outcome,
};

/// What a process believes that it may use, until a moment of the world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Belief {
    pub(super) amount: f64,
    pub(super) ends: Moment,
}

impl Belief {
    pub(super) const NOTHING: Self = Self {
        amount: 0.0,
        ends: Moment::ORIGIN,
    };

    pub(super) fn at(&self, world: Moment) -> f64 {
        if world < self.ends { self.amount } else { 0.0 }
    }
}

/// What reached a client: an outcome, and when its request was sent by the client's clock.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) seq: Seq,
    pub(super) sent: Moment,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) clock: Clock,
    /// Counts the runs of the process.
    pub(super) life: u32,
    pub(super) is_up: bool,
    /// Until when it does nothing.
    pub(super) paused: Option<Moment>,
    pub(super) inbox: VecDeque<Reply>,
    pub(super) beliefs: [Belief; RESOURCES],
    /// What it wants of each resource, if it wants to have to do with it at all.
    pub(super) wants: [Option<f64>; RESOURCES],
    /// The moment of the world at which it is to be woken.
    pub(super) wake: Moment,
    holder: Holder,
    index: usize,
    endpoints: usize,
    without: Option<Rule>,
}

impl Client {
    pub(super) fn new(index: usize, clock: Clock, endpoints: usize, without: Option<Rule>) -> Self {
        Self {
            clock,
            life: 0,
            is_up: true,
            paused: None,
            inbox: VecDeque::new(),
            beliefs: [Belief::NOTHING; RESOURCES],
            wants: [None; RESOURCES],
            wake: Moment::NEVER,
            holder: holder(index, 0, endpoints),
            index,
            endpoints,
            without,
        }
    }

    /// This run of the process is over.
    pub(super) fn die(&mut self) {
        self.is_up = false;
        self.life += 1;
        self.paused = None;
        self.inbox.clear();
        self.beliefs = [Belief::NOTHING; RESOURCES];
        self.wake = Moment::NEVER;
        self.holder = holder(self.index, self.life, self.endpoints);
    }

    /// When the state machine is to be woken next, by the world's clock.
    pub(super) fn wake_at(&self) -> Moment {
        self.clock.world(self.holder.wake_at())
    }

    /// Wants so much of a resource from now on.
    pub(super) fn demand(&mut self, position: usize, wants: f64, world: Moment) -> Vec<Effect> {
        self.wants[position] = Some(wants);
        let demand = Demand {
            wants: Capacity::saturating(wants),
            ..Demand::default()
        };
        let resource = resource(position);
        self.tell(Event::Demand { resource, demand }, world)
    }

    /// Wants no more of a resource, until it wants again.
    pub(super) fn forget(&mut self, position: usize, world: Moment) -> Vec<Effect> {
        self.wants[position] = None;
        self.beliefs[position] = Belief::NOTHING;
        let resource = resource(position);
        self.tell(Event::Forget { resource }, world)
    }

    /// Gives all back.
    pub(super) fn stop(&mut self, world: Moment) -> Vec<Effect> {
        self.tell(Event::Stop, world)
    }

    pub(super) fn tick(&mut self, world: Moment) -> Vec<Effect> {
        self.tell(Event::Tick, world)
    }

    /// Takes a reply in. The resources of which it was left nothing, although it held a part and wants one.
    pub(super) fn reply(&mut self, reply: Reply, world: Moment) -> (Vec<Effect>, Vec<usize>) {
        let Reply { seq, sent, outcome } = reply;
        let mut response = match outcome {
            Ok(response) => response,
            Err(failure) => return (self.tell(Event::Failed { seq, failure }, world), Vec::new()),
        };
        if self.without == Some(Rule::CountingFromSending) {
            let late = self.clock.at(world).seconds_since(sent);
            for answer in &mut response.resources {
                let length = &mut answer.gets.lease_length;
                if *length > Seconds::ZERO {
                    *length = Seconds::saturating(length.get() + late);
                }
            }
        }
        let nothing: Vec<usize> = response
            .resources
            .iter()
            .filter(|answer| {
                answer.gets.capacity == Capacity::ZERO && answer.reason != Reason::Blocked
            })
            .map(|answer| position(&answer.resource_id))
            .filter(|position| self.beliefs[*position].at(world) > 0.0)
            .filter(|position| self.wants[*position].is_some_and(|wants| wants > 0.0))
            .collect();
        let effects = self.tell(Event::Answered { seq, response }, world);
        let lost = |position: &usize| self.beliefs[*position].at(world) == 0.0;
        let starved = nothing.into_iter().filter(lost).collect();
        (effects, starved)
    }

    fn tell(&mut self, event: Event, world: Moment) -> Vec<Effect> {
        let effects = self.holder.handle(event, self.clock.at(world));
        for effect in &effects {
            if let Effect::Changed { resource, holding } = effect {
                self.beliefs[position(resource)] =
                    holding.lease.map_or(Belief::NOTHING, |lease| Belief {
                        amount: lease.capacity.get(),
                        ends: self.clock.world(lease.ends),
                    });
            }
        }
        effects
    }
}

fn holder(index: usize, life: u32, endpoints: usize) -> Holder {
    Holder::new(HolderSettings {
        client_id: ClientId::new(format!("client-{index}-{life}")).expect("the name is good"),
        endpoints,
        seed: u64::from(life) * 100 + index as u64,
    })
}
