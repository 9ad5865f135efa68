//! The files of a store: lock file, copy of the newest document, corrupted databases, and what is
//! not a store.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    FORMAT,
    database::{APPLICATION_ID, StoredDocument, format_of_file, open_immutable},
    error::OpenError,
};
use crate::stored::{self, parent, with_suffix};

fn lock_path(path: &Path) -> PathBuf {
    with_suffix(path, ".lock")
}

/// Excludes other writers until it is dropped, or the process ends. SQLite's own locks last for one
/// transaction.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Locks a store; `None` if its directory is not writable, so that nobody writes.
    pub(super) fn take(path: &Path) -> Result<Option<Self>, OpenError> {
        // Never removed: a file created anew would be another lock.
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock_path(path));
        let io_error = |source| OpenError::Io(path.to_owned(), source);
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                let is_unwritable = matches!(
                    error.kind(),
                    io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::PermissionDenied
                        | io::ErrorKind::StorageFull
                );
                return if is_unwritable && path.exists() {
                    Ok(None)
                } else {
                    Err(io_error(error))
                };
            }
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(io_error(error)),
        }
    }
}

/// The path of the copy of the newest document, in case the database is lost.
pub(super) fn copy_path(path: &Path) -> PathBuf {
    with_suffix(path, ".last-good.json")
}

/// Reads the copy; `None` if there is none.
pub(super) fn read_copy(path: &Path) -> io::Result<Option<StoredDocument>> {
    match fs::read(copy_path(path)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn write_copy(path: &Path, copy: &StoredDocument) -> io::Result<()> {
    stored::replace(&copy_path(path), &serde_json::to_vec(copy)?)
}

/// Renames a corrupted database and its files. Returns the new path.
pub(super) fn set_aside(path: &Path, at: u64) -> io::Result<PathBuf> {
    let unused = |n: usize| {
        let suffix = format!(".corrupted-{at}{}", ".again".repeat(n));
        Some(with_suffix(path, &suffix)).filter(|name| !name.exists())
    };
    let aside = (0..8).find_map(unused).ok_or_else(|| {
        io::Error::new(io::ErrorKind::AlreadyExists, "too many corrupted databases")
    })?;
    // First, since a new database would use them.
    for suffix in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &aside)?;
    File::open(parent(path))?.sync_all()?;
    Ok(aside)
}

/// The header of an SQLite database: <https://www.sqlite.org/fileformat.html>, section 1.3.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Rejects a path that is not a store, before anything is touched: a corrupted store would be
/// renamed. A path with a lock file or a copy beside it is a store.
pub(super) fn reject_foreign(path: &Path) -> Result<(), OpenError> {
    if lock_path(path).exists() || copy_path(path).exists() {
        return Ok(());
    }
    match foreign(path) {
        Some(what) => Err(OpenError::Foreign(path.to_owned(), what)),
        None => Ok(()),
    }
}

/// Rejects a store of a later release, before anything is touched.
pub(super) fn reject_newer(path: &Path) -> Result<(), OpenError> {
    match format_of_file(path) {
        Some(format) if format > FORMAT => Err(OpenError::Newer(path.to_owned(), format)),
        _ => Ok(()),
    }
}

fn foreign(path: &Path) -> Option<&'static str> {
    let metadata = path.metadata().ok()?;
    if metadata.is_dir() {
        return Some("it is a folder");
    }
    if metadata.len() == 0 {
        return None;
    }
    let mut header = Vec::with_capacity(SQLITE_HEADER.len());
    let file = File::open(path).ok()?;
    let read = file
        .take(SQLITE_HEADER.len() as u64)
        .read_to_end(&mut header);
    read.ok()?;
    if header != SQLITE_HEADER {
        return Some("it is not a database; use file:PATH for a document in YAML or JSON");
    }
    is_of_another_program(path)
        .unwrap_or(false)
        .then_some("it is the database of another program")
}

/// A database without an application id may be ours: not all tools copy it.
fn is_of_another_program(path: &Path) -> rusqlite::Result<bool> {
    let connection = open_immutable(path)?;
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id == APPLICATION_ID {
        return Ok(false);
    }
    let count = "SELECT count(*), count(*) FILTER (WHERE name = 'changes') FROM sqlite_schema WHERE type = 'table'";
    let (tables, ours): (u32, u32) =
        connection.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(id != 0 || (tables > 0 && ours == 0))
}
