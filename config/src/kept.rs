//! Documents that are kept in files: written whole or not at all, and read back as they were written or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::Document;

/// Why a text does not count as what was written.
pub(crate) enum NotAsWritten {
    /// It is no document: what is wrong with it.
    NoDocument(String),
    /// It is a document, and another than the one that was written.
    Changed(Box<Document>),
}

/// Reads what was written as this version. Where the text says what this program would write, the version is what it would give, too: else
/// something has changed in it, be it one bit. Other releases may have written the same with other fields, under another version.
///
/// What the texts say is compared, not their letters: where a bit has changed, the text may be one that nobody would have written, as `1.00`
/// instead of `1.01`.
///
/// # Errors
/// [`NotAsWritten`]
pub(crate) fn read_back(version: &str, text: &str) -> Result<Document, NotAsWritten> {
    let document = read(text)?;
    if document.version() != version && says_the_same(&document.to_json(), text) {
        return Err(NotAsWritten::Changed(Box::new(document)));
    }
    Ok(document)
}

/// Reads what was written without a version.
///
/// # Errors
/// [`NotAsWritten::NoDocument`]
pub(crate) fn read(text: &str) -> Result<Document, NotAsWritten> {
    Document::parse_json(text).map_err(|faults| NotAsWritten::NoDocument(faults.to_string()))
}

fn says_the_same(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(serde_json::from_str::<Value>);
    one.ok() == other.ok()
}

/// Puts a file in the place of another: it is the old one or the new one, whenever the power fails.
///
/// # Errors
/// When it cannot be written; the old one is there then.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder(path))?.sync_all()
}

/// The path of the same name with an ending.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// The folder that a file lies in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
