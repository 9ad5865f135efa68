//! How a store fails, in the kinds that a caller can act on.

use std::{io, path::PathBuf};

use rusqlite::ErrorCode;

/// Why a store could not be read or written. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{kind}{}{detail}", if detail.is_empty() { "" } else { ": " })]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Another program holds the database for longer than a write waits.
    #[error("the database is locked by another program")]
    Locked,
    /// It may not be written.
    #[error("the database cannot be written")]
    ReadOnly,
    /// It is no database, or a damaged one.
    #[error("the database is corrupted")]
    Corrupted,
    /// It is not the database any more that was opened, or not in the state in which it was left.
    #[error("the database was changed by another program")]
    Foreign,
    /// Anything else, such as a disk that fails.
    #[error("the database fails")]
    Other,
}

impl StoreError {
    pub(super) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The same failure, to be told again.
    pub(super) fn again(&self) -> Self {
        Self::new(self.kind, self.detail.clone())
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
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Corrupted,
            Some(_) => StoreErrorKind::Other,
            // What is in the file is of another type than what we wrote.
            None => StoreErrorKind::Corrupted,
        };
        Self::new(kind, error.to_string())
    }
}

/// Why a store cannot even be begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another server, or a command, works on it.
    #[error("the store {} is in use by another server", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// What is there is none, and is left as it is.
    #[error("{} is no store, and is left as it is: {what}", path.display())]
    Foreign {
        /// What is named as a store.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// There is none, and none can be made.
    #[error("there is no store at {}, and none can be made", path.display())]
    Create {
        /// The database.
        path: PathBuf,
        /// Why not.
        source: StoreError,
    },
    /// The folder that it lies in cannot be used.
    #[error("the store {} cannot be reached", path.display())]
    Io {
        /// The database.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is none.
    #[error("there is no store at {}", path.display())]
    Absent {
        /// The database.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("the store {} cannot be read", path.display())]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// Why not.
        source: StoreError,
    },
}
