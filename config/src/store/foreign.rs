//! Whether what lies at a path is a store at all: a slip in a path must not cost what lies there.
//!
//! A damaged store is set aside and begun anew, so what is not a store must be told from it before anything is touched. Where our lock or our
//! copy lies beside it, it was one.

use std::{fs::File, io::Read, path::Path};

use rusqlite::{Connection, OpenFlags};

use super::{
    database::{APPLICATION_ID, frozen_uri},
    error::OpenError,
    files::{copy_path, lock_path},
};

/// How every database of SQLite begins: <https://www.sqlite.org/fileformat.html>, section 1.3.
const BEGINNING: &[u8; 16] = b"SQLite format 3\0";

/// Checks that a store is there, in whatever state, or nothing. Touches nothing.
///
/// # Errors
/// [`OpenError::Foreign`] when it is something else.
pub(super) fn check(path: &Path) -> Result<(), OpenError> {
    let is_known = lock_path(path).exists() || copy_path(path).exists();
    match what(path) {
        Some(what) if !is_known => Err(OpenError::Foreign {
            path: path.to_owned(),
            what,
        }),
        _ => Ok(()),
    }
}

/// What is there, if that is surely no store.
fn what(path: &Path) -> Option<&'static str> {
    let metadata = path.metadata().ok()?;
    if metadata.is_dir() {
        return Some("it is a folder");
    }
    if metadata.len() == 0 {
        return None;
    }
    let mut beginning = Vec::with_capacity(BEGINNING.len());
    let file = File::open(path).ok()?;
    let read = file
        .take(BEGINNING.len() as u64)
        .read_to_end(&mut beginning);
    read.ok()?;
    if beginning != BEGINNING {
        return Some("it is no database; a document in YAML or JSON is named as file:PATH");
    }
    is_of_others(path)
        .unwrap_or(false)
        .then_some("it is the database of another program")
}

/// Whether a database has what is not ours. One without a mark may have been made of ours by other tools, which do not all keep it.
fn is_of_others(path: &Path) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(frozen_uri(path), flags)?;
    let mark: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if mark == APPLICATION_ID {
        return Ok(false);
    }
    let ours = "SELECT count(*), count(*) FILTER (WHERE name = 'changes') FROM sqlite_schema WHERE type = 'table'";
    let (tables, ours): (u32, u32) =
        connection.query_row(ours, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(mark != 0 || (tables > 0 && ours == 0))
}
