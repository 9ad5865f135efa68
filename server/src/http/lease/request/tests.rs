use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The status of an invalid body, and the pointers of its errors.
fn rejected<T: CallBody>(body: &[u8]) -> (u16, Vec<String>) {
    let Err(error) = parse::<T>(body) else {
        panic!("accepted: {}", String::from_utf8_lossy(body));
    };
    let problem = error.into_problem();
    let pointers = problem.errors.into_iter().map(|error| error.pointer);
    (problem.status, pointers.collect())
}

#[track_caller]
fn check<T: CallBody>(body: &str, pointer: &str) {
    let expected = (422, vec![pointer.to_owned()]);
    assert_eq!(rejected::<T>(body.as_bytes()), expected, "{body}");
}

#[test]
fn invalid_json_is_malformed() {
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
        // Invalid before the syntax error.
        b"{\"client_id\":7,}",
    ] {
        let (status, pointers) = rejected::<CapacityRequest>(body);
        assert_eq!(
            (status, pointers.len()),
            (400, 0),
            "{}",
            body.escape_ascii()
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn invalid_fields_of_a_client_request_are_located() {
    let check = check::<CapacityRequest>;
    for not_an_object in ["null", "[]", "1", "\"a\"", "true", "[\"c\",1,[]]"] {
        check(not_an_object, "");
    }
    check("{}", "/client_id");
    for (member, pointer) in [
        (r#""client_id":"""#, "/client_id"),
        (r#""client_id":7"#, "/client_id"),
        (r#""client_id":"\u0000""#, "/client_id"),
        (r#""client_id":"\ud800""#, "/client_id"),
        (r#""resources":{}"#, "/resources"),
        (r#""resources":null"#, "/resources"),
        (r#""seq":null"#, "/seq"),
        (r#""heard_epoch":null"#, "/heard_epoch"),
        (r#""heard_epoch":-1"#, "/heard_epoch"),
        (r#""seq":-1"#, "/seq"),
        (r#""seq":1.5"#, "/seq"),
        (r#""seq":9007199254740992"#, "/seq"),
        (r#""run":null"#, "/run"),
        (r#""run":-1"#, "/run"),
        (r#""run":0.5"#, "/run"),
        (r#""run":"7""#, "/run"),
        (r#""run":9007199254740992"#, "/run"),
    ] {
        check(
            &format!(r#"{{{member},"client_id":"c","resources":[]}}"#),
            pointer,
        );
    }
    check(
        &json!({"client_id": "x".repeat(257), "resources": []}).to_string(),
        "/client_id",
    );
    for (resource, pointer) in [
        (r#"["c",5]"#, ""),
        (r#"{"resource_id":"a"}"#, "/wants"),
        (r#"{"wants":1}"#, "/resource_id"),
        (r#"{"resource_id":"a","wants":1,"wants":2}"#, "/wants"),
        (r#"{"resource_id":"a","wants":-1}"#, "/wants"),
        (r#"{"resource_id":"a","wants":1e16}"#, "/wants"),
        (r#"{"resource_id":"a","wants":1e999}"#, "/wants"),
        (
            r#"{"resource_id":"a","wants":1,"priority":1.5}"#,
            "/priority",
        ),
        (
            r#"{"resource_id":"a","wants":1,"priority":2147483648}"#,
            "/priority",
        ),
        (
            r#"{"resource_id":"a","wants":1,"outstanding":null}"#,
            "/outstanding",
        ),
        (r#"{"resource_id":"a","wants":1,"used":"1"}"#, "/used"),
        (r#"{"resource_id":"a","wants":1,"has":5}"#, "/has"),
        (r#"{"resource_id":"a","wants":1,"has":[5]}"#, "/has"),
        (r#"{"resource_id":"a","wants":1,"has":{}}"#, "/has/capacity"),
        (
            r#"{"resource_id":"a","wants":1,"has":{"capacity":-1}}"#,
            "/has/capacity",
        ),
    ] {
        check(
            &format!(
                r#"{{"client_id":"c","resources":[{{"resource_id":"0","wants":1}},{resource}]}}"#
            ),
            &format!("/resources/1{pointer}"),
        );
    }
}

#[test]
fn repeated_keys_and_resources_are_invalid() {
    let two = |detail: &str, body: &str| {
        let problem = parse::<CapacityRequest>(body.as_bytes())
            .unwrap_err()
            .into_problem();
        assert_eq!(problem.status, 422, "{body}");
        assert!(problem.detail.contains(detail), "{}", problem.detail);
    };
    two(
        "duplicate field `client_id`",
        r#"{"client_id":"c","client_id":"d","resources":[]}"#,
    );
    two(
        "duplicate field `wants`",
        r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1,"wants":1}]}"#,
    );
    // Escaped or not, it is the same key.
    two(
        "duplicate field `client_id`",
        r#"{"client_id":"c","client_\u0069d":"c","resources":[]}"#,
    );
    check::<CapacityRequest>(
        r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1},{"resource_id":"b","wants":1},{"resource_id":"\u0061","wants":2}]}"#,
        "/resources/2/resource_id",
    );
    check::<ReleaseRequest>(
        r#"{"client_id":"c","resource_ids":["a","b","a","a"]}"#,
        "/resource_ids/2",
    );
}

#[test]
fn invalid_fields_of_a_node_request_are_located() {
    for (bands, pointer) in [
        ("5", ""),
        ("[]", ""),
        ("[{}]", "/0/priority"),
        (
            r#"[{"priority":0,"num_clients":0,"wants":1}]"#,
            "/0/num_clients",
        ),
        (
            r#"[{"priority":1,"num_clients":1,"wants":1},{"priority":1,"num_clients":1,"wants":1},{"priority":1,"num_clients":1,"wants":1},{"priority":1,"num_clients":1,"wants":1}]"#,
            "/3/priority",
        ),
        (
            r#"[{"priority":1,"num_clients":1,"wants":6e14},{"priority":0,"num_clients":1,"wants":6e14}]"#,
            "",
        ),
    ] {
        check::<ServerCapacityRequest>(
            &format!(r#"{{"node_id":"n","resources":[{{"resource_id":"a","wants":{bands}}}]}}"#),
            &format!("/resources/0/wants{pointer}"),
        );
    }
    check::<ServerReleaseRequest>(r#"{"node_id":"n","epoch":1.5}"#, "/epoch");
    check::<ServerReleaseRequest>(r#"{"node_id":"n","resource_ids":"all"}"#, "/resource_ids");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn bands_must_agree_with_wants_and_priority() {
    let body = |members: &str| {
        format!(r#"{{"client_id":"c","resources":[{{"resource_id":"a",{members}}}]}}"#)
    };
    let many = |count: i32| {
        let bands: Vec<_> = (0..count)
            .map(|priority| json!({"priority": priority, "wants": 1}))
            .collect();
        format!(r#""wants":{count},"bands":{}"#, json!(bands))
    };
    let two = r#""bands":[{"priority":0,"wants":0.1},{"priority":5,"wants":0.2}]"#;
    for valid in [
        format!(r#""wants":0.3,{two}"#),
        format!(r#""wants":0.3000000002,{two}"#),
        format!(r#""wants":0.3,"priority":5,{two}"#),
        r#""wants":0,"bands":[{"priority":-7,"wants":0}]"#.to_owned(),
        r#""wants":1e15,"bands":[{"priority":1,"wants":1e15},{"priority":0,"wants":1}]"#.to_owned(),
        many(32),
    ] {
        parse::<CapacityRequest>(body(&valid).as_bytes()).unwrap();
    }
    for (members, pointer, detail) in [
        (
            r#""wants":0,"bands":[]"#.to_owned(),
            "bands",
            "must have 1 to 32 elements, not 0",
        ),
        (many(33), "bands", "must have 1 to 32 elements, not 33"),
        (
            r#""wants":2,"bands":[{"priority":1,"wants":1},{"priority":1,"wants":1}]"#.to_owned(),
            "bands/1/priority",
            "duplicate priority",
        ),
        (
            r#""wants":4,"bands":[{"priority":1,"wants":1},{"priority":0,"wants":2}]"#.to_owned(),
            "wants",
            "must be the sum of `bands`, 3, not 4",
        ),
        (
            format!(r#""wants":0.300000001,{two}"#),
            "wants",
            "must be the sum of `bands`",
        ),
        (
            format!(r#""wants":0.3,"priority":0,{two}"#),
            "priority",
            "must be absent or the highest of `bands`, 5, not 0",
        ),
        (r#""wants":1,"bands":null"#.to_owned(), "bands", "an array"),
        (
            r#""wants":1,"bands":[{"wants":1}]"#.to_owned(),
            "bands/0/priority",
            "missing field",
        ),
        (
            r#""wants":1,"bands":[{"priority":0}]"#.to_owned(),
            "bands/0/wants",
            "missing field",
        ),
        (
            r#""wants":1,"bands":[{"priority":0,"wants":-1}]"#.to_owned(),
            "bands/0/wants",
            "from 0 to 1e15",
        ),
        (
            r#""wants":1,"bands":[[0,1]]"#.to_owned(),
            "bands/0",
            "an object",
        ),
    ] {
        let error = parse::<CapacityRequest>(body(&members).as_bytes()).unwrap_err();
        let problem = error.into_problem();
        let [error] = &problem.errors[..] else {
            panic!("{problem:?}");
        };
        assert_eq!(problem.status, 422, "{members}");
        assert_eq!(
            error.pointer,
            format!("/resources/0/{pointer}"),
            "{members}"
        );
        assert!(error.detail.contains(detail), "{members}: {}", error.detail);
    }
}

#[test]
fn errors_say_what_would_be_valid() {
    let body = br#"{"client_id":"c","resources":[{"resource_id":"db","wants":-1}]}"#;
    let problem = parse::<CapacityRequest>(body).unwrap_err().into_problem();
    assert!(
        problem
            .detail
            .starts_with("/resources/0/wants must be a number from 0 to 1e15"),
        "{}",
        problem.detail
    );
}

#[test]
fn invalid_units_are_located() {
    const RANGE: &str = "must be a number of seconds from 0.001 to 31536000";
    for (member, pointer, detail) in [
        (r#""unit":"rates""#, "unit", "`rate` or `gauge`"),
        (r#""unit":null"#, "unit", "`rate` or `gauge`"),
        (r#""unit":7"#, "unit", "`rate` or `gauge`"),
        (r#""unit":"rate","per":0"#, "per", RANGE),
        (r#""unit":"gauge","per":0.0009"#, "per", RANGE),
        (r#""per":31536001"#, "per", RANGE),
        (r#""per":"60""#, "per", "number"),
        (r#""per":null"#, "per", "number"),
    ] {
        let resource = format!(r#""resource_id":"a",{member}"#);
        let client = format!(r#"{{"client_id":"c","resources":[{{"wants":1,{resource}}}]}}"#);
        let wants = r#"[{"priority":0,"num_clients":1,"wants":1}]"#;
        let node = format!(r#"{{"node_id":"n","resources":[{{"wants":{wants},{resource}}}]}}"#);
        for error in [
            parse::<CapacityRequest>(client.as_bytes()).unwrap_err(),
            parse::<ServerCapacityRequest>(node.as_bytes()).unwrap_err(),
        ] {
            let problem = error.into_problem();
            let [error] = &problem.errors[..] else {
                panic!("{problem:?}");
            };
            assert_eq!(problem.status, 422, "{member}");
            assert_eq!(error.pointer, format!("/resources/0/{pointer}"), "{member}");
            assert!(error.detail.contains(detail), "{member}: {}", error.detail);
        }
    }
}

#[test]
fn errors_do_not_quote_long_strings() {
    let long = "\u{7f}".repeat(100_000);
    for (body, expected) in [
        ("LONG".to_owned(), "an object"),
        (
            r#"{"client_id":"c","resources":LONG}"#.to_owned(),
            "an array",
        ),
        (
            r#"{"client_id":LONG,"resources":[]}"#.to_owned(),
            "1 to 256 bytes",
        ),
        (
            r#"{"client_id":"c","seq":LONG}"#.to_owned(),
            "a whole number",
        ),
        (resource(r#""wants":LONG"#), "a number"),
        (resource(r#""wants":1,"priority":LONG"#), "a whole number"),
        (resource(r#""wants":1,"has":LONG"#), "an object"),
    ] {
        let body = body.replace("LONG", &format!("\"{long}\""));
        let error = parse::<CapacityRequest>(body.as_bytes()).unwrap_err();
        let detail = error.into_problem().detail;
        assert!(detail.contains(expected), "{detail}");
        assert!(detail.len() < 200, "{detail}");
    }

    fn resource(members: &str) -> String {
        format!(r#"{{"client_id":"c","resources":[{{"resource_id":"a",{members}}}]}}"#)
    }
}

#[test]
fn unknown_fields_are_ignored_at_any_depth() {
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
        let request = parse::<CapacityRequest>(body.as_bytes()).unwrap();
        assert_eq!(request.resources[0].wants.get(), 1.0);
        let invalid = body.replace(r#""wants":1"#, r#""wants":-1"#);
        check::<CapacityRequest>(&invalid, "/resources/0/wants");
    }
    check::<CapacityRequest>(&deep, "");
    check::<CapacityRequest>(
        &format!(r#"{{"client_id":"c","resources":{nested}}}"#),
        "/resources",
    );
}

#[test]
fn request_has_at_most_ten_thousand_resources() {
    let request = |count: usize| {
        let resources: Vec<_> = (0..count)
            .map(|index| json!({"resource_id": index.to_string(), "wants": 1}))
            .collect();
        json!({"client_id": "c", "resources": resources}).to_string()
    };
    assert!(parse::<CapacityRequest>(request(MAX_RESOURCES).as_bytes()).is_ok());
    check::<CapacityRequest>(&request(MAX_RESOURCES + 1), "/resources");

    let ids: Vec<_> = (0..10_001).map(|id| id.to_string()).collect();
    let release = json!({"client_id": "c", "resource_ids": ids});
    check::<ReleaseRequest>(&release.to_string(), "/resource_ids");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse::<CapacityRequest>(&bytes).is_err());
    }
}
