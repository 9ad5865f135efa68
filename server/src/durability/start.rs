//! A start on a data directory: recovers the ledger, or finds out how long to learn.

use std::{path::PathBuf, sync::Arc, time::Duration};

use doorman_config::Document;
use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment, NodeId};
use tokio::task::JoinSet;

use super::{
    EmptyDirectory,
    bound_file::{BoundFile, BoundOnDisk, StoredBound},
    data_dir::{self, Boot, DataDirError, Lock, io_error},
    identity::{self, Identity},
    ledger_file,
};
use crate::{
    leasing::{DurableBound, SharedLedger},
    ledger::{self, Ledger, Predecessor, UnmatchedPolicy},
    util::clock,
};

#[derive(Debug)]
pub(crate) struct StartOptions {
    pub(crate) data_dir: PathBuf,
    pub(crate) node: Option<NodeId>,
    pub(crate) document: Arc<Document>,
    pub(crate) max_leases: usize,
    pub(crate) unmatched: UnmatchedPolicy,
    /// Only processes of this machine can have been served.
    pub(crate) is_loopback: bool,
    pub(crate) empty_directory: EmptyDirectory,
}

#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) node: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) ledger: SharedLedger,
    /// The data directory was empty, and treated as that of a first start.
    pub(crate) assumed_first_start: bool,
    /// The data directory was empty, and another may be lost: when its leases have ended.
    pub(crate) may_be_first_start: Option<Moment>,
    pub(crate) guard: DataDirGuard,
}

/// Locks the data directory and keeps its bound ahead of the leases.
#[derive(Debug)]
pub(crate) struct DataDirGuard {
    data_dir: PathBuf,
    epoch: Epoch,
    boot: Boot,
    _writer: JoinSet<()>,
    _lock: Arc<Lock>,
}

impl DataDirGuard {
    /// Writes the ledger for the next start. Nothing may be granted afterwards.
    pub(crate) fn write_ledger(&self, ledger: &Ledger, now: Moment) {
        let leases = ledger.stats().leases;
        match ledger_file::write(&self.data_dir, ledger, self.epoch, self.boot, now) {
            Ok(()) => tracing::info!(leases, "ledger written for the next start"),
            Err(error) => tracing::warn!(
                %error, "cannot write ledger; the next start will learn the leases from their holders"
            ),
        }
    }
}

impl StartOptions {
    /// Recovers the state of the last server. When this returns, a crash loses nothing of it.
    pub(crate) fn recover(self) -> Result<Recovery, DataDirError> {
        let data_dir = self.data_dir.as_path();
        data_dir::create_dir(data_dir)?;
        let lock = Arc::new(Lock::acquire(data_dir)?);
        let (mut bound_file, on_disk) = BoundFile::open(data_dir)?;
        let identity = identity::open(data_dir, self.node.clone(), clock::unix_seconds())?;
        let boot = Boot::current();
        let now = clock::now();

        let outstanding = self.outstanding(&identity, on_disk, boot, now);
        let (ledger, restored) = match self.restore(&identity, boot, now) {
            Some((ledger, ends)) => (ledger, Some(ends)),
            None => {
                outstanding.log(now);
                let predecessor = outstanding
                    .until
                    .map_or(Predecessor::None, Predecessor::Until);
                (self.ledger(predecessor, identity.epoch, now), None)
            }
        };

        // A restored ledger has all leases, but a bound of the same clock is never lowered.
        let ends = match restored {
            Some(ends) if outstanding.reason != Reason::Bound => Some(ends),
            _ => restored.max(outstanding.until),
        };
        let stored = StoredBound {
            ends: ends.unwrap_or(Moment::ORIGIN),
            longest: match on_disk {
                BoundOnDisk::Valid(bound) => bound.longest,
                BoundOnDisk::Missing | BoundOnDisk::Corrupted => outstanding
                    .until
                    .map_or(0, |until| until.as_nanos().saturating_sub(now.as_nanos())),
            },
            boot,
        };
        if on_disk != BoundOnDisk::Valid(stored) {
            bound_file
                .write(&stored)
                .map_err(io_error("write the bound in", data_dir))?;
        }
        if let Err(error) = ledger_file::remove(data_dir) {
            // Harmless: it belongs to an older epoch.
            tracing::warn!(%error, "cannot remove the ledger of the last server");
        }

        let bound = Arc::new(DurableBound::new(stored.ends, stored.longest));
        let writing = bound_file.keep_ahead(Arc::clone(&bound), boot, Arc::downgrade(&lock));
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            if let Err(error) = writing.await {
                tracing::error!(%error, "bound writer failed; leases will shorten, then expire");
            }
        });
        Ok(Recovery {
            node: identity.node,
            epoch: identity.epoch,
            ledger: SharedLedger::new(ledger, bound),
            assumed_first_start: outstanding.reason == Reason::FirstStart,
            may_be_first_start: outstanding
                .until
                .filter(|_| outstanding.reason == Reason::EmptyDirectory),
            guard: DataDirGuard {
                data_dir: self.data_dir,
                epoch: identity.epoch,
                boot,
                _writer: writer,
                _lock: lock,
            },
        })
    }

    fn ledger(&self, predecessor: Predecessor, epoch: Epoch, now: Moment) -> Ledger {
        let settings = ledger::Settings {
            max_leases: self.max_leases,
            unmatched: self.unmatched,
            predecessor,
            epoch,
        };
        Ledger::new(Arc::clone(&self.document), settings, now)
    }

    /// The ledger that the last server wrote, and the end of its latest lease.
    fn restore(&self, identity: &Identity, boot: Boot, now: Moment) -> Option<(Ledger, Moment)> {
        let mut ledger = self.ledger(Predecessor::None, identity.epoch, now);
        let last = identity.last_epoch;
        match ledger_file::read(&self.data_dir, &mut ledger, last, boot, now) {
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
                Some((ledger, ends))
            }
            Err(error) => {
                let path = ledger_file::path(&self.data_dir);
                tracing::warn!(
                    path = %path.display(), %error, "cannot restore ledger of the last server"
                );
                None
            }
        }
    }

    fn outstanding(
        &self,
        identity: &Identity,
        on_disk: BoundOnDisk,
        boot: Boot,
        now: Moment,
    ) -> Outstanding {
        let is_first = self.is_loopback || self.empty_directory == EmptyDirectory::FirstStart;
        let longest = now.after_seconds(self.document.longest_lease().get() * CLOCK_DRIFT);
        let (reason, until) = match on_disk {
            BoundOnDisk::Valid(bound) if bound.boot == boot => (Reason::Bound, Some(bound.ends)),
            BoundOnDisk::Valid(bound) => {
                let until = now.as_nanos().saturating_add(bound.longest);
                (Reason::OtherBoot, Some(Moment::from_nanos(until)))
            }
            BoundOnDisk::Missing if identity.last_epoch.is_none() && is_first => {
                (Reason::FirstStart, None)
            }
            BoundOnDisk::Missing if identity.last_epoch.is_none() => {
                (Reason::EmptyDirectory, Some(longest))
            }
            BoundOnDisk::Missing | BoundOnDisk::Corrupted => (Reason::NoBound, Some(longest)),
        };
        Outstanding { until, reason }
    }
}

/// Until when leases of earlier servers may be outstanding; `None` when there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outstanding {
    until: Option<Moment>,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The directory is empty, and no other can have been lost.
    FirstStart,
    /// The directory is empty, but another may be lost.
    EmptyDirectory,
    /// The bound was written in this boot.
    Bound,
    /// The bound was written before the clock began anew.
    OtherBoot,
    /// The bound is missing or corrupted.
    NoBound,
}

/// Seconds for the log, in whole milliseconds.
fn rounded_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

impl Outstanding {
    fn log(self, now: Moment) {
        let left = self.until.unwrap_or(now).since(now);
        let seconds = rounded_seconds(left);
        match self.reason {
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
                "the machine has rebooted; until earlier leases expire, only capacity that their \
                 holders report is granted"
            ),
            Reason::NoBound => tracing::warn!(
                seconds,
                "the bound in the data directory is missing, corrupted or of an earlier build; \
                 until the longest lease has expired, only capacity that holders report is granted"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Boot = Boot(1);
    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 1, \
        algorithm: {kind: FAIR_SHARE, lease_length: 100, refresh_interval: 5}}]";

    #[test]
    fn outstanding_leases_follow_from_bound_and_directory() {
        let at = |seconds: f64| Moment::ORIGIN.after_seconds(seconds);
        let valid = |ends: f64, boot| {
            BoundOnDisk::Valid(StoredBound {
                ends: at(ends),
                longest: 63_000_000_000,
                boot,
            })
        };
        let epoch = Epoch::new(1).unwrap();
        for (is_loopback, empty_directory) in [
            (true, EmptyDirectory::MayBeLost),
            (false, EmptyDirectory::FirstStart),
            (false, EmptyDirectory::MayBeLost),
        ] {
            let options = StartOptions {
                data_dir: PathBuf::new(),
                node: None,
                document: Arc::new(Document::parse(DOCUMENT).unwrap()),
                max_leases: 1,
                unmatched: UnmatchedPolicy::Grant,
                is_loopback,
                empty_directory,
            };
            for last_epoch in [None, Some(epoch)] {
                let identity = Identity {
                    node: NodeId::new("n").unwrap(),
                    epoch,
                    last_epoch,
                };
                let check = |on_disk, reason, until: Option<f64>| {
                    let found = options.outstanding(&identity, on_disk, HERE, NOW);
                    let until = until.map(at);
                    assert_eq!(found, Outstanding { until, reason });
                };
                check(valid(1012.0, HERE), Reason::Bound, Some(1012.0));
                check(valid(900.0, HERE), Reason::Bound, Some(900.0));
                check(valid(9e6, Boot(2)), Reason::OtherBoot, Some(1063.0));
                check(BoundOnDisk::Corrupted, Reason::NoBound, Some(1105.0));
                let (reason, until) = match (last_epoch, is_loopback, empty_directory) {
                    (Some(_), _, _) => (Reason::NoBound, Some(1105.0)),
                    (None, false, EmptyDirectory::MayBeLost) => {
                        (Reason::EmptyDirectory, Some(1105.0))
                    }
                    (None, _, _) => (Reason::FirstStart, None),
                };
                check(BoundOnDisk::Missing, reason, until);
            }
        }
    }
}
