use doorman_openapi::{Feedback, FeedbackMode, Fraction, Seconds};
use proptest::prelude::*;

use crate::{Document, DocumentDiff, EntryKind};

const SHARED: &str = "capacity: 10, algorithm: {kind: FAIR_SHARE}";

/// A document with two templates. The first has these fields; `feedback` is in a line of its own.
fn text(fields: &str, feedback: &str) -> String {
    format!(
        "resources:\n- {{identifier_glob: db, {fields},\nfeedback: {feedback}}}\n\
         - {{identifier_glob: '*', capacity: 1000, algorithm: {{kind: STATIC}}}}\n"
    )
}

#[track_caller]
fn parse(text: &str) -> Document {
    Document::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors}"))
}

/// The errors of the first template, behind its name.
#[track_caller]
fn errors(fields: &str, feedback: &str) -> Vec<String> {
    let text = text(fields, feedback);
    let errors = Document::parse(&text).expect_err(&text).to_string();
    let behind = |line: &str| match line.split_once("\"db\": ") {
        Some((_, error)) => error.to_owned(),
        None => line.to_owned(),
    };
    errors.lines().map(behind).collect()
}

fn feedback_of(document: &Document, glob: &str) -> Option<Feedback> {
    document.template(glob).unwrap().feedback()
}

#[test]
fn absent_fields_have_defaults() {
    let document = parse(&text(SHARED, "{}"));
    let feedback = feedback_of(&document, "db").unwrap();
    assert_eq!(feedback.mode, FeedbackMode::Act);
    assert_eq!((feedback.floor.get(), feedback.tolerate.get()), (0.1, 0.01));
    assert!(feedback.headers && feedback.latency.is_none());
    // Unlike the algorithm it is not taken from the template for `*`.
    assert_eq!(feedback_of(&document, "*"), None);
}

#[test]
fn every_error_is_listed() {
    assert_eq!(
        errors(
            SHARED,
            "{modes: act, mode: on, floor: 1.1, tolerate: 0.51, headers: standard, latency: 0}"
        ),
        [
            "feedback.modes: is not a known field; did you mean \"mode\"?",
            "feedback.mode: must be act or observe, not the text \"on\"",
            "feedback.floor: must be a number from 0 to 1, not 1.1",
            "feedback.tolerate: must be a number from 0 to 0.5, not 0.51",
            "feedback.headers: must be true or false, not the text \"standard\"",
            "feedback.latency: must be a number of seconds above 0, up to 31536000 (a year), not 0",
        ]
    );
    assert_eq!(
        errors(SHARED, "observe"),
        [
            "feedback: must be a map with the fields mode, floor, tolerate, headers, latency, not the \
             text \"observe\""
        ]
    );
    let invalid = Document::parse(&text(SHARED, "{floor: 2}")).unwrap_err();
    assert_eq!(invalid.list()[0].pointer(), "/resources/0/feedback/floor");
    assert!(invalid.to_string().starts_with("3:19: "), "{invalid}");
}

#[test]
fn feedback_that_can_do_nothing_is_rejected() {
    assert_eq!(
        errors(SHARED, "{latency: 0.25}"),
        ["feedback.latency: must be left out: latency is for gauges only"]
    );
    parse(&text(
        &format!("unit: gauge, {SHARED}"),
        "{latency: 0.0001}",
    ));
    assert_eq!(
        errors(
            "capacity: 0, algorithm: {kind: FAIR_SHARE}",
            "{mode: observe}"
        ),
        ["feedback: must be left out while the capacity is 0"]
    );
    // The template for `*` has the algorithm STATIC.
    assert_eq!(
        errors("capacity: 10", "{latency: 1}"),
        [
            "feedback.mode: is missing; must be observe: STATIC does not divide the capacity, and is \
             act when absent",
            "feedback.latency: must be left out: latency is for gauges only",
        ]
    );
}

#[test]
fn only_algorithms_that_divide_act() {
    for kind in ["NO_ALGORITHM", "STATIC", "SUPPRESSION", "SHARED_BUCKET"] {
        let fields = format!("capacity: 10, algorithm: {{kind: {kind}}}");
        assert_eq!(
            errors(&fields, "{mode: act}"),
            [format!(
                "feedback.mode: must be observe: {kind} does not divide the capacity, so leases do \
                 not show the use"
            )]
        );
        let document = parse(&text(&fields, "{mode: observe}"));
        let feedback = feedback_of(&document, "db").unwrap();
        assert_eq!(feedback.mode, FeedbackMode::Observe);
    }
    for kind in ["PROPORTIONAL_SHARE", "FAIR_SHARE", "PRIORITY_SHARE"] {
        let fields = format!("capacity: 10, algorithm: {{kind: {kind}}}");
        let document = parse(&text(&fields, "{mode: act}"));
        assert_eq!(feedback_of(&document, "db"), Some(Feedback::default()));
    }
}

#[test]
fn low_rate_without_tolerance_has_a_warning() {
    for (fields, feedback, warning) in [
        (
            "capacity: 1",
            "{}",
            "feedback: tolerate is absent, and its default of 0.01 is too little below 2 requests a \
             second: a target refuses more by chance; use 0.1",
        ),
        (
            "capacity: 119, per: 60",
            "{tolerate: 0.05}",
            "feedback.tolerate: 0.05 is too little below 2 requests a second: a target refuses more by \
             chance; use 0.1",
        ),
        ("capacity: 120, per: 60", "{}", ""),
        ("capacity: 1", "{tolerate: 0.1}", ""),
        ("capacity: 1, unit: gauge", "{}", ""),
    ] {
        let text = text(
            &format!("{fields}, algorithm: {{kind: FAIR_SHARE}}"),
            feedback,
        );
        let warnings: Vec<_> = (parse(&text).warnings().iter())
            .map(ToString::to_string)
            .collect();
        let expected = usize::from(!warning.is_empty());
        assert_eq!(warnings.len(), expected, "{text}: {warnings:?}");
        assert!(warnings.concat().ends_with(warning), "{warnings:?}");
    }
}

#[test]
fn edits_change_single_fields() {
    let document = parse(&text(SHARED, "{floor: 0.2, headers: false}"));
    let patched = |document: &Document, patch: &str| {
        document
            .with_patched(EntryKind::Template, "db", patch)
            .unwrap()
            .unwrap()
    };
    let lines = |old: &Document, new: &Document| -> Vec<_> {
        DocumentDiff::between(old, new).lines().collect()
    };
    let observed = patched(
        &document,
        r#"{"feedback": {"mode": "observe", "floor": null}}"#,
    );
    assert_eq!(
        lines(&document, &observed),
        [r#"template "db": feedback.floor: 0.2 → 0.1, feedback.mode: "act" → "observe""#]
    );
    let without = patched(&document, r#"{"feedback": null}"#);
    assert_eq!(
        without,
        parse(&text(SHARED, "{}").replace(",\nfeedback: {}", ""))
    );
    assert_eq!(
        lines(&document, &without),
        [
            "template \"db\": feedback.floor: 0.2 → absent, feedback.headers: false → absent, \
             feedback.mode: \"act\" → absent, feedback.tolerate: 0.01 → absent"
        ]
    );
    let put = |text: &str| {
        let edited = document.with(EntryKind::Template, "db", text);
        edited.unwrap().notes.dropped
    };
    assert_eq!(
        put(r#"{"capacity": 10, "algorithm": {"kind": "FAIR_SHARE"}, "feedback": {"floor": 0.3}}"#),
        ["feedback.headers: false"]
    );
}

proptest! {
    #[test]
    fn written_feedback_is_read_as_equal(
        (observes, headers) in any::<(bool, bool)>(),
        (floor, tolerate) in (0.0..=1.0_f64, 0.0..=0.5_f64),
        latency in proptest::option::of(1e-9..1e6_f64),
    ) {
        let feedback = Feedback {
            mode: if observes { FeedbackMode::Observe } else { FeedbackMode::Act },
            floor: Fraction::new(floor).unwrap(),
            tolerate: Fraction::new(tolerate).unwrap(),
            headers,
            latency: latency.map(|it| Seconds::new(it).unwrap()),
        };
        let written = serde_json::to_string(&feedback).unwrap();
        let document = parse(&text(&format!("unit: gauge, {SHARED}"), &written));
        prop_assert_eq!(feedback_of(&document, "db"), Some(feedback));
        for written in [document.to_json(), document.to_yaml(), document.to_pretty_json()] {
            let again = parse(&written);
            prop_assert_eq!(again.version(), document.version());
            prop_assert_eq!(&again, &document);
        }
    }
}
