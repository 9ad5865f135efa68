//! The files beside a database: the lock that keeps two writers apart, the copy of the document last known as good, and what was set aside.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::error::OpenError;
use crate::kept::{self, beside, folder};

/// Where the lock lies.
pub(super) fn lock_path(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// Holds a store until it is dropped, or the process ends however it may. The database's own locks only last for a transaction.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Takes a store; `None` where nothing can be written, and so nobody writes.
    pub(super) fn take(path: &Path) -> Result<Option<Self>, OpenError> {
        // OpenedStore, not truncated, and never removed: a name that comes back would be another lock.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock_path(path));
        let fail = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let file = match file {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::StorageFull
                ) && path.exists() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(fail(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(fail(error)),
        }
    }
}

/// The document last known as good, in a file of its own: what there is when the database is lost.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copy {
    pub(super) revision: u64,
    /// Of the document; once, none was written.
    #[serde(default)]
    pub(super) version: Option<String>,
    pub(super) document: Box<serde_json::value::RawValue>,
}

/// Where the copy lies.
pub(super) fn copy_path(path: &Path) -> PathBuf {
    beside(path, ".last-good.json")
}

/// Reads the copy; `None` when there is none.
pub(super) fn read_copy(path: &Path) -> io::Result<Option<Copy>> {
    match fs::read(copy_path(path)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the copy.
pub(super) fn write_copy(
    path: &Path,
    revision: u64,
    version: &str,
    document: &str,
) -> io::Result<()> {
    let document = serde_json::value::RawValue::from_string(document.to_owned())?;
    let version = Some(version.to_owned());
    let text = serde_json::to_vec(&Copy {
        revision,
        version,
        document,
    })?;
    kept::replace(&copy_path(path), &text)
}

/// Gives a database that is of no use another name, with what belongs to it, so that nothing of it is lost; tells which.
pub(super) fn set_aside(path: &Path, at: u64) -> io::Result<PathBuf> {
    let free = |n: &u32| {
        let name = beside(
            path,
            &format!(".corrupted-{at}{}", ".again".repeat(*n as usize)),
        );
        (!name.exists()).then_some(name)
    };
    let aside = (0..8).find_map(|n| free(&n)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::AlreadyExists, "all names for it are taken")
    })?;
    // Those that belong to it first: beside a fresh database they would be taken for its own.
    for ending in ["-wal", "-shm"] {
        match fs::rename(beside(path, ending), beside(&aside, ending)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &aside)?;
    File::open(folder(path))?.sync_all()?;
    Ok(aside)
}
