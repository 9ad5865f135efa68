//! The choice of the document when a store is opened: the newest valid one, in the database or in
//! the copy.

use std::path::Path;

use super::{
    Connection, NewChange, Store,
    database::{Access, Database, StoredDocument},
    error::{OpenError, StoreError, StoreErrorKind},
    files::{self, Lock},
};
use crate::{
    Document,
    stored::{self, Unverified},
};

/// The author of changes by the store itself.
const AUTHOR: &str = "doorman";

/// The most documents that are tried, newest first.
const MAX_TRIED: usize = 100;

/// An open store and its document.
#[derive(Debug)]
pub struct OpenedStore {
    /// The store.
    pub store: Store,
    /// The document to use.
    pub document: Document,
    /// Problems, for the log. Empty if the document is the newest that was written.
    pub problems: Vec<String>,
    /// Why the store cannot be written: changes fail until it can.
    pub read_only: Option<String>,
}

/// A valid document and its revision.
struct Revision {
    revision: u64,
    document: Document,
}

struct Opening<'a> {
    path: &'a Path,
    first: &'a Document,
    at: u64,
    lock: Option<Lock>,
    copy: Option<Revision>,
    /// The newest valid document whose version differs: the last resort before the built-in
    /// document.
    altered: Option<Revision>,
    problems: Vec<String>,
    read_only: Option<String>,
}

pub(super) fn open(path: &Path, first: &Document, at: u64) -> Result<OpenedStore, OpenError> {
    files::reject_foreign(path)?;
    files::reject_newer(path)?;
    let lock = Lock::take(path)?;
    let existed = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let mut opening = Opening {
        path,
        first,
        at,
        lock,
        copy: None,
        altered: None,
        problems: Vec::new(),
        read_only: None,
    };
    opening.read_copy();
    let is_new = !existed && opening.copy.is_none() && opening.problems.is_empty();
    if !existed && !is_new {
        opening.report("is gone");
    }
    match Database::open(path, Access::Write) {
        Ok(database) => Ok(opening.with_intact(database)),
        Err(source) if is_new => Err(OpenError::Create(path.to_owned(), source)),
        Err(error) => match error.kind() {
            StoreErrorKind::Corrupted => Ok(opening.with_corrupted(&error)),
            // Only the write-ahead log has the format.
            StoreErrorKind::Newer(format) => Err(OpenError::Newer(path.to_owned(), format)),
            _ => Ok(opening.read_only(error)),
        },
    }
}

impl Opening<'_> {
    fn read_copy(&mut self) {
        let copy = match files::read_copy(self.path) {
            Ok(None) => return,
            Ok(Some(copy)) => self.verified(&copy),
            Err(error) => Err(error.to_string()),
        };
        match copy {
            Ok(copy) => self.copy = Some(copy),
            Err(error) => {
                let path = files::copy_path(self.path);
                self.problems
                    .push(format!("{} is invalid: {error}", path.display()));
            }
        }
    }

    /// Parses a stored document, and verifies its version.
    fn verified(&mut self, stored: &StoredDocument) -> Result<Revision, String> {
        let revision = stored.revision;
        match stored::verified(&stored.version, &stored.text) {
            Ok(document) => Ok(Revision { revision, document }),
            Err(Unverified::Invalid(error)) => Err(error),
            Err(Unverified::Altered(document)) => {
                let altered = Revision {
                    revision,
                    document: *document,
                };
                self.altered = newer(Some(altered), self.altered.take());
                Err("it was altered: its version differs".to_owned())
            }
        }
    }

    /// The newest document in the database, in the copy, or altered.
    fn best(&mut self, found: Option<Revision>) -> Option<Revision> {
        newer(found, self.copy.take()).or_else(|| self.altered())
    }

    fn altered(&mut self) -> Option<Revision> {
        let altered = self.altered.take()?;
        self.report(&format!(
            "has no intact document: using the altered one of revision {}",
            altered.revision
        ));
        Some(altered)
    }

    fn with_intact(mut self, database: Database) -> OpenedStore {
        let newest = match database.newest() {
            Ok(newest) => newest,
            Err(error) => return self.read_only(error),
        };
        let in_database = self.newest_valid(&database);
        let copy = self.copy.take();
        let document = match (in_database, copy) {
            (None, copy) if newest == 0 => {
                let saved = copy.or_else(|| self.altered());
                if saved.is_some() && self.problems.is_empty() {
                    self.report("has lost all changes: using the copy beside it");
                }
                return self.begin(database, saved, "the first document");
            }
            // A copy newer than the whole database is no successor: the database is a backup.
            (Some(own), Some(copy)) if own.revision < copy.revision && copy.revision <= newest => {
                self.report("has an invalid newest document: using the copy beside it");
                copy.document
            }
            (Some(own), copy) => {
                if let Some(copy) = copy.filter(|copy| copy.revision > newest) {
                    self.report(&format!(
                        "ends with revision {newest}, but revision {} was written: it is from a backup, or has lost changes",
                        copy.revision
                    ));
                }
                own.document
            }
            (None, Some(copy)) => {
                self.report("has no valid document: using the copy beside it");
                copy.document
            }
            (None, None) => match self.altered() {
                Some(altered) => altered.document,
                None => {
                    self.report("has no valid document: using the built-in one");
                    self.first.clone()
                }
            },
        };
        self.finish(Connection::Writable(database), newest, document)
    }

    /// Renames the database, and begins a new one with the newest document found.
    fn with_corrupted(mut self, cause: &StoreError) -> OpenedStore {
        let found = Database::open(self.path, Access::ReadCorrupted).ok();
        let found = found.and_then(|database| self.newest_valid(&database));
        let best = self.best(found);
        let saved = match &best {
            Some(best) => format!("using the document of revision {}", best.revision),
            None => "no document could be read, using the built-in one".to_owned(),
        };
        let new = files::set_aside(self.path, self.at)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupted, error.to_string()))
            .and_then(|aside| {
                self.report(&format!(
                    "was damaged ({cause}) and renamed to {}; {saved}",
                    aside.display()
                ));
                Database::open(self.path, Access::Write)
            });
        match new {
            Ok(database) => self.begin(database, best, "began anew after the database was damaged"),
            Err(error) => {
                self.report(&format!(
                    "is damaged ({cause}) and cannot be replaced: {error}; changes are rejected; {saved}"
                ));
                let document = best.map_or_else(|| self.first.clone(), |best| best.document);
                self.finish(Connection::Unusable(error), 0, document)
            }
        }
    }

    fn read_only(mut self, cause: StoreError) -> OpenedStore {
        let database = [Access::Read, Access::ReadImmutable]
            .into_iter()
            .find_map(|access| Some((access, Database::open(self.path, access).ok()?)));
        let found = database
            .as_ref()
            .and_then(|(_, database)| self.newest_valid(database));
        if database.is_some() {
            if found.is_none() && self.copy.is_some() {
                self.report("has no valid document: using the copy beside it");
            }
            self.read_only = Some(format!(
                "{} is readable, but cannot be written ({cause}): changes will fail until it is \
                 writable and the server is restarted",
                self.path.display()
            ));
        }
        let best = self.best(found);
        match (&best, &database) {
            (Some(_), Some(_)) => {}
            (None, Some(_)) => self.report("has no valid document: using the built-in one"),
            (Some(_), None) => self.report(&format!(
                "cannot be read or written: {cause}; using the copy beside it, and rejecting changes"
            )),
            (None, None) => self.report(&format!(
                "cannot be read or written: {cause}; using the built-in document, and rejecting \
                 changes"
            )),
        }
        let document = best.map_or_else(|| self.first.clone(), |best| best.document);
        let connection = match database {
            Some((Access::ReadImmutable, _)) => Connection::Immutable(cause),
            Some((_, database)) => Connection::ReadOnly(database, cause),
            None => Connection::Unusable(cause),
        };
        self.finish(connection, 0, document)
    }

    /// Appends the first change to an empty database.
    fn begin(self, database: Database, saved: Option<Revision>, change: &str) -> OpenedStore {
        let (revision, document) = match saved {
            Some(saved) => (saved.revision, saved.document),
            None => (0, self.first.clone()),
        };
        let change = NewChange {
            changed_at: self.at,
            changed_by: AUTHOR,
            change,
        };
        let mut opened = self.finish(Connection::Writable(database), 0, document);
        let revision = revision.saturating_add(1);
        let document = &opened.document;
        if let Err(error) = opened.store.append_as(revision, document, &change) {
            let path = opened.store.path.display();
            opened.read_only = Some(format!(
                "{path} cannot be written ({error}): its document is not stored until a change \
                 succeeds"
            ));
        }
        opened
    }

    /// The newest valid document of a database. Reports the invalid ones after it.
    fn newest_valid(&mut self, database: &Database) -> Option<Revision> {
        let mut before = None;
        for _ in 0..MAX_TRIED {
            let stored = match database.newest_document(before) {
                Ok(found) => found?,
                Err(error) => {
                    self.report(&format!("cannot be read: {error}"));
                    return None;
                }
            };
            match self.verified(&stored) {
                Ok(valid) => return Some(valid),
                Err(error) => self.report(&format!(
                    "has an invalid document in revision {}: {error}",
                    stored.revision
                )),
            }
            before = Some(stored.revision);
        }
        None
    }

    fn report(&mut self, problem: &str) {
        self.problems
            .push(format!("{} {problem}", self.path.display()));
    }

    fn finish(self, database: Connection, newest: u64, document: Document) -> OpenedStore {
        OpenedStore {
            store: Store {
                path: self.path.to_owned(),
                database,
                newest,
                _lock: self.lock,
            },
            document,
            problems: self.problems,
            read_only: self.read_only,
        }
    }
}

fn newer(one: Option<Revision>, other: Option<Revision>) -> Option<Revision> {
    one.into_iter().chain(other).max_by_key(|it| it.revision)
}
