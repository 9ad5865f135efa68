//! Documents: valid ones survive serialization, and errors of invalid ones have positions.

use doorman_config::Document;
use doorman_openapi::{Glob, ResourceId};

/// The most resources to look up.
const MAX_LOOKUPS: usize = 16;

/// Reads the bytes as a document.
///
/// # Panics
/// When an error has no position or several lines, a document changes by serialization, or a
/// resource gets the wrong template.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Document::parse(&text) {
        Ok(document) => {
            check_round_trip(&document);
            let globs = document
                .templates()
                .iter()
                .map(|template| template.identifier_glob());
            let words = text.split([' ', '\n', '"', '\'', ',', ':']).chain(globs);
            for id in words
                .filter_map(|word| ResourceId::new(word).ok())
                .take(MAX_LOOKUPS)
            {
                check_lookup(&document, &id);
            }
        }
        Err(errors) => {
            assert!(!errors.list().is_empty());
            let lines = text
                .split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
                .count();
            for error in errors.list() {
                let line = error.position().map(|position| position.line);
                let within = line.is_some_and(|line| (1..=lines as u64).contains(&line));
                assert!(within, "{error:?} of {lines} lines");
                assert!(!error.to_string().contains(char::is_control), "{error:?}");
                assert!(!error.message().is_empty(), "{error:?}");
            }
        }
    }
}

/// Written as JSON and parsed again, it is the same document.
fn check_round_trip(document: &Document) {
    let json = serde_json::to_string(document).expect("it can be serialized");
    let again = Document::parse(&json).unwrap_or_else(|errors| panic!("{json}\n{errors}"));
    assert_eq!(&again, document, "{json}");
    assert_eq!(again.version(), document.version(), "{json}");
    assert_eq!(again.longest_lease(), document.longest_lease(), "{json}");
    for template in document.templates() {
        assert!(template.capacity().get().is_finite());
    }
}

/// The template named like the resource applies, or else the first that matches.
fn check_lookup(document: &Document, id: &ResourceId) {
    let templates = || document.templates().iter();
    let exact = templates().find(|template| template.identifier_glob() == id.as_str());
    let first = templates().find(|template| {
        Glob::new(template.identifier_glob()).is_ok_and(|glob| glob.matches(id.as_str()))
    });
    let found = document
        .lookup(id)
        .map(|template| template.identifier_glob());
    assert_eq!(
        found,
        exact.or(first).map(|template| template.identifier_glob()),
        "{id}"
    );
}
