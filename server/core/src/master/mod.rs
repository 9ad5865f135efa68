//! A server of a node as a state machine: its reign, the leases from its parent, and the lease
//! requests that wait. Events and the time go in, effects come out.
//!
//! The effects of an [`Election`](crate::election::Election) begin and end reigns
//! ([`Master::apply`]). A lease request ([`Master::request`]) asks the parent first if it must, is
//! decided in parts, and is answered once the durable bound covers it: at once, or later by
//! [`Effect::Resume`]. The server's shell has the lock, the clock, sockets and disks; the
//! simulation runs the same state machine.

mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{Epoch, Moment, Seconds};

pub use self::requests::{Granted, NotGranted, Progress, Request, RequestId};
use self::requests::{Next, Requests};
use crate::{
    election::{EndReason, ReignEffect, Term},
    ledger::{
        HintBatch, LeaseCall, Ledger, PollTicket, Predecessor, Settings, Tuning, UnmatchedPolicy,
    },
    reign::{Bound, DueTerms, Reign},
    upstream::{self, ParentLink, Upstream},
};

/// The most requests that go on in one [`Master::tick`].
const MAX_STEPS: usize = 64;

/// Settings of a [`Master`].
#[derive(Debug, Clone, Copy)]
pub struct MasterSettings {
    /// The most leases of its ledger.
    pub max_leases: usize,
    /// The handling of resources that no template matches.
    pub unmatched: UnmatchedPolicy,
    /// Whether the use of holders that end is logged.
    pub logs_usage: bool,
    /// No earlier lease was longer than this or than those of the document; zero if nothing is
    /// known.
    pub longest: Seconds,
    /// The constants of its ledger; [`Tuning::DEFAULT`] but in simulations.
    pub tuning: &'static Tuning,
}

/// Output of the machine, to be carried out in order.
#[derive(Debug)]
pub enum Effect {
    /// A request goes on that waited: it has its outcome, or is decided in parts.
    Resume {
        /// The request.
        id: RequestId,
        /// How far it is.
        progress: Progress,
    },
    /// A poll has hints, and ends.
    Hints {
        /// The poll.
        poll: PollTicket,
        /// Its hints.
        batch: HintBatch,
    },
    /// A response waits for the bound: look at [`Master::due_bound`] and [`Master::due_terms`].
    BoundUrgent,
}

/// The result of an effect of the election on the reign.
#[derive(Debug)]
pub enum Applied {
    /// Nothing is left to do.
    Done,
    /// A reign has begun.
    Began(Began),
    /// A reign has ended. Its value is large: it is not to be dropped under a lock.
    Ended {
        /// Why.
        reason: EndReason,
        /// The reign, to be handed over after a resignation.
        reign: Option<Box<Reign>>,
    },
}

/// The beginning of a reign.
#[derive(Debug)]
pub struct Began {
    /// The term.
    pub term: Term,
    /// The assumption of the new ledger about earlier leases.
    pub predecessor: Predecessor,
    /// Whether it began with an inherited ledger.
    pub inherits: bool,
    /// The reign before, if it has not ended. It is not to be dropped under a lock.
    pub before: Option<Box<Reign>>,
}

/// State machine of one server of a node, which is the master while it has a reign.
///
/// [`settle`](Self::settle) is to be called after each use.
#[derive(Debug)]
pub struct Master {
    settings: MasterSettings,
    parent: Option<ParentLink>,
    document: Arc<Document>,
    /// The longest lease of any document so far, or the operator's.
    longest: Seconds,
    reign: Option<Box<Reign>>,
    /// One per reign of a node with a parent.
    upstream: Option<Upstream>,
    /// The ledger of the last master, and the end of its latest lease.
    inherited: Option<(Box<Ledger>, Moment)>,
    requests: Requests,
    effects: Vec<Effect>,
}

impl Master {
    /// Begins without a reign.
    #[must_use]
    pub fn new(settings: MasterSettings, document: Arc<Document>) -> Self {
        let longest = settings.longest;
        let mut master = Self {
            settings,
            parent: None,
            document,
            longest,
            reign: None,
            upstream: None,
            inherited: None,
            requests: Requests::default(),
            effects: Vec::new(),
        };
        master.note_longest();
        master
    }

    /// Leases the capacity from a parent node, from the next reign on.
    pub fn lease_from(&mut self, parent: ParentLink) {
        self.parent = Some(parent);
    }

    fn note_longest(&mut self) {
        let longest = self.document.longest_lease();
        if self.longest < longest {
            self.longest = longest;
        }
    }

    /// Puts a document in force, in this reign and in later ones. Returns the one before, which is
    /// not to be dropped under a lock.
    pub fn reconfigure(&mut self, document: &Arc<Document>) -> Arc<Document> {
        let before = std::mem::replace(&mut self.document, Arc::clone(document));
        self.note_longest();
        // Even after its deadline: an extension may be on its way.
        if let Some(reign) = &mut self.reign {
            reign.reconfigure(document);
        }
        before
    }

    /// The longest lease that earlier masters may have granted, as far as this server knows.
    #[must_use]
    pub fn longest_lease(&self) -> Seconds {
        self.longest
    }

    /// An empty ledger, to restore that of the last master into.
    #[must_use]
    pub fn new_ledger(&self, epoch: Epoch, now: Moment) -> Ledger {
        self.ledger_after(epoch, Predecessor::None, now)
    }

    fn ledger_after(&self, epoch: Epoch, predecessor: Predecessor, now: Moment) -> Ledger {
        let settings = Settings {
            max_leases: self.settings.max_leases,
            unmatched: self.settings.unmatched,
            predecessor,
            epoch,
        };
        let ledger = Ledger::new(Arc::clone(&self.document), settings, now)
            .with_tuning(self.settings.tuning)
            .with_usage(self.settings.logs_usage);
        if self.parent.is_some() {
            ledger.of_parent()
        } else {
            ledger
        }
    }

    /// Gives the ledger of the last master, with the end of its latest lease, to the reign that
    /// begins next. Returns an earlier one that was not used.
    pub fn inherit(&mut self, ledger: Option<(Ledger, Moment)>) -> Option<(Box<Ledger>, Moment)> {
        let ledger = ledger.map(|(ledger, until)| (Box::new(ledger), until));
        std::mem::replace(&mut self.inherited, ledger)
    }

    /// Applies an effect of the election at `now`.
    pub fn apply(&mut self, effect: ReignEffect, now: Moment) -> Applied {
        let reign = self.reign.as_deref_mut();
        match effect {
            ReignEffect::Begin(term) => return Applied::Began(self.begin(term, now)),
            ReignEffect::End(reason) => {
                let reign = self.end();
                return Applied::Ended { reason, reign };
            }
            ReignEffect::Extend(deadline) => {
                if let Some(reign) = reign {
                    reign.extend(deadline);
                }
            }
            ReignEffect::BoundWritten(written) => {
                if let Some(reign) = reign {
                    reign.bound_mut().record_written(written);
                    self.requests.note_write();
                }
            }
            ReignEffect::BoundFailed => {
                if let Some(reign) = reign {
                    reign.bound_mut().record_failure();
                }
            }
            ReignEffect::TermsWritten(written) => {
                if let Some(terms) = reign.and_then(|it| it.bound_mut().terms_mut()) {
                    terms.record_written(&written);
                    self.requests.note_write();
                }
            }
            ReignEffect::TermsFailed => {
                if let Some(terms) = reign.and_then(|it| it.bound_mut().terms_mut()) {
                    terms.record_failure();
                }
            }
        }
        Applied::Done
    }

    fn begin(&mut self, term: Term, now: Moment) -> Began {
        let predecessor = term.predecessor(self.longest, now);
        let inherited = self.inherited.take().filter(|_| term.inherits);
        let inherits = inherited.is_some();
        let inherited_until = inherited.as_ref().map(|(_, until)| *until);
        let ledger = match inherited {
            Some((mut ledger, _)) => {
                ledger.reconfigure(Arc::clone(&self.document));
                ledger.begin_reign(now);
                *ledger
            }
            None => self.ledger_after(term.epoch, predecessor, now),
        };
        let ledger =
            ledger.with_earlier_terms(term.earlier_terms(self.longest, inherited_until, now));
        let bound = term.new_bound(self.longest, inherited_until, now);
        let before = self.install(Reign::new(term.epoch, term.deadline, ledger, bound));
        Began {
            term,
            predecessor,
            inherits,
            before,
        }
    }

    /// Begins this reign. Returns the one before.
    pub fn install(&mut self, reign: Reign) -> Option<Box<Reign>> {
        let before = self.end();
        let epoch = reign.epoch();
        self.reign = Some(Box::new(reign));
        // Safety rule: sequence numbers begin anew, so an answer to a request of an earlier reign
        // must not count. Each reign has its own requests.
        self.upstream = self.parent.clone().map(|parent| {
            let seed = parent.seed.wrapping_add(epoch.get());
            Upstream::new(ParentLink { seed, ..parent }, epoch)
        });
        before
    }

    /// Ends the reign, and returns it. Requests that wait for the bound get what it covers by now.
    pub fn end(&mut self) -> Option<Box<Reign>> {
        let reign = self.reign.take();
        self.upstream = None;
        let bound = reign.as_deref().map(Reign::bound);
        for (id, request) in self.requests.take_all() {
            let progress = Progress::Done(request.end(bound));
            self.effects.push(Effect::Resume { id, progress });
        }
        reign
    }

    /// The reign, over or not.
    #[must_use]
    pub fn reign(&self) -> Option<&Reign> {
        self.reign.as_deref()
    }

    /// The reign before its deadline.
    pub fn current(&mut self, now: Moment) -> Option<&mut Reign> {
        self.reign.as_deref_mut().filter(|it| now < it.deadline())
    }

    /// The ledger before the deadline of the reign.
    pub fn ledger(&mut self, now: Moment) -> Option<&mut Ledger> {
        self.reign.as_mut()?.ledger(now)
    }

    /// The bound that the election is to write now.
    #[must_use]
    pub fn due_bound(&self) -> Option<Bound> {
        self.reign.as_ref()?.bound().due()
    }

    /// The terms that the election is to write now.
    pub fn due_terms(&mut self, now: Moment) -> Option<DueTerms> {
        self.reign.as_mut()?.bound_mut().terms_mut()?.due(now)
    }

    /// Begins a lease request. It waits at most one second for the parent, then at most one second
    /// for the durable bound. If its caller goes, the leases that were decided stay booked.
    pub fn request(&mut self, call: LeaseCall, now: Moment) -> Progress {
        let Some(reign) = self.current(now) else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        let request = Request::new(call, reign.epoch(), now);
        self.step(request, None, now)
    }

    /// Goes on with a request, after [`Progress::Again`]. The outcome is [`NotGranted::NotMaster`]
    /// if another reign has begun.
    pub fn proceed(&mut self, request: Box<Request>, now: Moment) -> Progress {
        self.step(*request, None, now)
    }

    /// Goes on with a request, which has an id if it has waited.
    fn step(&mut self, mut request: Request, id: Option<RequestId>, now: Moment) -> Progress {
        let Some(reign) = self.reign.as_deref_mut() else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        match request.step(reign, self.requests.answers(), now) {
            Next::Done(outcome) => Progress::Done(outcome),
            Next::Step | Next::Pause => Progress::Again(Box::new(request)),
            Next::Wait => {
                if request.waits_for_bound() {
                    self.effects.push(Effect::BoundUrgent);
                }
                let id = id.unwrap_or_else(|| self.requests.next_id());
                self.requests.insert(id, request);
                Progress::Waits(id)
            }
        }
    }

    /// When [`tick`](Self::tick) is due next.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        self.requests.wake_at()
    }

    /// Goes on with requests that have waited long enough, or that may have what they waited for.
    /// If some are left, [`wake_at`](Self::wake_at) is not after `now`.
    pub fn tick(&mut self, now: Moment) {
        for _ in 0..MAX_STEPS {
            let Some((id, request)) = self.requests.take_due(now) else {
                return;
            };
            match self.step(request, Some(id), now) {
                Progress::Waits(_) => {}
                progress => self.effects.push(Effect::Resume { id, progress }),
            }
        }
    }

    /// Tells the state machine around the parent an event of this reign. `None` if the reign is
    /// another, or there is none.
    pub fn tell_upstream(
        &mut self,
        epoch: Epoch,
        event: upstream::Event,
        now: Moment,
    ) -> Option<Vec<upstream::Effect>> {
        let is_answer = matches!(
            event,
            upstream::Event::Answered { .. } | upstream::Event::Failed { .. }
        );
        let reign = self.reign.as_deref_mut().filter(|it| it.epoch() == epoch)?;
        let upstream = self.upstream.as_mut()?;
        let effects = upstream.handle(event, reign.ledger(now)?, now);
        if is_answer {
            self.requests.note_parent_answer();
        }
        Some(effects)
    }

    /// The state machine around the parent; `None` at the root and without a reign.
    #[must_use]
    pub fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_ref()
    }

    /// When a request has waited long enough; `None` if it does not wait.
    #[must_use]
    pub fn waits_until(&self, id: RequestId) -> Option<Moment> {
        Some(self.requests.get(id)?.until())
    }

    /// Withdraws a request that waits: its caller has gone. Leases that were decided stay booked.
    pub fn withdraw(&mut self, id: RequestId) {
        self.requests.take(id);
    }

    /// The leases of a request that waits for the bound; `None` while it waits for the parent.
    #[must_use]
    pub fn granted(&self, id: RequestId) -> Option<Granted> {
        self.requests.get(id)?.granted()
    }

    /// Takes the effects so far, and the hints for polls. To be called after each use.
    pub fn settle(&mut self, now: Moment) -> Vec<Effect> {
        let mut effects = self.take_effects();
        if let Some(ledger) = self.ledger(now).filter(|it| it.has_hints(now)) {
            let hints = ledger.take_hints(now).into_iter();
            let hints = hints.map(|(poll, batch)| Effect::Hints { poll, batch });
            effects.extend(hints);
        }
        effects
    }

    /// Takes the effects so far, without the hints for polls, which [`Ledger::take_hints`] has.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        if let Some(reign) = &mut self.reign {
            reign.note_terms();
        }
        std::mem::take(&mut self.effects)
    }
}
