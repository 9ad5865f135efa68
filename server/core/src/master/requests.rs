//! Lease requests from their arrival to their outcome.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use doorman_openapi::{Epoch, Moment};

use crate::{
    ledger::{Grant, KnownTerms, LeaseCall},
    reign::{Bound, DurableBound, Reign},
};

/// Seconds for which a request waits for the parent node, and a response for the bound.
const PATIENCE: f64 = 1.0;

/// Leases that were granted in one reign.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The epoch of the reign.
    pub epoch: Epoch,
    /// The leases, in the order of the request.
    pub grants: Vec<Grant>,
}

/// Why leases are not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotGranted {
    /// The server is not master.
    NotMaster,
    /// The next master would not know of them: no bound could be written.
    NotDurable,
    /// The parent node does not answer, and holders may have leases of a previous master, which
    /// they keep as long as they get no answer.
    NoParent,
}

/// Identifies a request at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// The state of a request after a step.
#[derive(Debug)]
pub enum Progress {
    /// It has its outcome.
    Done(Result<Granted, NotGranted>),
    /// It is long, and is decided in parts: others may use the machine before
    /// [`Master::proceed`](super::Master::proceed).
    Again(Box<Request>),
    /// It waits for the parent or for the bound, and goes on by an
    /// [`Effect::Resume`](super::Effect::Resume).
    Waits(RequestId),
}

/// A request without an outcome.
#[derive(Debug, Clone)]
pub struct Request {
    call: LeaseCall,
    epoch: Epoch,
    stage: Stage,
    /// When it has waited long enough.
    until: Moment,
    /// The answers of the parent before it registered its demand.
    answers: u64,
}

#[derive(Debug, Clone)]
enum Stage {
    /// Registers its demand at a node whose parent must be asked first, from a position on.
    Registers { from: usize, awaits: bool },
    /// Waits for the parent.
    AwaitsParent,
    /// Is decided in parts, the first at `handled`.
    Decides { grants: Vec<Grant>, handled: Moment },
    /// Waits until the bound and the terms are durable.
    AwaitsBound {
        grants: Vec<Grant>,
        handled: Moment,
        needed: Option<Bound>,
    },
}

/// The result of a step.
pub(super) enum Next {
    Step,
    Pause,
    Wait,
    Done(Result<Granted, NotGranted>),
}

impl Request {
    pub(super) fn new(call: LeaseCall, epoch: Epoch, now: Moment) -> Self {
        Self {
            call,
            epoch,
            stage: Stage::Registers {
                from: 0,
                awaits: false,
            },
            until: now.after_seconds(PATIENCE),
            answers: 0,
        }
    }

    /// When it has waited long enough.
    pub(super) fn until(&self) -> Moment {
        self.until
    }

    pub(super) fn waits_for_bound(&self) -> bool {
        matches!(self.stage, Stage::AwaitsBound { .. })
    }

    /// The leases that it waits to be answered with.
    pub(super) fn granted(&self) -> Option<Granted> {
        let Stage::AwaitsBound { grants, .. } = &self.stage else {
            return None;
        };
        let (epoch, grants) = (self.epoch, grants.clone());
        Some(Granted { epoch, grants })
    }

    /// Goes on as far as it can. All parts of a response come from one reign.
    pub(super) fn step(&mut self, reign: &mut Reign, answers: u64, now: Moment) -> Next {
        if reign.epoch() != self.epoch {
            return Next::Done(Err(NotGranted::NotMaster));
        }
        loop {
            match self.advance(reign, answers, now) {
                Next::Step => {}
                next => return next,
            }
        }
    }

    fn advance(&mut self, reign: &mut Reign, answers: u64, now: Moment) -> Next {
        match std::mem::replace(&mut self.stage, Stage::AwaitsParent) {
            Stage::Registers { from, awaits } => {
                if from == 0 {
                    self.answers = answers;
                }
                let has_answered = self.answers != answers;
                self.register(from, awaits, has_answered, reign, now)
            }
            Stage::AwaitsParent => {
                let (from, awaits) = (0, false);
                self.stage = Stage::Registers { from, awaits };
                Next::Step
            }
            Stage::Decides { grants, handled } => self.decide(grants, handled, reign, now),
            stage @ Stage::AwaitsBound { .. } => {
                self.stage = stage;
                if now < self.until && !self.is_covered(reign.bound()) {
                    return Next::Wait;
                }
                Next::Done(self.report(reign.bound()))
            }
        }
    }

    /// Registers the demand of a part, and asks the parent first where it must be. If the parent
    /// has answered since the first part, it may have answered for all.
    fn register(
        &mut self,
        from: usize,
        awaits: bool,
        has_answered: bool,
        reign: &mut Reign,
        now: Moment,
    ) -> Next {
        let Some(ledger) = reign.ledger(now) else {
            return Next::Done(Err(NotGranted::NotMaster));
        };
        let (part_awaits, next) = ledger.register_part(&self.call, from, now);
        let awaits = awaits || part_awaits;
        if let Some(from) = next {
            self.stage = Stage::Registers { from, awaits };
            return Next::Pause;
        }
        if awaits && now < self.until {
            self.stage = Stage::AwaitsParent;
            return if has_answered { Next::Step } else { Next::Wait };
        }
        if awaits && ledger.may_have_lost_leases(now) {
            return Next::Done(Err(NotGranted::NoParent));
        }
        self.decide(Vec::new(), now, reign, now)
    }

    /// Decides a part after `grants`, and covers the leases after the last one. The first part was
    /// decided at `handled`: no booking may seem shorter than it is.
    fn decide(
        &mut self,
        mut grants: Vec<Grant>,
        handled: Moment,
        reign: &mut Reign,
        now: Moment,
    ) -> Next {
        let Some(ledger) = reign.ledger(now) else {
            return Next::Done(Err(NotGranted::NotMaster));
        };
        let mut part = ledger.refresh_part(&self.call, grants.len(), now);
        reign.note_terms();
        if grants.is_empty() {
            grants = part;
        } else {
            grants.append(&mut part);
        }
        if grants.len() < self.call.len() {
            // What is booked must be covered, even if the rest comes too late.
            reign.bound_mut().require(&grants);
            self.stage = Stage::Decides { grants, handled };
            return Next::Pause;
        }
        self.cover(reign.bound_mut(), grants, handled, now)
    }

    /// The leases, if they are covered by what is durable.
    fn cover(
        &mut self,
        bound: &mut DurableBound,
        grants: Vec<Grant>,
        handled: Moment,
        now: Moment,
    ) -> Next {
        let needed = bound.require(&grants);
        if needed.is_none() && bound.known_terms(&grants) == KnownTerms::All {
            let epoch = self.epoch;
            return Next::Done(Ok(Granted { epoch, grants }));
        }
        self.until = now.after_seconds(PATIENCE);
        self.stage = Stage::AwaitsBound {
            grants,
            handled,
            needed,
        };
        Next::Wait
    }

    /// The outcome when the reign ends with this bound.
    pub(super) fn end(mut self, bound: Option<&DurableBound>) -> Result<Granted, NotGranted> {
        self.report(bound.ok_or(NotGranted::NotMaster)?)
    }

    /// Whether leases may be reported as they are.
    fn is_covered(&self, bound: &DurableBound) -> bool {
        let Stage::AwaitsBound { grants, needed, .. } = &self.stage else {
            return false;
        };
        needed.is_none_or(|needed| bound.covers(&needed))
            && bound.known_terms(grants) == KnownTerms::All
    }

    /// The leases that were decided, shortened to what is durable.
    fn report(&mut self, bound: &DurableBound) -> Result<Granted, NotGranted> {
        let stage = std::mem::replace(&mut self.stage, Stage::AwaitsParent);
        let Stage::AwaitsBound {
            grants,
            handled,
            needed,
        } = stage
        else {
            return Err(NotGranted::NotMaster);
        };
        if bound.known_terms(&grants) == KnownTerms::Nothing {
            return Err(NotGranted::NotDurable);
        }
        let grants = match needed {
            Some(_) => (bound.shorten(grants, handled)).ok_or(NotGranted::NotDurable)?,
            None => grants,
        };
        let epoch = self.epoch;
        Ok(Granted { epoch, grants })
    }
}

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: BTreeMap<RequestId, Request>,
    /// When each has waited long enough.
    ends: BTreeSet<(Moment, RequestId)>,
    /// Those that wait for the parent, and those that wait for the bound.
    for_parent: BTreeSet<RequestId>,
    for_bound: BTreeSet<RequestId>,
    /// Those that may have what they waited for, in this order.
    ready: VecDeque<RequestId>,
    last: u64,
    /// Counts answers of the parent.
    answers: u64,
}

impl Requests {
    pub(super) fn next_id(&mut self) -> RequestId {
        self.last = self.last.wrapping_add(1);
        RequestId(self.last)
    }

    pub(super) fn insert(&mut self, id: RequestId, request: Request) {
        self.ends.insert((request.until, id));
        if request.waits_for_bound() {
            self.for_bound.insert(id);
        } else {
            self.for_parent.insert(id);
        }
        self.waiting.insert(id, request);
    }

    pub(super) fn get(&self, id: RequestId) -> Option<&Request> {
        self.waiting.get(&id)
    }

    pub(super) fn take(&mut self, id: RequestId) -> Option<Request> {
        let request = self.waiting.remove(&id)?;
        self.ends.remove(&(request.until, id));
        self.for_parent.remove(&id);
        self.for_bound.remove(&id);
        Some(request)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (RequestId, Request)> + use<> {
        let (last, answers) = (self.last, self.answers);
        let all = std::mem::replace(
            self,
            Self {
                last,
                answers,
                ..Self::default()
            },
        );
        all.waiting.into_iter()
    }

    /// Answers of the parent so far.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    pub(super) fn note_parent_answer(&mut self) {
        self.answers = self.answers.wrapping_add(1);
        self.ready.extend(std::mem::take(&mut self.for_parent));
    }

    /// A bound or terms were written.
    pub(super) fn note_write(&mut self) {
        self.ready.extend(std::mem::take(&mut self.for_bound));
    }

    /// When the next request has waited long enough; at once if it may have what it waits for.
    pub(super) fn wake_at(&self) -> Moment {
        if !self.ready.is_empty() {
            return Moment::ORIGIN;
        }
        self.ends.first().map_or(Moment::NEVER, |(end, _)| *end)
    }

    /// Takes the next request that may have what it waited for, or has waited long enough.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<(RequestId, Request)> {
        while let Some(id) = self.ready.pop_front() {
            // It may have ended meanwhile.
            if let Some(request) = self.take(id) {
                return Some((id, request));
            }
        }
        let (_, id) = *self.ends.first().filter(|(end, _)| *end <= now)?;
        Some((id, self.take(id)?))
    }
}
