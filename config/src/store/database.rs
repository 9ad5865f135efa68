//! The database: one table with a row per change.
//!
//! Each row has a whole document. No change can be applied in part, every revision can be restored,
//! and the table is readable with a database shell.

use std::{
    fs,
    ops::RangeInclusive,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_openapi::PastChange;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, TransactionBehavior, params, types::ValueRef,
};
use serde::{Deserialize, Serialize};

use super::{
    FORMAT, NewChange,
    error::{StoreError, StoreErrorKind},
};
use crate::stored;

/// How long a write waits for the lock of another program.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The most changes that are retained.
const MAX_CHANGES: u64 = 10_000;

/// The most bytes of documents that are retained; older changes keep their other columns.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// SQLite's id of the program that owns the file: "door" in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x646f_6f72;

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

/// Device and inode.
type FileId = (u64, u64);

/// A document as stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredDocument {
    pub(super) revision: u64,
    /// The version when it was written.
    pub(super) version: String,
    #[serde(rename = "document", with = "stored::json")]
    pub(super) text: String,
}

/// How to open a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read and write; create it if it is absent.
    Write,
    /// Read beside a writer.
    Read,
    /// Read without an integrity check.
    ReadCorrupted,
    /// Read from a read-only file system: without lock and write-ahead log. Changes that only the
    /// log has are missing, and changes made later are not noticed.
    ReadImmutable,
}

impl Database {
    /// Opens a database, and checks its integrity.
    pub(super) fn open(path: &Path, access: Access) -> Result<Self, StoreError> {
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match access {
            Access::Write => {
                flags |= OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
                Connection::open_with_flags(path, flags)?
            }
            Access::Read | Access::ReadCorrupted => {
                flags |= OpenFlags::SQLITE_OPEN_READ_ONLY;
                Connection::open_with_flags(path, flags)?
            }
            Access::ReadImmutable => open_immutable(path)?,
        };
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        // SQLite opens a read-only file without an error.
        if access == Access::Write && connection.is_readonly("main")? {
            let detail = "no write permission";
            return Err(StoreError::new(StoreErrorKind::ReadOnly, detail));
        }
        if access != Access::ReadCorrupted {
            reject_newer(&connection)?;
        }
        if access == Access::Write {
            // A committed write is durable, and readers do not block writers.
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            create_tables(&connection)?;
        }
        if access != Access::ReadCorrupted {
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
    ) -> Result<Option<StoredDocument>, StoreError> {
        self.stored_document(
            "SELECT revision, version, document FROM changes WHERE revision < ?1 AND document IS NOT NULL \
             ORDER BY revision DESC LIMIT 1",
            before.map_or(i64::MAX, signed),
        )
    }

    /// The document of a revision; `None` if there is none, or it is no longer retained.
    pub(super) fn document(&self, revision: u64) -> Result<Option<StoredDocument>, StoreError> {
        self.stored_document(
            "SELECT revision, version, document FROM changes WHERE revision = ?1 AND document IS NOT NULL",
            signed(revision),
        )
    }

    fn stored_document(
        &self,
        query: &str,
        revision: i64,
    ) -> Result<Option<StoredDocument>, StoreError> {
        let found = self.connection.query_row(query, [revision], |row| {
            Ok(StoredDocument {
                revision: unsigned(row.get(0)?),
                version: lossy(row.get_ref(1)?)?,
                text: lossy(row.get_ref(2)?)?,
            })
        });
        Ok(found.optional()?)
    }

    /// The oldest and the newest revision whose document is retained.
    pub(super) fn retained(&self) -> Result<Option<RangeInclusive<u64>>, StoreError> {
        let (oldest, newest): (Option<i64>, Option<i64>) = self.connection.query_row(
            "SELECT min(revision), max(revision) FROM changes WHERE document IS NOT NULL",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(oldest
            .zip(newest)
            .map(|(oldest, newest)| unsigned(oldest)..=unsigned(newest)))
    }

    /// The newest revision; 0 when there is none.
    pub(super) fn newest(&self) -> Result<u64, StoreError> {
        newest(&self.connection)
    }

    /// Writes a change durably. `expected` is the newest revision that the caller knows.
    pub(super) fn append(
        &mut self,
        document: &StoredDocument,
        expected: u64,
        change: &NewChange<'_>,
    ) -> Result<(), StoreError> {
        let StoredDocument {
            revision,
            version,
            text,
        } = document;
        if file_id(&self.path)? != self.file {
            return Err(StoreError::new(
                StoreErrorKind::Foreign,
                "the file was replaced",
            ));
        }
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let newest = newest(&transaction)?;
        if newest != expected {
            return Err(StoreError::new(
                StoreErrorKind::Foreign,
                format!("its newest revision is {newest}, not {expected}"),
            ));
        }
        transaction.execute(
            "INSERT INTO changes (revision, changed_at, changed_by, change, version, bytes, document) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                signed(*revision),
                signed(change.changed_at),
                change.changed_by,
                change.change,
                version,
                i64::try_from(text.len()).unwrap_or(i64::MAX),
                text
            ],
        )?;
        evict(&transaction, *revision)?;
        let committed = transaction.commit();
        self.checkpoint(match committed {
            // The main file is then complete, for tools that copy only it.
            Ok(()) => "PASSIVE",
            // The failed write must not reappear when the log is replayed after a crash.
            Err(_) => "TRUNCATE",
        });
        Ok(committed?)
    }

    /// Best effort.
    fn checkpoint(&self, mode: &str) {
        let statement = format!("PRAGMA wal_checkpoint({mode})");
        drop(self.connection.query_row(&statement, [], |_| Ok(())));
    }

    /// Simulates a full disk.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: u32) {
        let limited =
            self.connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        limited.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Changes, newest first.
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
}

/// Corrupted text need not be UTF-8. Its version will differ, and an older document is used.
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

fn reject_newer(connection: &Connection) -> Result<(), StoreError> {
    match format(connection)? {
        format if format > FORMAT => Err(StoreError::new(StoreErrorKind::Newer(format), "")),
        _ => Ok(()),
    }
}

fn format(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The format in the main file of a database, read without touching any file; `None` if it cannot
/// be read.
pub(super) fn format_of_file(path: &Path) -> Option<i32> {
    let connection = open_immutable(path).ok()?;
    format(&connection).ok()
}

/// Opens a database without locks and write-ahead log, which touches no file.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(immutable_uri(path), flags)
}

fn create_tables(connection: &Connection) -> Result<(), StoreError> {
    if format(connection)? == FORMAT {
        return Ok(());
    }
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
    ))?;
    Ok(())
}

fn newest(connection: &Connection) -> Result<u64, StoreError> {
    let newest: Option<i64> =
        connection.query_row("SELECT max(revision) FROM changes", [], |row| row.get(0))?;
    Ok(newest.map_or(0, unsigned))
}

/// Evicts the oldest change of the author with the most changes, so that no author can evict the
/// changes of others.
fn evict(connection: &Connection, newest: u64) -> Result<(), StoreError> {
    let count: i64 = connection.query_row("SELECT count(*) FROM changes", [], |row| row.get(0))?;
    for _ in MAX_CHANGES..unsigned(count) {
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
        [signed(MAX_BYTES)],
    )?;
    Ok(())
}

fn file_id(path: &Path) -> Result<FileId, StoreError> {
    let metadata = fs::metadata(path)
        .map_err(|error| StoreError::new(StoreErrorKind::Foreign, error.to_string()))?;
    Ok((metadata.dev(), metadata.ino()))
}

fn immutable_uri(path: &Path) -> String {
    let path = path.to_string_lossy();
    let path = path
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("file:{path}?immutable=1")
}

/// SQLite integers are signed. Revisions and times stay in range.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
