//! Watching a directory.

use std::{path::Path, sync::Arc};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

/// A directory that is watched, if that is possible.
#[derive(Debug)]
pub(super) struct Watch {
    changed: Arc<Notify>,
    /// Watches until it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches a directory. When that is not possible, it never tells of anything.
    pub(super) fn of(directory: &Path) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = watcher(directory, Arc::clone(&changed));
        if let Err(error) = &watcher {
            tracing::warn!(
                directory = %directory.display(), %error,
                "the directory of the document cannot be watched: changes are seen a little later"
            );
        }
        Self {
            changed,
            _watcher: watcher.ok(),
        }
    }

    /// Ready when something in the directory has changed since it was last ready.
    pub(super) async fn changed(&mut self) {
        self.changed.notified().await;
    }
}

fn watcher(directory: &Path, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| changes(event.kind)) {
            changed.notify_one();
        }
    })?;
    watcher.watch(directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Whether something may have changed. Our own reading is an event, too.
fn changes(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}
