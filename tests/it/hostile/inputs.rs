//! Invalid requests: the status, and the pointers of the errors.

use serde_json::Value;

use super::wire::{JSON, address, capacity_request, exchange, post};
use crate::support::{ControlPlane, DOCUMENT};

fn pointers(body: &str) -> Vec<String> {
    let problem: Value = serde_json::from_str(body).expect("a problem");
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    errors
        .iter()
        .map(|error| error["pointer"].as_str().expect("a string").to_owned())
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn invalid_numbers_and_identifiers_are_rejected_with_pointers() {
    let server = ControlPlane::start(DOCUMENT);
    let at = address(&server);
    let wants =
        |wants: &str| capacity_request(&format!(r#"{{"resource_id": "api", "wants": {wants}}}"#));
    let named = |id: &str| capacity_request(&format!(r#"{{"resource_id": {id}, "wants": 1}}"#));
    let too_long = format!("\"{}\"", "x".repeat(257));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let rows = [
        (wants("0"), 200, &[][..]),
        (wants("-0"), 200, &[]),
        (wants("1e15"), 200, &[]),
        (wants("1e999"), 422, &["/resources/0/wants"]),
        (wants("-1"), 422, &["/resources/0/wants"]),
        (wants("\"1\""), 422, &["/resources/0/wants"]),
        (wants("null"), 422, &["/resources/0/wants"]),
        (wants("NaN"), 400, &[]),
        (wants(&deep), 422, &["/resources/0/wants"]),
        (
            capacity_request(r#"{"resource_id": "api"}"#),
            422,
            &["/resources/0/wants"],
        ),
        (
            capacity_request(r#"{"resource_id": "api", "wants": 1, "wants": 2}"#),
            422,
            &["/resources/0/wants"],
        ),
        (
            capacity_request(
                r#"{"resource_id": "api", "wants": 1}, {"resource_id": "api", "wants": 1}"#,
            ),
            422,
            &["/resources/1/resource_id"],
        ),
        (named("\"\""), 422, &["/resources/0/resource_id"]),
        (named(&too_long), 422, &["/resources/0/resource_id"]),
        (named("\"a\\u0000\""), 422, &["/resources/0/resource_id"]),
        (named("\"a\\n\""), 422, &["/resources/0/resource_id"]),
        (named("\"\\ud800\""), 422, &["/resources/0/resource_id"]),
        (named("\".\""), 200, &[]),
        (named("\"..\""), 200, &[]),
        (named("\"a//b/../c\""), 200, &[]),
        (deep.clone(), 422, &[""]),
        (String::new(), 400, &[]),
        ("{".repeat(100_000), 400, &[]),
    ];
    for (body, status, expected) in rows {
        let shown: String = body.chars().take(100).collect();
        let (got, response) = exchange(at, &post(JSON, &body));
        assert_eq!(got, status, "{shown}: {response}");
        if status == 422 {
            assert_eq!(pointers(&response), expected, "{shown}");
        }
    }
    for content_type in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/json; charset=utf-16\r\n",
    ] {
        let (status, response) = exchange(at, &post(content_type, &wants("1")));
        assert_eq!(status, 415, "{content_type}: {response}");
    }
}

#[test]
fn oddly_named_resource_is_found_by_its_encoded_path() {
    let server = ControlPlane::start(DOCUMENT);
    let at = address(&server);
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        exchange(at, head.as_bytes())
    };
    for (id, path) in [
        (".", "/v1/resources/%2E"),
        ("..", "/v1/resources/%2e%2E"),
        ("a//b/../c", "/v1/resources/a%2F%2Fb%2F..%2Fc"),
    ] {
        let body = capacity_request(&format!(r#"{{"resource_id": "{id}", "wants": 1}}"#));
        assert_eq!(exchange(at, &post(JSON, &body)).0, 200);
        let (status, response) = get(path);
        assert_eq!(status, 200, "{response}");
        assert!(
            response.contains(&format!("\"resource_id\":\"{id}\"")),
            "{response}"
        );
    }
    for (path, status) in [
        ("/v1/resources/nobody", 404),
        ("/v1/resources/%00", 400),
        ("/v1/resources/%ff", 400),
        ("/v1/resources/a/b/c", 404),
    ] {
        assert_eq!(get(path).0, status, "{path}");
    }
}
