//! Documents in files: written atomically, and verified when read.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::Document;

/// A stored text is not the document that was written.
pub(crate) enum Unverified {
    /// The text is not a valid document.
    Invalid(String),
    /// The text is a valid document, but not of this version.
    Altered(Box<Document>),
}

/// Parses a stored document, and compares its version to detect corruption of a single bit.
///
/// Another release may have written other fields, and so another version. The version is decisive
/// only if this release would write the same values. Values are compared, not their text:
/// corruption may turn `1.01` into `1.00`.
///
/// # Errors
/// [`Unverified`]
pub(crate) fn verified(version: &str, text: &str) -> Result<Document, Unverified> {
    let document = parse(text)?;
    let is_verified = document.version() == version || document.early_version() == version;
    if !is_verified && has_equal_values(&document.to_json(), text) {
        return Err(Unverified::Altered(Box::new(document)));
    }
    Ok(document)
}

/// Parses a document that was stored without a version.
///
/// # Errors
/// [`Unverified::Invalid`]
pub(crate) fn parse(text: &str) -> Result<Document, Unverified> {
    Document::parse_json(text).map_err(|errors| Unverified::Invalid(errors.to_string()))
}

fn has_equal_values(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(serde_json::from_str::<Value>);
    one.ok() == other.ok()
}

/// Replaces a file atomically and durably.
///
/// # Errors
/// When it cannot be written; the old file remains.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(parent(path))?.sync_all()
}

/// The path with a suffix.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The directory of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
