//! Which document counts when a store is opened: the newest that is good, wherever it is found.

use std::path::Path;

use super::{
    NewChange, Store,
    database::{Access, Database, Stored},
    error::{OpenError, StoreError, StoreErrorKind},
    files::{self, Copy, Lock},
    foreign,
};
use crate::{
    Document,
    kept::{self, NotAsWritten},
};

/// Who makes the changes that nobody asked for.
const BY: &str = "doorman";

/// How many documents are tried, from the newest on.
const MOST_TRIED: usize = 100;

/// A store, and what it says.
#[derive(Debug)]
pub struct OpenedStore {
    /// The store.
    pub store: Store,
    /// The document that counts.
    pub document: Document,
    /// What went wrong, for operators: a text each. Empty when the document that counts is the newest that was written, and changes can
    /// be made.
    pub problems: Vec<String>,
}

/// A good document, and when it was the newest.
struct Good {
    revision: u64,
    document: Document,
}

/// A start under way.
struct Start<'a> {
    path: &'a Path,
    first: &'a Document,
    at: u64,
    lock: Option<Lock>,
    /// The document last known as good, from beside the database.
    copy: Option<Good>,
    /// The newest document that is not as it was written: better than none.
    changed: Option<Good>,
    faults: Vec<String>,
}

pub(super) fn open(path: &Path, first: &Document, at: u64) -> Result<OpenedStore, OpenError> {
    foreign::check(path)?;
    let lock = Lock::take(path)?;
    let existed = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let mut start = Start {
        path,
        first,
        at,
        lock,
        copy: None,
        changed: None,
        faults: Vec::new(),
    };
    start.read_copy();
    let is_new = !existed && start.copy.is_none() && start.faults.is_empty();
    if !existed && !is_new {
        start.tell("is gone");
    }
    match Database::open(path, Access::Write) {
        Ok(database) => Ok(start.go_on(database)),
        Err(source) if is_new => Err(OpenError::Create {
            path: path.to_owned(),
            source,
        }),
        Err(error) if error.kind() == StoreErrorKind::Corrupted => Ok(start.begin_anew(&error)),
        Err(error) => Ok(start.only_read(error)),
    }
}

impl Start<'_> {
    fn read_copy(&mut self) {
        let copy = match files::read_copy(self.path) {
            Ok(None) => return,
            Ok(Some(copy)) => {
                let Copy {
                    revision,
                    version,
                    document,
                } = copy;
                self.read_back(revision, version.as_deref(), document.get())
            }
            Err(error) => Err(error.to_string()),
        };
        match copy {
            Ok(good) => self.copy = Some(good),
            Err(why) => {
                let copy = files::copy_path(self.path);
                self.faults
                    .push(format!("{} is not good: {why}", copy.display()));
            }
        }
    }

    /// Reads what was written as this version, where one is known.
    ///
    /// # Errors
    /// Why it is not good.
    fn read_back(
        &mut self,
        revision: u64,
        version: Option<&str>,
        text: &str,
    ) -> Result<Good, String> {
        let read = match version {
            Some(version) => kept::read_back(version, text),
            None => kept::read(text),
        };
        let document = match read {
            Ok(document) => return Ok(Good { revision, document }),
            Err(NotAsWritten::NoDocument(why)) => return Err(why),
            Err(NotAsWritten::Changed(document)) => *document,
        };
        let good = Good { revision, document };
        self.changed = newer(Some(good), self.changed.take());
        Err("it is not as it was written: its version is another".to_owned())
    }

    /// The newest good document of those found in the database and beside it, else the newest that can be read at all, which is told: little
    /// of it can be wrong, while the built-in document has nothing of what was written.
    fn best(&mut self, found: Option<Good>) -> Option<Good> {
        newer(found, self.copy.take()).or_else(|| self.as_it_is())
    }

    fn as_it_is(&mut self) -> Option<Good> {
        let changed = self.changed.take()?;
        self.tell(&format!(
            "has no good document: that of revision {} counts as it is",
            changed.revision
        ));
        Some(changed)
    }

    /// With a database that is whole.
    fn go_on(mut self, database: Database) -> OpenedStore {
        let newest = match database.newest() {
            Ok(newest) => newest,
            Err(error) => return self.only_read(error),
        };
        match (self.newest_good(&database), self.copy.take()) {
            // A copy that is newer than the whole database is told below: somebody has put a backup in its place.
            (Some(good), Some(copy))
                if good.revision < copy.revision && copy.revision <= newest =>
            {
                self.tell("has it right in the copy beside it, which counts");
                self.finish(Ok(database), newest, copy.document)
            }
            (Some(good), copy) => {
                if let Some(copy) = copy.filter(|copy| copy.revision > newest) {
                    self.tell(&format!(
                        "ends with revision {newest}, though {} was written once: it is from a backup, or has lost changes",
                        copy.revision
                    ));
                }
                self.finish(Ok(database), newest, good.document)
            }
            // Not of this program's making, or of a later one's: what is there stays as it is.
            (None, Some(copy)) if newest > 0 => {
                self.tell("has no good document: the copy beside it counts");
                self.finish(Ok(database), newest, copy.document)
            }
            (None, None) if newest > 0 => {
                let document = self.as_it_is().map(|changed| changed.document);
                let document = document.unwrap_or_else(|| {
                    self.tell("has no good document: the built-in one counts");
                    self.first.clone()
                });
                self.finish(Ok(database), newest, document)
            }
            (None, copy) => {
                let copy = copy.or_else(|| self.as_it_is());
                if copy.is_some() && self.faults.is_empty() {
                    self.tell("has lost all changes: the copy beside it counts");
                }
                self.begin(database, copy, "the first document")
            }
        }
    }

    /// With a database that is damaged: it goes aside, and a fresh one begins with what can be saved.
    fn begin_anew(mut self, why: &StoreError) -> OpenedStore {
        let found = Database::open(self.path, Access::ReadDamaged).ok();
        let found = found.and_then(|database| self.newest_good(&database));
        let best = self.best(found);
        let saved = match &best {
            Some(good) => format!("the document of its revision {} goes on", good.revision),
            None => "no document could be saved from it, and the built-in one counts".to_owned(),
        };
        let fresh = files::set_aside(self.path, self.at)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupted, error.to_string()))
            .and_then(|aside| {
                self.tell(&format!(
                    "was damaged ({why}) and is kept as {}; {saved}",
                    aside.display()
                ));
                Database::open(self.path, Access::Write)
            });
        match fresh {
            Ok(database) => self.begin(database, best, "began anew after the database was damaged"),
            Err(error) => {
                self.tell(&format!(
                    "is damaged ({why}), and changes are refused: {error}; {saved}"
                ));
                let document = best.map_or_else(|| self.first.clone(), |good| good.document);
                self.finish(Err(error), 0, document)
            }
        }
    }

    /// With a database that cannot be written, now or at all.
    fn only_read(mut self, why: StoreError) -> OpenedStore {
        let found = [Access::Read, Access::ReadFrozen]
            .into_iter()
            .find_map(|access| Database::open(self.path, access).ok());
        let found = found.and_then(|database| self.newest_good(&database));
        let best = self.best(found);
        self.tell(&format!(
            "cannot be written, so that changes are refused until the next start: {why}"
        ));
        if best.is_none() {
            self.tell("cannot be read either: the built-in document counts");
        }
        let document = best.map_or_else(|| self.first.clone(), |good| good.document);
        self.finish(Err(why), 0, document)
    }

    /// Begins with a database in which nothing is.
    fn begin(self, database: Database, good: Option<Good>, what: &str) -> OpenedStore {
        let (revision, document) = match good {
            Some(Good { revision, document }) => (revision, document),
            None => (0, self.first.clone()),
        };
        let change = NewChange {
            changed_at: self.at,
            changed_by: BY,
            change: what,
        };
        let mut opened = self.finish(Ok(database), 0, document);
        let revision = revision.saturating_add(1);
        let document = &opened.document;
        if let Err(error) = opened.store.append_as(revision, document, &change) {
            let path = opened.store.path.display();
            opened
                .problems
                .push(format!("{path} cannot be begun: {error}"));
        }
        opened
    }

    /// The newest document that is good; what is wrong with those after it is told.
    fn newest_good(&mut self, database: &Database) -> Option<Good> {
        let mut before = None;
        for _ in 0..MOST_TRIED {
            match database.newest_document(before) {
                Ok(None) => return None,
                Ok(Some(Stored {
                    revision,
                    version,
                    text,
                })) => match self.read_back(revision, Some(&version), &text) {
                    Ok(good) => return Some(good),
                    Err(why) => {
                        self.tell(&format!(
                            "has a wrong document in revision {revision}, which does not count: {why}"
                        ));
                        before = Some(revision);
                    }
                },
                Err(error) => {
                    self.tell(&format!("cannot be read: {error}"));
                    return None;
                }
            }
        }
        None
    }

    fn tell(&mut self, what: &str) {
        self.faults.push(format!("{} {what}", self.path.display()));
    }

    fn finish(
        self,
        database: Result<Database, StoreError>,
        newest: u64,
        document: Document,
    ) -> OpenedStore {
        OpenedStore {
            store: Store {
                path: self.path.to_owned(),
                database,
                newest,
                _lock: self.lock,
            },
            document,
            problems: self.faults,
        }
    }
}

fn newer(one: Option<Good>, other: Option<Good>) -> Option<Good> {
    one.into_iter()
        .chain(other)
        .max_by_key(|good| good.revision)
}
