use std::{error::Error, fs, path::PathBuf};

use tempfile::TempDir;

use super::{FileSource, LoadError, Source};
use crate::MAX_DOCUMENT_BYTES;

/// A file in a temporary directory.
fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.yaml");
    fs::write(&path, content).unwrap();
    (directory, path)
}

#[test]
fn sources_are_named_by_kind_and_path() {
    for text in [
        "file:limits: 1.yaml",
        "sqlite:data/doorman.db",
        "etcd:/prod/doorman",
    ] {
        assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
    }
    let unknown = "must be sqlite:PATH, file:PATH or etcd:PREFIX, such as file:limits.yaml";
    let prefix = "a prefix of keys in etcd must be 1 to 256 printable ASCII characters, the last \
                  one not a slash";
    for (text, message) in [
        ("etcd:", prefix),
        ("etcd:doorman/", prefix),
        ("etcd:door man", prefix),
        ("limits.yaml", unknown),
        ("file:", unknown),
        ("sqlite:", unknown),
        ("http://example", unknown),
        ("", unknown),
    ] {
        assert_eq!(
            text.parse::<Source>().unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

#[test]
fn load_reads_the_current_content() {
    let (_directory, path) = file(b"resources: []");
    let source = FileSource::new(&path);
    assert_eq!(source.load().unwrap().templates().len(), 0);
    let json =
        br#"{"resources": [{"identifier_glob": "a", "capacity": 1, "algorithm": {"kind": 0}}]}"#;
    fs::write(&path, json).unwrap();
    assert_eq!(source.load().unwrap().templates().len(), 1);
}

#[test]
fn every_error_names_the_file() {
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
    assert!(matches!(&error, LoadError::Invalid(_, errors) if errors.list().len() == 2));
    assert!(error.source().is_none());
}

#[test]
fn unreadable_file_is_reported_with_its_cause() {
    let error = FileSource::new("/nowhere/limits.yaml").load().unwrap_err();
    assert_eq!(error.to_string(), "/nowhere/limits.yaml: cannot be read");
    assert!(error.source().is_some() && matches!(error, LoadError::Io(..)));

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
fn too_large_file_is_rejected() {
    let (_directory, path) = file(&vec![b'#'; MAX_DOCUMENT_BYTES + 2]);
    let error = FileSource::new(&path).load().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{}: must be at most 4194304 bytes", path.display())
    );
}

#[test]
fn rules_are_read_with_and_without_templates() {
    let rules = "rules: [{name: a, service: 'x*', resource: db}]";
    // Templates are not checked.
    for content in [rules.to_owned(), format!("resources: []\n{rules}")] {
        let (_directory, path) = file(content.as_bytes());
        let rules = FileSource::new(path).rules().unwrap();
        assert_eq!(rules.len(), 1);
        assert!(rules[0].applies_to("xy") && !rules[0].applies_to("y"));
    }
    for (content, message) in [
        (
            "resources: []",
            "rules: is missing; must be a list of rules",
        ),
        (
            "rules: [{name: a, service: b, resource: c, cost: -1}]",
            "1:50: rules[0] \"a\": cost: must",
        ),
        ("limits: []", "limits: is not a known field"),
    ] {
        let (_directory, path) = file(content.as_bytes());
        let error = FileSource::new(path).rules().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
