use std::{error::Error, fs, path::PathBuf};

use tempfile::TempDir;

use super::{FileSource, Source};
use crate::MAX_DOCUMENT_BYTES;

/// A file in a directory that is gone after the test.
fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.yaml");
    fs::write(&path, content).unwrap();
    (directory, path)
}

#[test]
fn names_of_sources() {
    for text in ["file:limits: 1.yaml", "sqlite:data/doorman.db"] {
        assert_eq!(Source::parse(text).unwrap().to_string(), text);
    }
    let unknown = "must be sqlite:PATH or file:PATH, such as file:limits.yaml";
    for (text, message) in [
        (
            "etcd:/doorman",
            "sources of the kind `etcd:` are not yet supported; use sqlite:PATH or file:PATH",
        ),
        ("limits.yaml", unknown),
        ("file:", unknown),
        ("sqlite:", unknown),
        ("http://example", unknown),
        ("", unknown),
    ] {
        assert_eq!(
            Source::parse(text).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

#[test]
fn loads_what_the_file_says_now() {
    let (_directory, path) = file(b"resources: []");
    let source = FileSource::new(&path);
    assert_eq!(source.load().unwrap().templates().len(), 0);
    let json =
        br#"{"resources": [{"identifier_glob": "a", "capacity": 1, "algorithm": {"kind": 0}}]}"#;
    fs::write(&path, json).unwrap();
    assert_eq!(source.load().unwrap().templates().len(), 1);
}

#[test]
fn leads_every_fault_by_the_name_of_the_file() {
    let (_directory, path) = file(b"resources: {}\nrules: {}\n");
    let error = FileSource::new(&path).load().unwrap_err();
    let name = path.display();
    assert_eq!(
        error.to_string().lines().collect::<Vec<_>>(),
        [
            format!("{name}:1:12: resources: must be a list of templates, not a map"),
            format!("{name}:2:8: rules: must be a list of rules, not a map"),
        ]
    );
    assert_eq!(error.faults().unwrap().list().len(), 2);
    assert!(error.source().is_none());
}

#[test]
fn says_why_a_file_cannot_be_read() {
    let error = FileSource::new("/nowhere/limits.yaml").load().unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/limits.yaml: cannot be read");
    assert!(error.source().is_some() && error.faults().is_none());

    let (_directory, path) = file("resources: []\n# ein Büro, caf\u{e9}\n".as_bytes());
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 2);
    fs::write(&path, bytes).unwrap();
    let error = FileSource::new(&path).load().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}:2:16: must be UTF-8", path.display())
    );
}

#[test]
fn reads_no_more_than_a_document_may_have() {
    let (_directory, path) = file(&vec![b'#'; MAX_DOCUMENT_BYTES + 2]);
    let error = FileSource::new(&path).load().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: must be at most 4194304 bytes", path.display())
    );
}
