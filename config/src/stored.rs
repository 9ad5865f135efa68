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
pub(crate) fn verified(version: &str, text: &str) -> Result<Document, Unverified> {
    let document =
        Document::parse_json(text).map_err(|errors| Unverified::Invalid(errors.to_string()))?;
    if document.version() != version && has_equal_values(&document.to_json(), text) {
        return Err(Unverified::Altered(Box::new(document)));
    }
    Ok(document)
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

/// JSON text as a value in other JSON.
pub(crate) mod json {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
    use serde_json::value::RawValue;

    pub(crate) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(json: D) -> Result<String, D::Error> {
        Ok(Box::<RawValue>::deserialize(json)?.get().to_owned())
    }
}
