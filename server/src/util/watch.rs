//! Watching directories for changes of the files in them.

use std::{path::Path, sync::Arc};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

/// Directories that are watched, as far as that is possible.
#[derive(Debug)]
pub(crate) struct Watch {
    changed: Arc<Notify>,
    /// Watches until it is dropped.
    _watcher: Option<RecommendedWatcher>,
}

impl Watch {
    /// Watches directories. Of one with which that is not possible it never tells anything.
    pub(crate) fn of<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Self {
        let changed = Arc::new(Notify::new());
        let mut watcher = watcher(Arc::clone(&changed))
            .inspect_err(|error| tracing::warn!(%error, "no directory can be watched: changes are seen a little later"))
            .ok();
        for directory in directories {
            let Some(watcher) = &mut watcher else { break };
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                tracing::warn!(
                    directory = %directory.display(), %error,
                    "a directory cannot be watched: changes in it are seen a little later"
                );
            }
        }
        Self {
            changed,
            _watcher: watcher,
        }
    }

    /// Ready when something in the directories has changed since it was last ready.
    pub(crate) async fn changed(&mut self) {
        self.changed.notified().await;
    }
}

fn watcher(changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| changes(event.kind)) {
            changed.notify_one();
        }
    })
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
