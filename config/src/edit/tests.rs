use proptest::prelude::*;

use super::*;
use crate::DocumentDiff;

fn document(text: &str) -> Document {
    Document::parse(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn sample() -> Document {
    document(
        "
resources:
- {identifier_glob: 'tenant/*', capacity: 10}
- {identifier_glob: db, capacity: 5, algorithm: {kind: STATIC}}
- {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60}}
rules:
- {name: first, service: s, resource: db}
",
    )
}

/// The document with a template put.
fn put(document: &Document, glob: &str, text: &str) -> Result<Document, EditError> {
    document
        .with(EntryKind::Template, glob, text)
        .map(|edited| edited.document)
}

fn put_rule(document: &Document, name: &str, text: &str) -> Result<Document, EditError> {
    document
        .with(EntryKind::Rule, name, text)
        .map(|edited| edited.document)
}

fn globs(document: &Document) -> Vec<&str> {
    let templates = document.templates().iter();
    templates.map(|it| it.identifier_glob()).collect()
}

fn invalid(edited: Result<Document, EditError>) -> Vec<(String, String)> {
    let Err(EditError::Invalid(errors)) = edited else {
        panic!("not invalid: {edited:?}");
    };
    let errors = errors.list().iter();
    errors
        .map(|it| (it.pointer().to_owned(), it.message().to_owned()))
        .collect()
}

#[test]
fn new_template_is_placed_before_the_catch_all() {
    let edited = put(&sample(), "a/b", r#"{"capacity": 1}"#).unwrap();
    assert_eq!(globs(&edited), ["tenant/*", "db", "a/b", "*"]);
    let without =
        document("resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC}}]");
    let text = r#"{"capacity": 1, "algorithm": {"kind": "STATIC"}}"#;
    assert_eq!(globs(&put(&without, "b", text).unwrap()), ["a", "b"]);
    assert_eq!(globs(&put(&without, "*", text).unwrap()), ["a", "*"]);
}

#[test]
fn new_template_is_placed_before_the_first_that_covers_it() {
    let sample = document(
        "resources:
- {identifier_glob: 'a*', capacity: 1}
- {identifier_glob: 'tenant/*', capacity: 10}
- {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}",
    );
    for (glob, position, before) in [
        ("tenant/sb*", 1, Some("tenant/*")),
        ("tenant/acme", 1, None),
        ("tenant/**", 1, Some("tenant/*")),
        ("ab?", 0, Some("a*")),
        ("tenant*", 2, None),
        ("db", 2, None),
        ("*x", 2, None),
    ] {
        let edited = sample
            .with(EntryKind::Template, glob, r#"{"capacity": 1}"#)
            .unwrap();
        assert_eq!(globs(&edited.document)[position], glob);
        assert_eq!(edited.notes.placed_before.as_deref(), before, "{glob}");
        assert_eq!(edited.notes.dropped, [""; 0], "{glob}");
    }
    let text = r#"{"capacity": 1, "algorithm": {"kind": "STATIC"}}"#;
    let errors = sample.with(EntryKind::Template, "**", text).unwrap_err();
    assert!(
        errors.to_string().contains("must be the last template"),
        "{errors}"
    );
}

#[test]
fn replacement_names_the_fields_that_it_drops() {
    let sample = document(
        "resources:
- identifier_glob: db
  capacity: 10
  safe_capacity: 2
  description: the database
  per: 60
  algorithm: {kind: STATIC, lease_length: 30, refresh_interval: 5, learning_mode_duration: 40}
- {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE}}
rules:
- {name: r, service: s, resource: db, methods: [GET], cost: 2, on_limit: {action: delay, max_delay: 1}}",
    );
    let dropped = |text: &str| {
        sample
            .with(EntryKind::Template, "db", text)
            .unwrap()
            .notes
            .dropped
    };
    assert_eq!(
        dropped(r#"{"capacity": 20}"#),
        [
            "algorithm.kind: \"STATIC\"",
            "algorithm.learning_mode_duration: 40",
            "algorithm.lease_length: 30",
            "algorithm.refresh_interval: 5",
            r#"description: "the database""#,
            "per: 60",
            "safe_capacity: 2",
        ]
    );
    let same = serde_json::to_string(&**sample.template("db").unwrap()).unwrap();
    assert_eq!(dropped(&same), [""; 0]);
    let other = r#"{"capacity": 1, "safe_capacity": 3, "description": "", "per": 1,
        "algorithm": {"kind": "FAIR_SHARE", "learning_mode_duration": 1}}"#;
    // `refresh_interval` has its default anyway.
    assert_eq!(dropped(other), ["algorithm.lease_length: 30"]);
    let rule = |text: &str| {
        sample
            .with(EntryKind::Rule, "r", text)
            .unwrap()
            .notes
            .dropped
    };
    assert_eq!(
        rule(r#"{"service": "s", "resource": "db", "on_limit": {"action": "reject"}}"#),
        ["cost: 2", r#"methods: "[\"GET\"]""#]
    );
}

#[test]
fn patch_changes_only_the_fields_that_it_names() {
    let patched = |glob: &str, patch: &str| -> Document {
        sample()
            .with_patched(EntryKind::Template, glob, patch)
            .unwrap()
            .unwrap()
    };
    let document = patched("db", r#"{"safe_capacity": 2, "description": "x"}"#);
    let expected = r#"{"capacity": 5, "algorithm": {"kind": "STATIC"}, "safe_capacity": 2, "description": "x"}"#;
    assert_eq!(document, put(&sample(), "db", expected).unwrap());
    for (glob, patch, same_as) in [
        (
            "*",
            r#"{"algorithm": {"lease_length": 30}}"#,
            r#"{"capacity": 100, "algorithm": {"kind": "FAIR_SHARE", "lease_length": 30}}"#,
        ),
        (
            "*",
            r#"{"algorithm": {"lease_length": null, "parameters": [{"name": "surplus", "value": "0.2"}]}}"#,
            r#"{"capacity": 100, "algorithm": {"kind": "FAIR_SHARE", "parameters": [{"name": "surplus", "value": "0.2"}]}}"#,
        ),
        ("db", r#"{"algorithm": null}"#, r#"{"capacity": 5}"#),
        (
            "db",
            r#"{"identifier_glob": "db", "capacity": 6, "description": null}"#,
            r#"{"capacity": 6, "algorithm": {"kind": "STATIC"}}"#,
        ),
        (
            "tenant/*",
            r#"{"algorithm": {"kind": "STATIC", "learning_mode_duration": null}}"#,
            r#"{"capacity": 10, "algorithm": {"kind": "STATIC"}}"#,
        ),
        ("tenant/*", "{}", r#"{"capacity": 10}"#),
    ] {
        let expected = put(&sample(), glob, same_as).unwrap();
        assert_eq!(patched(glob, patch), expected, "{patch}");
    }
    let patch = r#"{"cost": 3, "on_limit": {"action": "delay", "max_delay": 1}}"#;
    let document = sample()
        .with_patched(EntryKind::Rule, "first", patch)
        .unwrap()
        .unwrap();
    let expected = r#"{"service": "s", "resource": "db", "cost": 3, "on_limit": {"action": "delay", "max_delay": 1}}"#;
    assert_eq!(document, put_rule(&sample(), "first", expected).unwrap());
    assert!(
        sample()
            .with_patched(EntryKind::Template, "absent", "{}")
            .is_none()
    );
    assert!(
        sample()
            .with_patched(EntryKind::Rule, "absent", "{}")
            .is_none()
    );
}

#[test]
fn patch_errors_are_located_in_the_entry() {
    for (patch, expected) in [
        (
            r#"{"capcity": 1}"#,
            r#"/capcity is not a known field; did you mean "capacity"?"#,
        ),
        (
            r#"{"capcity": null}"#,
            r#"/capcity is not a known field; did you mean "capacity"?"#,
        ),
        (
            r#"{"algorithm": {"kynd": null}}"#,
            r#"/algorithm/kynd is not a known field; did you mean "kind"?"#,
        ),
        (
            r#"{"capacity": null}"#,
            "/capacity is missing; must be a number from 0 to 1e15",
        ),
        (
            r#"{"capacity": -1}"#,
            "/capacity must be a number from 0 to 1e15, not -1",
        ),
        (
            r#"{"description": "a", "description": "b"}"#,
            "/description must appear only once",
        ),
        (
            r#"{"description": null, "description": "b"}"#,
            "/description must appear only once",
        ),
        (
            r#"{"identifier_glob": "x"}"#,
            "/identifier_glob must be that of the path",
        ),
        ("[]", " must be a map"),
        ("null", " must be a map"),
    ] {
        let errors = invalid(
            sample()
                .with_patched(EntryKind::Template, "db", patch)
                .unwrap(),
        );
        let errors: Vec<_> = errors
            .into_iter()
            .map(|(pointer, message)| format!("{pointer} {message}"))
            .collect();
        assert!(
            errors.iter().any(|it| it.starts_with(expected)),
            "{patch}: {errors:?}"
        );
    }
    let removed = sample().with_patched(EntryKind::Template, "*", r#"{"algorithm": null}"#);
    assert!(
        matches!(removed, Some(Err(EditError::Invalid(_)))),
        "{removed:?}"
    );
}

#[test]
fn replaced_template_keeps_its_position() {
    let text = r#"{"identifier_glob": "tenant/*", "capacity": 11}"#;
    let edited = put(&sample(), "tenant/*", text).unwrap();
    assert_eq!(globs(&edited), globs(&sample()));
    assert_eq!(edited.template("tenant/*").unwrap().capacity().get(), 11.0);
    assert_eq!(edited.rules(), sample().rules());
}

#[test]
fn template_without_algorithm_follows_the_catch_all() {
    let text = r#"{"capacity": 100, "algorithm": {"kind": "STATIC", "lease_length": 30}}"#;
    let edited = put(&sample(), "*", text).unwrap();
    let tenant = edited.template("tenant/*").unwrap();
    assert_eq!(tenant.algorithm().lease_length.get(), 30.0);
    let lines: Vec<_> = DocumentDiff::between(&sample(), &edited).lines().collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn errors_of_an_entry_are_located_in_it() {
    let text = r#"{"identifier_glob": "x", "capacity": -1, "per": 0, "algorithm": {"kind": "FAIR"}, "capcity": 1}"#;
    let errors = invalid(put(&sample(), "db", text));
    let mut pointers: Vec<_> = errors.iter().map(|(pointer, _)| pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/algorithm/kind",
            "/capacity",
            "/capcity",
            "/identifier_glob",
            "/per"
        ]
    );
    for text in ["[]", "7", "null", "\"db\"", "{"] {
        assert_eq!(invalid(put(&sample(), "db", text))[0].0, "", "{text}");
    }
    let errors = invalid(put(&sample(), "a\u{7}", r#"{"capacity": 1}"#));
    assert_eq!(errors[0].0, "/identifier_glob");
    let errors = invalid(put_rule(&sample(), "second", r#"{"service": "s"}"#));
    assert_eq!(errors[0].0, "/resource");
}

#[test]
fn template_that_others_need_cannot_be_removed() {
    let conflict = |edited| {
        let Err(EditError::Conflict(errors)) = edited else {
            panic!("no conflict: {edited:?}");
        };
        errors.to_string()
    };
    let said = conflict(sample().without(EntryKind::Template, "*").unwrap());
    assert!(
        said.starts_with("resources[0] \"tenant/*\": algorithm: is missing"),
        "{said}"
    );
    let picky = document(
        "resources: [{identifier_glob: a, capacity: 1, minimum_refresh_interval: 4}, \
         {identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC}}]",
    );
    let text = r#"{"capacity": 1, "algorithm": {"kind": "STATIC", "refresh_interval": 2}}"#;
    let said = conflict(put(&picky, "*", text));
    assert!(said.contains("minimum_refresh_interval"), "{said}");
}

#[test]
fn new_rule_is_placed_last() {
    let text = r#"{"service": "s", "resource": "api"}"#;
    let edited = put_rule(&sample(), "second", text).unwrap();
    let names: Vec<_> = edited
        .rules()
        .iter()
        .map(|it| it.definition().name.as_str())
        .collect();
    assert_eq!(names, ["first", "second"]);
    let back = edited.without(EntryKind::Rule, "second").unwrap().unwrap();
    assert_eq!(back, sample());
    assert_eq!(back.version(), sample().version());
    assert!(back.without(EntryKind::Rule, "second").is_none());
    assert!(back.without(EntryKind::Template, "nothing").is_none());
}

/// Documents of a few templates and rules; some templates use the algorithm of the catch-all.
pub(crate) fn documents() -> impl Strategy<Value = Document> {
    let template = ("[ab]{1,2}[*?]?", 0_u32..4, any::<bool>());
    let rule = ("[xy]{1,2}", 1_u32..3);
    (
        proptest::collection::vec(template, 0..5),
        proptest::collection::vec(rule, 0..4),
    )
        .prop_map(|(mut templates, mut rules)| {
            let mut seen = std::collections::HashSet::new();
            templates.retain(|(glob, ..)| seen.insert(glob.clone()));
            rules.retain(|(name, _)| seen.insert(format!("rule {name}")));
            let mut text = "resources:\n".to_owned();
            for (glob, capacity, own) in &templates {
                let algorithm = if *own {
                    ", algorithm: {kind: STATIC}"
                } else {
                    ""
                };
                text +=
                    &format!("- {{identifier_glob: '{glob}', capacity: {capacity}{algorithm}}}\n");
            }
            text +=
                "- {identifier_glob: '*', capacity: 9, algorithm: {kind: FAIR_SHARE}}\nrules:\n";
            for (name, cost) in &rules {
                text += &format!("- {{name: {name}, service: s, resource: r, cost: {cost}}}\n");
            }
            if rules.is_empty() {
                text += "  []\n";
            }
            document(&text)
        })
}

proptest! {
    /// An edit can be undone.
    #[test]
    fn one_edit_changes_one_entry(document in documents(), glob in "[ab]{1,2}[*?]?", capacity in 10_u32..20) {
        let text = format!(r#"{{"capacity": {capacity}}}"#);
        let edited = put(&document, &glob, &text).unwrap();
        prop_assert_eq!(edited.template(&glob).unwrap().capacity().get(), f64::from(capacity));
        let diff = DocumentDiff::between(&document, &edited);
        prop_assert_eq!(diff.templates.len(), 1);
        prop_assert_eq!(diff.templates[0].name.as_str(), glob.as_str());
        prop_assert!(diff.rules.is_empty());
        let others = |document: &Document| -> Vec<_> {
            let templates = document.templates().iter().cloned();
            templates.filter(|it| it.identifier_glob() != glob).collect()
        };
        prop_assert_eq!(others(&document), others(&edited));
        let undone = match document.template(&glob) {
            None => edited.without(EntryKind::Template, &glob).unwrap().unwrap(),
            Some(was) => put(&edited, &glob, &serde_json::to_string(&**was).unwrap()).unwrap(),
        };
        prop_assert_eq!(undone.version(), document.version());
    }

    #[test]
    fn written_json_parses_as_equal(document in documents()) {
        let again = Document::parse_json(&document.to_json()).unwrap();
        prop_assert_eq!(again.version(), document.version());
        prop_assert_eq!(again, document);
    }
}

#[test]
fn tree_with_unknown_fields_is_not_edited() {
    let is_edited = |text: &str| {
        let mut tree = json::parse(text).unwrap();
        let mut kinds = [EntryKind::Template, EntryKind::Rule].into_iter();
        kinds.all(|kind| entries(&mut tree, kind).is_ok()) && Document::from_tree(&tree).is_ok()
    };
    assert!(is_edited(r#"{"resources": [], "rules": []}"#));
    for strange in [
        "[]",
        r#"{"resources": {}}"#,
        r#"{"resources": [], "rules": null}"#,
        r#"{"resources": [], "more": []}"#,
    ] {
        assert!(!is_edited(strange), "{strange}");
    }
}
