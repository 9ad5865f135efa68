//! The fast and the slow path agree on what is acceptable.

use doorman_openapi::{
    CapacityRequest, FieldError, ReleaseRequest, ServerCapacityRequest, ServerReleaseRequest,
};
use proptest::{prelude::*, strategy::ValueTree};
use serde_json::Value;

use super::super::*;

/// What the two paths say of a text: whether the fast one takes it, and what the slow one finds.
fn both<T: Body>(text: &str) -> (bool, Vec<FieldError>) {
    let fast = exactly::<T>(text).is_ok_and(|read| read.keeps_the_rules());
    let value: &RawValue = serde_json::from_str(text).unwrap();
    (fast, faults::<T>(value))
}

/// A number as text, often at an edge of what is allowed.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "0",
            "-0",
            "-0.0",
            "1",
            "1.0",
            "1e0",
            "1e15",
            "1.0000000000000001e15",
            "1e16",
            "1e308",
            "1e309",
            "1e999",
            "-1e999",
            "1e-400",
            "-1",
            "-1e-300",
            "5e-324",
            "2147483647",
            "2147483648",
            "-2147483648",
            "-2147483649",
            "9007199254740991",
            "9007199254740992",
            "18446744073709551615",
            "18446744073709551616",
            "1000000000000000",
            "1000000000000001",
            "4e14",
            "123456789012345678901234567890",
        ])
        .prop_map(str::to_owned),
        any::<i32>().prop_map(|number| number.to_string()),
        (0u32..5).prop_map(|number| number.to_string()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            r#""""#,
            r#""a""#,
            r#""b""#,
            r#""\u0061""#,
            r#""\ud800""#,
            r#""\ud83d\ude00""#,
            r#""\u0000""#,
            r#""\n""#,
            r#""ü""#,
        ])
        .prop_map(str::to_owned),
        "[a-c]".prop_map(|text| format!("\"{text}\"")),
    ]
}

/// Any JSON whose objects like to have the keys that calls know.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        3 => number(),
        3 => text(),
        1 => prop::sample::select(vec!["null", "true", "false", "[]", "{}"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        let member = (key(), inner.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..7).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        r#""client_id""#,
        r#""node_id""#,
        r#""epoch""#,
        r#""seq""#,
        r#""resources""#,
        r#""resource_ids""#,
        r#""resource_id""#,
        r#""wants""#,
        r#""priority""#,
        r#""num_clients""#,
        r#""has""#,
        r#""capacity""#,
        r#""outstanding""#,
        r#""used""#,
        r#""w\u0061nts""#,
        r#""unknown""#,
        r#""\ud800""#,
    ])
    .prop_map(str::to_owned)
}

/// A right request with some of its values replaced by any others, and members repeated or left out.
fn nearly_right() -> impl Strategy<Value = String> {
    let value = |right: &'static str| prop_oneof![12 => Just(right.to_owned()), 2 => number(), 1 => text(), 1 => any_json()];
    let member = move |name: &'static str, right: &'static str| {
        (0..24u8, value(right)).prop_map(move |(times, value)| match times {
            0 => String::new(),
            1 => format!(r#""{name}":{value},"{name}":{value},"#),
            _ => format!(r#""{name}":{value},"#),
        })
    };
    let held = member("capacity", "5").prop_map(|member| format!(r#""has":{{{member}"new":0}},"#));
    let band = (
        member("priority", "0"),
        member("num_clients", "1"),
        member("wants", "4e14"),
    )
        .prop_map(|(priority, clients, wants)| format!(r#"{{{priority}{clients}{wants}"x":0}}"#));
    let wants = prop_oneof![
        member("wants", "7"),
        prop::collection::vec(band, 0..4)
            .prop_map(|bands| format!(r#""wants":[{}],"#, bands.join(","))),
    ];
    let resource = (
        prop_oneof![
            member("resource_id", r#""a""#),
            member("resource_id", r#""b""#),
            member("resource_id", r#""c""#)
        ],
        wants,
        member("priority", "1"),
        held,
        member("outstanding", "0"),
        member("used", "1"),
    )
        .prop_map(|(id, wants, priority, has, outstanding, used)| {
            format!(r#"{{{id}{wants}{priority}{has}{outstanding}{used}"new":[]}}"#)
        });
    (
        member("client_id", r#""c""#),
        member("node_id", r#""n""#),
        member("epoch", "3"),
        member("seq", "4"),
        prop::collection::vec(resource, 0..3),
        prop::collection::vec(value(r#""r""#), 0..3),
    )
        .prop_map(|(client, node, epoch, seq, resources, ids)| {
            format!(
                r#"{{{client}{node}{epoch}{seq}"resources":[{}],"resource_ids":[{}]}}"#,
                resources.join(","),
                ids.join(",")
            )
        })
}

fn agree<T: Body>(text: &str) -> Result<bool, TestCaseError> {
    let (fast, faults) = both::<T>(text);
    prop_assert_eq!(fast, faults.is_empty(), "{}: {:?}", text, faults);
    Ok(fast)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_paths_agree_on_what_is_acceptable(text in prop_oneof![any_json(), nearly_right()]) {
        agree::<CapacityRequest>(&text)?;
        agree::<ServerCapacityRequest>(&text)?;
        agree::<ReleaseRequest>(&text)?;
        agree::<ServerReleaseRequest>(&text)?;
    }

    #[test]
    fn pointers_lead_to_the_fault(text in nearly_right()) {
        let (_, faults) = both::<CapacityRequest>(&text);
        // What no parser of values takes has no value to point at.
        let Ok(value) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        for fault in faults {
            let missing = fault.detail == "must be present";
            prop_assert_eq!(value.pointer(&fault.pointer).is_none(), missing, "{}: {:?}", text, fault);
        }
    }

    #[test]
    fn no_bytes_do_more_than_be_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read::<CapacityRequest>(&bytes).is_err());
    }
}

#[test]
fn the_nearly_right_are_sometimes_right() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut taken = [0, 0];
    for _ in 0..500 {
        let text = nearly_right().new_tree(&mut runner).unwrap().current();
        taken[usize::from(agree::<CapacityRequest>(&text).unwrap())] += 1;
    }
    assert!(taken.iter().all(|count| *count > 20), "{taken:?}");
}
