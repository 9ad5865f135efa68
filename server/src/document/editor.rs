//! Changes of the document over HTTP: edited in memory, written to the store, then activated.
//!
//! Changes are made one at a time on a blocking thread and run to their end, even when the caller
//! disconnects, so that store and active document never differ. Leases do not wait for them.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use doorman_config::{
    Document, DocumentDiff, EditNotes, Edited, NewChange, Restrictions, RevisionError, Store,
    StoreError,
};
use doorman_openapi::{DryRun, PastChange};
use tokio::{sync::Semaphore, task};

use super::{ActiveDocument, dry_run};
use crate::{leasing::LedgerUnavailable, observe::context, util::clock};

/// Concurrent operations of one kind: a parsed body may be many times its size.
const MAX_RUNNING: usize = 2;

/// Operations of one kind that run or wait, with a body of up to 4 MiB each.
const MAX_QUEUED: usize = 16;

/// How long an operation waits to run.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct DocumentEditor {
    active: Arc<ActiveDocument>,
    /// The name of the source where the document cannot be changed over HTTP.
    store: Result<Mutex<Store>, String>,
    changes: Lane,
    dry_runs: Lane,
    reads: Lane,
    written: AtomicU64,
    failed: AtomicU64,
}

/// Limits the operations of one kind, so that none of the kinds blocks the others.
#[derive(Debug)]
struct Lane {
    queued: Semaphore,
    running: Arc<Semaphore>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            queued: Semaphore::new(MAX_QUEUED),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreWrites {
    pub(crate) written: u64,
    pub(crate) failed: u64,
}

/// The document before and after a change; the same one twice when nothing changed.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) before: Arc<Document>,
    pub(crate) after: Arc<Document>,
    pub(crate) notes: EditNotes,
}

/// Why a change was not made. Except for [`Ledger`](Self::Ledger), nothing has changed.
#[derive(Debug)]
pub(crate) enum EditFailed<E> {
    /// The edit function rejected the change.
    Rejected(E),
    /// The document comes from this source.
    ReadOnly(String),
    Busy,
    Store(StoreError),
    /// The change is stored, but becomes active only at the next start.
    Ledger(LedgerUnavailable),
    Panicked,
}

impl DocumentEditor {
    /// `source` names the source of the document.
    pub(crate) fn new(active: Arc<ActiveDocument>, store: Option<Store>, source: &str) -> Self {
        Self {
            active,
            store: store.map(Mutex::new).ok_or_else(|| source.to_owned()),
            changes: Lane::default(),
            dry_runs: Lane::default(),
            reads: Lane::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(crate) fn store_writes(&self) -> StoreWrites {
        StoreWrites {
            written: self.written.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Replaces the active document by the result of `edit`; writes only if something changes.
    ///
    /// # Cancel safety
    /// A change that runs already is completed.
    pub(crate) async fn edit<D: Into<Edited>, E: Send + 'static>(
        self: &Arc<Self>,
        by: String,
        edit: impl FnOnce(&Document) -> Result<D, E> + Send + 'static,
    ) -> Result<Edit, EditFailed<E>> {
        if let Err(source) = &self.store {
            return Err(EditFailed::ReadOnly(source.clone()));
        }
        self.run(&self.changes, move |editor| editor.edit_blocking(&by, edit))
            .await
    }

    fn edit_blocking<D: Into<Edited>, E>(
        &self,
        by: &str,
        edit: impl FnOnce(&Document) -> Result<D, E>,
    ) -> Result<Edit, EditFailed<E>> {
        let store = self.store.as_ref();
        let store = store.map_err(|source| EditFailed::ReadOnly(source.clone()))?;
        // A write is atomic, so the store stays usable after a panic. The lock orders the changes.
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.active.get();
        let Edited { document, notes } = edit(&before).map_err(EditFailed::Rejected)?.into();
        let after = Arc::new(document);
        let diff = DocumentDiff::between(&before, &after);
        if diff.is_empty() {
            return Ok(Edit {
                after: Arc::clone(&before),
                before,
                notes,
            });
        }
        let change = NewChange {
            changed_at: clock::unix_seconds(),
            changed_by: by,
            change: &diff.summary(),
        };
        self.append(&mut store, &after, &change)
            .map_err(EditFailed::Store)?;
        for warning in after.warnings() {
            tracing::warn!("{warning}");
        }
        self.active.activate(&after).map_err(EditFailed::Ledger)?;
        Ok(Edit {
            before,
            after,
            notes,
        })
    }

    fn append(
        &self,
        store: &mut Store,
        document: &Document,
        change: &NewChange<'_>,
    ) -> Result<(), StoreError> {
        let written = store.append(document, change).inspect_err(|error| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "cannot write document change; the change is rejected");
        })?;
        self.written.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = written.copy {
            tracing::warn!(%error, "cannot write the copy of the document beside the store");
        }
        tracing::info!(
            revision = written.revision,
            version = document.version(),
            by = change.changed_by,
            "document changed: {}",
            change.change
        );
        Ok(())
    }

    /// Describes the changes that an edit would make, as far as `restrictions` let the caller see
    /// it. `pause` says how long to wait before each read of the ledger.
    pub(crate) async fn dry_run<D: Into<Edited>, E: Send + 'static>(
        self: &Arc<Self>,
        restrictions: Restrictions,
        pause: impl Fn() -> Duration + Send + 'static,
        edit: impl FnOnce(&Document) -> Result<D, E> + Send + 'static,
    ) -> Result<DryRun, EditFailed<E>> {
        self.run(&self.dry_runs, move |editor| {
            let before = editor.active.get();
            let edited: Edited = edit(&before).map_err(EditFailed::Rejected)?.into();
            dry_run::describe(
                editor.active.ledger(),
                &before,
                &edited,
                &restrictions,
                pause,
            )
            .map_err(EditFailed::Ledger)
        })
        .await
    }

    /// Past changes before a revision, newest first; none without a store.
    pub(crate) async fn history(
        self: &Arc<Self>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, EditFailed<Infallible>> {
        self.run(&self.reads, move |editor| match &editor.store {
            Err(_) => Ok(Vec::new()),
            Ok(store) => {
                let store = store.lock().unwrap_or_else(PoisonError::into_inner);
                store.history(before, limit).map_err(EditFailed::Store)
            }
        })
        .await
    }

    /// The document of a past revision.
    pub(crate) async fn revision(
        self: &Arc<Self>,
        revision: u64,
    ) -> Result<Document, EditFailed<RevisionError>> {
        self.run(&self.reads, move |editor| {
            let Ok(store) = &editor.store else {
                return Err(EditFailed::Rejected(RevisionError::Absent {
                    revision,
                    retained: None,
                }));
            };
            // Parsed without the lock: changes wait for it.
            let found = store
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .revision(revision);
            let document = found.and_then(|found| found.parse());
            document.map_err(EditFailed::Rejected)
        })
        .await
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
        let Ok(Ok(running)) = tokio::time::timeout(PATIENCE, running).await else {
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
