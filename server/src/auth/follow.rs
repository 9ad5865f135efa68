//! Files and an address are followed as they change.
//!
//! A file is taken when it has held still for a moment: one that is written in place can be read half-way, and half a list of grants may
//! well be a valid one that binds nobody.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Auth, source::Place};
use crate::util::{clock, small_file};

/// How often files are looked at for a change.
const LOOK: Duration = Duration::from_secs(5);

/// How long a file must hold still; one that does not is looked at again next time.
const STILL: Duration = Duration::from_millis(250);

/// What was read of a file that is not what it had before.
struct Seen {
    index: usize,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Auth {
    /// Follows the files and the address as they change.
    ///
    /// # Cancel safety
    /// What was learned last stays.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look().await;
            if let Some(remote) = &self.remote
                && (!self.has_come() || remote.is_stale(clock::now()).await)
            {
                self.learn_keys().await;
            }
        }
    }

    /// Looks whether a file has changed, and takes what is the same a moment later.
    pub(crate) async fn look(self: &Arc<Self>) {
        let seen = self.apart(Self::changed).await.unwrap_or_default();
        if seen.is_empty() {
            return;
        }
        sleep(STILL).await;
        self.apart(|auth| auth.take(seen)).await;
    }

    /// Does what blocks on the file system where that hinders nobody.
    async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let auth = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&auth)).await;
        done.inspect_err(
            |error| tracing::error!(%error, "the files of keys and grants could not be looked at"),
        )
        .ok()
    }

    /// The files that are not what they were. Blocks on the file system.
    fn changed(&self) -> Vec<Seen> {
        let sources = self.sources();
        let files = sources.iter().enumerate();
        files
            .filter_map(|(index, source)| {
                let Place::File(path) = &source.place else {
                    return None;
                };
                match small_file::read(path) {
                    Ok(bytes) => (!source.has_had(&bytes)).then(|| Seen {
                        index,
                        path: path.clone(),
                        bytes,
                    }),
                    // It may be about to be replaced.
                    Err(error) => {
                        tracing::debug!(path = %path.display(), %error, "cannot be read");
                        None
                    }
                }
            })
            .collect()
    }

    /// Takes those that have held still. Blocks on the file system.
    fn take(&self, seen: Vec<Seen>) {
        for Seen { index, path, bytes } in seen {
            if small_file::read(&path).is_ok_and(|now| now == bytes) {
                self.learn(index, bytes);
            }
        }
    }
}
