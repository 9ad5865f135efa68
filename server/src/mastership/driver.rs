//! The task that runs an election.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use doorman_config::Document;
use doorman_openapi::{Epoch, Moment, NodeId, Seconds};
use futures_util::{
    StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::{
    fetch::{self, HandoverCounts, InheritedLedger, drop_elsewhere},
    handover::{HandoverOffer, STALL},
    peers::Peers,
};
use crate::{
    document::ActiveDocument, durability::DataDir, durability::DataDirError, leasing::SharedLedger,
    util::clock,
};
use doorman_core::{
    election::CallId, election::Effect, election::Election, election::EndReason, election::Event,
    election::Learn, election::LedgerSource, election::Term, election::Time, election::View,
    ledger, ledger::Ledger, ledger::Predecessor, ledger::UnmatchedPolicy, reign::DurableBound,
    reign::Reign, reign::TermsGeneration,
};

/// The longest sleep of a master: it looks whether the bound is due.
const BOUND_PERIOD: Duration = Duration::from_millis(250);
/// How long a failed write of the epoch waits for the next one.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest sleep: timers stand still while the machine is suspended.
pub(super) const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Executes the calls of an election.
pub(crate) trait Executor: Send + Sync {
    type Call;
    type Reply: Send;

    /// `None`: the call failed.
    fn execute(&self, call: Self::Call) -> BoxFuture<'static, Option<Self::Reply>>;
}

/// The parts of the server that mastership changes.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) ledger: Arc<SharedLedger>,
    pub(crate) document: Arc<ActiveDocument>,
    pub(crate) max_leases: usize,
    pub(crate) unmatched: UnmatchedPolicy,
    /// Whether a parent node leases the capacity.
    pub(crate) has_parent: bool,
    pub(crate) earlier_leases: Arc<EarlierLeaseLength>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) offer: Arc<HandoverOffer>,
    pub(crate) peers: Peers,
    pub(crate) handovers: Arc<HandoverCounts>,
    pub(crate) view: watch::Sender<View>,
}

impl Parts {
    /// An empty ledger for a reign.
    pub(crate) fn new_ledger(
        &self,
        document: Arc<Document>,
        epoch: Epoch,
        predecessor: Predecessor,
        now: Moment,
    ) -> Ledger {
        let settings = ledger::Settings {
            max_leases: self.max_leases,
            unmatched: self.unmatched,
            predecessor,
            epoch,
        };
        let ledger = Ledger::new(document, settings, now);
        if self.has_parent {
            ledger.of_parent()
        } else {
            ledger
        }
    }
}

/// The length of earlier leases where nothing is stored about it.
#[derive(Debug, Default)]
pub(crate) struct EarlierLeaseLength {
    /// The operator's word: no earlier lease was longer.
    longest: Option<Seconds>,
    /// How often the longest lease of the document was assumed.
    assumed: AtomicU64,
}

impl EarlierLeaseLength {
    pub(crate) fn new(longest: Option<Seconds>) -> Self {
        Self {
            longest,
            assumed: AtomicU64::new(0),
        }
    }

    /// How often a reign began with the longest lease of the document for want of anything better.
    pub(crate) fn assumed(&self) -> u64 {
        self.assumed.load(Relaxed)
    }

    /// The longest lease to assume: that of the document, or the operator's.
    pub(super) fn at_least(&self, document: Seconds) -> Seconds {
        match self.longest {
            Some(longest) if document < longest => longest,
            _ => document,
        }
    }

    /// Counts a reign that begins without knowing the length, unless the operator has said it.
    pub(super) fn note_unknown(&self) {
        if self.longest.is_none() {
            self.assumed.fetch_add(1, Relaxed);
            tracing::warn!(
                "nothing says how long earlier leases are, so none is assumed to be longer than \
                 those of the document; if that is wrong, pass --longest-lease"
            );
        }
    }
}

/// Asks the driver to resign, and tells when it has.
#[derive(Debug)]
pub(crate) struct Resignation {
    pub(crate) done: oneshot::Sender<Option<Epoch>>,
}

/// Writes epochs of an election to the data directory, so that none is used twice if etcd loses its
/// data, and the length of the longest lease, so that it is known without etcd.
#[derive(Debug, Clone)]
pub(super) struct EpochRecord {
    pub(super) node: NodeId,
    pub(super) prefix: String,
}

impl EpochRecord {
    pub(super) fn write(
        &self,
        data_dir: &DataDir,
        epoch: Epoch,
        longest: Option<u64>,
    ) -> Result<(), DataDirError> {
        let Self { node, prefix } = self.clone();
        data_dir.record_epoch(node, epoch, Some(prefix), longest)
    }
}

/// Runs an election until the server stops.
pub(crate) struct Driver<E: Election, X> {
    election: E,
    executor: X,
    parts: Arc<Parts>,
    calls: FuturesUnordered<BoxFuture<'static, (CallId, Option<E::Reply>)>>,
    fetching: OptionFuture<BoxFuture<'static, (Epoch, Option<InheritedLedger>)>>,
    /// For the next reign.
    fetched: Option<InheritedLedger>,
    bound: Option<Arc<DurableBound>>,
    /// The longest lease of any document so far, or the operator's.
    longest: Seconds,
    resigned: Option<oneshot::Sender<Option<Epoch>>>,
    record: Option<EpochRecord>,
    recording: Option<JoinHandle<Result<(), NotRecorded>>>,
    /// The last values that were written to the data directory, or could not be.
    recorded: Option<Recorded>,
    /// When values that could not be written are written again.
    record_again_at: Moment,
    /// Terms of the node's leases that are not in the data directory yet.
    heard_terms: Option<Vec<TermsGeneration>>,
    has_given_up: bool,
}

/// The data directory could not be written. Terms that are still to be.
#[derive(Debug)]
struct NotRecorded(Option<Vec<TermsGeneration>>);

/// Values in the data directory of a server that takes part in an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Recorded {
    epoch: Epoch,
    longest: Option<u64>,
}

impl<E: Election, X> fmt::Debug for Driver<E, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl<E, X> Driver<E, X>
where
    E: Election,
    E::Reply: Send + 'static,
    X: Executor<Call = E::Call, Reply = E::Reply>,
{
    /// `fetched`: a ledger that the first reign begins with.
    pub(crate) fn new(
        election: E,
        executor: X,
        parts: Arc<Parts>,
        fetched: Option<InheritedLedger>,
    ) -> Self {
        Self {
            election,
            executor,
            parts,
            calls: FuturesUnordered::new(),
            fetching: None.into(),
            fetched,
            bound: None,
            longest: Seconds::ZERO,
            resigned: None,
            record: None,
            recording: None,
            recorded: None,
            record_again_at: Moment::ORIGIN,
            heard_terms: None,
            has_given_up: false,
        }
    }

    /// Records epochs in the data directory.
    pub(super) fn with_record(self, record: EpochRecord) -> Self {
        let record = Some(record);
        Self { record, ..self }
    }

    /// Handles what is due now: without an election the reign begins.
    pub(crate) fn start(&mut self) {
        self.handle(Event::Wake);
    }

    /// Runs until the end of the server; after a resignation as a standby.
    #[expect(clippy::too_many_lines, reason = "one arm for each case")]
    pub(crate) async fn run(mut self, resign: oneshot::Receiver<Resignation>) {
        let mut resign = Some(resign);
        loop {
            let now = clock::now();
            self.note_longest_lease();
            self.give_up_if_poisoned();
            let due = self.bound.as_ref().and_then(|bound| bound.due());
            let longest = due.map(|due| due.longest);
            self.record(longest, now);
            // The data directory comes first: etcd may be lost, or given up.
            if let Some(due) = due.filter(|due| self.has_tried_to_record(due.longest)) {
                self.handle(Event::BoundDue(due));
            }
            let terms = self
                .bound
                .as_ref()
                .and_then(|bound| bound.terms()?.due(now));
            if let Some(due) = terms {
                self.handle(Event::TermsDue(due));
            }
            let longest = if self.bound.is_some() {
                BOUND_PERIOD
            } else {
                MAX_SLEEP
            };
            let pause = self.election.wake_at().since(now).min(longest);
            let bound = self.bound.clone();
            let bound_is_urgent = async {
                match &bound {
                    Some(bound) => bound.urgent().await,
                    None => std::future::pending().await,
                }
            };
            let resigned = async {
                match &mut resign {
                    Some(resign) => resign.await.ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((call, result)) = self.calls.next() => {
                    self.handle(Event::Reply { call, result });
                }
                Some((epoch, fetched)) = &mut self.fetching => {
                    self.fetching = None.into();
                    let is_fetched = fetched.is_some();
                    self.fetched = fetched;
                    self.handle(Event::LedgerFetched { epoch, is_fetched });
                    // It came too late, unless the reign has begun with it.
                    drop_elsewhere(self.fetched.take());
                }
                Some(written) = OptionFuture::from(self.recording.as_mut()) => {
                    self.recording = None;
                    if let Err(NotRecorded(terms)) = written.unwrap_or(Err(NotRecorded(None))) {
                        self.record_again_at = clock::now().after(RETRY_DELAY);
                        self.heard_terms = self.heard_terms.take().or(terms);
                    }
                }
                request = resigned => {
                    resign = None;
                    if let Some(Resignation { done }) = request {
                        self.resigned = Some(done);
                        let secret = self.parts.offer.secret().to_owned();
                        self.handle(Event::Resign { secret });
                    }
                }
                () = bound_is_urgent => {}
                () = sleep(pause) => {}
            }
            if self.election.wake_at() <= clock::now() {
                self.handle(Event::Wake);
            }
        }
    }

    /// Without a usable ledger another server must become master.
    fn give_up_if_poisoned(&mut self) {
        if !self.has_given_up && self.parts.ledger.is_poisoned() {
            self.has_given_up = true;
            // Nobody gets the ledger, so nobody needs the secret.
            let secret = String::new();
            self.handle(Event::Resign { secret });
        }
    }

    /// Writes a new epoch and a longer lease to the data directory, one at a time. `due` is the
    /// longest booking that is to become durable.
    fn record(&mut self, due: Option<u64>, now: Moment) {
        let longest = self.election.view().longest;
        let (Some(record), Some(epoch)) = (&self.record, self.election.last_epoch()) else {
            return;
        };
        let wanted = Recorded {
            epoch,
            longest: longest.max(due),
        };
        let is_retry = self.record_again_at > Moment::ORIGIN && self.record_again_at <= now;
        let is_heard = self.heard_terms.is_some() && self.record_again_at <= now;
        let is_due = self.recorded != Some(wanted) || is_heard || is_retry;
        if self.recording.is_some() || !is_due {
            return;
        }
        self.recorded = Some(wanted);
        self.record_again_at = Moment::ORIGIN;
        let terms = self.heard_terms.take();
        let (record, data_dir) = (record.clone(), Arc::clone(&self.parts.data_dir));
        self.recording = Some(spawn_blocking(move || {
            let written = record.write(&data_dir, wanted.epoch, wanted.longest);
            let write_terms = || terms.iter().try_for_each(|it| data_dir.write_terms(it));
            written.and_then(|()| write_terms()).map_err(|error| {
                tracing::warn!(
                    %error,
                    "cannot write what the next server must know to the data directory"
                );
                NotRecorded(terms)
            })
        }));
    }

    /// Whether the data directory has this longest booking, or cannot be written: etcd has it then.
    fn has_tried_to_record(&self, longest: u64) -> bool {
        self.record.is_none()
            || self.recording.is_none()
                && self
                    .recorded
                    .is_some_and(|recorded| recorded.longest >= Some(longest))
    }

    fn handle(&mut self, event: Event<E::Reply>) {
        let time = Time {
            now: clock::now(),
            unix: clock::unix_seconds(),
        };
        let effects = self.election.handle(event, time);
        for effect in effects {
            self.apply(effect, time.now);
        }
        let view = self.election.view();
        self.parts.view.send_if_modified(|current| {
            let is_new = *current != view;
            *current = view;
            is_new
        });
    }

    fn apply(&mut self, effect: Effect<E::Call>, now: Moment) {
        match effect {
            Effect::Call { id, call } => {
                let reply = self.executor.execute(call);
                self.calls.push(Box::pin(async move { (id, reply.await) }));
            }
            Effect::FetchLedger { source, epoch } => {
                let parts = Arc::clone(&self.parts);
                let fetch = async move { (epoch, fetch_ledger(parts, source, epoch).await) };
                self.fetching = Some(Box::pin(fetch) as BoxFuture<'_, _>).into();
            }
            Effect::Begin(term) => self.begin(&term, now),
            Effect::Extend(deadline) => self.parts.ledger.extend(deadline),
            Effect::BoundWritten(written) => {
                if let Some(bound) = &self.bound {
                    bound.record_written(written);
                }
            }
            Effect::BoundFailed => {
                if let Some(bound) = &self.bound {
                    bound.record_failure();
                }
            }
            Effect::TermsWritten(written) => {
                if let Some(terms) = self.bound.as_ref().and_then(|bound| bound.terms()) {
                    terms.record_written(&written);
                }
            }
            Effect::TermsFailed => {
                if let Some(terms) = self.bound.as_ref().and_then(|bound| bound.terms()) {
                    terms.record_failure();
                }
            }
            Effect::TermsHeard(terms) => self.heard_terms = Some(terms),
            Effect::End(reason) => self.end(reason),
            Effect::Resigned { offered } => {
                if let Some(done) = self.resigned.take() {
                    done.send(offered).ok();
                }
            }
        }
    }

    fn begin(&mut self, term: &Term, now: Moment) {
        let &Term {
            epoch,
            deadline,
            inherits,
            learn,
            ..
        } = term;
        self.note_longest_lease();
        let predecessor = term.predecessor(self.longest, now);
        let inherited = self.fetched.take().filter(|_| inherits);
        let inherited_until = inherited.as_ref().map(|(_, until)| *until);
        let bound = Arc::new(term.new_bound(self.longest, inherited_until, now));
        let earlier_terms = term.earlier_terms(self.longest, inherited_until, now);
        self.bound = Some(Arc::clone(&bound));
        let has_ledger = inherited.is_some();
        let before = self.parts.document.begin_reign(|document| {
            let ledger = match inherited {
                Some((mut ledger, _)) => {
                    ledger.reconfigure(document);
                    ledger
                }
                None => self.parts.new_ledger(document, epoch, predecessor, now),
            };
            let ledger = ledger.with_earlier_terms(earlier_terms);
            Reign::new(epoch, deadline, ledger, bound)
        });
        drop_elsewhere(before);
        if matches!(learn, Learn::LongestLease(_)) {
            tracing::warn!(
                "etcd has no trace of earlier leases, which may exist, so new clients wait; pass \
                 --first-start for a new deployment"
            );
        }
        if term.is_longest_unknown() {
            self.parts.earlier_leases.note_unknown();
        }
        if deadline < Moment::NEVER {
            let learns = match predecessor {
                Predecessor::Until(until) => until.since(now).as_secs(),
                Predecessor::None => 0,
            };
            tracing::info!(
                %epoch,
                learning_seconds = learns,
                inherited_ledger = has_ledger,
                "this server is now master"
            );
        }
    }

    fn end(&mut self, reason: EndReason) {
        let reign = self.parts.ledger.end();
        self.bound = None;
        match reason {
            EndReason::Deadline => tracing::warn!(
                "mastership not renewed in time; no leases are granted until a master is elected"
            ),
            EndReason::Deposed => tracing::warn!("this server is no longer master"),
            EndReason::Resigned => {
                if let Some(reign) = reign {
                    self.parts.offer.set(reign);
                }
                return;
            }
        }
        drop_elsewhere(reign);
    }

    fn note_longest_lease(&mut self) {
        let longest = self.parts.document.get().longest_lease();
        let longest = self.parts.earlier_leases.at_least(longest);
        if self.longest < longest {
            self.longest = longest;
        }
    }
}

/// Fetches the ledger of the last master, and restores it.
async fn fetch_ledger(
    parts: Arc<Parts>,
    source: LedgerSource,
    epoch: Epoch,
) -> Option<InheritedLedger> {
    let document = parts.document.get();
    match source {
        LedgerSource::DataDir { epoch: last } => {
            let restored = spawn_blocking(move || {
                let now = clock::now();
                let mut ledger = parts.new_ledger(document, epoch, Predecessor::None, now);
                let until = parts.data_dir.restore(&mut ledger, Some(last), now)?;
                Some((ledger, until))
            });
            restored.await.ok().flatten()
        }
        LedgerSource::Peer(handover) => {
            let now = clock::now();
            let limit = (document.shortest_lease().duration() / 2).max(STALL);
            let ledger = parts.new_ledger(document, epoch, Predecessor::None, now);
            fetch::fetch(&parts.peers, &handover, ledger, &parts.handovers, limit).await
        }
    }
}
