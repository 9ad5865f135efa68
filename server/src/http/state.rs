//! What all handlers share: the books behind one lock, and what the server knows of itself.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use doorman_config::{Document, Store};
use doorman_openapi::{Discovery, Epoch, Mastership, Moment, NodeId, Seconds, ServerId, Status};

use crate::{
    auth::Auth,
    document::{change::Changes, reload::InForce},
    durability::{Horizon, Writes},
    http::{Names, Room, Seal},
    ledger::{Grant, Ledger, ReleaseProgress},
    net::{ConnectionMetrics, tls::Tls},
    observe::metrics::RequestMetrics,
    quota::{CallerLimit, Quotas, ReadKind, ReadPermit},
    util::clock,
};

/// How long who looks at the books rests when others wait for them: long enough for a thread to wake that got them meanwhile.
const REST: Duration = Duration::from_millis(1);

/// The books are in doubt: a fault struck while they were being changed, and nothing that is granted from them can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BooksInDoubt;

/// The state of a running server.
#[derive(Debug)]
pub(crate) struct App {
    core: Mutex<Ledger>,
    /// How many threads wait for the books.
    waiting: AtomicUsize,
    horizon: Arc<Horizon>,
    in_force: Mutex<InForce>,
    changes: Changes,
    requests: RequestMetrics,
    connections: ConnectionMetrics,
    room: Room,
    seal: Seal,
    auth: Option<Arc<Auth>>,
    limits: Quotas,
    names: Names,
    tls: Option<Arc<Tls>>,
    draining: AtomicBool,
    started: Moment,
    about: About,
}

/// What a server knows of itself from its start on.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) server_id: ServerId,
    pub(crate) node: NodeId,
    pub(crate) epoch: Epoch,
    /// The base address at which others reach it.
    pub(crate) advertise: String,
    pub(crate) config_source: String,
    /// Its data directory was empty, and it took that for the first start and not for a loss: nothing else says so.
    pub(crate) taken_for_the_first: bool,
}

impl App {
    pub(crate) fn new(
        core: Ledger,
        horizon: Arc<Horizon>,
        in_force: InForce,
        about: About,
    ) -> Self {
        Self {
            core: Mutex::new(core),
            waiting: AtomicUsize::new(0),
            horizon,
            in_force: Mutex::new(in_force),
            changes: Changes::new(None),
            requests: RequestMetrics::default(),
            connections: ConnectionMetrics::default(),
            room: Room::default(),
            seal: Seal::default(),
            auth: None,
            limits: Quotas::new(CallerLimit::Usual),
            names: Names::any(&about.advertise),
            tls: None,
            draining: AtomicBool::new(false),
            started: clock::now(),
            about,
        }
    }

    /// The same with a store, in which the document is changed.
    #[must_use]
    pub(crate) fn with_store(self, store: Option<Store>) -> Self {
        Self {
            changes: Changes::new(store),
            ..self
        }
    }

    /// The same, that asks who sends a request.
    #[must_use]
    pub(crate) fn asking(self, auth: Option<Arc<Auth>>) -> Self {
        Self { auth, ..self }
    }

    /// The same, that lets one caller ask for so much.
    #[must_use]
    pub(crate) fn limiting(self, callers: CallerLimit) -> Self {
        Self {
            limits: Quotas::new(callers),
            ..self
        }
    }

    /// The same, that goes by these names where nobody is asked who they are.
    #[must_use]
    pub(crate) fn named(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// By which names it goes where nobody is asked who they are.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// What it does for one caller.
    pub(crate) fn limits(&self) -> &Quotas {
        &self.limits
    }

    /// The same, whose connections are encrypted.
    #[must_use]
    pub(crate) fn encrypting(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }

    /// By what connections are encrypted; absent where they are not.
    pub(crate) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Who tells who sends a request; absent where nobody is asked.
    pub(crate) fn auth(&self) -> Option<&Arc<Auth>> {
        self.auth.as_ref()
    }

    /// Takes a decision on the books. The time it is told is sampled under the lock, so that for the books it never goes back.
    pub(crate) fn books<T>(
        &self,
        decide: impl FnOnce(&mut Ledger, Moment) -> T,
    ) -> Result<T, BooksInDoubt> {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(_)) => return Err(BooksInDoubt),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let core = self.core.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                core.map_err(|_| BooksInDoubt)?
            }
        };
        Ok(decide(&mut core, clock::now()))
    }

    /// Before a look at a part of the books: rests as all do who [look](Quotas::look), and while others wait for them. A lock goes to
    /// whoever asks first when it is free: who looks again at once asks sooner than a thread that has to wake, and by asking again and
    /// again keeps it from the processor that it would wake on.
    ///
    /// # Cancel safety
    /// When it is dropped, the part counts as looked at.
    pub(crate) async fn make_way(&self, looking: &ReadPermit<'_>) {
        let rest = looking.rest(clock::now());
        if rest.is_zero() {
            tokio::task::yield_now().await;
            if self.waiting.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(REST).await;
            }
        } else {
            tokio::time::sleep(rest).await;
        }
    }

    /// The same for a thread of its own, which nobody else waits for.
    pub(crate) fn make_way_on_a_thread(&self) {
        let rest = self.limits.read_delay(ReadKind::All, clock::now());
        if rest.is_zero() {
            thread::yield_now();
        } else {
            thread::sleep(rest);
        }
    }

    /// Decides on as many leases as are asked for, and tells of them what a successor will know, too. `decide` takes the next few of
    /// them from a position on: between two parts the books are free for others.
    ///
    /// # Cancel safety
    /// When it is dropped, nobody is told; what has been decided stays booked until it ends, as with an answer that is lost.
    pub(crate) async fn grant(
        &self,
        asked: usize,
        mut decide: impl FnMut(&mut Ledger, usize, Moment) -> Vec<Grant>,
    ) -> Result<Vec<Grant>, BooksInDoubt> {
        let (mut granted, handled) = self.books(|core, now| (decide(core, 0, now), now))?;
        while granted.len() < asked {
            tokio::task::yield_now().await;
            let mut part = self.books(|core, now| decide(core, granted.len(), now))?;
            granted.append(&mut part);
        }
        // The request was sent before its first part was handled, and no booking seems shorter than it is.
        Ok(self.horizon.secure(granted, handled).await)
    }

    /// Takes leases back, and says how many resources were looked at for it. `give_back` takes the next few of them from a position on:
    /// between two parts the books are free for others.
    ///
    /// # Cancel safety
    /// When it is dropped, some of many leases may not be back; they end by themselves.
    pub(crate) async fn release(
        &self,
        mut give_back: impl FnMut(&mut Ledger, usize, Moment) -> ReleaseProgress,
    ) -> Result<usize, BooksInDoubt> {
        let (mut from, mut all) = (0, 0_usize);
        loop {
            let ReleaseProgress { scanned, next } =
                self.books(|core, now| give_back(core, from, now))?;
            all = all.saturating_add(scanned);
            match next {
                Some(next) => from = next,
                None => return Ok(all),
            }
            tokio::task::yield_now().await;
        }
    }

    /// The document in force. To be held for a moment only, and not together with the books.
    pub(crate) fn in_force(&self) -> MutexGuard<'_, InForce> {
        // It is whole after every statement that changes it, so a panic elsewhere does no harm to it.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where changes of the document go.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Puts a document in force: holders learn of it at their next refresh.
    pub(crate) fn put_in_force(&self, document: &Arc<Document>) -> Result<(), BooksInDoubt> {
        // What is left of the old one is dropped when nobody waits for the books.
        let old = Arc::clone(self.in_force().document());
        let changed = self.books(|core, _| core.reconfigure(Arc::clone(document)));
        drop(old);
        changed?;
        self.in_force().replace(Arc::clone(document));
        Ok(())
    }

    /// How often the bound on what is granted was written.
    pub(crate) fn bound_writes(&self) -> Writes {
        self.horizon.writes()
    }

    /// What is known of all requests so far.
    pub(crate) fn requests(&self) -> &RequestMetrics {
        &self.requests
    }

    /// What is known of all connections so far.
    pub(crate) fn connections(&self) -> &ConnectionMetrics {
        &self.connections
    }

    /// Where bodies find room while they arrive.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// What hides the places of lists in cursors.
    pub(crate) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Until when a successor will know that leases last: nobody is told of one that ends later.
    pub(crate) fn bound(&self) -> Moment {
        self.horizon.safe()
    }

    /// Whether the books can be trusted.
    pub(crate) fn is_sound(&self) -> bool {
        !self.core.is_poisoned()
    }

    /// From now on the server says that it is not ready.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// A server without election is the master of its own node.
    pub(crate) fn discovery(&self) -> Discovery {
        Discovery {
            is_master: true,
            mastership: Mastership {
                master_address: Some(self.about.advertise.clone()),
            },
            server_id: self.about.server_id.clone(),
            node: self.about.node.clone(),
            level: 0,
            epoch: self.about.epoch,
        }
    }

    pub(crate) fn status(&self) -> Result<Status, BooksInDoubt> {
        let (counts, max_leases, now) =
            self.books(|core, now| (core.stats(), core.max_leases(), now))?;
        let about = &self.about;
        let in_force = self.in_force();
        Ok(Status {
            server_id: about.server_id.clone(),
            node: about.node.clone(),
            level: 0,
            is_master: true,
            epoch: about.epoch,
            master: Some(about.advertise.clone()),
            parents: Vec::new(),
            uptime: Seconds::from(now.since(self.started)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_source: about.config_source.clone(),
            config_version: in_force.document().version().to_owned(),
            config_error: in_force.error().map(str::to_owned),
            resources: Some(counts.resources),
            leases: Some(counts.leases),
            max_leases,
        })
    }
}
