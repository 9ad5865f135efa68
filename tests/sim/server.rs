//! A server: the real core in a shell that crashes, pauses, stands for election and refuses once it may be deposed.

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{
    CLOCK_DRIFT, Capacity, CapacityRequest, CapacityResponse, Epoch, HeldLease, Moment, NodeId,
    ReleaseRequest, ServerCapacityRequest,
};
use doorman_server::ledger::{
    Grant, LearningRecord, Ledger, Predecessor, ResourceRecord, Settings, UnmatchedPolicy,
};
use tower_doorman::lease::Failure;

use super::{
    Rule,
    bend::bend,
    clock::Clock,
    etcd::{FENCE, TERM},
    terms::{Terms, position},
    wire::{Election, Message, Outcome, Party},
};

/// The name of the node that the servers belong to.
const NODE: &str = "root";
/// A data directory keeps a bound so many seconds ahead of need.
const AHEAD: f64 = 5.0;

/// The time in which a server is master.
#[derive(Debug)]
struct Reign {
    core: Ledger,
    epoch: u64,
    /// It refuses from then on, by its own clock.
    fence: Moment,
}

/// What a data directory holds.
#[derive(Debug, Default)]
struct Directory {
    epoch: u64,
    /// Everything granted has ended then, by the machine's clock.
    bound: Moment,
    /// The books of a server that stopped cleanly.
    books: Option<Books>,
}

/// Books handed over, and when by the machine's clock.
#[derive(Debug)]
struct Books {
    resources: Vec<ResourceRecord>,
    learning: Option<LearningRecord>,
    stopped: Moment,
}

/// A message that waits for a server which is paused, and whom it is from.
pub(super) type Waiting = (Party, Message);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Clock,
    /// Counts the runs of the process.
    pub(super) life: u32,
    pub(super) is_up: bool,
    /// Until when it does nothing.
    pub(super) paused: Option<Moment>,
    pub(super) inbox: Vec<Waiting>,
    /// It does not stand for election before this moment of the world.
    pub(super) stands_back: Moment,
    /// The data directory cannot be written before this moment of the world.
    pub(super) disk_full: Moment,
    reign: Option<Reign>,
    /// When the newest campaign that it has heard the outcome of was sent; and the last epoch in which it was master.
    campaigned: (Moment, u64),
    directory: Directory,
    without: Option<Rule>,
}

impl Server {
    pub(super) fn new(clock: Clock, without: Option<Rule>) -> Self {
        Self {
            clock,
            life: 0,
            is_up: false,
            paused: None,
            inbox: Vec::new(),
            stands_back: Moment::ORIGIN,
            disk_full: Moment::ORIGIN,
            reign: None,
            campaigned: (Moment::ORIGIN, 0),
            directory: Directory::default(),
            without,
        }
    }

    pub(super) fn is_master(&self) -> bool {
        self.reign.is_some()
    }

    /// Its one run ends without a word.
    pub(super) fn crash(&mut self) {
        self.reign = None;
        self.die();
    }

    /// Stops in good order, and leaves its books in the data directory if it can.
    pub(super) fn stop(&mut self, world: Moment) {
        let stopped = self.clock.at(world);
        self.directory.books = self
            .reign
            .take()
            .filter(|_| world >= self.disk_full)
            .map(|reign| Books {
                resources: reign.core.snapshot(stopped).collect(),
                learning: reign.core.learning_snapshot(stopped),
                stopped,
            });
        self.die();
    }

    /// Stands back: another may be master.
    pub(super) fn resign(&mut self) {
        self.reign = None;
    }

    fn die(&mut self) {
        self.is_up = false;
        self.life += 1;
        self.inbox.clear();
        self.paused = None;
    }

    /// Starts as the master of itself, with what the data directory tells of the run before.
    pub(super) fn start_alone(&mut self, document: Arc<Document>, terms: &[Terms], world: Moment) {
        let now = self.clock.at(world);
        self.directory.epoch += 1;
        let bound = match self.without {
            Some(Rule::LearningBound) => now.after_seconds(CLOCK_DRIFT * longest(terms)),
            _ => self.directory.bound,
        };
        let books = self.directory.books.take();
        let must_learn = self.directory.epoch > 1 && books.is_none() && bound > now;
        let mut core = self.new_core(document, must_learn.then_some(bound), now);
        if let Some(Books {
            resources,
            learning,
            stopped,
        }) = books
        {
            if let Some(learning) = learning {
                core.restore_learning(learning, stopped);
            }
            for record in &resources {
                core.restore(record, stopped).expect("the names are good");
            }
        }
        self.reign = Some(Reign {
            core,
            epoch: self.directory.epoch,
            fence: Moment::NEVER,
        });
    }

    /// Hears what came of a campaign.
    pub(super) fn elected(
        &mut self,
        election: Option<Election>,
        sent: Moment,
        document: Arc<Document>,
        terms: &[Terms],
        world: Moment,
    ) {
        if sent < self.campaigned.0 {
            return;
        }
        self.campaigned.0 = sent;
        let Some(election) = election else {
            self.reign = None;
            return;
        };
        let now = self.clock.at(world);
        let fence = sent.after_seconds(FENCE * TERM);
        if let Some(reign) = self.reign.as_mut().filter(|it| it.epoch == election.epoch) {
            reign.fence = reign.fence.max(fence);
            return;
        }
        if election.epoch <= self.campaigned.1 {
            return;
        }
        self.campaigned.1 = election.epoch;
        let learn = match self.without {
            Some(Rule::LearningBound) => election.learn.map(|_| CLOCK_DRIFT * longest(terms)),
            _ => election.learn,
        };
        let core = self.new_core(document, learn.map(|learn| now.after_seconds(learn)), now);
        self.reign = Some(Reign {
            core,
            epoch: election.epoch,
            fence,
        });
    }

    fn new_core(
        &self,
        document: Arc<Document>,
        learn_until: Option<Moment>,
        now: Moment,
    ) -> Ledger {
        let learn_until = learn_until.filter(|_| self.without != Some(Rule::Learning));
        let settings = Settings {
            max_leases: 1_000,
            unmatched: UnmatchedPolicy::Refuse,
            predecessor: learn_until.map_or(Predecessor::None, Predecessor::Until),
        };
        Ledger::new(document, settings, now)
    }

    pub(super) fn reconfigure(&mut self, document: &Arc<Document>) {
        if let Some(reign) = &mut self.reign {
            reign.core.reconfigure(Arc::clone(document));
        }
    }

    /// Answers a client. The time is sampled here, whenever the answer leaves.
    pub(super) fn ask(
        &mut self,
        request: &CapacityRequest,
        terms: &[Terms],
        world: Moment,
    ) -> Outcome {
        let mut request = request.clone();
        match self.without {
            Some(Rule::SeqOfRequests) => request.seq = None,
            Some(Rule::Booking) => {
                for asked in &mut request.resources {
                    asked.has = None;
                }
            }
            _ => {}
        }
        let name = request.client_id.as_str().to_owned();
        self.decide(&name, terms, world, |core, now| {
            core.refresh_client(&request, now)
        })
    }

    /// Answers a node.
    pub(super) fn ask_node(
        &mut self,
        request: &ServerCapacityRequest,
        terms: &[Terms],
        world: Moment,
    ) -> Outcome {
        let mut request = request.clone();
        match self.without {
            Some(Rule::SeqOfRequests) => request.seq = None,
            Some(Rule::Epoch) => request.epoch = None,
            Some(Rule::Booking) => {
                for asked in &mut request.resources {
                    asked.has = Some(HeldLease {
                        capacity: Capacity::ZERO,
                    });
                    asked.outstanding = Capacity::ZERO;
                }
            }
            _ => {}
        }
        let name = request.node_id.as_str().to_owned();
        self.decide(&name, terms, world, |core, now| {
            core.refresh_node(&request, now)
        })
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, world: Moment) {
        let mut request = request.clone();
        if self.without == Some(Rule::SeqOfReleases) {
            request.seq = None;
        }
        let (now, fenced) = (self.clock.at(world), self.is_fenced(world));
        if let Some(reign) = self.reign.as_mut().filter(|_| !fenced) {
            reign.core.release_client(&request, now);
        }
    }

    fn is_fenced(&self, world: Moment) -> bool {
        let now = self.clock.at(world);
        self.without != Some(Rule::SelfFencing)
            && self.reign.as_ref().is_some_and(|reign| now >= reign.fence)
    }

    fn decide(
        &mut self,
        holder: &str,
        terms: &[Terms],
        world: Moment,
        decide: impl FnOnce(&mut Ledger, Moment) -> Vec<Grant>,
    ) -> Outcome {
        let now = self.clock.at(world);
        let fenced = self.is_fenced(world);
        let Some(reign) = self.reign.as_mut().filter(|_| !fenced) else {
            return Err(Failure::Unavailable { retry_after: None });
        };
        reign.core.sweep(now, 64);
        let mut granted = decide(&mut reign.core, now);
        // The bound is on the disk before anybody hears of a lease that it must cover.
        if reign.fence == Moment::NEVER {
            for granted in &mut granted {
                let bound = &mut self.directory.bound;
                if world >= self.disk_full && *bound < granted.booked_until {
                    *bound = granted.booked_until.after_seconds(AHEAD);
                }
                *granted = granted.clone().capped_at(*bound, now);
            }
        }
        for granted in &mut granted {
            let terms = &terms[position(&granted.resource_id)];
            bend(self.without, granted, &reign.core, holder, terms, now);
        }
        let epoch = match self.without {
            Some(Rule::Epoch) => 1,
            _ => reign.epoch,
        };
        Ok(CapacityResponse {
            node: NodeId::new(NODE).expect("the name is good"),
            epoch: Epoch::new(epoch).expect("it is small"),
            resources: granted.into_iter().map(|it| it.into_response(0)).collect(),
        })
    }
}

fn longest(terms: &[Terms]) -> f64 {
    terms.iter().map(|terms| terms.lease).fold(0.0, f64::max)
}
