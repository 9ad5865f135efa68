//! Following files that change while the server runs.
//!
//! A directory watch reports changes early. A poll finds the others, such as behind symbolic links.

use std::{path::Path, sync::Arc, time::Duration};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::Notify,
    task,
    time::{sleep, timeout},
};

/// Time between two reads of files whose directories report no change.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Files must read the same after this time: one that is written in place may be read half-way.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(250);

pub(crate) struct FileFollower<T> {
    read: Arc<dyn Fn() -> T + Send + Sync>,
    changed: Arc<Notify>,
    is_started: bool,
    max_reads: usize,
    /// Watches until it is dropped. `None` leaves only the poll.
    _watcher: Option<RecommendedWatcher>,
}

impl<T: PartialEq + Send + 'static> FileFollower<T> {
    /// Watches the directories of the files that `read` reads. `read` may block.
    pub(crate) fn new<'a>(
        directories: impl IntoIterator<Item = &'a Path>,
        read: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            read: Arc::new(read),
            is_started: false,
            max_reads: usize::MAX,
            _watcher: watch(directories, &changed),
            changed,
        }
    }

    /// Returns content that has not settled after so many reads. By default it is never returned:
    /// half of a list of grants may restrict nobody.
    pub(crate) fn with_max_reads(mut self, max_reads: usize) -> Self {
        self.max_reads = max_reads;
        self
    }

    /// Returns the files' settled content: immediately on the first call, then after each change
    /// and each [`POLL_INTERVAL`]. Content that `is_known` accepts is returned without settling.
    ///
    /// # Cancel safety
    /// A change that was reported before the drop may be seen only by the next poll.
    pub(crate) async fn next(&mut self, is_known: impl Fn(&T) -> bool) -> T {
        if std::mem::replace(&mut self.is_started, true)
            && timeout(POLL_INTERVAL, self.changed.notified())
                .await
                .is_ok()
        {
            // Another program may write to the directory all the time.
            sleep(SETTLE_TIME).await;
        }
        let mut content = self.read().await;
        for _ in 1..self.max_reads {
            if is_known(&content) {
                break;
            }
            sleep(SETTLE_TIME).await;
            let before = std::mem::replace(&mut content, self.read().await);
            if before == content {
                break;
            }
        }
        content
    }

    async fn read(&self) -> T {
        loop {
            let read = Arc::clone(&self.read);
            match task::spawn_blocking(move || read()).await {
                Ok(content) => return content,
                Err(error) => {
                    tracing::error!(%error, "reading followed files failed");
                    sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

fn watch<'a>(
    directories: impl IntoIterator<Item = &'a Path>,
    changed: &Arc<Notify>,
) -> Option<RecommendedWatcher> {
    let notify = Arc::clone(changed);
    let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            notify.notify_one();
        }
    });
    let mut watcher = watcher
        .inspect_err(|error| {
            tracing::warn!(%error, "cannot watch directories; file changes are polled");
        })
        .ok()?;
    for directory in directories {
        if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
            tracing::warn!(
                directory = %directory.display(), %error,
                "cannot watch directory; file changes in it are polled"
            );
        }
    }
    Some(watcher)
}

/// Whether an event may mean changed content. The server's own reads are events, too.
fn is_change(kind: EventKind) -> bool {
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

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::PathBuf,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use tempfile::TempDir;

    use super::*;

    fn follow(directory: &TempDir) -> (FileFollower<String>, PathBuf) {
        let file = directory.path().join("file");
        fs::write(&file, "first").unwrap();
        let read = file.clone();
        let read = move || fs::read_to_string(&read).unwrap();
        (FileFollower::new([directory.path()], read), file)
    }

    #[tokio::test(start_paused = true)]
    async fn first_content_is_returned_immediately_then_each_change() {
        let directory = TempDir::new().unwrap();
        let (mut follower, file) = follow(&directory);
        assert_eq!(follower.next(|_| false).await, "first");
        fs::write(&file, "second").unwrap();
        assert_eq!(follower.next(|_| false).await, "second");
    }

    #[tokio::test(start_paused = true)]
    async fn half_written_content_is_not_returned() {
        let directory = TempDir::new().unwrap();
        let (mut follower, file) = follow(&directory);
        let known = |content: &String| content == "first";
        assert_eq!(follower.next(known).await, "first");
        let write = async {
            for end in 1..="second".len() {
                fs::write(&file, &"second"[..end]).unwrap();
                sleep(SETTLE_TIME / 2).await;
            }
        };
        let changed = async {
            loop {
                let content = follower.next(known).await;
                if !known(&content) {
                    return content;
                }
            }
        };
        let (content, ()) = tokio::join!(changed, write);
        assert_eq!(content, "second");
    }

    #[tokio::test(start_paused = true)]
    async fn unsettled_content_is_returned_after_max_reads_only() {
        let unsettled = || {
            let reads = AtomicUsize::new(1);
            FileFollower::new([], move || reads.fetch_add(1, Relaxed))
        };
        let minute = Duration::from_secs(60);
        assert!(timeout(minute, unsettled().next(|_| false)).await.is_err());
        let mut limited = unsettled().with_max_reads(20);
        assert_eq!(limited.next(|_| false).await, 20);
    }
}
