//! Store errors, by the kinds that a caller can act on.

use std::{io, path::PathBuf};

use rusqlite::ErrorCode;

/// A store could not be read or written. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind}{}{detail}", if detail.is_empty() { "" } else { ": " })]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: String,
}

/// The kind of a store error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Another program holds a lock for longer than the write timeout.
    #[error("the database is locked by another program")]
    Locked,
    /// No write permission.
    #[error("the database is read-only")]
    ReadOnly,
    /// Not a database, or a damaged one.
    #[error("the database is corrupted")]
    Corrupted,
    /// The file was replaced, or another program wrote to it.
    #[error("the database was changed by another program")]
    Foreign,
    /// Any other error, such as an I/O error.
    #[error("database error")]
    Other,
}

impl StoreError {
    pub(super) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                StoreErrorKind::ReadOnly
            }
            // Without a code, a value has another type than was written.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => {
                StoreErrorKind::Corrupted
            }
            Some(_) => StoreErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another server or command has the lock.
    #[error("the store {} is in use by another server", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The path is something else, which is left untouched.
    #[error("{} is not a Doorman store and was left untouched: {what}", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// Description of the file.
        what: &'static str,
    },
    /// There is no store, and none can be created.
    #[error("cannot create the store {}", path.display())]
    Create {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: StoreError,
    },
    /// The lock cannot be taken.
    #[error("cannot lock the store {}", path.display())]
    Io {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no store.
    #[error("there is no store at {}", path.display())]
    Absent {
        /// The database.
        path: PathBuf,
    },
    /// The store cannot be read.
    #[error("cannot read the store {}", path.display())]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: StoreError,
    },
}
