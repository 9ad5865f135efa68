//! The task that runs an election.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use doorman_openapi::{Epoch, Moment};
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
    fetch::{self, InheritedLedger, drop_elsewhere},
    handover::{HandoverOffer, STALL},
    peers::Peers,
};
use crate::{
    document::ActiveDocument, durability::DataDir, durability::Identity, leasing::SharedLedger,
    observe::metrics::Outcomes, util::clock,
};
use doorman_core::{
    election::{CallId, Effect, Election, EndReason, Event, Learn, LedgerSource, Time, View},
    ledger::Predecessor,
    master::{Applied, Began},
    reign::{Reign, TermsGeneration},
};

/// The longest sleep of a master: it looks whether the bound is due.
const BOUND_PERIOD: Duration = Duration::from_millis(250);
/// How long a failed write of the epoch waits for the next one.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest sleep: timers stand still while the machine is suspended.
pub(super) const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Executes the calls of an election. `None`: the call failed.
pub(super) type Execute<E> = Box<
    dyn Fn(<E as Election>::Call) -> BoxFuture<'static, Option<<E as Election>::Reply>>
        + Send
        + Sync,
>;

/// The parts of the server that mastership changes.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) ledger: Arc<SharedLedger>,
    pub(crate) document: Arc<ActiveDocument>,
    pub(crate) earlier_leases: Arc<EarlierLeaseLength>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) offer: Arc<HandoverOffer>,
    pub(crate) peers: Peers,
    pub(crate) handovers: Outcomes,
    pub(crate) view: watch::Sender<View>,
}

/// The length of earlier leases where nothing is stored about it.
#[derive(Debug, Default)]
pub(crate) struct EarlierLeaseLength {
    /// Whether the operator has said that no earlier lease was longer than some length.
    is_known: bool,
    /// How often the longest lease of the document was assumed.
    assumed: AtomicU64,
}

impl EarlierLeaseLength {
    pub(crate) fn new(is_known: bool) -> Self {
        Self {
            is_known,
            assumed: AtomicU64::new(0),
        }
    }

    /// How often a reign began with the longest lease of the document for want of anything better.
    pub(crate) fn assumed(&self) -> u64 {
        self.assumed.load(Relaxed)
    }

    /// Counts a reign that begins without knowing the length, unless the operator has said it.
    pub(super) fn note_unknown(&self) {
        if !self.is_known {
            self.assumed.fetch_add(1, Relaxed);
            tracing::warn!(
                "nothing says how long earlier leases are, so none is assumed to be longer than \
                 those of the document; if that is wrong, pass --longest-lease"
            );
        }
    }
}

/// Asks the driver to resign. It is told of which epoch a ledger is offered to the next master.
pub(crate) type Resignation = oneshot::Sender<Option<Epoch>>;

/// Runs an election until the server stops.
pub(super) struct Driver<E: Election> {
    election: E,
    execute: Execute<E>,
    parts: Arc<Parts>,
    calls: FuturesUnordered<BoxFuture<'static, (CallId, Option<E::Reply>)>>,
    fetching: OptionFuture<BoxFuture<'static, (Epoch, Option<InheritedLedger>)>>,
    resigned: Option<Resignation>,
    /// The identity in the data directory, with newer values of the election: epochs, so that none
    /// is used twice if etcd loses its data, and the length of the longest lease, so that it is
    /// known without etcd.
    identity: Option<Identity>,
    recording: Option<JoinHandle<Result<(), NotRecorded>>>,
    /// The last identity that was written, or could not be.
    recorded: Option<Identity>,
    /// When values that could not be written are written again.
    record_again_at: Moment,
    /// Terms of the node's leases that are not in the data directory yet.
    heard_terms: Option<Vec<TermsGeneration>>,
    has_given_up: bool,
}

/// The data directory could not be written. Terms that are still to be.
struct NotRecorded(Option<Vec<TermsGeneration>>);

impl<E: Election<Reply: Send + 'static>> Driver<E> {
    /// Epochs of an election are recorded in the `identity`.
    pub(super) fn new(
        election: E,
        execute: Execute<E>,
        parts: Parts,
        identity: Option<Identity>,
    ) -> Self {
        Self {
            election,
            execute,
            parts: Arc::new(parts),
            calls: FuturesUnordered::new(),
            fetching: None.into(),
            resigned: None,
            identity,
            recording: None,
            recorded: None,
            record_again_at: Moment::ORIGIN,
            heard_terms: None,
            has_given_up: false,
        }
    }

    /// Handles what is due now: without an election the reign begins.
    pub(crate) fn start(&mut self) {
        self.handle(Event::Wake);
    }

    /// Runs until the end of the server; after a resignation as a standby.
    pub(crate) async fn run(mut self, resign: oneshot::Receiver<Resignation>) {
        let mut resign = Some(resign);
        loop {
            let now = clock::now();
            self.give_up_if_poisoned();
            let is_master = self.write_what_is_due(now);
            let longest = if is_master { BOUND_PERIOD } else { MAX_SLEEP };
            let pause = self.election.wake_at().since(now).min(longest);
            let shared = Arc::clone(&self.parts.ledger);
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
                    drop_elsewhere(shared.inherit(fetched));
                    self.handle(Event::LedgerFetched { epoch, is_fetched });
                    // It came too late, unless the reign has begun with it.
                    drop_elsewhere(shared.inherit(None));
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
                    if request.is_some() {
                        self.resigned = request;
                        let secret = self.parts.offer.secret.clone();
                        self.handle(Event::Resign { secret });
                    }
                }
                () = shared.bound_urgent.notified() => {}
                () = sleep(pause) => {}
            }
            if self.election.wake_at() <= clock::now() {
                self.handle(Event::Wake);
            }
        }
    }

    /// Lets the election write the bound and the terms that are due. Returns whether this server is
    /// master.
    fn write_what_is_due(&mut self, now: Moment) -> bool {
        let due = self.parts.ledger.due();
        let is_master = due.is_some();
        let (bound, terms) = due.unwrap_or_default();
        self.record(bound.map(|due| due.longest), now);
        // The data directory comes first: etcd may be lost, or given up.
        if let Some(due) = bound.filter(|due| self.has_tried_to_record(due.longest)) {
            self.handle(Event::BoundDue(due));
        }
        if let Some(due) = terms {
            self.handle(Event::TermsDue(due));
        }
        is_master
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
        let (Some(identity), Some(epoch)) = (&self.identity, self.election.last_epoch()) else {
            return;
        };
        let wanted = Identity {
            epoch,
            longest_booking_nanos: self.election.view().longest.max(due),
            ..identity.clone()
        };
        let is_retry = self.record_again_at > Moment::ORIGIN && self.record_again_at <= now;
        let is_heard = self.heard_terms.is_some() && self.record_again_at <= now;
        let is_due = self.recorded.as_ref() != Some(&wanted) || is_heard || is_retry;
        if self.recording.is_some() || !is_due {
            return;
        }
        self.recorded = Some(wanted.clone());
        self.record_again_at = Moment::ORIGIN;
        let terms = self.heard_terms.take();
        let data_dir = Arc::clone(&self.parts.data_dir);
        self.recording = Some(spawn_blocking(move || {
            let written = data_dir.write_identity(wanted);
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
        let recorded = self.recorded.as_ref();
        let has_longest = recorded.is_some_and(|it| it.longest_booking_nanos >= Some(longest));
        self.identity.is_none() || self.recording.is_none() && has_longest
    }

    fn handle(&mut self, event: Event<E::Reply>) {
        let time = Time {
            now: clock::now(),
            unix: clock::unix_seconds(),
        };
        let effects = self.election.handle(event, time);
        for effect in effects {
            self.apply(effect);
        }
        let view = self.election.view();
        self.parts.view.send_if_modified(|current| {
            let is_new = *current != view;
            *current = view;
            is_new
        });
    }

    fn apply(&mut self, effect: Effect<E::Call>) {
        match effect {
            Effect::Call { id, call } => {
                let reply = (self.execute)(call);
                self.calls.push(Box::pin(async move { (id, reply.await) }));
            }
            Effect::FetchLedger { source, epoch } => {
                let parts = Arc::clone(&self.parts);
                let fetch = async move { (epoch, fetch_ledger(parts, source, epoch).await) };
                self.fetching = Some(Box::pin(fetch) as BoxFuture<'_, _>).into();
            }
            Effect::Reign(effect) => match self.parts.ledger.apply(effect) {
                Applied::Done => {}
                Applied::Began(began) => self.on_begin(began),
                Applied::Ended { reason, reign } => self.on_end(reason, reign),
            },
            Effect::TermsHeard(terms) => self.heard_terms = Some(terms),
            Effect::Resigned { offered } => {
                if let Some(done) = self.resigned.take() {
                    done.send(offered).ok();
                }
            }
        }
    }

    fn on_begin(&self, began: Began) {
        let Began {
            term,
            predecessor,
            inherits,
            before,
        } = began;
        drop_elsewhere(before);
        if matches!(term.learn, Learn::LongestLease(_)) {
            tracing::warn!(
                "etcd has no trace of earlier leases, which may exist, so new clients wait; pass \
                 --first-start for a new deployment"
            );
        }
        if term.is_longest_unknown() {
            self.parts.earlier_leases.note_unknown();
        }
        if term.deadline < Moment::NEVER {
            let learns = match predecessor {
                Predecessor::Until(until) => until.since(clock::now()).as_secs(),
                Predecessor::None => 0,
            };
            tracing::info!(
                epoch = %term.epoch,
                learning_seconds = learns,
                inherited_ledger = inherits,
                "this server is now master"
            );
        }
    }

    fn on_end(&self, reason: EndReason, reign: Option<Box<Reign>>) {
        match (reason, reign) {
            (EndReason::Resigned, Some(reign)) => self.parts.offer.set(*reign),
            (EndReason::Resigned, None) => {}
            (EndReason::Deadline, reign) => {
                tracing::warn!(
                    "mastership not renewed in time; no leases are granted until a master is \
                     elected"
                );
                drop_elsewhere(reign);
            }
            (EndReason::Deposed, reign) => {
                tracing::warn!("this server is no longer master");
                drop_elsewhere(reign);
            }
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
                let mut ledger = parts.ledger.new_ledger(epoch)?;
                let until = parts.data_dir.restore(&mut ledger, Some(last), now)?;
                Some((ledger, until))
            });
            restored.await.ok().flatten()
        }
        LedgerSource::Peer(handover) => {
            let limit = (document.shortest_lease().duration() / 2).max(STALL);
            let ledger = parts.ledger.new_ledger(epoch)?;
            let text = parts.peers.ask_for_ledger(&handover);
            fetch::take_over(text, &handover, ledger, &parts.handovers, limit).await
        }
    }
}
