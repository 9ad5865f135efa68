//! The node's name, the last epoch and the length of the longest lease, in `identity.json`.
//!
//! Clients ignore responses of a lower epoch of the same node. So the epoch grows with every start,
//! and is on the disk before the first response that carries it. In an election it is in etcd, and
//! the file has the highest epoch that the server has heard of.
//!
//! The longest lease says how long to learn where no bound does: other servers of the node may have
//! granted leases since, or the bound is lost, and the document may have had longer leases before.

use std::{fs, io, path::Path};

use doorman_openapi::{Epoch, NodeId};
use serde::{Deserialize, Serialize};

use super::data_dir::{self, DataDirError, io_error};
use doorman_core::election::next_epoch;

const FILE: &str = "identity.json";

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    /// The highest epoch that this server has begun, or heard of.
    pub(crate) epoch: Epoch,
    /// The prefix of the election that the server takes part in; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) election: Option<String>,
    /// The longest booking of any lease of the node that may last, in nanoseconds; absent before
    /// the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) longest_booking_nanos: Option<u64>,
}

/// Reads the file; `None` if there is none.
pub(super) fn read(directory: &Path) -> Result<Option<Identity>, DataDirError> {
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| corrupted(&path, error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

/// Replaces the file; it is on the disk when this returns.
pub(super) fn write(directory: &Path, identity: &Identity) -> Result<(), DataDirError> {
    let path = directory.join(FILE);
    let mut text =
        serde_json::to_vec_pretty(identity).map_err(|error| corrupted(&path, error.to_string()))?;
    text.push(b'\n');
    data_dir::replace(&path, &text)
}

/// The identity of a new epoch without an election. `node` overrides the stored name.
pub(super) fn next(
    directory: &Path,
    last: Option<&Identity>,
    node: Option<NodeId>,
    unix_now: u64,
) -> Result<Identity, DataDirError> {
    let path = directory.join(FILE);
    let epoch = next_epoch(last.map(|last| last.epoch), unix_now)
        .ok_or_else(|| corrupted(&path, "its epoch is too large".to_owned()))?;
    Ok(Identity {
        node: node
            .or_else(|| last.map(|last| last.node.clone()))
            .unwrap_or_else(random_node),
        epoch,
        election: None,
        longest_booking_nanos: last.and_then(|last| last.longest_booking_nanos),
    })
}

/// A name for a new node.
pub(crate) fn random_node() -> NodeId {
    NodeId::new(format!("node-{:016x}", fastrand::u64(..))).expect("it is short text")
}

fn corrupted(path: &Path, reason: String) -> DataDirError {
    DataDirError::Corrupted {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000;

    fn open(path: &Path, node: Option<NodeId>, unix_now: u64) -> Result<Identity, DataDirError> {
        data_dir::create_dir(path)?;
        let last = read(path)?;
        let identity = next(path, last.as_ref(), node, unix_now)?;
        write(path, &identity)?;
        Ok(identity)
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn first_start_creates_directory_name_and_epoch() {
        let parent = directory();
        let path = parent.path().join("a/b");
        let first = open(&path, None, NOW).unwrap();
        assert_eq!(first.epoch.get(), NOW);
        assert!(first.node.as_str().starts_with("node-"), "{}", first.node);

        let elsewhere = open(&parent.path().join("c"), None, NOW).unwrap();
        assert_ne!(elsewhere.node, first.node);
    }

    #[test]
    fn name_stays_and_epoch_grows_with_every_start() {
        let directory = directory();
        let first = open(directory.path(), None, NOW).unwrap();
        let second = open(directory.path(), None, NOW).unwrap();
        assert_eq!(second.node, first.node);
        assert_eq!(second.epoch.get(), NOW + 1);
        // Even when the wall clock goes back.
        let epoch = |unix_now| open(directory.path(), None, unix_now).unwrap().epoch.get();
        assert_eq!(epoch(5), NOW + 2);
        assert_eq!(epoch(NOW + 100), NOW + 100);
    }

    #[test]
    fn given_name_is_stored() {
        let directory = directory();
        let given = NodeId::new("eu-west").unwrap();
        let first = open(directory.path(), Some(given.clone()), NOW).unwrap();
        assert_eq!(first.node, given);
        let second = open(directory.path(), None, NOW).unwrap();
        assert_eq!(second.node, given);
        let renamed = NodeId::new("eu-east").unwrap();
        let third = open(directory.path(), Some(renamed.clone()), NOW).unwrap();
        assert_eq!((third.node, third.epoch.get()), (renamed, NOW + 2));
    }

    #[test]
    fn corrupted_file_is_named_and_left_untouched() {
        for text in [
            &b""[..],
            b"{",
            b"null",
            b"{\"node\":\"a\"}",
            b"{\"node\":\"\",\"epoch\":1}",
            b"{\"node\":\"a\",\"epoch\":-1}",
            b"{\"node\":\"a\",\"epoch\":9007199254740991}",
            b"\xff\xfe",
        ] {
            let directory = directory();
            let file = directory.path().join(FILE);
            fs::write(&file, text).unwrap();
            let error = open(directory.path(), None, NOW).unwrap_err();
            assert!(matches!(error, DataDirError::Corrupted { .. }), "{error}");
            let name = file.to_string_lossy();
            assert!(error.to_string().contains(&*name), "{error}");
            assert_eq!(fs::read(&file).unwrap(), text);
        }
    }

    #[test]
    fn file_in_place_of_the_directory_is_named() {
        let directory = directory();
        let file = directory.path().join("data");
        fs::write(&file, "").unwrap();
        let error = open(&file, None, NOW).unwrap_err();
        let name = file.to_string_lossy();
        assert!(error.to_string().contains(&*name), "{error}");
    }

    #[test]
    fn half_written_new_file_is_ignored() {
        let directory = directory();
        let first = open(directory.path(), None, NOW).unwrap();
        fs::write(directory.path().join("identity.new"), "{\"nod").unwrap();
        let second = open(directory.path(), None, NOW).unwrap();
        assert_eq!(second.node, first.node);
    }
}
