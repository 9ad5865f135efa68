use crate::{Diagnostic, Document, MAX_DOCUMENT_BYTES, ValidationErrors};

fn errors(text: &str) -> ValidationErrors {
    match Document::parse(text) {
        Ok(document) => panic!("{text} should be invalid, not {document:?}"),
        Err(errors) => errors,
    }
}

/// Checks all errors of a document.
#[track_caller]
fn check(text: &str, lines: &[&str]) {
    assert_eq!(
        errors(text).to_string().lines().collect::<Vec<_>>(),
        lines,
        "{text}"
    );
}

/// Checks the error of a template with one more field than it needs.
#[track_caller]
fn check_field(field: &str, error: &str) {
    let text = format!(
        "resources:\n- identifier_glob: db\n  capacity: 1\n  algorithm: {{kind: STATIC}}\n  {field}\n"
    );
    check(&text, &[error]);
}

/// Checks the errors of an `algorithm`.
#[track_caller]
fn check_algorithm(fields: &str, errors: &str) {
    let text =
        format!("resources:\n- identifier_glob: db\n  capacity: 1\n  algorithm: {{{fields}}}\n");
    check(&text, &errors.lines().collect::<Vec<_>>());
}

#[test]
fn every_error_is_listed_with_its_location() {
    let text = r#"
resources:
  - identifier_glob: "tenant/*"
    capacity: -3
    safe_capcity: 2
    algorithm:
      kind: FAIR_SHARE
      lease_length: 5
      refresh_interval: 5
  - identifier_glob: "tenant/*"
    capacity: lots
    capacity: 7
    algorithm: {kind: fair_share, lease_length: 0}
  - capacity: 5
    per: 0
rules: {}
"#;
    check(
        text,
        &[
            r#"4:15: resources[0] "tenant/*": capacity: must be a number from 0 to 1e15, not -3"#,
            r#"5:5: resources[0] "tenant/*": safe_capcity: is not a known field; did you mean "safe_capacity"?"#,
            r#"9:25: resources[0] "tenant/*": algorithm.refresh_interval: must be shorter than the lease_length of 5 seconds, not 5"#,
            r#"10:22: resources[1] "tenant/*": identifier_glob: must be unique; resources[0] has the same glob"#,
            r#"11:15: resources[1] "tenant/*": capacity: must be a number from 0 to 1e15, not the text "lots""#,
            r#"12:5: resources[1] "tenant/*": capacity: must appear only once"#,
            r#"13:23: resources[1] "tenant/*": algorithm.kind: must be NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_SHARE, SUPPRESSION or SHARED_BUCKET, not "fair_share"; did you mean FAIR_SHARE?"#,
            r#"13:49: resources[1] "tenant/*": algorithm.lease_length: must be a number of seconds from 0.001 to 31536000 (a year), not 0"#,
            r#"14:5: resources[2]: identifier_glob: is missing; must be a glob over identifiers, such as "tenant/*""#,
            r#"14:5: resources[2]: algorithm: is missing; must be here or in the template for "*""#,
            r#"15:10: resources[2]: per: must be a number of seconds from 0.001 to 31536000 (a year), not 0"#,
            "16:8: rules: must be a list of rules, not a map",
        ],
    );
    let errors = errors(text);
    let pointers: Vec<_> = errors.list().iter().map(Diagnostic::pointer).collect();
    assert_eq!(pointers[2], "/resources/0/algorithm/refresh_interval");
    assert_eq!(pointers[10], "/resources/2/per");
    assert_eq!(pointers[11], "/rules");
}

#[test]
fn in_file_puts_its_name_on_every_line() {
    let errors = errors("resources: [5, 6]");
    assert_eq!(
        errors.in_file("limits.yaml"),
        "limits.yaml:1:13: resources[0]: must be a map with the fields identifier_glob, capacity, safe_capacity, description, \
         unit, per, minimum_refresh_interval, algorithm, feedback, not 5\n\
         limits.yaml:1:16: resources[1]: must be a map with the fields identifier_glob, capacity, safe_capacity, description, \
         unit, per, minimum_refresh_interval, algorithm, feedback, not 6"
    );
}

#[test]
fn document_of_the_wrong_shape_is_rejected() {
    let empty = "is empty; must have `resources`, a list of templates";
    check("", &[&format!("1:1: {empty}")]);
    check("# nothing\n", &[&format!("2:1: {empty}")]);
    check(
        "{}",
        &["1:1: resources: is missing; must be a list of templates"],
    );
    check(
        "5",
        &["1:1: must be a map with the fields resources, rules, not 5"],
    );
    check(
        "resources:",
        &["1:10: resources: must be a list of templates, not empty"],
    );
    check(
        "resources: {a: 1}",
        &["1:12: resources: must be a list of templates, not a map"],
    );
    check(
        "resorces: []",
        &[
            "1:1: resorces: is not a known field; did you mean \"resources\"?",
            "1:1: resources: is missing; must be a list of templates",
        ],
    );
    check(
        "resources: []\n? [a]\n: 1\nresources: []\nx/y~: 1\n",
        &[
            "2:3: must have text for every key, not a list",
            "4:1: resources: must appear only once",
            "5:1: x/y~: is not a known field; known are resources, rules",
        ],
    );
    assert_eq!(
        errors("resources: []\nx/y~: 1").list()[0].pointer(),
        "/x~1y~0"
    );
}

#[test]
fn yaml_syntax_errors_have_a_position() {
    check("resources: [", &["1:12: is not YAML: unclosed bracket '['"]);
    check(
        "resources: []\n---\nresources: []\n",
        &["2:1: must be a single YAML document, without a further `---`"],
    );
    check(
        "resources:\n- identifier_glob: *\n",
        &[
            "2:20: is not YAML: while scanning an anchor or alias, did not find expected alphabetic or numeric character; a text \
           that starts with `*` needs quotes: \"*\"",
        ],
    );
    check(
        "resources:\n- identifier_glob: *db\n",
        &[
            "2:20: is not YAML: alias references unknown anchor; a text that starts with `*` needs quotes: \"*\"",
        ],
    );
}

/// What is accepted is enforced as it is shown.
#[test]
fn amounts_that_cannot_be_enforced_are_rejected() {
    let of = |kind, template| {
        format!("resources: [{{identifier_glob: db, {template}, algorithm: {{kind: {kind}}}}}]")
    };
    let rate = "must be at most 1e9 per second; count in larger units, such as kilobytes";
    let units = "must be at most 1e12 units; count in larger units";
    let slow = "must be 0, or at least 1e-9 per second";
    let whole = "must be 0, or at least one whole unit";
    for (template, error) in [
        ("capacity: 1e9", None),
        ("capacity: 6e10, per: 60", None),
        ("capacity: 1e12, unit: gauge", None),
        ("capacity: 0, unit: gauge", None),
        ("capacity: 1, unit: gauge, per: 1", None),
        ("capacity: 1e-9", None),
        ("capacity: 0, safe_capacity: 0", None),
        ("capacity: 1e-300", Some(("capacity", slow, "1e-300"))),
        (
            "capacity: 2, per: 60, safe_capacity: 1e-8",
            Some(("safe_capacity", slow, "1e-8")),
        ),
        ("capacity: 1e10", Some(("capacity", rate, "1e10"))),
        (
            "capacity: 2, per: 0.001, safe_capacity: 1e7",
            Some(("safe_capacity", rate, "1e7")),
        ),
        (
            "capacity: 2e12, unit: gauge",
            Some(("capacity", units, "2e12")),
        ),
        (
            "capacity: 0.5, unit: gauge",
            Some(("capacity", whole, "0.5")),
        ),
    ] {
        let text = of("STATIC", template);
        match error {
            None => drop(Document::parse(&text).unwrap()),
            Some((field, expected, shown)) => {
                let errors = errors(&text).to_string();
                let suffix = format!("{field}: {expected}, not {shown}");
                assert!(errors.ends_with(&suffix), "{errors:?}");
            }
        }
    }
    let both = errors(&of("STATIC", "capacity: 1e-300, safe_capacity: 1e-300"));
    assert_eq!(both.to_string().matches(slow).count(), 2, "{both}");
    // Its capacity is of no effect.
    Document::parse(&of("NO_ALGORITHM", "capacity: 1e12")).unwrap();
    check_field(
        "unit: gauge\n  per: 60",
        "6:8: resources[0] \"db\": per: must be left out: a gauge has no period",
    );
}

#[test]
fn numbers_of_a_template_are_checked() {
    let capacity = "must be a number from 0 to 1e15";
    for (written, shown) in [
        ("-3", "-3"),
        ("1.1e15", "1.1e15"),
        ("1e999", "1e999"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("-.inf", "-.inf"),
        ("NaN", "the text \"NaN\""),
        ("\"1e999\"", "the text \"1e999\""),
        ("\"100\"", "the text \"100\""),
        ("true", "true"),
        ("", "empty"),
        ("[1]", "a list"),
    ] {
        check(
            &format!(
                "resources:\n- identifier_glob: db\n  capacity: {written}\n  algorithm: {{kind: STATIC}}"
            ),
            &[&format!(
                "3:{}: resources[0] \"db\": capacity: {capacity}, not {shown}",
                if written.is_empty() { 11 } else { 13 }
            )],
        );
    }
    check_field(
        "safe_capacity: -2",
        "5:18: resources[0] \"db\": safe_capacity: must be -1 (unlimited) or a number from 0 to 1e15, not -2",
    );
    let length = "must be a number of seconds from 0.001 to 31536000 (a year)";
    check_field(
        "per: -1",
        &format!("5:8: resources[0] \"db\": per: {length}, not -1"),
    );
    check_field(
        "per: 31536001",
        &format!("5:8: resources[0] \"db\": per: {length}, not 31536001"),
    );
    check_field(
        "minimum_refresh_interval: -1",
        "5:29: resources[0] \"db\": minimum_refresh_interval: must be a number of seconds from 0 to 31536000 (a year), not -1",
    );
    check_field(
        "minimum_refresh_interval: 60",
        "5:29: resources[0] \"db\": minimum_refresh_interval: must be at most the refresh_interval of 5 seconds, not 60",
    );
}

#[test]
fn texts_of_a_template_are_checked() {
    check_field(
        "unit: speed",
        "5:9: resources[0] \"db\": unit: must be rate or gauge, not the text \"speed\"",
    );
    check_field(
        "description: [a]",
        "5:16: resources[0] \"db\": description: must be text, not a list",
    );
    check(
        "resources: [{identifier_glob: 'db[', capacity: 1, algorithm: {kind: STATIC}}]",
        &[
            "1:31: resources[0] \"db[\": identifier_glob: must be a glob whose every `[` is closed by a `]`, not \"db[\"",
        ],
    );
    check(
        "resources: [{identifier_glob: '', capacity: 1, algorithm: {kind: STATIC}}]",
        &[
            "1:31: resources[0] \"\": identifier_glob: must be a glob of 1 to 1024 bytes of UTF-8 without control characters, \
             not \"\"",
        ],
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn algorithm_is_checked() {
    let kinds = "NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_SHARE, SUPPRESSION \
                 or SHARED_BUCKET";
    check_algorithm(
        "lease_length: 10",
        &format!("4:14: resources[0] \"db\": algorithm.kind: is missing; must be {kinds}"),
    );
    for (written, shown) in [
        ("4", "4"),
        ("1.5", "1.5"),
        ("lottery", "the text \"lottery\""),
        ("\"3\"", "the text \"3\""),
        ("true", "true"),
    ] {
        check_algorithm(
            &format!("kind: {written}"),
            &format!("4:21: resources[0] \"db\": algorithm.kind: must be {kinds}, not {shown}"),
        );
    }
    check_algorithm(
        "kind: STATIC, lease_length: 5",
        "4:14: resources[0] \"db\": algorithm.refresh_interval: is missing; must be shorter than the lease_length of 5 seconds, \
         and is 5 when absent",
    );
    check_algorithm(
        "kind: STATIC, refresh_interval: 61",
        "4:47: resources[0] \"db\": algorithm.refresh_interval: must be shorter than the lease_length of 60 seconds, not 61",
    );
    check_algorithm(
        "kind: STATIC, learning_mode_duration: -1",
        "4:53: resources[0] \"db\": algorithm.learning_mode_duration: must be a number of seconds from 0 to 31536000 (a year), \
         not -1",
    );
    check_algorithm(
        "kind: STATIC, parameters: [{name: surplus, value: \"0.2\"}]",
        "4:42: resources[0] \"db\": algorithm.parameters[0]: must be left out: STATIC takes no parameters but decay_factor",
    );
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: surplus, value: \"1.5\"}]",
        "4:69: resources[0] \"db\": algorithm.parameters[0].value: must be a number from 0 to 1 for surplus, not the text \"1.5\"",
    );
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: surplus, value: 0}, {name: surplus, value: 1}]",
        "4:73: resources[0] \"db\": algorithm.parameters[1]: must be left out: surplus is already set",
    );
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: granularity, value: 1e-310}]",
        "4:73: resources[0] \"db\": algorithm.parameters[0].value: must be 0 or a number from 0.000001 for granularity, not 1e-310",
    );
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: floor, value: 0.1}]",
        "4:46: resources[0] \"db\": algorithm.parameters[0]: must be left out: floor is for PRIORITY_SHARE only",
    );
    check_algorithm(
        "kind: PRIORITY_SHARE, parameters: [{name: floor, value: \"1.5\"}]",
        "4:71: resources[0] \"db\": algorithm.parameters[0].value: must be a number from 0 to 1 for floor, not the text \"1.5\"",
    );
    check_algorithm(
        "kind: PRIORITY_SHARE, parameters: [{name: floor, value: 0.1}, {name: floor, value: 0}]",
        "4:77: resources[0] \"db\": algorithm.parameters[1]: must be left out: floor is already set",
    );
    for value in ["0", "1.5"] {
        check_algorithm(
            &format!("kind: SUPPRESSION, parameters: [{{name: decay_factor, value: {value}}}]"),
            &format!(
                "4:75: resources[0] \"db\": algorithm.parameters[0].value: must be a number \
                 above 0 and at most 1 for decay_factor, not {value}"
            ),
        );
    }
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: size, value: 1}]",
        "4:53: resources[0] \"db\": algorithm.parameters[0].name: must be surplus, granularity, floor or decay_factor, not the text \"size\"",
    );
    check_algorithm(
        "kind: FAIR_SHARE, parameters: [{name: surplus, value: lots}]",
        "4:69: resources[0] \"db\": algorithm.parameters[0].value: must be a number from 0 to 1e15, such as \"0.2\", not the \
         text \"lots\"",
    );
    check_algorithm(
        "kind: STATIC, priority: 1",
        "4:29: resources[0] \"db\": algorithm.priority: is not a known field; known are kind, lease_length, refresh_interval, \
         learning_mode_duration, parameters",
    );
    check_field(
        "unit: rate\n- {identifier_glob: x, capacity: 1, algorithm: STATIC}",
        "6:48: resources[1] \"x\": algorithm: must be a map with the fields kind, lease_length, refresh_interval, \
         learning_mode_duration, parameters, not the text \"STATIC\"",
    );
}

#[test]
fn suppression_and_shared_bucket_are_for_rates_only() {
    for kind in ["SUPPRESSION", "SHARED_BUCKET"] {
        let with = |unit: &str, rest: &str| {
            format!(
                "resources: [{{identifier_glob: db, capacity: 1, unit: {unit}, \
                 algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 0.1{rest}}}}}]"
            )
        };
        assert!(Document::parse(&with("rate", "")).is_ok());
        check(
            &with("gauge", ""),
            &[&format!(
                "1:54: resources[0] \"db\": unit: must be rate: {kind} is for rates only"
            )],
        );
        let shown =
            errors(&with("rate", ", parameters: [{name: surplus, value: 0.1}]")).to_string();
        assert!(
            shown.ends_with(&format!("{kind} takes no parameters but decay_factor")),
            "{shown}"
        );
        // The algorithm may be that of the template for `*`.
        check(
            &format!(
                "resources: [{{identifier_glob: db, capacity: 1, unit: gauge}}, \
                 {{identifier_glob: '*', capacity: 1, algorithm: {{kind: {kind}}}}}]"
            ),
            &[&format!(
                "1:54: resources[0] \"db\": unit: must be rate: {kind} is for rates only"
            )],
        );
    }
}

#[test]
fn catch_all_is_last_and_has_an_algorithm() {
    check(
        "resources:\n- {identifier_glob: '*', capacity: 1}\n- {identifier_glob: db, capacity: 1}\n",
        &[
            "2:3: resources[0] \"*\": algorithm: is missing; a template that matches everything must have it",
            "2:21: resources[0] \"*\": identifier_glob: must be the last template, since it matches everything",
        ],
    );
    // An invalid algorithm there is one error, not one for each template that uses it.
    check(
        "resources:\n- {identifier_glob: db, capacity: 1}\n- {identifier_glob: '*', capacity: 1, algorithm: {kind: 9}}\n",
        &[
            "3:57: resources[1] \"*\": algorithm.kind: must be NO_ALGORITHM, STATIC, PROPORTIONAL_SHARE, FAIR_SHARE, PRIORITY_SHARE, SUPPRESSION or SHARED_BUCKET, not 9",
        ],
    );
}

#[test]
fn quoted_text_is_shortened_and_escaped() {
    let long = "x".repeat(900);
    let shown = errors(&format!("\"\\e[2J\\n{long}\": 1")).to_string();
    assert!(shown.starts_with("1:1: \\u{1b}[2J\\nxxx"), "{shown}");
    assert!(shown.len() < 300, "{shown}");
    let shown = errors(&format!("resources: \"a\\r\\nb\u{202e}{long}\"")).to_string();
    assert!(
        shown.starts_with(
            "1:12: resources: must be a list of templates, not the text \"a\\r\\nb\\u{202e}xx"
        ),
        "{shown}"
    );
    assert!(shown.len() < 300, "{shown}");
}

#[test]
fn size_and_depth_are_limited() {
    let long = format!("resources: []\n#{}", "x".repeat(MAX_DOCUMENT_BYTES));
    check(&long, &["must be at most 4194304 bytes"]);
    assert!(Document::parse(&long[..MAX_DOCUMENT_BYTES]).is_ok());
    for (text, expected) in [
        (
            "- ".repeat(100_000),
            "is nested too deeply: at most 32 levels",
        ),
        (
            format!("{}{}", "[".repeat(40), "]".repeat(40)),
            "is nested too deeply: at most 32 levels",
        ),
        // The scanner has a limit of its own.
        ("[".repeat(100_000), "recursion limit exceeded"),
        ("{a: ".repeat(100_000), "recursion limit exceeded"),
    ] {
        let shown = errors(&text).to_string();
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn alias_expansion_is_limited() {
    let mut billion_laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}, ", level - 1).repeat(9);
        billion_laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    let long_text = format!(
        "a: &a \"{}\"\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(90)
    );
    for text in [billion_laughs, long_text] {
        let shown = errors(&text).to_string();
        assert!(
            shown.ends_with(": has too many values or too much text, with aliases expanded"),
            "{shown}"
        );
    }
    // A recursive alias.
    assert!(Document::parse("resources: &a [*a]").is_err());
}

#[test]
fn errors_beyond_the_limit_are_counted() {
    let text = format!("resources:\n{}", "- 5\n".repeat(1500));
    let errors = errors(&text);
    assert_eq!((errors.list().len(), errors.omitted()), (1000, 500));
    let in_file = errors.in_file("limits.yaml");
    assert_eq!(in_file.lines().count(), 1001);
    assert_eq!(
        in_file.lines().last(),
        Some("limits.yaml: and 500 more errors")
    );
}
