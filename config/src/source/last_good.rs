//! What a file said when it was last good, kept elsewhere: when the file has a fault at a start, that counts.
//!
//! While a server runs, a bad edit is refused. Were a start to fail for it, a crash would make an outage of it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::FileSource;
use crate::{Document, kept};

/// Where it is kept what a file said when it was last good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGoodFile {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The path of the file, as it was named: of another one it says nothing.
    file: String,
    version: String,
    document: Box<RawValue>,
}

impl LastGoodFile {
    /// In this folder, as `file.last-good.json`.
    #[must_use]
    pub fn in_dir(folder: &Path) -> Self {
        Self {
            path: folder.join("file.last-good.json"),
        }
    }

    /// What the file said; `None` when that is not kept, or not as it was written. Blocks on the file system.
    #[must_use]
    pub fn load(&self, file: &FileSource) -> Option<Document> {
        let kept: Kept = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        if kept.file != file.to_string() {
            return None;
        }
        kept::read_back(&kept.version, kept.document.get()).ok()
    }

    /// Keeps what the file says now. Blocks on the file system.
    ///
    /// # Errors
    /// When it cannot be written; what was kept before is kept on.
    pub fn save(&self, file: &FileSource, document: &Document) -> io::Result<()> {
        let text = serde_json::to_vec(&Kept {
            file: file.to_string(),
            version: document.version().to_owned(),
            document: RawValue::from_string(document.to_json())?,
        })?;
        kept::replace(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_said_is_found_as_it_was_written_and_for_no_other_file() {
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
        assert_eq!(last_good.load(&file), None, "one digit is another");
        fs::write(&path, "{}").unwrap();
        assert_eq!(last_good.load(&file), None);
    }

    #[test]
    fn no_bit_of_what_is_kept_changes_unseen() {
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
