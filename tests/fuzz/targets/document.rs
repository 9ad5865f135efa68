//! Documents, as untrusted text: what is read means the same when it is written and read again, and what is refused is said where.

use doorman_config::Document;
use doorman_openapi::{Glob, ResourceId};

/// The most resources that are looked up.
const MOST_LOOKUPS: usize = 16;

/// Takes the bytes for a document.
///
/// # Panics
/// When a fault has no place or more than one line, a document does not survive being written, or a resource falls under a template
/// that does not match it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Document::parse(&text) {
        Ok(document) => {
            survives(&document);
            let globs = document
                .templates()
                .iter()
                .map(|template| template.identifier_glob());
            let words = text.split([' ', '\n', '"', '\'', ',', ':']).chain(globs);
            for id in words
                .filter_map(|word| ResourceId::new(word).ok())
                .take(MOST_LOOKUPS)
            {
                is_looked_up(&document, &id);
            }
        }
        Err(faults) => {
            assert!(!faults.list().is_empty());
            let lines = text
                .split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
                .count();
            for fault in faults.list() {
                let line = fault.position().map(|position| position.line);
                let within = line.is_some_and(|line| (1..=lines as u64).contains(&line));
                assert!(within, "{fault:?} of {lines} lines");
                assert!(!fault.to_string().contains(char::is_control), "{fault:?}");
                assert!(!fault.message().is_empty(), "{fault:?}");
            }
        }
    }
}

/// Read again from its own words, as JSON is written, it is the same document.
fn survives(document: &Document) {
    let json = serde_json::to_string(document).expect("a document can be written");
    let again = Document::parse(&json).unwrap_or_else(|faults| panic!("{json}\n{faults}"));
    assert_eq!(&again, document, "{json}");
    assert_eq!(again.version(), document.version(), "{json}");
    assert_eq!(again.longest_lease(), document.longest_lease(), "{json}");
    for template in document.templates() {
        assert!(template.capacity().get().is_finite());
    }
}

/// Its own template first, else the first that matches.
fn is_looked_up(document: &Document, id: &ResourceId) {
    let templates = || document.templates().iter();
    let own = templates().find(|template| template.identifier_glob() == id.as_str());
    let first = templates().find(|template| {
        Glob::new(template.identifier_glob()).is_ok_and(|glob| glob.matches(id.as_str()))
    });
    let found = document
        .lookup(id)
        .map(|template| template.identifier_glob());
    assert_eq!(
        found,
        own.or(first).map(|template| template.identifier_glob()),
        "{id}"
    );
}
