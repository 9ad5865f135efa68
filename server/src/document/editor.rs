//! Changes of the document over HTTP: edited in memory, written to the store, then activated.
//!
//! Changes are made one at a time on a blocking thread and run to their end, even when the caller
//! disconnects, so that store and active document never differ. Leases do not wait for them.

use std::{
    convert::Infallible,
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use doorman_config::{
    Document, DocumentDiff, EditNotes, Edited, NewChange, Restrictions, RevisionError, Store,
    StoreError,
};
use doorman_openapi::{DryRun, Moment, PastChange};
use tokio::{runtime::Handle, sync::Semaphore, task, time};

use super::{
    ActiveDocument,
    described::{Described, DescribedChanges},
    dry_run,
    etcd_store::{self, EtcdFailure, EtcdStore},
};
use crate::{
    leasing::LedgerUnavailable, observe::context, observe::metrics::Outcomes, upstream::ParentNode,
    util::clock,
};

/// Concurrent operations of one kind: a parsed body may be many times its size.
pub(super) const MAX_RUNNING: usize = 2;

/// Operations of one kind that run or wait, with a body of up to 4 MiB each.
const MAX_QUEUED: usize = 16;

/// How long an operation waits to run.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most changes of which the documents are compared for one list.
const MAX_COMPARED: usize = 100;

/// Evaluations of an edit while other servers change the document, too.
const MAX_EVALUATIONS: u32 = 10;

/// The longest pause before the second evaluation, doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(crate) struct DocumentEditor {
    active: Arc<ActiveDocument>,
    store: DocumentStore,
    /// The name of the source.
    source: String,
    changes: Lane,
    dry_runs: Lane,
    reads: Lane,
    /// Comparisons of past documents, one at a time: they take longer than other reads.
    comparisons: Lane,
    /// Reads of the newest document, one at a time: a slow etcd must not block other reads.
    refreshes: Lane,
    /// When the last of them that succeeded began.
    refreshed: Mutex<Moment>,
    described: DescribedChanges,
    /// Writes of changes to the store.
    pub(crate) writes: Outcomes,
}

/// Where the document is changed over HTTP.
#[derive(Debug)]
pub(crate) enum DocumentStore {
    Sqlite(Mutex<Store>),
    Etcd(Arc<EtcdStore>),
    ReadOnly,
    /// The root of the tree has the document.
    Parent(Arc<ParentNode>),
}

/// Limits the operations of one kind, so that none of the kinds blocks the others.
#[derive(Debug)]
struct Lane {
    queued: Semaphore,
    running: Arc<Semaphore>,
}

impl Lane {
    fn new(running: usize) -> Self {
        Self {
            queued: Semaphore::new(MAX_QUEUED),
            running: Arc::new(Semaphore::new(running)),
        }
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self::new(MAX_RUNNING)
    }
}

/// The document before and after a change; the same one twice when nothing changed.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) before: Arc<Document>,
    pub(crate) after: Arc<Document>,
    pub(crate) notes: EditNotes,
    /// The warnings of its effects on live resources, if they were looked for.
    pub(crate) effects: Vec<String>,
}

/// Why a change was not made. Except for [`Ledger`](Self::Ledger), nothing has changed.
#[derive(Debug)]
pub(crate) enum EditFailed<E> {
    /// The edit function rejected the change.
    Rejected(E),
    /// The document comes from this source.
    ReadOnly(String),
    /// The root of the tree has the document.
    AtRoot(Arc<ParentNode>),
    Busy,
    Store(StoreError),
    Etcd(EtcdFailure),
    /// The change is stored, but becomes active only at the next start.
    Ledger(LedgerUnavailable),
    Panicked,
}

impl<E> From<EtcdFailure> for EditFailed<E> {
    fn from(failure: EtcdFailure) -> Self {
        match failure {
            EtcdFailure::Ledger(cause) => Self::Ledger(cause),
            failure => Self::Etcd(failure),
        }
    }
}

impl DocumentEditor {
    /// `source` names the source of the document.
    pub(crate) fn new(active: Arc<ActiveDocument>, store: DocumentStore, source: &str) -> Self {
        Self {
            active,
            store,
            source: source.to_owned(),
            changes: Lane::default(),
            dry_runs: Lane::default(),
            reads: Lane::default(),
            comparisons: Lane::new(1),
            refreshes: Lane::new(1),
            refreshed: Mutex::new(Moment::ORIGIN),
            described: DescribedChanges::default(),
            writes: Outcomes::new(["written", "failed"]),
        }
    }

    /// Activates the newest document in etcd: another server may have written it. One read serves
    /// all callers that wait for it when it begins.
    ///
    /// # Errors
    /// The active document stays, because etcd cannot be read.
    ///
    /// # Cancel safety
    /// A read that runs already is completed.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), EditFailed<Infallible>> {
        if !matches!(self.store, DocumentStore::Etcd(_)) {
            return Ok(());
        }
        let asked = clock::now();
        let refreshed = self.run(&self.refreshes, move |editor| {
            let DocumentStore::Etcd(store) = &editor.store else {
                return Ok(());
            };
            let last = || {
                editor
                    .refreshed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
            };
            if *last() > asked {
                return Ok(());
            }
            let began = clock::now();
            Handle::current().block_on(async {
                let mut seen = store.seen.lock().await;
                store
                    .refresh(&mut seen, &editor.active, etcd_store::POLL)
                    .await
            })?;
            *last() = began;
            Ok(())
        });
        refreshed.await.inspect_err(|failed| {
            tracing::debug!(
                ?failed,
                "cannot read the newest document; the active one stays"
            );
        })
    }

    /// Replaces the active document by the result of `edit`; writes only if something changes.
    /// `edit` is called again if another server changes the document first.
    ///
    /// # Cancel safety
    /// A change that runs already is completed.
    pub(crate) async fn edit<D: Into<Edited>, E: Send + 'static>(
        self: &Arc<Self>,
        by: String,
        edit: impl Fn(&Document) -> Result<D, E> + Send + 'static,
    ) -> Result<Edit, EditFailed<E>> {
        match &self.store {
            DocumentStore::ReadOnly => return Err(EditFailed::ReadOnly(self.source.clone())),
            DocumentStore::Parent(parent) => return Err(EditFailed::AtRoot(Arc::clone(parent))),
            DocumentStore::Sqlite(_) | DocumentStore::Etcd(_) => {}
        }
        self.run(&self.changes, move |editor| match &editor.store {
            DocumentStore::ReadOnly => Err(EditFailed::ReadOnly(editor.source.clone())),
            DocumentStore::Parent(parent) => Err(EditFailed::AtRoot(Arc::clone(parent))),
            DocumentStore::Sqlite(store) => editor.edit_sqlite(store, &by, edit),
            DocumentStore::Etcd(store) => {
                Handle::current().block_on(editor.edit_etcd(store, &by, edit))
            }
        })
        .await
    }

    fn edit_sqlite<D: Into<Edited>, E>(
        &self,
        store: &Mutex<Store>,
        by: &str,
        edit: impl Fn(&Document) -> Result<D, E>,
    ) -> Result<Edit, EditFailed<E>> {
        // A write is atomic, so the store stays usable after a panic. The lock orders the changes.
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let (edit, diff) = self.evaluate(edit)?;
        if !diff.is_empty() {
            let change = NewChange {
                changed_at: clock::unix_seconds(),
                changed_by: by,
                change: &diff.summary(),
            };
            let written = store
                .append(&edit.after, &change)
                .inspect_err(|error| self.count_failure(error))
                .map_err(EditFailed::Store)?;
            if let Err(error) = written.copy {
                tracing::warn!(%error, "cannot write the copy of the document beside the store");
            }
            self.count_write(written.revision, &edit.after, by, change.change);
            self.activate(&edit.after)?;
        }
        Ok(edit)
    }

    async fn edit_etcd<D: Into<Edited>, E>(
        &self,
        store: &EtcdStore,
        by: &str,
        edit: impl Fn(&Document) -> Result<D, E>,
    ) -> Result<Edit, EditFailed<E>> {
        let mut seen = store.seen.lock().await;
        for evaluation in 0..MAX_EVALUATIONS {
            // The caller may have seen a newer document at another server.
            let refreshed = store
                .refresh(&mut seen, &self.active, etcd_store::CALL)
                .await;
            refreshed.map_err(|failure| match failure {
                EtcdFailure::Read(error) => EtcdFailure::Write(error),
                failure => failure,
            })?;
            let (edit, diff) = self.evaluate(&edit)?;
            if diff.is_empty() {
                return Ok(edit);
            }
            let change = diff.summary();
            let written = store.write(&mut seen, &edit.after, by, &change).await;
            if let Some(revision) = written.inspect_err(|failure| self.count_failure(failure))? {
                self.count_write(revision, &edit.after, by, &change);
                self.activate(&edit.after)?;
                return Ok(edit);
            }
            // Writers that retry at once may lose to each other many times.
            let longest = FIRST_PAUSE * 2_u32.pow(evaluation.min(6));
            time::sleep(longest.mul_f64(fastrand::f64())).await;
        }
        Err(EditFailed::Etcd(EtcdFailure::Contended))
    }

    /// The result of an edit of the active document, and what it changes.
    fn evaluate<D: Into<Edited>, E>(
        &self,
        edit: impl Fn(&Document) -> Result<D, E>,
    ) -> Result<(Edit, DocumentDiff), EditFailed<E>> {
        let before = self.active.get();
        let Edited { document, notes } = edit(&before).map_err(EditFailed::Rejected)?.into();
        let diff = DocumentDiff::between(&before, &document);
        let after = if diff.is_empty() {
            Arc::clone(&before)
        } else {
            Arc::new(document)
        };
        let edit = Edit {
            before,
            after,
            notes,
            effects: Vec::new(),
        };
        Ok((edit, diff))
    }

    fn activate<E>(&self, document: &Arc<Document>) -> Result<(), EditFailed<E>> {
        for warning in document.warnings() {
            tracing::warn!("{warning}");
        }
        self.active.activate(document).map_err(EditFailed::Ledger)
    }

    fn count_failure(&self, error: &dyn Display) {
        self.writes.count("failed");
        tracing::error!(%error, "cannot write document change; the change is rejected");
    }

    fn count_write(&self, revision: u64, document: &Document, by: &str, change: &str) {
        self.writes.count("written");
        let version = document.version();
        tracing::info!(revision, version, by, "document changed: {change}");
    }

    /// Describes the changes that an edit would make, as far as `restrictions` let the caller see
    /// it. `pause` says how long to wait before each read of the ledger.
    pub(crate) async fn dry_run<D: Into<Edited>, E: Send + 'static>(
        self: &Arc<Self>,
        restrictions: Restrictions,
        pause: impl Fn() -> Duration + Send + 'static,
        edit: impl FnOnce(&Document) -> Result<D, E> + Send + 'static,
    ) -> Result<DryRun, EditFailed<E>> {
        if let DocumentStore::Parent(parent) = &self.store {
            return Err(EditFailed::AtRoot(Arc::clone(parent)));
        }
        self.run(&self.dry_runs, move |editor| {
            let before = editor.active.get();
            let edited: Edited = edit(&before).map_err(EditFailed::Rejected)?.into();
            let ledger = &editor.active.ledger;
            dry_run::describe(ledger, &before, &edited, &restrictions, pause)
                .map_err(EditFailed::Ledger)
        })
        .await
    }

    /// Adds the warnings of the effects of a change on live resources, as the dry run has them. The
    /// change is made, so there are none if they cannot be found.
    pub(crate) async fn with_effects(
        self: &Arc<Self>,
        edit: Edit,
        restrictions: Restrictions,
        pause: impl Fn() -> Duration + Send + 'static,
    ) -> Edit {
        let (before, after) = (Arc::clone(&edit.before), Arc::clone(&edit.after));
        let found = self.run(&self.dry_runs, move |editor| {
            let ledger = &editor.active.ledger;
            dry_run::effects(ledger, &before, &after, &restrictions, pause)
                .map_err(EditFailed::<Infallible>::Ledger)
        });
        Edit {
            effects: found.await.unwrap_or_default(),
            ..edit
        }
    }

    /// Past changes before a revision, newest first; none without a store.
    pub(crate) async fn history(
        self: &Arc<Self>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, EditFailed<Infallible>> {
        self.run(&self.reads, move |editor| {
            editor.read_history(before, limit)
        })
        .await
    }

    /// The newest changes for which `describe` has words, of the documents before and after; at
    /// most 100 changes are compared, each once for these restrictions while it is remembered. The
    /// list ends at a change that is to be compared and whose documents are not retained.
    pub(crate) async fn described_history(
        self: &Arc<Self>,
        limit: usize,
        restrictions: Restrictions,
        describe: impl Fn(&Document, &Document) -> Option<String> + Send + 'static,
    ) -> Result<Vec<PastChange>, EditFailed<RevisionError>> {
        self.run(&self.comparisons, move |editor| {
            let changes = editor.read_history(None, MAX_COMPARED)?;
            let mut described = editor.described.known(&restrictions, &changes);
            let found = editor.describe(changes, limit, &mut described, describe);
            // Also those that were compared before a failure.
            editor.described.put(restrictions, described);
            found
        })
        .await
    }

    fn describe(
        &self,
        changes: Vec<PastChange>,
        limit: usize,
        described: &mut Described,
        describe: impl Fn(&Document, &Document) -> Option<String>,
    ) -> Result<Vec<PastChange>, EditFailed<RevisionError>> {
        let mut found = Vec::new();
        let mut next = None;
        for change in changes {
            let key = (change.revision, change.version.clone());
            let words = if let Some(words) = described.get(&key) {
                words.clone()
            } else {
                let Some((before, after)) = self.documents_around(change.revision, next.take())?
                else {
                    break;
                };
                let words = describe(&before, &after);
                described.insert(key, words.clone());
                next = Some((change.revision.saturating_sub(1), before));
                words
            };
            found.extend(words.map(|change_words| PastChange {
                change: change_words,
                ..change
            }));
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// The documents before and after a change, unless one is not retained. `next` is a revision
    /// with its document that was read already.
    fn documents_around(
        &self,
        revision: u64,
        next: Option<(u64, Document)>,
    ) -> Result<Option<(Document, Document)>, EditFailed<RevisionError>> {
        let before = self.read_revision(revision.saturating_sub(1));
        let after = match next {
            Some((read, document)) if read == revision => Ok(document),
            Some(_) | None => self.read_revision(revision),
        };
        match (before, after) {
            (Ok(before), Ok(after)) => Ok(Some((before, after))),
            (Err(EditFailed::Rejected(_)), _) | (_, Err(EditFailed::Rejected(_))) => Ok(None),
            (Err(failed), _) | (_, Err(failed)) => Err(failed),
        }
    }

    fn read_history<E>(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, EditFailed<E>> {
        match &self.store {
            DocumentStore::ReadOnly | DocumentStore::Parent(_) => Ok(Vec::new()),
            DocumentStore::Sqlite(store) => {
                let store = store.lock().unwrap_or_else(PoisonError::into_inner);
                store.history(before, limit).map_err(EditFailed::Store)
            }
            DocumentStore::Etcd(store) => {
                Ok(Handle::current().block_on(store.history(before, limit))?)
            }
        }
    }

    /// The document of a past revision.
    pub(crate) async fn revision(
        self: &Arc<Self>,
        revision: u64,
    ) -> Result<Document, EditFailed<RevisionError>> {
        self.run(&self.reads, move |editor| editor.read_revision(revision))
            .await
    }

    fn read_revision(&self, revision: u64) -> Result<Document, EditFailed<RevisionError>> {
        let document = match &self.store {
            DocumentStore::ReadOnly | DocumentStore::Parent(_) => Err(RevisionError::Absent {
                revision,
                retained: None,
            }),
            DocumentStore::Sqlite(store) => {
                // Parsed without the lock: changes wait for it.
                let found = store
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .revision(revision);
                found.and_then(|found| found.parse())
            }
            DocumentStore::Etcd(store) => Handle::current().block_on(store.revision(revision))?,
        };
        document.map_err(EditFailed::Rejected)
    }

    /// Runs an operation on a blocking thread when its lane has room, to its end even if dropped.
    async fn run<T: Send + 'static, E: Send + 'static>(
        self: &Arc<Self>,
        lane: &Lane,
        work: impl FnOnce(&Self) -> Result<T, EditFailed<E>> + Send + 'static,
    ) -> Result<T, EditFailed<E>> {
        let Ok(_queued) = lane.queued.try_acquire() else {
            return Err(EditFailed::Busy);
        };
        let running = Arc::clone(&lane.running).acquire_owned();
        let Ok(Ok(running)) = time::timeout(PATIENCE, running).await else {
            return Err(EditFailed::Busy);
        };
        let editor = Arc::clone(self);
        let done = task::spawn_blocking(context::propagate(move || {
            let _running = running;
            work(&editor)
        }));
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "document operation panicked");
            Err(EditFailed::Panicked)
        })
    }
}
