//! Changes of the document that come over HTTP: planned on the document in force, made safe on the disk, put in force, in this order.
//!
//! One change is made at a time, on a thread that may wait for the disk: it goes on to its end even when nobody waits for the answer any
//! more, so that what is on the disk and what is in force never part. Leases never wait for it: a lease is decided by the document in
//! force, and that is exchanged in a moment.

mod trial;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use doorman_config::{Document, DocumentDiff, NewChange, Restrictions, Store, StoreError};
use doorman_openapi::{DryRun, PastChange};
use tokio::{sync::Semaphore, task};

use crate::{
    http::state::{App, BooksInDoubt},
    observe::context,
    util::clock,
};

/// The most changes that are under way, and the most trials: each has a tree that may be many times as large as its body.
const MOST_UNDER_WAY: usize = 2;

/// The most of either that are under way or wait for it, with a body of up to 4 MiB each.
const MOST_ASKED: usize = 16;

/// How long a change waits until one of them is over.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where changes go.
#[derive(Debug)]
pub(crate) struct Changes {
    /// `None` where the document comes from elsewhere.
    store: Option<Mutex<Store>>,
    changes: Lane,
    trials: Lane,
    reads: Lane,
    written: AtomicU64,
    failed: AtomicU64,
}

/// How much of one kind is done at one time. Each kind has its own, so that none of them takes the places of the others. Changes and
/// what is read of the history take turns at the store; trials wait for neither.
#[derive(Debug)]
struct Lane {
    asked: Semaphore,
    under_way: Semaphore,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            asked: Semaphore::new(MOST_ASKED),
            under_way: Semaphore::new(MOST_UNDER_WAY),
        }
    }
}

/// Picks one of the lanes.
type In = fn(&Changes) -> &Lane;

/// How many changes were written, and how many could not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) written: u64,
    pub(crate) failed: u64,
}

/// What a change led from, and to; the same twice when it changed nothing.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) before: Arc<Document>,
    pub(crate) after: Arc<Document>,
}

/// Why a change was not made. Nothing has changed then, but where the books are in doubt.
#[derive(Debug)]
pub(crate) enum Failed<E> {
    /// It was not to be made of this document.
    Plan(E),
    /// The document is changed elsewhere.
    ReadOnly,
    /// Too many others are under way.
    Busy,
    /// It could not be written.
    Store(StoreError),
    /// The books do not take it: it is written, and in force from the next start on.
    Books(BooksInDoubt),
    /// The server failed.
    Panicked,
}

impl Changes {
    pub(crate) fn new(store: Option<Store>) -> Self {
        Self {
            store: store.map(Mutex::new),
            changes: Lane::default(),
            trials: Lane::default(),
            reads: Lane::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            written: self.written.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    fn write(
        &self,
        store: &mut Store,
        new: &Document,
        change: &NewChange<'_>,
    ) -> Result<(), StoreError> {
        match store.append(new, change) {
            Ok(written) => {
                self.written.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = written.copy {
                    tracing::warn!(%error, "the copy of the document beside the store could not be written");
                }
                tracing::info!(
                    revision = written.revision,
                    version = new.version(),
                    by = change.changed_by,
                    "the document was changed: {}",
                    change.change
                );
                Ok(())
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "a change of the document could not be written, and was refused");
                Err(error)
            }
        }
    }
}

/// Makes a change: `plan` makes a new document of the one in force. A change that changes nothing is none, and leaves
/// no trace.
///
/// # Errors
/// [`Failed`], with what the plan refused, or why it could not be carried out.
///
/// # Cancel safety
/// A change that has begun is made, though nobody hears of it any more.
pub(crate) async fn make<E: Send + 'static>(
    app: &Arc<App>,
    by: String,
    plan: impl FnOnce(&Document) -> Result<Document, E> + Send + 'static,
) -> Result<Made, Failed<E>> {
    if app.changes().store.is_none() {
        return Err(Failed::ReadOnly);
    }
    apart(
        app,
        |all| &all.changes,
        move |app| {
            let changes = app.changes();
            let Some(store) = &changes.store else {
                return Err(Failed::ReadOnly);
            };
            // A write is whole or not at all, so a panic elsewhere does no harm to it.
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody else changes it while the store is held.
            let old = Arc::clone(app.in_force().document());
            let new = plan(&old).map_err(Failed::Plan)?;
            let diff = DocumentDiff::between(&old, &new);
            if diff.is_empty() {
                return Ok(Made {
                    before: Arc::clone(&old),
                    after: old,
                });
            }
            let change = NewChange {
                changed_at: clock::unix_seconds(),
                changed_by: &by,
                change: &diff.summary(),
            };
            changes
                .write(&mut store, &new, &change)
                .map_err(Failed::Store)?;
            for warning in new.warnings() {
                tracing::warn!("{warning}");
            }
            let new = Arc::new(new);
            app.put_in_force(&new).map_err(Failed::Books)?;
            Ok(Made {
                before: old,
                after: new,
            })
        },
    )
    .await
}

/// Says what a change would do, as far as that is within the restrictions of who asks, and does nothing.
///
/// # Errors
/// [`Failed`], with what the plan refused.
///
/// # Cancel safety
/// Nothing is lost when it is dropped.
pub(crate) async fn try_out<E: Send + 'static>(
    app: &Arc<App>,
    restrictions: Restrictions,
    plan: impl FnOnce(&Document) -> Result<Document, E> + Send + 'static,
) -> Result<DryRun, Failed<E>> {
    apart(
        app,
        |all| &all.trials,
        move |app| {
            let old = Arc::clone(app.in_force().document());
            let new = plan(&old).map_err(Failed::Plan)?;
            trial::account(app, &old, &new, &restrictions).map_err(Failed::Books)
        },
    )
    .await
}

/// Past changes before a revision, the newest first; none where the document is changed elsewhere.
///
/// # Errors
/// [`Failed`] when they cannot be read.
///
/// # Cancel safety
/// Nothing is lost when it is dropped.
pub(crate) async fn history(
    app: &Arc<App>,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<PastChange>, Failed<()>> {
    apart(
        app,
        |all| &all.reads,
        move |app| match &app.changes().store {
            None => Ok(Vec::new()),
            Some(store) => {
                let store = store.lock().unwrap_or_else(PoisonError::into_inner);
                store.history(before, limit).map_err(Failed::Store)
            }
        },
    )
    .await
}

/// Works on a thread that may wait, when there is room beside the others.
async fn apart<T: Send + 'static, E: Send + 'static>(
    app: &Arc<App>,
    lane: In,
    work: impl FnOnce(&App) -> Result<T, Failed<E>> + Send + 'static,
) -> Result<T, Failed<E>> {
    let Lane { asked, under_way } = lane(app.changes());
    let Ok(_asked) = asked.try_acquire() else {
        return Err(Failed::Busy);
    };
    let waited = tokio::time::timeout(PATIENCE, under_way.acquire()).await;
    let (Ok(Ok(permit)), app) = (waited, Arc::clone(app)) else {
        return Err(Failed::Busy);
    };
    // It belongs to the work, which goes on when this is dropped.
    permit.forget();
    let worked = task::spawn_blocking(context::propagate(move || {
        let _permit = Returned(&lane(app.changes()).under_way);
        work(&app)
    }));
    worked.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a change of the document failed");
        Err(Failed::Panicked)
    })
}

/// Gives a permit back when the work is over, however it ends.
struct Returned<'a>(&'a Semaphore);

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}
