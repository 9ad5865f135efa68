//! One server at a time on a data directory.

use std::{
    fs::{File, TryLockError},
    path::Path,
};

use crate::durability::identity::{IdentityError, file};

const FILE: &str = "lock";

/// Holds a data directory until it is dropped, or the process ends however it may.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Takes a data directory.
    pub(super) fn take(directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(FILE);
        // Opened, not truncated, and never removed: a name that comes back would be another lock.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(file::failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(IdentityError::InUse {
                path: directory.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(file::failed("lock", &path)(error)),
        }
    }
}
