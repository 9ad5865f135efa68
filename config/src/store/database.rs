//! The database: one table, a row a change, each with the whole document as it was then.
//!
//! Whole documents, because no half of one can then be applied, any of them can be gone back to, and a person with a database shell sees
//! what was in force when.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_openapi::PastChange;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, TransactionBehavior, params, types::ValueRef,
};

use super::{
    NewChange,
    error::{StoreError, StoreErrorKind},
};

/// How long a write waits for another program to let go of the database.
const BUSY: Duration = Duration::from_secs(2);

/// The most changes that are remembered, of all who make them together.
const MOST_CHANGES: u64 = 10_000;

/// The most bytes of documents that are kept of past changes; of older ones only who changed what, and when.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Marks the file as ours (`file` and the like tell): "door" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x646f_6f72;

/// The form of the tables.
const FORM: i32 = 1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS changes (
    revision   INTEGER PRIMARY KEY,
    changed_at INTEGER NOT NULL,  -- Unix seconds
    changed_by TEXT NOT NULL,
    change     TEXT NOT NULL,
    version    TEXT NOT NULL,     -- of the document, as in its ETag
    bytes      INTEGER NOT NULL,  -- of the document
    document   TEXT               -- JSON; null in old changes
) STRICT;
";

/// A connection to a database that exists.
#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    file: FileId,
}

/// What tells a file from another that has taken its name.
type FileId = (u64, u64);

/// A document as it lies in the database.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) revision: u64,
    /// What it was when it was written.
    pub(super) version: String,
    pub(super) text: String,
}

/// How to open a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// To write, and to make it when it is absent.
    Write,
    /// To read beside a writer.
    Read,
    /// To read what can still be read.
    ReadDamaged,
    /// To read what nobody can write: without the files beside it, and without what was not yet taken over from them.
    ReadFrozen,
}

impl Database {
    /// Opens a database, and checks that it is whole.
    pub(super) fn open(path: &Path, access: Access) -> Result<Self, StoreError> {
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match access {
            Access::Write => {
                flags |= OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
                Connection::open_with_flags(path, flags)?
            }
            Access::Read | Access::ReadDamaged => {
                flags |= OpenFlags::SQLITE_OPEN_READ_ONLY;
                Connection::open_with_flags(path, flags)?
            }
            Access::ReadFrozen => {
                flags |= OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(frozen_uri(path), flags)?
            }
        };
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        if access == Access::Write {
            // Where it may not be written, it is opened all the same.
            if connection.is_readonly("main")? {
                return Err(StoreError::new(
                    StoreErrorKind::ReadOnly,
                    "it may only be read",
                ));
            }
            // An acknowledged write is safe on the disk, and readers hold up nobody.
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            make_tables(&connection)?;
        }
        if access != Access::ReadDamaged {
            check(&connection)?;
        }
        Ok(Self {
            connection,
            file: file_id(path)?,
            path: path.to_owned(),
        })
    }

    /// The newest document before a revision.
    pub(super) fn newest_document(
        &self,
        before: Option<u64>,
    ) -> Result<Option<Stored>, StoreError> {
        let before = before.map_or(i64::MAX, signed);
        let found = self
            .connection
            .query_row(
                "SELECT revision, version, document FROM changes WHERE revision < ?1 AND document IS NOT NULL \
                 ORDER BY revision DESC LIMIT 1",
                [before],
                |row| {
                    Ok(Stored {
                        revision: unsigned(row.get(0)?),
                        version: lossy(row.get_ref(1)?)?,
                        text: lossy(row.get_ref(2)?)?,
                    })
                },
            )
            .optional()?;
        Ok(found)
    }

    /// The newest revision; 0 when there is none.
    pub(super) fn newest(&self) -> Result<u64, StoreError> {
        newest(&self.connection)
    }

    /// Writes a change; when this returns, it is safe on the disk. `expected` is the newest revision that the caller knows of.
    pub(super) fn append(
        &mut self,
        revision: u64,
        expected: u64,
        change: &NewChange<'_>,
        version: &str,
        document: &str,
    ) -> Result<(), StoreError> {
        if file_id(&self.path)? != self.file {
            return Err(StoreError::new(
                StoreErrorKind::Foreign,
                "another file has its name",
            ));
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let newest = newest(&transaction)?;
        if newest != expected {
            return Err(StoreError::new(
                StoreErrorKind::Foreign,
                format!("its newest revision is {newest}, and not {expected}"),
            ));
        }
        transaction.execute(
            "INSERT INTO changes (revision, changed_at, changed_by, change, version, bytes, document) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                signed(revision),
                signed(change.changed_at),
                change.changed_by,
                change.change,
                version,
                i64::try_from(document.len()).unwrap_or(i64::MAX),
                document
            ],
        )?;
        forget(&transaction, revision)?;
        let committed = transaction.commit();
        self.settle(match committed {
            // The file by itself is then all there is, for who copies it; when that must wait, nothing is lost.
            Ok(()) => "PASSIVE",
            // What was written of it must not come back when the log is read again after a crash.
            Err(_) => "TRUNCATE",
        });
        Ok(committed?)
    }

    /// Takes over what is in the log, as well as it can be done.
    fn settle(&self, how: &str) {
        let statement = format!("PRAGMA wal_checkpoint({how})");
        drop(self.connection.query_row(&statement, [], |_| Ok(())));
    }

    /// Lets the database grow no further, as a full disk would.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u32) {
        let limited =
            self.connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        limited.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Past changes, the newest first.
    pub(super) fn history(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<PastChange>, StoreError> {
        let before = before.map_or(i64::MAX, signed);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = self.connection.prepare(
            "SELECT revision, changed_at, changed_by, change, version FROM changes WHERE revision < ?1 \
             ORDER BY revision DESC LIMIT ?2",
        )?;
        let rows = statement.query_map([before, limit], |row| {
            Ok(PastChange {
                revision: unsigned(row.get(0)?),
                changed_at: unsigned(row.get(1)?),
                changed_by: row.get(2)?,
                change: row.get(3)?,
                version: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What the document of a revision says; `None` when it is not kept, or there never was one.
    pub(super) fn document(&self, revision: u64) -> Result<Option<String>, StoreError> {
        let found = self.connection.query_row(
            "SELECT document FROM changes WHERE revision = ?1",
            [signed(revision)],
            |row| row.get(0),
        );
        Ok(found.optional()?.flatten())
    }
}

/// Where a text is no UTF-8 any more, it is not what was written either: that is told of it, and an older document is found.
fn lossy(text: ValueRef<'_>) -> rusqlite::Result<String> {
    Ok(String::from_utf8_lossy(text.as_bytes()?).into_owned())
}

fn check(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::new(StoreErrorKind::Corrupted, found)),
    }
}

fn make_tables(connection: &Connection) -> Result<(), StoreError> {
    let form: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match form {
        FORM => return Ok(()),
        0 => {}
        newer => {
            return Err(StoreError::new(
                StoreErrorKind::Other,
                format!("its tables have form {newer}, and this program knows {FORM}"),
            ));
        }
    }
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORM}; COMMIT;"
    ))?;
    Ok(())
}

fn newest(connection: &Connection) -> Result<u64, StoreError> {
    let newest: Option<i64> =
        connection.query_row("SELECT max(revision) FROM changes", [], |row| row.get(0))?;
    Ok(newest.map_or(0, unsigned))
}

/// Restrictions what is kept of the past. Where there is no room for all, the oldest change goes of whoever has made the most: so nobody
/// alone pushes out what others have done, however much they do.
fn forget(connection: &Connection, newest: u64) -> Result<(), StoreError> {
    let count: i64 = connection.query_row("SELECT count(*) FROM changes", [], |row| row.get(0))?;
    for _ in MOST_CHANGES..unsigned(count) {
        connection.execute(
            "DELETE FROM changes WHERE revision = ( \
                SELECT min(revision) FROM changes WHERE revision < ?1 AND changed_by = ( \
                    SELECT changed_by FROM changes WHERE revision < ?1 \
                    GROUP BY changed_by ORDER BY count(*) DESC, min(revision) LIMIT 1))",
            [signed(newest)],
        )?;
    }
    connection.execute(
        "UPDATE changes SET document = NULL WHERE document IS NOT NULL AND revision < ( \
            SELECT min(revision) FROM ( \
                SELECT revision, sum(bytes) OVER (ORDER BY revision DESC) AS total \
                FROM changes WHERE document IS NOT NULL \
            ) WHERE total <= ?1)",
        [signed(MOST_BYTES)],
    )?;
    Ok(())
}

fn file_id(path: &Path) -> Result<FileId, StoreError> {
    let metadata = fs::metadata(path)
        .map_err(|error| StoreError::new(StoreErrorKind::Foreign, error.to_string()))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The address of a database that SQLite is told not to lock. What a URI gives a meaning of its own is encoded.
pub(super) fn frozen_uri(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// Revisions and times fit: they count from 0, and would take longer than the sun has to leave the range.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
