use doorman_openapi::{
    AlgorithmKind, Capacity, Feedback, Glob, ResourceId, SafeCapacity, Seconds, Unit,
};
use proptest::prelude::*;

use super::Document;

fn parse(text: &str) -> Document {
    Document::parse(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn glob_for<'d>(document: &'d Document, id: &str) -> Option<&'d str> {
    let id = ResourceId::new(id).unwrap();
    Some(document.lookup(&id)?.identifier_glob())
}

/// A document with these globs; the capacity of each template is its index.
fn of_globs(globs: &[String]) -> Document {
    let resources: Vec<_> = globs
        .iter()
        .enumerate()
        .map(|(index, glob)| {
            serde_json::json!({"identifier_glob": glob, "capacity": index, "algorithm": {"kind": 0}})
        })
        .collect();
    parse(&serde_json::json!({"resources": resources}).to_string())
}

#[test]
fn files_of_the_original_doorman_are_valid() {
    let document = parse(
        r#"resources:
  - identifier_glob: proportional
    capacity: 100
    safe_capacity: 10
    description: proportional example
    algorithm:
      kind: PROPORTIONAL_SHARE
      lease_length: 15
      refresh_interval: 5
  - identifier_glob: 0042
    capacity: 1000
    safe_capacity: -1
    description: 2016
    algorithm:
      kind: 3
      lease_length: 15
      refresh_interval: 5
      learning_mode_duration: 300
      parameters: []
  - identifier_glob: "*"
    capacity: 1000
    description: default
    algorithm:
      kind: FAIR_SHARE
      lease_length: 60
      refresh_interval: 15
"#,
    );
    let [proportional, shard, rest] = document.templates() else {
        panic!("{document:?}");
    };
    assert_eq!(proportional.identifier_glob(), "proportional");
    assert_eq!(proportional.capacity().get(), 100.0);
    let safe = |amount| Some(SafeCapacity::AtMost(Capacity::new(amount).unwrap()));
    assert_eq!(proportional.safe_capacity(), safe(10.0));
    assert_eq!(proportional.description(), Some("proportional example"));
    let algorithm = proportional.algorithm();
    assert_eq!(algorithm.kind, AlgorithmKind::ProportionalShare);
    assert_eq!(algorithm.lease_length.get(), 15.0);
    assert_eq!(algorithm.refresh_interval.get(), 5.0);
    assert_eq!(proportional.learning_mode_duration(), None);
    assert_eq!(proportional.unit(), Unit::Rate);
    assert_eq!(proportional.per().get(), 1.0);
    assert_eq!(proportional.minimum_refresh_interval().get(), 0.0);
    assert!(document.warnings().is_empty());

    // Text that looks like a number is unchanged.
    assert_eq!(shard.identifier_glob(), "0042");
    assert_eq!(shard.description(), Some("2016"));
    assert_eq!(shard.safe_capacity(), Some(SafeCapacity::Unlimited));
    assert_eq!(shard.algorithm().kind, AlgorithmKind::FairShare);
    assert_eq!(shard.learning_mode_duration().unwrap().get(), 300.0);
    assert_eq!(rest.safe_capacity(), None);
}

#[test]
fn kinds_may_be_numbers() {
    for (number, kind) in [
        (0, AlgorithmKind::NoAlgorithm),
        (1, AlgorithmKind::Static),
        (2, AlgorithmKind::ProportionalShare),
        (3, AlgorithmKind::FairShare),
    ] {
        let document = parse(&format!(
            "resources: [{{identifier_glob: a, capacity: 1, algorithm: {{kind: {number}}}}}]"
        ));
        assert_eq!(document.templates()[0].algorithm().kind, kind);
    }
}

#[test]
fn yaml_shows_hidden_characters() {
    let text = "resources: [{identifier_glob: \"a\\u202E\\U000E0041: b\", capacity: 5, algorithm: {kind: STATIC}}]";
    let document = Document::parse(text).unwrap();
    let yaml = document.to_yaml();
    assert!(yaml.is_ascii(), "{yaml}");
    assert_eq!(Document::parse(&yaml).unwrap(), document);
}

#[test]
fn json_and_yaml_are_equal() {
    let yaml = parse(
        "resources:\n- identifier_glob: \"a/\\u00fc/\\U0001F600\"\n  capacity: 1e3\n  per: 60\n  algorithm: {kind: STATIC}\n",
    );
    let json = parse(
        "{\n\t\"resources\": [\n\t\t{\"identifier_glob\": \"a\\/\\u00fc\\/\\ud83d\\ude00\", \"capacity\": 1E+3,\n\t\t \"per\": \
         60.0, \"algorithm\": {\"kind\": \"STATIC\"}}\n\t]\n}\n",
    );
    assert_eq!(yaml, json);
    assert_eq!(glob_for(&json, "a/ü/😀"), Some("a/ü/😀"));
}

#[test]
fn absent_fields_have_defaults() {
    let document = parse(
        r#"
resources:
  - {identifier_glob: own, capacity: 1, algorithm: {kind: STATIC}}
  - {identifier_glob: common, capacity: 2}
  - identifier_glob: "*"
    capacity: 3
    algorithm: {kind: FAIR_SHARE, lease_length: 300, refresh_interval: 16, learning_mode_duration: 315}
"#,
    );
    let terms = |index: usize| {
        let template = &document.templates()[index];
        let algorithm = template.algorithm();
        (
            algorithm.kind,
            algorithm.lease_length.get(),
            algorithm.refresh_interval.get(),
            template.learning_mode_duration().map(Seconds::get),
        )
    };
    assert_eq!(terms(0), (AlgorithmKind::Static, 60.0, 5.0, None));
    let common = (AlgorithmKind::FairShare, 300.0, 16.0, Some(315.0));
    assert_eq!(terms(1), common);
    assert_eq!(terms(2), common);
}

#[test]
fn aliases_and_merge_keys_are_expanded() {
    let document = parse(
        r#"
resources:
  - identifier_glob: a
    capacity: 1
    algorithm: &terms {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
  - {identifier_glob: b, capacity: 1, algorithm: *terms}
  - {identifier_glob: c, capacity: 1, algorithm: {<<: *terms, kind: STATIC}}
"#,
    );
    let [a, b, c] = document.templates() else {
        panic!("{document:?}");
    };
    assert_eq!(a.algorithm(), b.algorithm());
    assert_eq!(c.algorithm().kind, AlgorithmKind::Static);
    assert_eq!(c.algorithm().lease_length.get(), 20.0);
}

#[test]
fn tags_and_quotes_are_not_part_of_a_text() {
    for glob in ["70", "\"70\"", "!!str 70", "!!int \"70\"", "!!float 70"] {
        let text = format!(
            "resources: [{{identifier_glob: {glob}, capacity: 1, algorithm: {{kind: 0}}}}]"
        );
        assert_eq!(
            parse(&text).templates()[0].identifier_glob(),
            "70",
            "{glob}"
        );
    }
}

#[test]
fn thousands_of_templates_may_share_an_alias() {
    let mut text =
        "resources:\n- {identifier_glob: a, capacity: 1, algorithm: &terms {kind: STATIC}}\n"
            .to_owned();
    for index in 0..5000 {
        text.push_str(&format!(
            "- {{identifier_glob: a{index}, capacity: 1, algorithm: *terms}}\n"
        ));
    }
    assert_eq!(parse(&text).templates().len(), 5001);
}

#[test]
fn exact_glob_precedes_the_first_match() {
    let document = of_globs(&["a*", "ab*", "abc", "a?c", "\\*x", "*"].map(str::to_owned));
    for (id, glob) in [
        ("abc", "abc"),
        ("abd", "a*"),
        ("ab*", "ab*"),
        ("a?c", "a?c"),
        ("b", "*"),
        ("*", "*"),
        ("*x", "\\*x"),
        ("\\*x", "\\*x"),
    ] {
        assert_eq!(glob_for(&document, id), Some(glob), "{id}");
    }
    assert_eq!(glob_for(&of_globs(&["a*".to_owned()]), "b"), None);
    assert_eq!(glob_for(&parse("resources: []"), "b"), None);
}

#[test]
fn longest_lease_is_over_all_templates() {
    let longest = |resources: &str| {
        parse(&format!("resources: [{resources}]"))
            .longest_lease()
            .get()
    };
    let short = "{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC, lease_length: 20}}";
    let long = "{identifier_glob: b, capacity: 1, algorithm: {kind: STATIC, lease_length: 300}}";
    let rest = "{identifier_glob: '*', capacity: 1, algorithm: {kind: STATIC, lease_length: 30}}";
    assert_eq!(longest(""), 0.0);
    assert_eq!(longest(short), 20.0);
    assert_eq!(longest(&format!("{short}, {rest}")), 30.0);
    assert_eq!(longest(&format!("{short}, {long}, {rest}")), 300.0);
}

#[test]
fn short_learning_mode_has_a_warning() {
    let document = parse(
        r#"
resources:
  - {identifier_glob: a, capacity: 1, algorithm: {kind: STATIC, lease_length: 20, learning_mode_duration: 20}}
  - {identifier_glob: b, capacity: 1, algorithm: {kind: STATIC, lease_length: 66, learning_mode_duration: 69.3}}
  - {identifier_glob: c, capacity: 1, algorithm: {kind: STATIC, learning_mode_duration: 0}}
  - {identifier_glob: d, capacity: 1}
  - {identifier_glob: "*", capacity: 1, algorithm: {kind: STATIC, learning_mode_duration: 69.2}}
"#,
    );
    let risk = "leases of the previous master may still be in use, so capacity can be exceeded after a restart";
    let warnings: Vec<_> = document
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            format!(
                "3:107: resources[0] \"a\": algorithm.learning_mode_duration: 20 seconds are less than 69.3 (the longest lease × \
                 1.05): {risk}"
            ),
            format!(
                "5:89: resources[2] \"c\": algorithm.learning_mode_duration: 0 disables learning mode: {risk}"
            ),
            format!(
                "7:91: resources[4] \"*\": algorithm.learning_mode_duration: 69.2 seconds are less than 69.3 (the longest lease × \
                 1.05): {risk}"
            ),
        ]
    );
}

#[test]
fn document_without_a_catch_all_has_one_warning() {
    let warning = "resources: has no template for \"*\": resources that match no template are \
        unlimited, or blocked with `--unmatched refuse`";
    for (globs, expected) in [
        (&[][..], 1),
        (&["a", "b*"], 1),
        (&["?*"], 1),
        (&["a", "*"], 0),
        (&["**"], 0),
    ] {
        let entries = globs.iter().map(|glob| {
            format!(
                r#"{{"identifier_glob": "{glob}", "capacity": 1, "algorithm": {{"kind": "STATIC"}}}}"#
            )
        });
        let entries: Vec<_> = entries.collect();
        let text = format!(r#"{{"resources": [{}]}}"#, entries.join(", "));
        let document = Document::parse_json(&text).unwrap();
        let warnings: Vec<_> = (document.warnings().iter())
            .map(ToString::to_string)
            .collect();
        assert_eq!(warnings, vec![warning; expected], "{globs:?}");
    }
}

#[test]
fn implausible_units_have_warnings() {
    let text = |entries: &str| {
        format!(
            "resources:\n{entries}- {{identifier_glob: '*', capacity: 5, algorithm: {{kind: 1}}}}\n"
        )
    };
    for (fields, warning) in [
        (
            "safe_capacity: 100",
            "safe_capacity: 100 is more than the capacity of 5: every holder without a lease may use it",
        ),
        ("safe_capacity: 5", ""),
        ("safe_capacity: -1", ""),
        ("unit: gauge", ""),
        (
            "algorithm: {kind: 1, lease_length: 60000}",
            "algorithm.lease_length: 60000 seconds are more than an hour: a holder that crashes keeps its lease for as long",
        ),
        ("algorithm: {kind: 1, lease_length: 3600}", ""),
    ] {
        let document = parse(&text(&format!(
            "- {{identifier_glob: a, capacity: 5, {fields}}}\n"
        )));
        let warnings: Vec<_> = (document.warnings().iter())
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            warnings.len(),
            usize::from(!warning.is_empty()),
            "{fields}: {warnings:?}"
        );
        assert!(warnings.concat().ends_with(warning), "{warnings:?}");
    }
}

#[test]
fn rules_of_another_unit_than_their_template_have_warnings() {
    const TEMPLATES: &str = "resources:
- {identifier_glob: pool, capacity: 5, unit: gauge}
- {identifier_glob: 'tenant/*/jobs', capacity: 5, unit: gauge}
- {identifier_glob: '*', capacity: 5, algorithm: {kind: 1}}
";
    for (rule, warning) in [
        ("resource: pool, unit: gauge", ""),
        ("resource: api", ""),
        ("resource: 'tenant/{jwt:sub}/jobs', unit: gauge", ""),
        ("resource: 'tenant/{jwt:sub}'", ""),
        (
            "resource: api, unit: gauge",
            r#"unit: template "*" limits a rate, so this rule gets no lease"#,
        ),
        (
            "resource: pool",
            r#"resource: template "pool" limits a gauge, so this rule gets no lease"#,
        ),
    ] {
        let rule = format!("rules: [{{name: r, service: s, {rule}}}]\n");
        let document = parse(&(TEMPLATES.to_owned() + &rule));
        let warnings: Vec<_> = (document.warnings().iter())
            .map(ToString::to_string)
            .collect();
        assert_eq!(warnings.len(), usize::from(!warning.is_empty()), "{rule}");
        assert!(warnings.concat().ends_with(warning), "{warnings:?}");
    }
}

#[test]
fn learning_mode_can_be_disabled() {
    let text = "resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: 3, learning_mode_duration: 0}}]";
    let document = parse(text);
    let template = &document.templates()[0];
    assert_eq!(template.learning_mode_duration(), Some(Seconds::ZERO));
    assert_eq!(Document::parse_json(&document.to_json()).unwrap(), document);
}

#[test]
fn built_in_document_matches_everything() {
    let document = Document::built_in();
    assert!(document.warnings().is_empty());
    assert_eq!(glob_for(&document, "anything/at all"), Some("*"));
    let template = &document.templates()[0];
    assert_eq!(template.capacity().get(), 1000.0);
    assert_eq!(template.algorithm().kind, AlgorithmKind::FairShare);
    assert_eq!(template.algorithm().lease_length.get(), 60.0);
    assert_eq!(template.algorithm().refresh_interval.get(), 5.0);
}

#[test]
fn example_in_the_built_in_document_is_valid() {
    // As an operator would uncomment it.
    let example: String = Document::BUILT_IN
        .lines()
        .skip_while(|line| !line.starts_with("  # - identifier_glob"))
        .map(|line| format!("{}\n", line.replacen("# ", "", 1)))
        .collect();
    let text = Document::BUILT_IN.replacen("resources:\n", &format!("resources:\n{example}"), 1);
    let document = parse(&text);
    assert!(document.warnings().is_empty());
    let template = &document.templates()[0];
    assert_eq!(template.identifier_glob(), "tenant/*");
    assert_eq!(template.per().get(), 60.0);
    assert_eq!(template.learning_mode_duration().unwrap().get(), 63.0);
    // It shows the defaults.
    assert_eq!(template.feedback(), Some(Feedback::default()));
}

#[test]
fn version_depends_on_the_meaning_only() {
    let version = |text: &str| parse(text).version().to_owned();
    let plain =
        version("resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC}}]");
    // Fixed: stored documents have it.
    assert_eq!(plain, "c3e10d8075e07d8a0a3ca76d0b412535");
    assert_eq!(
        version(
            "# with the defaults written out\nresources:\n- capacity: 1.0\n  identifier_glob: a\n  unit: rate\n  per: 1\n  \
             minimum_refresh_interval: 0\n  algorithm: {kind: 1, lease_length: 60, refresh_interval: 5}\n"
        ),
        plain
    );
    for other in [
        "resources: []",
        "resources: [{identifier_glob: b, capacity: 1, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 2, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, safe_capacity: 0, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, description: x, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, per: 2, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, minimum_refresh_interval: 1, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: FAIR_SHARE}}]",
        "resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC, learning_mode_duration: 70}}]",
        "resources: [{identifier_glob: a, capacity: 1, unit: gauge, algorithm: {kind: STATIC}}]",
        "resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC}, feedback: {mode: observe}}]",
        "resources: [{identifier_glob: a, capacity: 1, algorithm: {kind: STATIC}}, {identifier_glob: b, capacity: 1, \
         algorithm: {kind: STATIC}}]",
    ] {
        assert_ne!(version(other), plain, "{other}");
    }
}

/// A document with every feature, for mutations.
const RICH: &str = r#"---
resources:   # all of them
  - identifier_glob: "tenant/*"
    capacity: 100
    safe_capacity: -1
    description: |
      per tenant
    unit: rate
    per: 1.5
    minimum_refresh_interval: 0
    algorithm: &terms {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5, parameters: []}
    feedback: {mode: observe, floor: 0.2, tolerate: 0.1, headers: false}
  - {identifier_glob: 'db-[0-9]\*', capacity: 1e3, algorithm: {<<: *terms, kind: 2}}
  - identifier_glob: "*"
    capacity: 1000
    algorithm: *terms
rules:
  - {name: r, service: "orders*", methods: [GET], path: "/{id}", resource: "tenant/{jwt:sub}", cost: 2,
     on_limit: {action: delay, max_delay: 0.5}, on_missing_key: skip, fallback: safe, priority: -1}
"#;

/// Pieces with a meaning in YAML, JSON or documents.
const PIECES: &[&str] = &[
    "",
    "\n",
    " ",
    "\t",
    ":",
    "-",
    ",",
    "[",
    "]",
    "{",
    "}",
    "*",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "!x ",
    "|",
    ">",
    "'",
    "\"",
    "\\",
    "#",
    "%",
    "?",
    "---",
    "...",
    "~",
    "null",
    "true",
    "1e999",
    ".nan",
    "-1",
    "0x10",
    "\u{0}",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "ü",
    "😀",
    "rules: []",
    "kind",
    "capacity",
    "  - identifier_glob: '*'\n",
];

#[test]
fn rich_document_is_valid() {
    assert_eq!(parse(RICH).templates().len(), 3);
}

/// Unique globs, the catch-all last.
fn globs() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab/*?]{1,4}", 0..8).prop_map(|mut globs| {
        let mut seen = std::collections::HashSet::new();
        globs.retain(|glob| seen.insert(glob.clone()));
        let is_catch_all = |glob: &String| glob.chars().all(|char| char == '*');
        let catch_all = globs.iter().find(|glob| is_catch_all(glob)).cloned();
        globs.retain(|glob| !is_catch_all(glob));
        globs.extend(catch_all);
        globs
    })
}

proptest! {
    #[test]
    fn no_mutation_panics(
        damage in proptest::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..12, prop::sample::select(PIECES)),
            1..6,
        )
    ) {
        let mut text: Vec<char> = RICH.chars().collect();
        for (at, length, piece) in damage {
            let start = at.index(text.len() + 1);
            let end = (start + length).min(text.len());
            text.splice(start..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        match Document::parse(&text) {
            Ok(document) => prop_assert_eq!(&Document::parse(&text).unwrap(), &document),
            Err(errors) => {
                prop_assert!(!errors.list().is_empty());
                prop_assert_eq!(errors.to_string().lines().count(), errors.list().len());
            }
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[ \\n:\\-\\[\\]{}&*!|>'\"%#?,a0]{0,200}") {
        if let Err(errors) = Document::parse(&text) {
            prop_assert!(!errors.list().is_empty());
        }
    }

    #[test]
    fn lookup_agrees_with_its_definition(globs in globs(), id in "[ab/*?]{1,6}") {
        let by_definition = globs
            .iter()
            .find(|glob| **glob == id)
            .or_else(|| globs.iter().find(|glob| Glob::new(glob).unwrap().matches(&id)));
        let document = of_globs(&globs);
        prop_assert_eq!(glob_for(&document, &id), by_definition.map(String::as_str));
    }

    #[test]
    fn written_document_parses_as_equal(
        globs in globs(),
        capacity in 0.0..1e9_f64,
        safe in proptest::option::of(prop_oneof![Just(-1.0), 0.0..1e9_f64]),
        description in proptest::option::of("\\PC{0,20}|[0-9~*&!?|>'\"%@`#:{}\\[\\], \\-]{0,6}|true|null|No|0x1f|1e3|---"),
        (kind, lease, refresh) in (0..4, 1.0..1e6_f64, 0.001..1.0_f64),
        (learning, minimum) in (proptest::option::of(0.0..1e6_f64), 0.0..1.0_f64),
        surplus in proptest::option::of(0.0..=1.0_f64),
        floor in proptest::option::weighted(0.3, 0.0..=1.0_f64),
    ) {
        let resources: Vec<_> = globs
            .iter()
            .map(|glob| {
                let mut template = serde_json::json!({
                    "identifier_glob": glob,
                    "capacity": capacity,
                    "minimum_refresh_interval": minimum * refresh,
                    "algorithm": {"kind": kind, "lease_length": lease, "refresh_interval": refresh},
                });
                if let Some(safe) = safe {
                    template["safe_capacity"] = safe.into();
                }
                if let Some(description) = &description {
                    template["description"] = description.as_str().into();
                }
                if let (Some(surplus), 2..) = (surplus, kind) {
                    template["algorithm"]["parameters"] =
                        serde_json::json!([{"name": "surplus", "value": surplus.to_string()}]);
                }
                if let Some(floor) = floor {
                    template["algorithm"]["kind"] = "PRIORITY_SHARE".into();
                    template["algorithm"]["parameters"] =
                        serde_json::json!([{"name": "floor", "value": floor}]);
                }
                if let Some(learning) = learning {
                    template["algorithm"]["learning_mode_duration"] = learning.into();
                }
                template
            })
            .collect();
        let document = parse(&serde_json::json!({"resources": resources}).to_string());
        for written in [document.to_json(), document.to_yaml(), document.to_pretty_json()] {
            let again = parse(&written);
            prop_assert_eq!(&again, &document);
            prop_assert_eq!(again.version(), document.version());
        }
    }
}

#[test]
fn whole_numbers_are_written_without_a_point() {
    let text = "resources: [{identifier_glob: '1.0', capacity: 1000, safe_capacity: 2.5, algorithm: {kind: STATIC}}]";
    let document = Document::parse(text).unwrap();
    let yaml = document.to_yaml();
    for line in ["capacity: 1000", "safe_capacity: 2.5", "per: 1"] {
        assert!(
            yaml.lines().any(|it| it.trim() == line),
            "{line} in\n{yaml}"
        );
    }
    let json = document.to_pretty_json();
    for line in [r#""identifier_glob": "1.0","#, r#""capacity": 1000,"#] {
        assert!(
            json.lines().any(|it| it.trim() == line),
            "{line} in\n{json}"
        );
    }
}

#[test]
fn parameters_of_sharing_algorithms_are_read() {
    let document = Document::parse(
        "resources:
- {identifier_glob: spare, capacity: 10, algorithm: {kind: FAIR_SHARE, parameters: [{name: surplus, value: \"0.2\"}]}}
- {identifier_glob: steps, capacity: 10, unit: gauge}
- {identifier_glob: parts, capacity: 10, unit: gauge, algorithm: {kind: FAIR_SHARE, parameters: [{name: granularity, value: 0}]}}
- {identifier_glob: bands, capacity: 10, algorithm: {kind: PRIORITY_SHARE, parameters: [{name: floor, value: \"0.1\"}]}}
- {identifier_glob: \"*\", capacity: 10, algorithm: {kind: PROPORTIONAL_SHARE}}
",
    )
    .unwrap();
    let read: Vec<_> = document
        .templates()
        .iter()
        .map(|template| {
            (
                template.unit(),
                template.surplus(),
                template.granularity().get(),
                template.floor(),
            )
        })
        .collect();
    let (rate, gauge) = (Unit::Rate, Unit::Gauge);
    assert_eq!(
        read,
        [
            (rate, Some(0.2), 0.0, 0.0),
            (gauge, None, 1.0, 0.0),
            (gauge, None, 0.0, 0.0),
            (rate, None, 0.0, 0.1),
            (rate, None, 0.0, 0.0),
        ]
    );
}

#[test]
fn rules_of_another_document_replace_its_own() {
    let parent = parse(
        r#"{"resources": [{"identifier_glob": "*", "capacity": 5, "algorithm": {"kind": "FAIR_SHARE"}}],
            "rules": [{"name": "a", "service": "shop", "resource": "db", "unit": "gauge"},
                      {"name": "b", "service": "*", "resource": "api"}]}"#,
    );
    let own = Document::built_in();
    let document = own.with_rules(&parent.rules_for(None).rules).unwrap();
    assert_eq!(document.templates(), own.templates());
    assert_eq!(document.rules_for(None), parent.rules_for(None));
    assert_eq!(
        document.rules_for(Some("shop")),
        parent.rules_for(Some("shop"))
    );
    assert!(document.warnings().is_empty());
    assert_eq!(document.with_rules(&[]).unwrap(), own);

    let mut twice = parent.rules_for(None).rules;
    twice[1].name = twice[0].name.clone();
    assert!(own.with_rules(&twice).is_err());
}
