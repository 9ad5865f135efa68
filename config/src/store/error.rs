//! Store errors, by the kinds that a caller can act on.

use std::{
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

use super::FORMAT;

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
    /// A later release has written it.
    #[error("its format is {0}, and this version of doorman knows formats up to {newest}", newest = FORMAT)]
    Newer(i32),
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
    #[error("the store {} is in use by a running server or command", .0.display())]
    InUse(PathBuf),
    /// The path is something else, described here, which is left untouched.
    #[error("{} is not a Doorman store and was left untouched: {}", .0.display(), .1)]
    Foreign(PathBuf, &'static str),
    /// A later release has written the store in this format. It is left untouched.
    #[error(
        "the store {} has format {}, and this version of doorman knows formats up to {}: start the \
         version that wrote it, or a later one; it was left untouched",
        .0.display(),
        .1,
        FORMAT
    )]
    Newer(PathBuf, i32),
    /// There is no store, and none can be created.
    #[error("cannot create the store {}", .0.display())]
    Create(PathBuf, #[source] StoreError),
    /// The lock cannot be taken.
    #[error("cannot lock the store {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// There is no store.
    #[error("there is no store at {}", .0.display())]
    Absent(PathBuf),
    /// The store cannot be read.
    #[error("cannot read the store {}", .0.display())]
    Unreadable(PathBuf, #[source] StoreError),
}

impl OpenError {
    /// The error of a command that only reads the store.
    pub(super) fn unreadable(path: &Path, source: StoreError) -> Self {
        let path = path.to_owned();
        match source.kind() {
            StoreErrorKind::Newer(format) => Self::Newer(path, format),
            _ => Self::Unreadable(path, source),
        }
    }
}

/// The document of a revision cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RevisionError {
    /// There is no such revision, or its document is no longer retained.
    #[error("no document of revision {revision} is stored; {}", in_words(retained.as_ref()))]
    Absent {
        /// The revision.
        revision: u64,
        /// The oldest and the newest revision whose document is retained; `None` without a store.
        retained: Option<RangeInclusive<u64>>,
    },
    /// The document is damaged, or invalid for this release.
    #[error("the document of revision {revision} cannot be used: {reason}")]
    Unusable {
        /// The revision.
        revision: u64,
        /// The damage, in a sentence.
        reason: String,
    },
    /// The store cannot be read.
    #[error("cannot read the history: {0}")]
    Store(StoreError),
}

fn in_words(retained: Option<&RangeInclusive<u64>>) -> String {
    match retained {
        Some(range) => format!(
            "the oldest is of revision {}, the newest of revision {}",
            range.start(),
            range.end()
        ),
        None => "the source of the document has no history".to_owned(),
    }
}

impl From<StoreError> for RevisionError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
