//! The last valid document of a source, for a start that finds it invalid or cannot reach it.

use std::{
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Document, stored};

/// A file in the data directory with the last valid document of a source that others change.
///
/// A running server rejects an invalid edit. Without this file a crash after such an edit would be
/// an outage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGoodFile {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    /// The name of the source: another source must not use the document.
    file: String,
    version: String,
    #[serde(with = "stored::json")]
    document: String,
}

impl LastGoodFile {
    /// `file.last-good.json` in a directory.
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            path: dir.join("file.last-good.json"),
        }
    }

    /// The document saved for a source; `None` if there is none, or it was altered. Blocks on the
    /// file system.
    #[must_use]
    pub fn load(&self, source: &impl Display) -> Option<Document> {
        let content: Content = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        if content.file != source.to_string() {
            return None;
        }
        stored::verified(&content.version, &content.document).ok()
    }

    /// Saves the document of a source. Blocks on the file system.
    ///
    /// # Errors
    /// When it cannot be written; the saved document is unchanged.
    pub fn save(&self, source: &impl Display, document: &Document) -> io::Result<()> {
        let content = serde_json::to_vec(&Content {
            file: source.to_string(),
            version: document.version().to_owned(),
            document: document.to_json(),
        })?;
        stored::replace(&self.path, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSource;

    #[test]
    fn saved_document_is_loaded_for_its_file_only() {
        let home = tempfile::tempdir().unwrap();
        let last_good = LastGoodFile::in_dir(home.path());
        let (file, other) = (FileSource::new("a.yaml"), FileSource::new("b.yaml"));
        assert_eq!(last_good.load(&file), None);
        let document = Document::built_in();
        last_good.save(&file, &document).unwrap();
        assert_eq!(last_good.load(&file), Some(document));
        assert_eq!(last_good.load(&other), None);

        let path = home.path().join("file.last-good.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("1000", "9000")).unwrap();
        assert_eq!(last_good.load(&file), None, "one digit was changed");
        fs::write(&path, "{}").unwrap();
        assert_eq!(last_good.load(&file), None);
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let home = tempfile::tempdir().unwrap();
        let last_good = LastGoodFile::in_dir(home.path());
        let file = FileSource::new("a.yaml");
        let document = Document::parse(
            r#"
            resources:
            - {identifier_glob: "a/*", capacity: 1.01, safe_capacity: -1, algorithm: {kind: STATIC}}
            - {identifier_glob: many, capacity: 1.5e-7, algorithm: {kind: STATIC}}
            - {identifier_glob: "*", capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 2}}
            rules:
            - {name: one, service: orders, resource: many, priority: 10, on_limit: {action: delay, max_delay: 0.5}}
            "#,
        )
        .unwrap();
        last_good.save(&file, &document).unwrap();
        let path = home.path().join("file.last-good.json");
        let whole = fs::read(&path).unwrap();
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let found = last_good.load(&file);
            assert!(
                found.is_none_or(|it| it.to_json() == document.to_json()),
                "{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
