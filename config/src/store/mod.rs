//! A store for the document: an SQLite database with every change of it, and what stands beside that.
//!
//! `foreign` knows what is no store and to be left alone, `database` holds the changes, `files` the lock, the copy of the document last known
//! as good and what was set aside, `start` decides which document counts when a store is opened. All of it blocks on the disk.

mod database;
mod error;
mod files;
mod foreign;
mod start;

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use doorman_openapi::PastChange;

use crate::Document;

use self::{
    database::{Access, Database},
    files::Lock,
};

pub use self::{
    error::{OpenError, StoreError, StoreErrorKind},
    start::OpenedStore,
};

/// A store that this process alone writes.
///
/// A write is whole or not at all, and safe on the disk when it returns; one that fails has changed nothing.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// Why nothing can be written, when that was found at the start.
    database: Result<Database, StoreError>,
    newest: u64,
    _lock: Option<Lock>,
}

/// A change that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewChange<'a> {
    /// The time of the change, in Unix seconds.
    pub changed_at: u64,
    /// The author.
    pub changed_by: &'a str,
    /// The change in words.
    pub change: &'a str,
}

/// A change that is safe on the disk.
#[derive(Debug)]
#[must_use]
pub struct Appended {
    /// Its revision.
    pub revision: u64,
    /// Whether the copy of the document beside the database was written, too; without it only a lost database costs more.
    pub copy: io::Result<()>,
}

impl Store {
    /// Opens a store, and takes it for this process. One that does not exist yet begins with the document `first`.
    ///
    /// No document that is stored can stop it: the newest that is good counts. A database that is corrupted is set aside under another
    /// name, and what was last known as good goes on in a fresh one. What went wrong is in [`OpenedStore::faults`].
    ///
    /// # Errors
    /// [`OpenError`] when another process has taken it, what is there is no store, which is left as it is, or there is nothing and nothing can
    /// be made.
    pub fn open(path: &Path, first: &Document, at: u64) -> Result<OpenedStore, OpenError> {
        start::open(path, first, at)
    }

    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a document the newest.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be written; nothing has changed then.
    pub fn append(
        &mut self,
        document: &Document,
        change: &NewChange<'_>,
    ) -> Result<Appended, StoreError> {
        self.append_as(self.newest.saturating_add(1), document, change)
    }

    fn append_as(
        &mut self,
        revision: u64,
        document: &Document,
        change: &NewChange<'_>,
    ) -> Result<Appended, StoreError> {
        let database = self.database.as_mut().map_err(|why| why.again())?;
        let text = document.to_json();
        database.append(revision, self.newest, change, document.version(), &text)?;
        self.newest = revision;
        Ok(Appended {
            revision,
            copy: files::write_copy(&self.path, revision, document.version(), &text),
        })
    }

    /// Past changes before a revision, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub fn history(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, StoreError> {
        let database = self.database.as_ref().map_err(StoreError::again)?;
        database.history(before, limit)
    }
}

/// A store that is only read, be a server running on it or not.
#[derive(Debug)]
pub struct StoreReader(Database);

impl StoreReader {
    /// Opens a store to read it.
    ///
    /// # Errors
    /// [`OpenError`] when there is none, or it cannot be read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            let path = path.to_owned();
            return Err(OpenError::Absent { path });
        }
        Database::open(path, Access::Read)
            .or_else(|error| match error.kind() {
                StoreErrorKind::ReadOnly => Database::open(path, Access::ReadFrozen),
                _ => Err(error),
            })
            .map(Self)
            .map_err(|source| OpenError::Unreadable {
                path: path.to_owned(),
                source,
            })
    }

    /// Past changes before a revision, the newest first.
    ///
    /// # Errors
    /// [`StoreError`] when they cannot be read.
    pub fn history(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, StoreError> {
        self.0.history(before, limit)
    }

    /// What the document of a revision says, as JSON, or of the newest; `None` when there is none, or it is kept no longer.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be read.
    pub fn document(&self, revision: Option<u64>) -> Result<Option<String>, StoreError> {
        match revision {
            Some(revision) => self.0.document(revision),
            None => Ok(self.0.newest_document(None)?.map(|it| it.text)),
        }
    }
}
