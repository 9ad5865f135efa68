use proptest::prelude::*;

use super::*;
use crate::edit::tests::documents;

fn lines(old: &str, new: &str) -> Vec<String> {
    let document = |text| Document::parse(text).unwrap_or_else(|errors| panic!("{errors}"));
    DocumentDiff::between(&document(old), &document(new))
        .lines()
        .collect()
}

#[test]
fn changes_are_listed_field_by_field() {
    let old = "
resources:
- {identifier_glob: db, capacity: 100, description: old}
- {identifier_glob: gone, capacity: 1}
- {identifier_glob: '*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 60}}
rules:
- {name: a, service: s, resource: db}
- {name: b, service: s, resource: db}
";
    let new = "
resources:
- {identifier_glob: db, capacity: 50.5, safe_capacity: 2}
- {identifier_glob: 'new/*', capacity: 1}
- {identifier_glob: '*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 30}}
rules:
- {name: b, service: s, resource: db}
- {name: a, service: s, resource: db, on_limit: {action: shadow}}
";
    assert_eq!(
        lines(old, new),
        [
            "template \"gone\" removed",
            "template \"db\": capacity: 100 → 50.5, description: \"old\" → absent, safe_capacity: absent → 2",
            "template \"new/*\" added",
            "template \"*\": algorithm.lease_length: 60 → 30",
            "rule \"b\" moved",
            "rule \"a\": on_limit.action: \"reject\" → \"shadow\"",
        ]
    );
}

#[test]
fn change_beyond_the_shown_text_is_listed() {
    let long = "x".repeat(80);
    let with = |description: &str, granularity: u32| {
        format!(
            "
resources:
- identifier_glob: db
  capacity: 100
  description: {description}
  algorithm:
    kind: FAIR_SHARE
    parameters: [{{name: surplus, value: '0.2'}}, {{name: granularity, value: '{granularity}'}}]
"
        )
    };
    let one = with(&format!("{long}1"), 10);
    assert_eq!(lines(&one, &one), [""; 0]);
    for other in [
        with(&format!("{long}2"), 10),
        with(&format!("{long}1"), 100),
    ] {
        let lines = lines(&one, &other);
        assert!(
            matches!(lines.as_slice(), [line] if line.ends_with("… → another value that starts alike")
                || line.ends_with("…\" → another value that starts alike")),
            "{lines:?}"
        );
    }
}

#[test]
fn summary_lists_the_first_changes() {
    let empty = Document::parse("resources: []").unwrap();
    assert_eq!(DocumentDiff::between(&empty, &empty).summary(), "nothing");
    let many: String = (0..9)
        .map(|n| format!("- {{identifier_glob: r{n}, capacity: 1, algorithm: {{kind: STATIC}}}}\n"))
        .collect();
    let many = Document::parse(&format!("resources:\n{many}")).unwrap();
    let short = DocumentDiff::between(&empty, &many).summary();
    assert!(short.ends_with("\"r4\" added; and 4 more"), "{short}");
}

proptest! {
    #[test]
    fn diff_is_empty_exactly_for_equal_documents(old in documents(), new in documents()) {
        let diff = DocumentDiff::between(&old, &new);
        prop_assert_eq!(diff.is_empty(), old == new);
        prop_assert_eq!(diff.lines().count() == 0, old.version() == new.version());
    }
}
