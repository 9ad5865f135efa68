//! An open data directory: what the last server left there, and what this one writes.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use doorman_openapi::{Epoch, Moment, NodeId};

use super::{
    bound_file::{self, BoundFile, BoundOnDisk, StoredBound},
    data_dir::{self, Boot, DataDirError, DataDirLock, io_error},
    identity::{self, Identity},
    ledger_file, terms_file,
};
use doorman_core::{
    election::FoundBound, election::FoundState, election::Outstanding, election::Reason,
    ledger::Ledger, reign::Bound, reign::TermsGeneration,
};

/// A data directory that no other server uses.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    boot: Boot,
    bound: Mutex<BoundFile>,
    on_disk: BoundOnDisk,
    terms: Vec<TermsGeneration>,
    identity: Mutex<Option<Identity>>,
    lock: Weak<DataDirLock>,
}

impl DataDir {
    /// Opens and locks a data directory; creates it when it is missing.
    pub(crate) fn open(path: PathBuf) -> Result<(Self, Arc<DataDirLock>), DataDirError> {
        data_dir::create_dir(&path)?;
        let lock = Arc::new(DataDirLock::acquire(&path)?);
        let (bound, on_disk) = BoundFile::open(&path)?;
        let identity = identity::read(&path)?;
        let terms = terms_file::read(&path)?;
        let data_dir = Self {
            boot: Boot::current(),
            bound: Mutex::new(bound),
            on_disk,
            terms,
            identity: Mutex::new(identity),
            path,
            lock: Arc::downgrade(&lock),
        };
        Ok((data_dir, lock))
    }

    /// The state that the last server left. `is_first`: whether an empty directory means that there
    /// was none.
    pub(crate) fn found(&self, is_first: bool) -> FoundState {
        let identity = self.identity();
        let identity = identity.as_ref();
        let had_election = identity.is_some_and(|it| it.election.is_some());
        let in_bound = match self.on_disk {
            BoundOnDisk::Valid(bound) if !had_election => Some(bound.longest),
            _ => None,
        };
        FoundState {
            last_epoch: identity.map(|it| it.epoch),
            longest: identity
                .and_then(|it| it.longest_booking_nanos)
                .max(in_bound),
            bound: match self.on_disk {
                BoundOnDisk::Missing => FoundBound::Missing,
                BoundOnDisk::Corrupted => FoundBound::Corrupted,
                BoundOnDisk::Valid(StoredBound {
                    ends,
                    longest,
                    boot,
                }) if boot == self.boot => FoundBound::ThisBoot { ends, longest },
                BoundOnDisk::Valid(StoredBound { longest, .. }) => {
                    FoundBound::OtherBoot { longest }
                }
            },
            had_election,
            is_first,
        }
    }

    /// The name of the node; `None` in a new directory.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.identity().as_ref().map(|it| it.node.clone())
    }

    /// The prefix of the election that the last server took part in.
    pub(crate) fn election(&self) -> Option<String> {
        self.identity().as_ref()?.election.clone()
    }

    fn identity(&self) -> MutexGuard<'_, Option<Identity>> {
        // Every statement leaves it consistent.
        self.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is an intact bound.
    pub(crate) fn has_bound(&self) -> bool {
        matches!(self.on_disk, BoundOnDisk::Valid(_))
    }

    /// The terms of the leases that the last server granted.
    pub(crate) fn terms(&self) -> &[TermsGeneration] {
        &self.terms
    }

    /// Replaces the terms, which are durable when this returns. Blocks on the disk.
    pub(crate) fn write_terms(&self, terms: &[TermsGeneration]) -> Result<(), DataDirError> {
        // As for a bound. A server that has stopped has no leases to report.
        let Some(_lock) = self.lock.upgrade() else {
            return Ok(());
        };
        terms_file::write(&self.path, terms)
    }

    /// Removes the bound: all leases that it covers have ended.
    pub(crate) fn remove_bound(&self) {
        let Some(_lock) = self.lock.upgrade() else {
            return;
        };
        if let Err(error) = bound_file::remove(&self.path) {
            tracing::warn!(%error, "cannot remove the bound in the data directory");
        }
    }

    /// The node and the next epoch without an election. `node` overrides the stored name.
    pub(crate) fn next_epoch(
        &self,
        node: Option<NodeId>,
        unix_now: u64,
    ) -> Result<(NodeId, Epoch), DataDirError> {
        let identity = identity::next(&self.path, self.identity().as_ref(), node, unix_now)?;
        Ok((identity.node, identity.epoch))
    }

    /// Replaces the identity, which is durable when this returns. Blocks on the disk.
    pub(crate) fn write_identity(&self, identity: Identity) -> Result<(), DataDirError> {
        let Some(_lock) = self.lock.upgrade() else {
            return Ok(());
        };
        let mut current = self.identity();
        if current.as_ref() != Some(&identity) {
            identity::write(&self.path, &identity)?;
            *current = Some(identity);
        }
        Ok(())
    }

    /// Makes the identity say that a lease may be booked for so long, if it says less.
    fn raise_longest(&self, longest: u64) -> Result<(), DataDirError> {
        let identity = self.identity().clone();
        match identity {
            Some(mut identity) if identity.longest_booking_nanos < Some(longest) => {
                identity.longest_booking_nanos = Some(longest);
                self.write_identity(identity)
            }
            _ => Ok(()),
        }
    }

    /// The epoch of an intact ledger of a clean stop, by this version of the server.
    pub(crate) fn ledger_epoch(&self) -> Option<Epoch> {
        ledger_file::epoch(&self.path)
    }

    /// Restores the ledger that a clean stop in epoch `last` left, and returns the end of its
    /// latest lease. `None`: there is no such ledger, and the given one may be incomplete.
    pub(crate) fn restore(
        &self,
        ledger: &mut Ledger,
        last: Option<Epoch>,
        now: Moment,
    ) -> Option<Moment> {
        match ledger_file::read(&self.path, ledger, last, self.boot, now) {
            Ok(ends) => {
                let ends = ends?;
                let leases = ledger.stats().leases;
                tracing::info!(leases, "ledger of the last server restored");
                let learns = ledger.learning_until().since(now);
                if !learns.is_zero() {
                    tracing::info!(
                        seconds = rounded_seconds(learns),
                        "the last server stopped in learning mode, which continues; until it ends, \
                         only capacity that holders report is granted"
                    );
                }
                Some(ends)
            }
            Err(error) => {
                let path = ledger_file::path(&self.path);
                tracing::warn!(
                    path = %path.display(), %error, "cannot restore ledger of the last server"
                );
                None
            }
        }
    }

    /// Writes the ledger for the next start. Nothing may be granted afterwards.
    pub(crate) fn write_ledger(&self, ledger: &Ledger, epoch: Epoch, now: Moment) {
        let leases = ledger.stats().leases;
        match ledger_file::write(&self.path, ledger, epoch, self.boot, now) {
            Ok(()) => tracing::info!(leases, "ledger written for the next start"),
            Err(error) => tracing::warn!(
                %error, "cannot write ledger; the next start will learn the leases from their holders"
            ),
        }
    }

    /// Removes the ledger of an earlier epoch.
    pub(crate) fn remove_ledger(&self) {
        if let Err(error) = ledger_file::remove(&self.path) {
            // Harmless: it belongs to an older epoch.
            tracing::warn!(%error, "cannot remove the ledger of the last server");
        }
    }

    /// Writes a bound, which is durable when this returns. It has the longest lease, too. Returns
    /// why the identity does not have that, which needs space on the disk. Blocks on the disk.
    ///
    /// # Errors
    /// The disk's, or the directory is no longer locked.
    pub(crate) fn write_bound(&self, due: Bound) -> io::Result<Option<DataDirError>> {
        // A write may outlive the server: until it ends, no other server starts.
        let lock = self.lock.upgrade();
        let _lock = lock.ok_or_else(|| io::Error::other("the server has stopped"))?;
        let Bound { until, longest } = due;
        let failed = self.raise_longest(longest).err();
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.write(&StoredBound {
            ends: until,
            longest,
            boot: self.boot,
        })?;
        Ok(failed)
    }

    /// Writes the bound that a reign begins with, unless it is there.
    pub(crate) fn write_first_bound(
        &self,
        until: Moment,
        longest: u64,
    ) -> Result<(), DataDirError> {
        let boot = self.boot;
        let stored = StoredBound {
            ends: until,
            longest,
            boot,
        };
        if self.on_disk == BoundOnDisk::Valid(stored) {
            return Ok(());
        }
        self.write_bound(Bound { until, longest })
            .map(drop)
            .map_err(io_error("write the bound in", &self.path))
    }

    #[cfg(test)]
    pub(crate) fn make_read_only(&self) {
        *self.bound.lock().unwrap() = BoundFile::read_only(&self.path);
    }
}

/// Seconds for the log, in whole milliseconds.
fn rounded_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// Logs until when leases of earlier servers may be outstanding.
pub(crate) fn log_outstanding(outstanding: Outstanding, now: Moment) {
    let left = outstanding.until.unwrap_or(now).since(now);
    let seconds = rounded_seconds(left);
    match outstanding.reason {
        Reason::FirstStart => {
            tracing::info!("empty data directory; treated as a first start");
        }
        Reason::EmptyDirectory => tracing::warn!(
            seconds,
            "empty data directory: earlier leases may exist, so new clients wait; pass \
             --first-start for a new deployment"
        ),
        Reason::Bound if left.is_zero() => {
            tracing::info!("all leases of the last server have expired");
        }
        Reason::Bound => tracing::info!(
            seconds,
            "the last server did not stop cleanly; until its leases expire, only capacity that \
             their holders report is granted"
        ),
        Reason::OtherBoot => tracing::info!(
            seconds,
            "the clock of earlier leases is another one: the machine has rebooted, or this server \
             runs in another time namespace; until earlier leases expire, only capacity that their \
             holders report is granted"
        ),
        Reason::NoBound => tracing::warn!(
            seconds,
            "the bound in the data directory is missing or corrupted; until the longest \
             lease has expired, only capacity that holders report is granted"
        ),
        Reason::HadElection => tracing::info!(
            seconds,
            "the last server took part in an election, so others may have granted leases; until \
             the longest lease has expired, only capacity that holders report is granted"
        ),
    }
}
