//! What a server keeps in its data directory: the name of its node, and the last epoch.
//!
//! Holders drop answers of a lower epoch of the same node, so the epoch must grow from one start to the next, and it must be safe on
//! the disk before the first answer that carries it.

pub(crate) mod file;

use std::{
    io,
    path::{Path, PathBuf},
};

use doorman_openapi::{Epoch, NodeId};
use serde::{Deserialize, Serialize};

const FILE: &str = "identity.json";

/// Who a server is, from this start on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) epoch: Epoch,
    pub(crate) directory: Directory,
}

/// Whether a server has started on a data directory before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directory {
    Fresh,
    Used,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It cannot be read or written.
    #[error("the data directory cannot be used: {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server runs on it.
    #[error("the data directory {} is in use by another server: give each its own with --data-dir", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file is there, but makes no sense.
    #[error(
        "{} is corrupted ({reason}): restore it from a backup; or, once all leases of this server have ended, delete it, and the \
         server starts as a new node",
        path.display()
    )]
    Corrupted {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The file, as it is on the disk.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    node: NodeId,
    epoch: Epoch,
}

/// Takes up the identity in a data directory, with a new epoch; makes both when they are absent. `node` overrides the stored name.
/// Returns the epoch of the start before, too.
///
/// # Errors
/// [`IdentityError`] when the directory cannot be used, or what is in it makes no sense.
pub(crate) fn open(
    directory: &Path,
    node: Option<NodeId>,
    unix_now: u64,
) -> Result<(Identity, Option<Epoch>), IdentityError> {
    let path = directory.join(FILE);
    let stored = file::read(&path)?
        .map(|text| parse(&path, &text))
        .transpose()?;

    let last = stored.as_ref().map(|stored| stored.epoch);
    let next = last
        .map_or(0, |last| last.get().saturating_add(1))
        .max(unix_now);
    let epoch = Epoch::new(next).map_err(|rule| corrupted(&path, format!("its epoch {rule}")))?;
    let known = stored.map(|stored| stored.node);
    let directory = match known {
        Some(_) => Directory::Used,
        None => Directory::Fresh,
    };
    let node = match node.or(known) {
        Some(node) => node,
        None => new_name(&path)?,
    };

    let stored = Stored { node, epoch };
    let text = serde_json::to_string_pretty(&stored)
        .map_err(|error| corrupted(&path, error.to_string()))?;
    file::replace(&path, &format!("{text}\n"))?;
    let Stored { node, epoch } = stored;
    let identity = Identity {
        node,
        epoch,
        directory,
    };
    Ok((identity, last))
}

fn parse(path: &Path, text: &str) -> Result<Stored, IdentityError> {
    serde_json::from_str(text).map_err(|error| corrupted(path, error.to_string()))
}

/// A name that no other node has.
fn new_name(path: &Path) -> Result<NodeId, IdentityError> {
    NodeId::new(format!("node-{:016x}", fastrand::u64(..)))
        .map_err(|rule| corrupted(path, format!("its node {rule}")))
}

fn corrupted(path: &Path, reason: String) -> IdentityError {
    IdentityError::Corrupted {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;
