//! From one start to the next: what a server leaves behind in its data directory, and what the next one makes of it.
//!
//! `lock` keeps two servers apart. `bound` says until when leases last at the latest (`slot`: its form, `horizon`: nobody is told of
//! a lease beyond it, `keeper`: the task that writes it ahead of need), so that a server that starts after a crash knows how long it
//! has to learn (`learning`). `books` is what a clean stop leaves: all leases with what is left of them, so that the next start
//! learns nothing at all.

mod books;
mod boot;
mod bound;
mod checksum;
pub(crate) mod identity;
mod keeper;
mod learning;
mod lock;
mod slot;

use std::{path::PathBuf, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{Epoch, Moment, NodeId, Seconds};
use tokio::task::JoinSet;

use self::{
    boot::Boot,
    bound::BoundFile,
    learning::{Because, Fresh},
    lock::Lock,
    slot::Bound,
};
use crate::{
    durability::identity::{Identity, IdentityError},
    leasing::DurableBound,
    ledger::{self, Ledger, Predecessor, UnmatchedPolicy},
    settings::EmptyDirectory,
    util::clock,
};

/// What a start needs to know beside the data directory.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) directory: PathBuf,
    pub(crate) node: Option<NodeId>,
    pub(crate) document: Arc<Document>,
    pub(crate) max_leases: usize,
    pub(crate) unmatched: UnmatchedPolicy,
    /// Only processes of this machine can have been served.
    pub(crate) is_loopback: bool,
    pub(crate) empty_directory: EmptyDirectory,
}

/// What came of it: the books to go on with.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) identity: Identity,
    pub(crate) core: Ledger,
    pub(crate) bound: Arc<DurableBound>,
    /// The data directory was empty, and that was taken for the first start and not for a loss: nothing else says so.
    pub(crate) assumed_first_start: bool,
    pub(crate) held: Held,
}

/// A data directory that this server alone uses.
#[derive(Debug)]
pub(crate) struct Held {
    directory: PathBuf,
    epoch: Epoch,
    boot: Boot,
    _keeper: JoinSet<()>,
    _lock: Arc<Lock>,
}

impl Start {
    /// Takes a data directory, and finds out what the server before left outstanding. When this returns, all of it is safe on the
    /// disk, and the bound is being kept.
    pub(crate) fn take(self) -> Result<Started, IdentityError> {
        let directory = self.directory.as_path();
        identity::file::create_directory(directory)?;
        let lock = Arc::new(Lock::take(directory)?);
        let (mut bound_file, found) = BoundFile::open(directory)?;
        let (identity, last) = identity::open(directory, self.node.clone(), clock::unix_seconds())?;
        let boot = Boot::current();
        let now = clock::now();

        let fresh = match self.empty_directory {
            _ if self.is_loopback => Fresh::Loopback,
            EmptyDirectory::FirstStart => Fresh::OperatorsWord,
            EmptyDirectory::MayBeLost => Fresh::MayBeLost,
        };
        let longest_lease = self.document.longest_lease();
        let outstanding =
            learning::outstanding(identity.directory, found, boot, fresh, longest_lease, now);
        let (core, taken_over) = match self.take_over(last, boot, now) {
            Some((core, ends)) => (core, Some(ends)),
            None => {
                tell(outstanding.because, outstanding.until, now);
                let predecessor = outstanding
                    .until
                    .map_or(Predecessor::None, Predecessor::Until);
                (self.core(predecessor, now), None)
            }
        };

        // Before anybody is answered: the next start must know of what this one found, too. Books that were taken over are all that
        // is outstanding; a bound of the same clock is kept as it is.
        let ends = match taken_over {
            Some(ends) if outstanding.because != Because::Bound => Some(ends),
            _ => taken_over.max(outstanding.until),
        };
        let bound = Bound {
            ends: ends.unwrap_or(Moment::ORIGIN),
            longest: longest(found, outstanding.until, now),
            boot,
        };
        if found != bound::Found::Stored(bound) {
            bound_file
                .write(&bound)
                .map_err(identity::file::failed("write the bound in", directory))?;
        }
        // The new epoch has made them old already.
        if let Err(error) = books::forget(directory) {
            tracing::warn!(%error, "the books of the last server cannot be removed");
        }

        let bound = Arc::new(DurableBound::new(bound.ends, bound.longest));
        let mut keeper = JoinSet::new();
        let kept = keeper::run(Arc::clone(&bound), bound_file, boot, Arc::downgrade(&lock));
        keeper.spawn(async move {
            if let Err(error) = kept.await {
                tracing::error!(%error, "the bound is kept no longer: leases become shorter, and end");
            }
        });
        Ok(Started {
            assumed_first_start: matches!(
                outstanding.because,
                Because::Fresh(Fresh::Loopback | Fresh::OperatorsWord)
            ),
            held: Held {
                directory: self.directory.clone(),
                epoch: identity.epoch,
                boot,
                _keeper: keeper,
                _lock: lock,
            },
            identity,
            core,
            bound,
        })
    }

    fn core(&self, predecessor: Predecessor, now: Moment) -> Ledger {
        let settings = ledger::Settings {
            max_leases: self.max_leases,
            unmatched: self.unmatched,
            predecessor,
        };
        Ledger::new(Arc::clone(&self.document), settings, now)
    }

    /// The books of the server of epoch `last`, if it left them, and when the last lease in them ends.
    fn take_over(&self, last: Option<Epoch>, boot: Boot, now: Moment) -> Option<(Ledger, Moment)> {
        let mut core = self.core(Predecessor::None, now);
        match books::read(&self.directory, &mut core, last, boot, now) {
            Ok(Some(ends)) => {
                let leases = core.stats().leases;
                tracing::info!(leases, "the books of the last server are taken over");
                Some((core, ends))
            }
            Ok(None) => None,
            Err(error) => {
                let path = books::path(&self.directory);
                tracing::warn!(path = %path.display(), %error, "the books of the last server cannot be taken over");
                None
            }
        }
    }
}

impl Held {
    /// Leaves the books to the next start. Blocks on the disk. Nothing may be granted any more.
    pub(crate) fn leave(&self, core: &Ledger, now: Moment) {
        let leases = core.stats().leases;
        match books::write(&self.directory, core, self.epoch, self.boot, now) {
            Ok(()) => tracing::info!(leases, "the books are left to the next start"),
            Err(error) => tracing::warn!(
                %error,
                "the books cannot be left to the next start, which will learn who holds what"
            ),
        }
    }
}

/// The longest that a lease may ever have been booked for, in nanoseconds.
fn longest(found: bound::Found, until: Option<Moment>, now: Moment) -> u64 {
    match found {
        bound::Found::Stored(bound) => bound.longest,
        bound::Found::Absent | bound::Found::Damaged => {
            until.map_or(0, |until| until.as_nanos().saturating_sub(now.as_nanos()))
        }
    }
}

fn tell(because: Because, until: Option<Moment>, now: Moment) {
    let learns = Seconds::from(until.unwrap_or(now).since(now));
    match because {
        Because::Fresh(Fresh::Loopback) => {
            tracing::info!("a fresh data directory: nothing to learn");
        }
        Because::Fresh(Fresh::OperatorsWord) => {
            tracing::info!("a fresh data directory, and --first-start: nothing to learn");
        }
        Because::Fresh(Fresh::MayBeLost) => tracing::warn!(
            seconds = %learns,
            "a fresh data directory: another one may be lost, so holders keep what they say they have, and newcomers wait; \
             --first-start says that there was none"
        ),
        Because::Bound if learns == Seconds::ZERO => {
            tracing::info!("all leases of the last server have ended: nothing to learn");
        }
        Because::Bound => tracing::info!(
            seconds = %learns,
            "the last server did not stop cleanly: until its leases have ended, holders keep what they say they have, and newcomers wait"
        ),
        Because::OtherBoot => tracing::info!(
            seconds = %learns,
            "the machine was started anew: until leases of before have ended, holders keep what they say they have, and newcomers wait"
        ),
        Because::Damaged => tracing::warn!(
            seconds = %learns,
            "the data directory does not say how long leases of the last server last: so long, holders keep what they say they have, \
             and newcomers wait"
        ),
    }
}

#[cfg(test)]
mod tests;
