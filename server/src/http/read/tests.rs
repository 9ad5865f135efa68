use doorman_openapi::{
    CapacityRequest, FieldError, MAX_RESOURCES, ReleaseRequest, ServerCapacityRequest,
    ServerReleaseRequest,
};
use proptest::{prelude::*, strategy::ValueTree};
use serde_json::{Value, json};

use super::*;

/// What the two paths say of a text: whether the fast one takes it, and what the slow one finds.
fn both<T: Body>(text: &str) -> (bool, Vec<FieldError>) {
    let fast = exactly::<T>(text).is_ok_and(|read| read.keeps_the_rules());
    let value: &RawValue = serde_json::from_str(text).unwrap();
    (fast, faults::<T>(value))
}

/// The status and the pointers with which a body is refused.
fn refused<T: Body>(body: &[u8]) -> (u16, Vec<String>) {
    let Err(refusal) = read::<T>(body) else {
        panic!("taken: {}", String::from_utf8_lossy(body));
    };
    let problem = refusal.into_problem();
    let pointers = problem.errors.into_iter().map(|fault| fault.pointer);
    (problem.status, pointers.collect())
}

fn check<T: Body>(body: &str, pointers: &[&str]) {
    let expected = pointers.iter().map(|&pointer| pointer.to_owned());
    assert_eq!(
        refused::<T>(body.as_bytes()),
        (422, expected.collect()),
        "{body}"
    );
}

#[test]
fn bytes_outside_the_grammar_are_malformed() {
    for body in [
        &b""[..],
        b" ",
        b"{",
        b"{}}",
        b"{} {}",
        b"nul",
        b"{'a':1}",
        b"{\"a\":1,}",
        b"{\"a\":01}",
        b"{\"a\":.5}",
        b"{\"a\":1.}",
        b"{\"a\":+1}",
        b"{\"a\":NaN}",
        b"{\"a\":Infinity}",
        b"{\"a\":0x10}",
        b"{\"a\":\"\n\"}",
        b"{\"a\":\"\\x\"}",
        b"{\"a\":\"\\u12\"}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\xed\xa0\x80\"}",
        b"\xff\xfe{\0}\0",
        b"/* */{}",
    ] {
        let (status, pointers) = refused::<CapacityRequest>(body);
        assert_eq!(
            (status, pointers.len()),
            (400, 0),
            "{}",
            body.escape_ascii()
        );
    }
}

#[test]
fn every_fault_of_a_client_s_request_is_listed() {
    let check = check::<CapacityRequest>;
    for not_an_object in ["null", "[]", "1", "\"a\"", "true", "[\"c\",1,[]]"] {
        check(not_an_object, &[""]);
    }
    check("{}", &["/client_id", "/resources"]);
    check(
        r#"{"client_id":"","resources":{}}"#,
        &["/client_id", "/resources"],
    );
    check(
        r#"{"client_id":7,"seq":-1,"resources":null}"#,
        &["/client_id", "/seq", "/resources"],
    );
    check(r#"{"client_id":"c","seq":null,"resources":[]}"#, &["/seq"]);
    check(r#"{"client_id":"c","seq":1.5,"resources":[]}"#, &["/seq"]);
    check(
        r#"{"client_id":"c","seq":9007199254740992,"resources":[]}"#,
        &["/seq"],
    );
    check(r#"{"client_id":"\u0000","resources":[]}"#, &["/client_id"]);
    check(r#"{"client_id":"\ud800","resources":[]}"#, &["/client_id"]);
    check(
        &json!({"client_id": "x".repeat(257), "resources": []}).to_string(),
        &["/client_id"],
    );
    check(
        r#"{"client_id":"c","resources":[
            {"resource_id":"a","wants":-1},
            {"resource_id":"b","wants":1e999,"priority":1.5,"outstanding":null,"used":"1"},
            ["c",5],
            {"wants":1e16},
            {"resource_id":"e","wants":1,"has":5},
            {"resource_id":"f","wants":1,"has":[5]},
            {"resource_id":"g","wants":1,"has":{}},
            {"resource_id":"h","wants":1,"has":{"capacity":-1}},
            {"resource_id":"i","wants":1,"priority":2147483648}
        ]}"#,
        &[
            "/resources/0/wants",
            "/resources/1/wants",
            "/resources/1/priority",
            "/resources/1/outstanding",
            "/resources/1/used",
            "/resources/2",
            "/resources/3/wants",
            "/resources/3/resource_id",
            "/resources/4/has",
            "/resources/5/has",
            "/resources/6/has/capacity",
            "/resources/7/has/capacity",
            "/resources/8/priority",
        ],
    );
}

#[test]
fn repeated_keys_and_resources_are_faults() {
    check::<CapacityRequest>(
        r#"{"client_id":"c","client_id":"d","resources":[],"resources":[]}"#,
        &["/client_id", "/resources"],
    );
    check::<CapacityRequest>(
        r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1,"wants":1}]}"#,
        &["/resources/0/wants"],
    );
    // Escaped or not, it is the same key.
    check::<CapacityRequest>(
        r#"{"client_id":"c","client_\u0069d":"c","resources":[]}"#,
        &["/client_id"],
    );
    check::<CapacityRequest>(
        r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1},{"resource_id":"b","wants":-1},{"resource_id":"\u0061","wants":2}]}"#,
        &["/resources/1/wants", "/resources/2/resource_id"],
    );
    check::<ReleaseRequest>(
        r#"{"client_id":"c","resource_ids":["a","b","a",7,"a"]}"#,
        &["/resource_ids/2", "/resource_ids/3", "/resource_ids/4"],
    );
}

#[test]
fn every_fault_of_a_node_s_request_is_listed() {
    check::<ServerCapacityRequest>("{}", &["/node_id", "/resources"]);
    check::<ServerCapacityRequest>(
        r#"{"node_id":"n","epoch":"1","resources":[
            {"resource_id":"a","wants":5},
            {"resource_id":"b","wants":[]},
            {"resource_id":"c","wants":[{}]},
            {"resource_id":"d","wants":[
                {"priority":1,"num_clients":1,"wants":1},{"priority":0,"num_clients":0,"wants":1},{"priority":1,"num_clients":1,"wants":1}
            ]},
            {"resource_id":"e","wants":[{"priority":1,"num_clients":1,"wants":6e14},{"priority":0,"num_clients":1,"wants":6e14}]}
        ]}"#,
        &[
            "/epoch",
            "/resources/0/wants",
            "/resources/1/wants",
            "/resources/2/wants/0/priority",
            "/resources/2/wants/0/num_clients",
            "/resources/2/wants/0/wants",
            "/resources/3/wants/1/num_clients",
            "/resources/3/wants/2/priority",
            "/resources/4/wants",
        ],
    );
    check::<ServerReleaseRequest>(
        r#"{"node_id":"","epoch":1.5,"seq":"x","resource_ids":"all"}"#,
        &["/node_id", "/epoch", "/seq", "/resource_ids"],
    );
}

#[test]
fn faults_say_what_would_be_right() {
    let body = br#"{"client_id":"c","seq":-1,"resources":[{"resource_id":"db","wants":-1}]}"#;
    let problem = read::<CapacityRequest>(body).unwrap_err().into_problem();
    assert_eq!(
        problem.detail,
        "/seq must be an integer from 0 to 9007199254740991, and 1 more fault"
    );
    assert_eq!(problem.errors[1].detail, "must be a number from 0 to 1e15");
}

#[test]
fn what_no_call_knows_is_ignored_however_deep_it_is() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let nested = "{\"a\":".repeat(100_000) + "1" + &"}".repeat(100_000);
    for unknown in [
        "null",
        "1e999",
        r#""\ud800""#,
        r#"{"a":1,"a":2}"#,
        &deep,
        &nested,
    ] {
        let body = format!(
            r#"{{"new":{unknown},"client_id":"c","new":{unknown},"resources":[{{"resource_id":"a","wants":1,"new":{unknown},"has":{{"new":{unknown},"capacity":1}}}}]}}"#
        );
        let read = read::<CapacityRequest>(body.as_bytes()).unwrap();
        assert_eq!(read.resources[0].wants.get(), 1.0);
        let faulty = body.replace(r#""wants":1"#, r#""wants":-1"#);
        check::<CapacityRequest>(&faulty, &["/resources/0/wants"]);
    }
    // In the place of what is known, depth is a fault like any other.
    check::<CapacityRequest>(&deep, &[""]);
    check::<CapacityRequest>(
        &format!(r#"{{"client_id":{deep},"resources":{nested}}}"#),
        &["/client_id", "/resources"],
    );
}

#[test]
fn a_request_carries_at_most_ten_thousand_resources() {
    let request = |count: usize, wants: i32| {
        let resources: Vec<_> = (0..count)
            .map(|index| json!({"resource_id": index.to_string(), "wants": wants}))
            .collect();
        json!({"client_id": "c", "resources": resources}).to_string()
    };
    assert!(read::<CapacityRequest>(request(MAX_RESOURCES, 1).as_bytes()).is_ok());
    check::<CapacityRequest>(&request(MAX_RESOURCES + 1, 1), &["/resources"]);

    let release = json!({"client_id": "c", "resource_ids": (0..10_001).map(|id| id.to_string()).collect::<Vec<_>>()});
    check::<ReleaseRequest>(&release.to_string(), &["/resource_ids"]);
}

#[test]
fn faults_without_number_are_not_all_listed() {
    let bands = vec!["0"; 1_000_000].join(",");
    let body =
        format!(r#"{{"node_id":"n","resources":[{{"resource_id":"a","wants":[{bands}]}}]}}"#);
    let problem = read::<ServerCapacityRequest>(body.as_bytes())
        .unwrap_err()
        .into_problem();
    assert_eq!(problem.errors.len(), 10_001);
    assert_eq!(
        problem.errors[10_000].detail,
        "has 990000 more faults, which are not listed"
    );
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
