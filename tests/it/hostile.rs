//! Clients that mean no good, or do not know better, over real sockets.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::support::{ControlPlane, PATIENCE, alone};

const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";

const MIB: usize = 1 << 20;

/// How much more memory the server may take, whatever is done to it.
const MEMORY: usize = 64 * MIB;

/// The status and the body of an answer.
type Answer = (u16, String);

fn connect(server: &ControlPlane) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("more than nothing");
    stream
        .set_write_timeout(Some(PATIENCE))
        .expect("more than nothing");
    stream
}

/// Sends these bytes, and reads until the server closes the connection.
fn exchange(server: &ControlPlane, bytes: &[u8]) -> Answer {
    let mut stream = connect(server);
    stream.write_all(bytes).expect("it reads");
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    (status.expect("a status"), body.to_owned())
}

fn post(content_type: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{content_type}content-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

const JSON: &str = "content-type: application/json\r\n";

fn asking(resource: &str) -> String {
    format!(r#"{{"client_id": "c", "resources": [{resource}]}}"#)
}

/// The pointers of the faults that an answer names.
fn pointers(body: &str) -> Vec<String> {
    let problem: Value = serde_json::from_str(body).expect("a problem");
    let errors = problem["errors"].as_array().cloned().unwrap_or_default();
    errors
        .iter()
        .map(|error| error["pointer"].as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn numbers_and_identifiers_that_cannot_be_are_refused_where_they_stand() {
    let server = ControlPlane::start(DOCUMENT);
    let wants = |wants: &str| asking(&format!(r#"{{"resource_id": "api", "wants": {wants}}}"#));
    let named = |id: &str| asking(&format!(r#"{{"resource_id": {id}, "wants": 1}}"#));
    let huge = format!("\"{}\"", "x".repeat(257));
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
            asking(r#"{"resource_id": "api"}"#),
            422,
            &["/resources/0/wants"],
        ),
        (
            asking(r#"{"resource_id": "api", "wants": 1, "wants": 2}"#),
            422,
            &["/resources/0/wants"],
        ),
        (
            asking(r#"{"resource_id": "api", "wants": 1}, {"resource_id": "api", "wants": 1}"#),
            422,
            &["/resources/1/resource_id"],
        ),
        (named("\"\""), 422, &["/resources/0/resource_id"]),
        (named(&huge), 422, &["/resources/0/resource_id"]),
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
        let (got, answer) = exchange(&server, &post(JSON, &body));
        assert_eq!(got, status, "{shown}: {answer}");
        if status == 422 {
            assert_eq!(pointers(&answer), expected, "{shown}");
        }
    }
    for content_type in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/json; charset=utf-16\r\n",
    ] {
        let (status, answer) = exchange(&server, &post(content_type, &wants("1")));
        assert_eq!(status, 415, "{content_type}: {answer}");
    }
}

#[test]
fn a_resource_is_found_under_its_name_however_odd_that_is() {
    let server = ControlPlane::start(DOCUMENT);
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        exchange(&server, head.as_bytes())
    };
    for (id, path) in [
        (".", "/v1/resources/%2E"),
        ("..", "/v1/resources/%2e%2E"),
        ("a//b/../c", "/v1/resources/a%2F%2Fb%2F..%2Fc"),
    ] {
        let body = asking(&format!(r#"{{"resource_id": "{id}", "wants": 1}}"#));
        assert_eq!(exchange(&server, &post(JSON, &body)).0, 200);
        let (status, answer) = get(path);
        assert_eq!(status, 200, "{answer}");
        assert!(
            answer.contains(&format!("\"resource_id\":\"{id}\"")),
            "{answer}"
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

#[tokio::test]
async fn slow_and_endless_requests_cost_others_nothing() {
    let _alone = alone().await;
    let open_files = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: open_files.maximum,
        ..open_files
    };
    setrlimit(Resource::Nofile, all).expect("up to the hard limit");

    let server = ControlPlane::start(DOCUMENT);
    let body = asking(r#"{"resource_id": "api", "wants": 1}"#);
    let healthy = || assert_eq!(exchange(&server, &post(JSON, &body)).0, 200);
    healthy();
    let before = server.memory();
    let memory_is_flat = || {
        let now = server.memory();
        assert!(
            now <= before + MEMORY,
            "{} MiB are now {} MiB",
            before / MIB,
            now / MIB
        );
    };

    // Half of them drip a head, the others a body.
    let head = "POST /v1/capacity HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
    let mut slow: Vec<_> = (0..1000)
        .map(|n| {
            let mut stream = connect(&server);
            stream.set_nonblocking(true).expect("a socket");
            if n % 2 == 0 {
                let whole = format!("{head}content-length: {}\r\n\r\n", 4 * MIB);
                stream.write_all(whole.as_bytes()).expect("it reads");
            }
            stream
        })
        .collect();
    for byte in &head.as_bytes()[..12] {
        for stream in &mut slow {
            // The server may have had enough of it.
            drop(stream.write(&[*byte]));
        }
        for _ in 0..5 {
            healthy();
            thread::sleep(Duration::from_millis(200));
        }
        memory_is_flat();
    }
    for stream in &mut slow {
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        assert!(
            end.is_ok() || end.is_err_and(|it| it.kind() != std::io::ErrorKind::WouldBlock),
            "it is still open after 12 s"
        );
    }

    // Each holds back the last byte of the largest body there is.
    let len = 4 * MIB;
    let whole = format!("{head}content-length: {len}\r\n\r\n{}", " ".repeat(len - 1));
    let held_back: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = connect(&server);
            // What finds no room is refused, and then nobody reads on.
            drop(stream.write_all(whole.as_bytes()));
            stream
        })
        .collect();
    healthy();
    memory_is_flat();
    drop(held_back);

    let mut endless = connect(&server);
    let head = format!("{head}transfer-encoding: chunked\r\n\r\n");
    endless.write_all(head.as_bytes()).expect("it reads");
    let chunk = format!("{:x}\r\n{}\r\n", MIB, " ".repeat(MIB));
    let taken = (0..1024)
        .take_while(|_| endless.write_all(chunk.as_bytes()).is_ok())
        .count();
    assert!(taken < 100, "it took {taken} MiB");
    healthy();
    memory_is_flat();
}
