//! Documents that are kept in files: written whole or not at all, and read back as they were written or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::Document;

/// Reads what was written as this version. Where the text is what this program would write, the version is what it would give, too: else
/// something has changed in it, be it one bit. Other releases may have written the same in another form, with another version.
///
/// # Errors
/// Why it is no good document.
pub(crate) fn read_back(version: &str, text: &str) -> Result<Document, String> {
    let document = Document::parse_json(text).map_err(|faults| faults.to_string())?;
    if document.version() != version && document.to_json() == text {
        return Err(format!(
            "it has changed since it was written as version {version}"
        ));
    }
    Ok(document)
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
