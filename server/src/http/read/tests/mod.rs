//! Tables of hostile bodies, with the status and the pointers that they are refused with.

mod agreement;

use doorman_openapi::{
    CapacityRequest, MAX_RESOURCES, ReleaseRequest, ServerCapacityRequest, ServerReleaseRequest,
};
use serde_json::json;

use super::*;

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
