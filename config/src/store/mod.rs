//! The document store: an SQLite database with one row per change, and files beside it.
//!
//! `open` chooses the document to start with, `database` holds the changes, `files` has the lock,
//! the copy of the newest document and checks of foreign files. Everything blocks on the disk.

mod database;
mod error;
mod files;
mod open;

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use doorman_openapi::PastChange;

use crate::{
    Document,
    stored::{self, Unverified},
};

use self::{
    database::{Access, Database},
    files::Lock,
};

pub use self::{
    database::StoredDocument,
    error::{OpenError, RevisionError, StoreError, StoreErrorKind},
    open::OpenedStore,
};

/// The format of the store, in SQLite's `user_version`. A change that earlier releases would
/// misread raises it.
const FORMAT: i32 = 1;

/// A store, which only this process writes if it was opened to write. A write is atomic, and
/// durable when it returns.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    database: Connection,
    newest: u64,
    _lock: Option<Lock>,
}

/// The database of a store, as far as it can be used.
#[derive(Debug)]
enum Connection {
    Writable(Database),
    /// Why it cannot be written.
    ReadOnly(Database, StoreError),
    /// On a read-only file system. It may be remounted and then changed, and a connection that
    /// stays open would not notice: each read opens its own.
    Immutable(StoreError),
    Unusable(StoreError),
}

impl Connection {
    fn read<T, E: From<StoreError>>(
        &self,
        path: &Path,
        read: impl FnOnce(&Database) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Self::Writable(database) | Self::ReadOnly(database, _) => read(database),
            Self::Immutable(_) => read(&Database::open(path, Access::ReadImmutable)?),
            Self::Unusable(error) => Err(error.clone().into()),
        }
    }

    fn writer(&mut self) -> Result<&mut Database, StoreError> {
        match self {
            Self::Writable(database) => Ok(database),
            Self::ReadOnly(_, error) | Self::Immutable(error) | Self::Unusable(error) => {
                Err(error.clone())
            }
        }
    }
}

/// A change to append.
#[derive(Debug, Clone, Copy)]
pub struct NewChange<'a> {
    /// The time of the change, in Unix seconds.
    pub changed_at: u64,
    /// The author.
    pub changed_by: &'a str,
    /// The change in words.
    pub change: &'a str,
}

/// A durable change.
#[derive(Debug)]
#[must_use]
pub struct Appended {
    /// Its revision.
    pub revision: u64,
    /// Whether the copy beside the database was written, too. Without it a damaged database may
    /// lose this change.
    pub copy: io::Result<()>,
}

impl Store {
    /// Opens a store and locks it. A new store begins with the document `first`.
    ///
    /// No stored document prevents a start: the newest valid one is used. A corrupted database is
    /// renamed, and a new one begins with the newest document found. [`OpenedStore::problems`]
    /// lists what was wrong.
    ///
    /// # Errors
    /// [`OpenError`] if another process has the lock, the path is not a store or that of a later
    /// release (it is left untouched), or no store can be created.
    pub fn open(path: &Path, first: &Document, at: u64) -> Result<OpenedStore, OpenError> {
        open::open(path, first, at)
    }

    /// Opens a store, which a server may be using, to read it.
    ///
    /// # Errors
    /// [`OpenError`] if there is none, or it cannot be read.
    pub fn open_to_read(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        if !path.exists() {
            return Err(OpenError::Absent(path));
        }
        files::reject_newer(&path)?;
        let database = Database::open(&path, Access::Read).or_else(|error| match error.kind() {
            StoreErrorKind::ReadOnly => Database::open(&path, Access::ReadImmutable),
            _ => Err(error),
        });
        let database = database.map_err(|source| OpenError::unreadable(&path, source))?;
        let read_only = StoreError::new(StoreErrorKind::ReadOnly, "it was opened to read");
        Ok(Self {
            path,
            database: Connection::ReadOnly(database, read_only),
            newest: 0,
            _lock: None,
        })
    }

    /// The path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a document as the newest revision.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written; the store is unchanged.
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
        let database = self.database.writer()?;
        let new = StoredDocument::new(revision, document.version().to_owned(), document.to_json());
        database.append(&new, self.newest, change)?;
        self.newest = revision;
        Ok(Appended {
            revision,
            copy: files::write_copy(&self.path, &new),
        })
    }

    /// The changes before a revision, newest first.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn history(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, StoreError> {
        self.database
            .read(&self.path, |database| database.history(before, limit))
    }

    /// The document of a revision.
    ///
    /// # Errors
    /// [`RevisionError`] if it is not retained, or cannot be read.
    pub fn revision(&self, revision: u64) -> Result<StoredDocument, RevisionError> {
        self.database.read(&self.path, |database| {
            match database.document(revision)? {
                Some(found) => Ok(found),
                None => Err(RevisionError::Absent {
                    revision,
                    retained: database.retained()?,
                }),
            }
        })
    }

    /// The newest document as JSON; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn newest_document(&self) -> Result<Option<String>, StoreError> {
        self.database.read(&self.path, |database| {
            Ok(database.newest_document(None)?.map(|it| it.text))
        })
    }
}

impl StoredDocument {
    /// The text of a revision, with the version when it was written.
    #[must_use]
    pub fn new(revision: u64, version: String, text: String) -> Self {
        Self {
            revision,
            version,
            text,
        }
    }

    /// Parses and verifies the document.
    ///
    /// # Errors
    /// [`RevisionError::Unusable`]
    pub fn parse(&self) -> Result<Document, RevisionError> {
        let document = stored::verified(&self.version, &self.text);
        document.map_err(|unverified| RevisionError::Unusable {
            revision: self.revision,
            reason: match unverified {
                Unverified::Invalid(errors) => {
                    format!("it is invalid for this version of doorman: {errors}")
                }
                Unverified::Altered(_) => "it was altered: its version differs".to_owned(),
            },
        })
    }
}
