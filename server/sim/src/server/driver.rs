//! The election of a server: what the product's driver does with events and effects.

use std::sync::Arc;

use doorman_config::Document;
use doorman_core::{
    election::{
        Alone, CallId, DiskCall, Effect, Election, EndReason, EtcdElection, EtcdOptions, Event,
        FoundBound, FoundState, Handover, Learn, LedgerSource, ReignEffect, Term, Time, next_epoch,
    },
    etcd::{EtcdAnswer, EtcdCall, ReplyHeader},
    ledger::Ledger,
    master::{Applied, Began, Master},
    reign::{Bound, DueTerms, Reign},
    upstream::ParentLink,
};
use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment};

use super::Server;
use crate::{
    ablation::Extended,
    ablation::NodeAblation,
    ablation::Rule,
    data_dir::Snapshot,
    limits::Limit,
    network::{Message, Process},
    tree::Participation,
};

/// The prefix of the keys in etcd.
const PREFIX: &str = "node";
/// The header of an answer that no one takes for a deposed leader's.
const NEWEST: ReplyHeader = ReplyHeader {
    cluster: 1,
    raft_term: u64::MAX,
    revision: u64::MAX,
};
/// Seconds until a bound that is still due is asked for again.
const BOUND_PERIOD: f64 = 0.25;
/// Seconds for which the first byte of a ledger is awaited.
const STALL: f64 = 2.0;

/// A ledger of the last master that is being fetched.
#[derive(Debug)]
pub(super) struct Fetching {
    /// The epoch in which it will be used.
    epoch: Epoch,
    requested: Moment,
    /// When its first byte arrived.
    received: Option<Moment>,
    /// When the fetch fails without one.
    until: Moment,
}

#[derive(Debug)]
pub(super) enum Candidacy {
    Alone(Box<Alone>),
    Etcd(Box<EtcdElection>),
}

/// The reply to a call of either election.
#[derive(Debug)]
pub(crate) enum CallReply {
    Disk,
    Etcd(EtcdAnswer),
}

/// An action of the simulation for a server.
#[derive(Debug)]
pub(crate) enum Action {
    Call(CallId, EtcdCall),
    WriteDisk(CallId, DiskCall),
    /// The ledger of the data directory, or of another server.
    FetchLedger {
        source: LedgerSource,
        /// The epoch in which it will be used.
        epoch: Epoch,
    },
    Respond(Process, Message),
    /// A message to the parent.
    Ask(Process, Message),
    /// A message about a poll: of the parent, or the response to one at the end of a reign.
    Poll(Process, Message),
    Began {
        inherits: bool,
    },
    Ended(EndReason),
    Resigned {
        offered: bool,
    },
}

impl Server {
    /// Starts. Returns whether the data directory could be written.
    pub(crate) fn start(
        &mut self,
        Participation { ttl, is_first }: Participation,
        random: u64,
        document: Arc<Document>,
        time: Moment,
    ) -> bool {
        if time < self.disk_full_until {
            return false;
        }
        let now = self.clock.local(time);
        self.is_up = true;
        self.document = Arc::clone(&document);
        self.master = Master::new(self.settings, document);
        if let Some(servers) = &self.membership.parent {
            self.master.lease_from(ParentLink {
                node: self.membership.name.clone(),
                endpoints: servers.len(),
                seed: self.index as u64,
                polls: self.polls_parent,
            });
        }
        self.secret = format!("{random}");
        let address = self.index.to_string();
        let found = FoundState {
            last_epoch: self.data_dir.last_epoch,
            bound: self.data_dir.bound,
            longest: self.longest_stored(),
            had_election: self.data_dir.had_election,
            is_first,
        };
        self.data_dir.had_election = ttl.is_some();
        let candidacy = match ttl {
            None => Candidacy::Alone(Box::new(self.alone(&found, address, time))),
            Some(ttl) => {
                let options = self.etcd_options(&found, address, ttl, random, now);
                Candidacy::Etcd(Box::new(EtcdElection::new(options)))
            }
        };
        self.candidacy = Some(candidacy);
        true
    }

    /// Starts as the only server of its node.
    fn alone(&mut self, found: &FoundState, address: String, time: Moment) -> Alone {
        let now = self.clock.local(time);
        let epoch = next_epoch(found.last_epoch, self.unix(time)).expect("epochs are left");
        self.data_dir.last_epoch = Some(epoch);
        let left = self.data_dir.ledger.take();
        // Others may have been master since an election.
        let is_last = |it: &Snapshot| !found.had_election && Some(it.epoch) == found.last_epoch;
        let left = left.filter(is_last);
        let mut ledger = self.new_ledger(epoch, now);
        let restored = left.map(|it| it.restore(&mut ledger, now, now));
        let longest = self.master.longest_lease();
        let terms = self.data_dir.terms.clone();
        let election = Alone::new(found, restored, epoch, address, longest, terms, now);
        let (ends, longest) = election.term().bound;
        self.data_dir.bound = FoundBound::ThisBoot { ends, longest };
        self.data_dir.longest = Some(longest);
        self.master.inherit(restored.map(|until| (ledger, until)));
        election
    }

    /// Starts as one of the servers of its node.
    fn etcd_options(
        &mut self,
        found: &FoundState,
        address: String,
        ttl: u32,
        random: u64,
        now: Moment,
    ) -> EtcdOptions {
        let was_alone = found.last_epoch.is_some() && !found.had_election;
        let earlier_leases = self.earlier_leases(found, was_alone, now);
        let left = self.data_dir.ledger.as_ref();
        EtcdOptions {
            node: self.membership.name.clone(),
            prefix: PREFIX.to_owned(),
            ttl,
            server_id: address.clone(),
            address,
            instance: random,
            last_epoch: found.last_epoch,
            had_election: found.had_election,
            stored_ledger: left
                .filter(|_| found.had_election || was_alone)
                .map(|it| (it.epoch, found.had_election)),
            earlier_leases,
            longest: found.longest,
            terms: self.data_dir.terms.clone(),
            is_first: found.is_first,
        }
    }

    /// The longest booking that the data directory knows of.
    fn longest_stored(&self) -> Option<u64> {
        let longest = self.data_dir.longest;
        longest.filter(|_| self.without != Some(Rule::LongestLease))
    }

    /// Until when leases from a time without election may be outstanding, as the product's
    /// `Mastership::elected` finds it.
    fn earlier_leases(
        &mut self,
        found: &FoundState,
        was_alone: bool,
        now: Moment,
    ) -> Option<Moment> {
        let bound = FoundState {
            had_election: false,
            ..*found
        };
        let has_bound = found.bound != FoundBound::Missing;
        let outstanding = bound.outstanding(self.master.longest_lease(), now).until;
        let until = outstanding.filter(|until| now < *until && (was_alone || has_bound));
        if until.is_none() {
            self.data_dir.bound = FoundBound::Missing;
        }
        until
    }

    /// Seconds of the wall clock.
    fn unix(&self, time: Moment) -> u64 {
        let skew = 10 * self.index as u64;
        1_000_000 + skew + time.seconds_since(Moment::ORIGIN) as u64
    }

    /// Feeds an event to the election, and applies the effects.
    pub(crate) fn handle(&mut self, event: Event<CallReply>, time: Moment) {
        let now = self.clock.local(time);
        let at = Time {
            now,
            unix: self.unix(time),
        };
        match self.candidacy.take() {
            None => {}
            Some(Candidacy::Alone(mut election)) => {
                let event = map_reply(event, |reply| match reply {
                    CallReply::Disk => (),
                    CallReply::Etcd(_) => unreachable!("it calls no etcd"),
                });
                let effects = election.handle(event, at);
                self.apply(effects, Action::WriteDisk, now);
                self.candidacy = Some(Candidacy::Alone(election));
            }
            Some(Candidacy::Etcd(mut election)) => {
                let is_ablated = self.without == Some(Rule::DeposedLeader);
                let event = map_reply(event, |reply| match reply {
                    CallReply::Etcd(answer) if is_ablated => EtcdAnswer {
                        header: NEWEST,
                        ..answer
                    },
                    CallReply::Etcd(answer) => answer,
                    CallReply::Disk => unreachable!("a candidate writes nothing to the disk"),
                });
                let extended = self.calls.on_reply(&event, now);
                if let Some(Extended::Deadline(deadline)) = extended {
                    self.master.apply(ReignEffect::Extend(deadline), now);
                }
                let effects = election.handle(event, at);
                self.apply(effects, Action::Call, now);
                if let Some(Extended::Bound(until)) = extended {
                    let written = Bound { until, longest: 0 };
                    self.master.apply(ReignEffect::BoundWritten(written), now);
                }
                let (epoch, longest) = (election.last_epoch(), election.view().longest);
                if self.without == Some(Rule::SelfFencing) && self.epoch() < epoch {
                    self.end();
                }
                if self.disk_full_until <= time {
                    self.data_dir.last_epoch = epoch.max(self.data_dir.last_epoch);
                    self.data_dir.longest = longest;
                }
                self.candidacy = Some(Candidacy::Etcd(election));
            }
        }
    }

    fn apply<C>(
        &mut self,
        effects: Vec<Effect<C>>,
        action: impl Fn(CallId, C) -> Action,
        now: Moment,
    ) {
        for effect in effects {
            match effect {
                Effect::Reign(effect) => self.apply_to_reign(effect, now),
                Effect::Call { id, call } => {
                    let mut action = action(id, call);
                    if let Action::Call(id, call) = &mut action {
                        self.calls.on_call(*id, call, now);
                    }
                    self.actions.push(action);
                }
                Effect::FetchLedger { source, epoch } => self.fetch(source, epoch, now),
                Effect::TermsHeard(terms) => {
                    if self.disk_full_until <= self.clock.time(now) {
                        self.data_dir.terms = terms;
                    }
                }
                Effect::Resigned { offered } => {
                    let offered = offered.is_some();
                    self.actions.push(Action::Resigned { offered });
                }
            }
        }
    }

    fn apply_to_reign(&mut self, mut effect: ReignEffect, now: Moment) {
        let mut begun = None;
        match &mut effect {
            ReignEffect::Begin(term) => {
                begun = Some(term.epoch);
                self.ablate_term(term, now);
            }
            // Without the rules its deadline is a later one, or none.
            ReignEffect::End(EndReason::Deadline) if self.serves_on(now) => return,
            _ => {}
        }
        match self.master.apply(effect, now) {
            Applied::Done => {}
            Applied::Began(Began { inherits, .. }) => {
                self.forget_reign();
                self.epoch = begun;
                self.has_inherited = inherits;
                self.actions.push(Action::Began { inherits });
            }
            Applied::Ended { reason, reign } => {
                self.forget_reign();
                self.actions.push(Action::Ended(reason));
                if reason == EndReason::Resigned {
                    self.offered = reign.map(|it| *it);
                }
            }
        }
    }

    fn fetch(&mut self, source: LedgerSource, epoch: Epoch, now: Moment) {
        self.fetching = Some(Fetching {
            epoch,
            requested: now,
            received: None,
            until: match source {
                LedgerSource::DataDir { .. } => Moment::NEVER,
                LedgerSource::Peer(_) => now.after_seconds(STALL),
            },
        });
        self.actions.push(Action::FetchLedger { source, epoch });
    }

    fn forget_reign(&mut self) {
        let closed = self.close_parent_poll();
        let actions = closed.map(|(to, call)| Action::Poll(to, Message::ClosePoll { call }));
        self.actions.extend(actions);
        for (to, call, end) in self.end_polls() {
            let message = Message::PollEnd { call, end };
            self.actions.push(Action::Poll(to, message));
        }
        self.epoch = None;
        self.has_inherited = false;
        self.sweeps_at = Moment::ORIGIN;
        self.ablation = NodeAblation::default();
    }

    fn end(&mut self) {
        self.master.end();
        self.forget_reign();
    }

    /// Whether the reign goes on at its deadline, without a rule.
    fn serves_on(&self, now: Moment) -> bool {
        match self.without {
            Some(Rule::SelfFencing) => true,
            Some(Rule::DeadlineFromSend) => {
                let deadline = self.master.reign().map(Reign::deadline);
                deadline.is_some_and(|it| now < it)
            }
            _ => false,
        }
    }

    /// Changes a term to that of a server without the rule.
    fn ablate_term(&self, term: &mut Term, now: Moment) {
        match self.without {
            Some(Rule::LongestLease) => term.longest = None,
            Some(Rule::SelfFencing) => term.deadline = Moment::NEVER,
            Some(Rule::Epoch) => term.epoch = self.sent_epoch(term.epoch),
            Some(Rule::LearningMode) => term.learn = Learn::Nothing,
            Some(Rule::LearningDuration) if matches!(term.learn, Learn::Until(_)) => {
                let longest = self.document.longest_lease().get() * CLOCK_DRIFT;
                term.learn = Learn::Until(now.after_seconds(longest));
            }
            Some(Rule::EarlierTerms) => {
                term.terms.clear();
                term.other_terms.clear();
            }
            _ => {}
        }
    }

    /// An empty ledger of an epoch, as holders see it.
    fn new_ledger(&self, epoch: Epoch, now: Moment) -> Ledger {
        self.master.new_ledger(self.sent_epoch(epoch), now)
    }

    /// The first byte of a ledger has arrived. Returns whether it was awaited.
    pub(crate) fn begin_transfer(&mut self, epoch: Epoch, time: Moment) -> bool {
        let now = self.clock.local(time);
        let Some(fetching) = &mut self.fetching else {
            return false;
        };
        // The first answer counts.
        let is_awaited = fetching.epoch == epoch && fetching.received.is_none();
        if is_awaited {
            fetching.received = Some(now);
            fetching.until = Moment::NEVER;
        }
        is_awaited
    }

    /// Handles a fetched ledger, unless a later one was asked for.
    pub(crate) fn on_ledger(&mut self, epoch: Epoch, snapshot: Option<&Snapshot>, time: Moment) {
        let Some(fetching) = self.fetching.take_if(|it| it.epoch == epoch) else {
            return;
        };
        let now = self.clock.local(time);
        let fetched = snapshot.map(|snapshot| {
            let mut ledger = self.new_ledger(epoch, now);
            let received = fetching.received.unwrap_or(now);
            let until = snapshot.restore(&mut ledger, fetching.requested, received);
            (ledger, until)
        });
        let is_fetched = fetched.is_some();
        self.master.inherit(fetched);
        self.handle(Event::LedgerFetched { epoch, is_fetched }, time);
    }

    /// The ledger that a server left in the data directory.
    pub(crate) fn stored_ledger(&self, epoch: Epoch) -> Option<Snapshot> {
        let stored = self.data_dir.ledger.as_ref();
        stored.filter(|it| it.epoch == epoch).cloned()
    }

    /// The ledger that this server offers, to the bearer of the secret, once.
    pub(crate) fn take_offer(&mut self, offer: &Handover, time: Moment) -> Option<Snapshot> {
        let is_valid = self.is_up && offer.secret == self.secret;
        let is_this = |reign: &mut Reign| is_valid && reign.epoch() == offer.epoch;
        let reign = self.offered.take_if(is_this)?;
        Some(Snapshot::new(reign, self.clock.local(time)).sent())
    }

    /// Executes a write to the data directory, unless the disk is full.
    pub(crate) fn write_disk(&mut self, call: CallId, write: DiskCall, time: Moment) {
        let is_written = self.disk_full_until <= time;
        match write {
            DiskCall::Bound(Bound { until, longest }) => {
                if is_written {
                    let ends = until;
                    self.data_dir.bound = FoundBound::ThisBoot { ends, longest };
                    self.data_dir.longest = self.data_dir.longest.max(Some(longest));
                }
            }
            DiskCall::Terms(DueTerms { generations, .. }) => {
                if is_written {
                    self.data_dir.terms = generations;
                }
            }
        }
        let result = is_written.then_some(CallReply::Disk);
        self.handle(Event::Reply { call, result }, time);
    }

    /// Handles what is due, as the product's driver does after each event.
    pub(crate) fn drive(&mut self, limits: &[Limit], time: Moment) -> Vec<Action> {
        let now = self.clock.local(time);
        if let Some(stalled) = self.fetching.as_ref().filter(|it| it.until <= now) {
            self.on_ledger(stalled.epoch, None, time);
        }
        if self.election_wakes_at() <= now {
            self.handle(Event::Wake, time);
        }
        if let Some(due) = self.master.due_bound() {
            self.handle(Event::BoundDue(due), time);
        }
        if let Some(due) = self.master.due_terms(now) {
            self.handle(Event::TermsDue(due), time);
        }
        while self.master.wake_at() <= now {
            self.master.tick(now);
        }
        self.resume(limits, now);
        self.drive_upstream(now);
        std::mem::take(&mut self.actions)
    }

    /// The simulated time at which it needs to be driven.
    pub(crate) fn wake_at(&mut self, time: Moment) -> Moment {
        let now = self.clock.local(time);
        let is_due = self.master.due_bound().is_some() || self.master.due_terms(now).is_some();
        let bound = is_due.then(|| now.after_seconds(BOUND_PERIOD));
        let fetch = self.fetching.as_ref().map_or(Moment::NEVER, |it| it.until);
        let wake = self.master.wake_at().min(self.election_wakes_at());
        let wake = wake.min(self.upstream_wakes_at(now)).min(fetch);
        self.clock.time(bound.map_or(wake, |bound| wake.min(bound)))
    }

    fn election_wakes_at(&self) -> Moment {
        match &self.candidacy {
            None => Moment::NEVER,
            Some(Candidacy::Alone(election)) => election.wake_at(),
            Some(Candidacy::Etcd(election)) => election.wake_at(),
        }
    }
}

fn map_reply<A, B>(event: Event<A>, map: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Wake => Event::Wake,
        Event::Reply { call, result } => Event::Reply {
            call,
            result: result.map(map),
        },
        Event::BoundDue(due) => Event::BoundDue(due),
        Event::TermsDue(due) => Event::TermsDue(due),
        Event::LedgerFetched { epoch, is_fetched } => Event::LedgerFetched { epoch, is_fetched },
        Event::Resign { secret } => Event::Resign { secret },
    }
}
