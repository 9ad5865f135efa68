//! The log of a control plane: format, trace IDs, secrecy, and a blocked standard error.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{DOCUMENT, Process, Relay, Service, curl, doorman};

/// A control plane with captured output.
struct Server {
    process: Process,
    address: String,
    _home: TempDir,
}

impl Server {
    fn start(level: &str, more: &[&str]) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let data = home.path().join("data").display().to_string();
        let mut args = vec!["--listen", "127.0.0.1:0", "--data-dir", &data];
        args.extend(more);
        let mut process = Process::start_logging(&doorman(), &args, level);
        let address = process.wait_for_address();
        Self {
            process,
            address,
            _home: home,
        }
    }

    /// Waits for a JSON line with this value of a field.
    fn wait_for(&mut self, field: &str, value: &str) -> Value {
        self.process.wait_for(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line[field] == value).then_some(line)
        })
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn json_log_lines_have_request_id_and_trace() {
    let mut server = Server::start("doorman::access=debug", &["--log-format", "json"]);
    let address = server.address.clone();
    let json = "content-type: application/json";
    let traced = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");

    // The document change and its request share the request ID and the trace.
    let url = format!("{address}/v1/templates/db");
    let request_id = "x-request-id: say-\"hi\"";
    let put = [
        "-X",
        "PUT",
        "-H",
        json,
        "-d",
        "{\"capacity\":5}",
        "-H",
        request_id,
        "-H",
        &traced,
    ];
    let put = curl(&[&[url.as_str()], &put[..]].concat());
    assert_eq!(put.status, 201, "{put:?}");
    assert!(put.headers.contains(request_id), "{put:?}");
    let change = server.wait_for("message", "document changed: template \"db\" added");
    let access = server.wait_for("target", "doorman::access");
    for line in [&change, &access] {
        assert_eq!(line["request_id"], "say-\"hi\"", "{line}");
        assert_eq!(line["trace_id"], TRACE, "{line}");
        assert_eq!(line["parent_id"], "b7ad6b7169203331", "{line}");
    }
    assert_eq!(access["level"], "INFO", "{access}");
    assert_eq!(access["status"], 201, "{access}");
    assert_eq!(access["path"], "/v1/templates/db", "{access}");
    assert_eq!(access["peer"], "127.0.0.1", "{access}");

    // A request without ID gets one.
    let unknown = curl(&[&format!("{address}/nowhere")]);
    let request_id = unknown
        .headers
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "))
        .expect("every response has one");
    let access = server.wait_for("request_id", request_id);
    assert_eq!(
        (&access["status"], &access["level"]),
        (&404.into(), &"DEBUG".into())
    );
    assert!(access.get("trace_id").is_none(), "{access}");

    server.process.terminate();
    server.wait_for("message", "stopped");
    for line in server.process.output() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line:?}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field} of {line}");
        }
        let time = line["timestamp"].as_str().expect("text");
        assert!(time.len() == 27 && time.ends_with('Z'), "{time}");
    }
}

#[test]
fn requests_of_a_layer_are_logged_with_their_traces() {
    let mut server = Server::start("doorman::access=debug", &["--log-format", "json"]);
    let relay = Relay::start(&server.address);
    let service = Service::follow_rules(relay.address(), &[]);
    let mut logged = BTreeSet::new();
    for route in ["/v1/rules", "/v1/capacity"] {
        if route == "/v1/capacity" {
            // Leases are requested once a rule needs them.
            let url = format!("{}/v1/rules/all", server.address);
            let rule = r#"{"service":"*","resource":"all"}"#;
            let json = "content-type: application/json";
            let put = curl(&[&url, "-X", "PUT", "-H", json, "-d", rule]);
            assert!([200, 201].contains(&put.status), "{put:?}");
        }
        let line = server.wait_for("route", route);
        logged.insert(line["trace_id"].as_str().expect("it has one").to_owned());
        // Demand, and with it a lease request, needs a request to the service.
        curl(&[service.address()]);
    }
    let sent = relay.sent();
    for trace in &logged {
        let header = format!("traceparent: 00-{trace}-");
        assert!(sent.contains(&header), "{header} in {sent}");
    }
}

/// Fields that are numbers.
const NUMBERS: [&str; 13] = [
    "bytes",
    "configured",
    "connections",
    "epoch",
    "leases",
    "left_out",
    "limit",
    "lines",
    "not_after",
    "revision",
    "seconds",
    "status",
    "suppressed",
];

/// Fields whose text may look like a number.
const TEXTS: [&str; 8] = [
    "by",
    "client",
    "config_version",
    "parent_id",
    "request_id",
    "resource",
    "trace_id",
    "version",
];

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn every_json_line_of_a_busy_run_has_typed_fields() {
    let home = TempDir::new().expect("a temporary directory");
    let path = |name: &str| home.path().join(name).display().to_string();
    let (data, file) = (path("data"), path("limits.yaml"));
    let config = format!("file:{file}");
    fs::write(&file, DOCUMENT).expect("the directory is new");
    let args = ["--listen", "127.0.0.1:0", "--data-dir", &data];
    let args = [&args[..], &["--log-format", "json"]].concat();
    let start = |more: &[&str]| {
        let args = [&args[..], more].concat();
        let mut process = Process::start_logging(&doorman(), &args, "debug");
        let address = process.wait_for_address();
        (process, address)
    };
    let mut lines = Vec::new();
    let json = "content-type: application/json";
    let lease = |address: &str, resource: &str| {
        let body = format!(
            r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5}}]}}"#
        );
        let url = format!("{address}/v1/capacity");
        assert_eq!(curl(&[&url, "-H", json, "-d", &body]).status, 200);
    };

    // Changes over HTTP, all classes of responses, and a crash.
    let (mut process, address) = start(&[]);
    for resource in ["db", "tenant/acme"] {
        lease(&address, resource);
    }
    for (path, method, body, status) in [
        ("/v1/templates/db", "PUT", r#"{"capacity":5}"#, 201),
        ("/v1/templates/db", "PUT", "{\"capacity\":\n\"5\"}", 422),
        ("/v1/templates/db", "DELETE", "", 204),
        ("/nowhere", "GET", "", 404),
    ] {
        let url = format!("{address}{path}");
        let args = [url.as_str(), "-X", method, "-H", json, "-d", body];
        assert_eq!(curl(&args).status, status, "{method} {path}");
    }
    process.wait_for(|line| line.contains(r#""status":404"#).then_some(()));
    lines.extend(process.output().to_vec());
    process.kill();

    // Learning mode, a file with several errors, and a clean stop.
    let (mut process, address) = start(&["--config", &config]);
    lease(&address, "api");
    let invalid = "resources:\n- {identifier_glob: db, capacity: -3}\n- {capacity: x}\n";
    fs::write(&file, invalid).expect("it exists");
    let rejected = |line: &str| line.contains("the active one stays").then_some(());
    process.wait_for(rejected);
    process.terminate();
    process.wait_for(|line| line.contains(r#""message":"stopped""#).then_some(()));
    lines.extend(process.output().to_vec());

    let mut seen = BTreeSet::new();
    for line in &lines {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("not one JSON line: {line:?}"));
        let fields = line.as_object().expect("an object");
        let is_ours = line["target"]
            .as_str()
            .expect("text")
            .starts_with("doorman");
        for (name, value) in fields.iter().filter(|_| is_ours) {
            let name = name.as_str();
            if let Some(number) = NUMBERS.iter().find(|it| **it == name) {
                assert!(value.is_number(), "{name} of {line}");
                seen.insert(*number);
            } else if !TEXTS.contains(&name) {
                let is_number = value.as_str().is_some_and(|it| it.parse::<f64>().is_ok());
                assert!(!is_number, "{name} of {line}");
            }
        }
    }
    for name in ["epoch", "leases", "revision", "seconds", "status"] {
        assert!(seen.contains(name), "{name} was never logged");
    }
}

#[test]
fn error_of_several_lines_is_one_line_of_text() {
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limits.yaml");
    fs::write(&file, DOCUMENT).expect("the directory is new");
    let config = format!("file:{}", file.display());
    let mut server = Server::start("info", &["--config", &config]);
    let invalid = "resources:\n- {identifier_glob: db, capacity: -3}\n- {capacity: x}\n";
    fs::write(&file, invalid).expect("it exists");
    server.process.wait_for(|line| {
        let is_error = line.contains("the active one stays") && line.contains("ERROR");
        let has_all = line.contains("limits.yaml:2:") && line.contains("\\n");
        (is_error && has_all && line.contains("limits.yaml:3:")).then_some(())
    });
}

#[test]
fn unauthenticated_request_names_the_failed_check() {
    let home = TempDir::new().expect("a temporary directory");
    let path = |name: &str| home.path().join(name).display().to_string();
    for (name, byte) in [("secret", b's'), ("other", b'o')] {
        fs::write(path(name), [byte; 32]).expect("the directory is new");
    }
    let (secret, other) = (path("secret"), path("other"));
    let args = ["--auth-secret-file", &secret, "--log-format", "json"];
    let mut server = Server::start("info", &args);
    let url = format!("{}/v1/discovery", server.address);
    for (secret, more, check) in [
        (&other, &[][..], "signature"),
        (&secret, &["--audience", "billing"], "audience"),
        (&secret, &["--issuer", "somebody"], "issuer"),
    ] {
        let created = Command::new(doorman())
            .args(["token", "--sub", "tester", "--scope", "capacity"])
            .args(["--secret-file", secret])
            .args(more)
            .output()
            .expect("it runs");
        let token = String::from_utf8(created.stdout).expect("text");
        let bearer = format!("authorization: Bearer {}", token.trim());
        let response = curl(&[&url, "-H", &bearer]);
        assert_eq!(response.status, 401, "{response:?}");
        // The caller learns nothing of it.
        assert!(response.body.contains(r#""detail":"invalid token""#));
        let line = server.wait_for("failed_check", check);
        assert_eq!(line["status"], 401, "{line}");
    }
    assert_eq!(curl(&[&url]).status, 401);
    server.wait_for("failed_check", "no token");
}

/// Secrets in valid and invalid requests, and in files.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn no_secret_is_ever_logged() {
    const SECRET: &str = "the canary secret of more than thirty-two bytes";

    for form in ["text", "json"] {
        let home = TempDir::new().expect("a temporary directory");
        let file = home.path().join("secret").display().to_string();
        fs::write(&file, SECRET).expect("the directory is new");
        let auth = ["--auth-secret-file", &file, "--log-format", form];
        let mut server = Server::start("trace", &auth);
        let created = Command::new(doorman())
            .args([
                "token",
                "--sub",
                "tester",
                "--scope",
                "capacity,templates:write",
            ])
            .args(["--secret-file", &file])
            .output()
            .expect("it runs");
        let token = String::from_utf8(created.stdout).expect("text");
        let token = token.trim();
        let bearer = format!("authorization: Bearer {token}");
        let wrong = format!("authorization: Bearer {token}-canary-wrong");
        let headers = [
            "-H",
            &bearer,
            "-H",
            "x-api-key: canary-of-an-api-key",
            "-H",
            "cookie: sid=canary-of-a-cookie",
            "-H",
            "proxy-authorization: Basic canary-of-a-proxy",
        ];
        let lease = r#"{"client_id":"me","resources":[{"resource_id":"db","wants":50}]}"#;
        let json = "content-type: application/json";
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            for (path, more, status) in [
                ("/v1/capacity", &["-H", json, "-d", lease][..], 200),
                ("/v1/capacity", &["-H", json, "-d", "{"], 400),
                ("/nowhere?token=canary-of-a-query", &[], 404),
                ("/v1/status", &[], 403),
                (
                    "/v1/templates/db",
                    &["-H", json, "-X", "PUT", "-d", "{\"capacity\":5}"],
                    200,
                ),
            ] {
                let url = format!("{}{path}", server.address);
                let all = [&[url.as_str(), version][..], &headers, more].concat();
                let response = curl(&all);
                assert!(
                    response.status == status || (status == 200 && response.status == 201),
                    "{response:?}"
                );
            }
            for rejected in [
                wrong.as_str(),
                "authorization: Basic canary-of-a-user",
                "authorization: canary of two words",
            ] {
                let url = format!("{}/v1/status", server.address);
                assert_eq!(curl(&[&url, version, "-H", rejected]).status, 401);
            }
        }
        fs::write(&file, "canary too short").expect("it exists");
        server.process.wait_for(|line| {
            line.contains("previous keys and grants stay active")
                .then_some(())
        });
        server.process.terminate();
        server
            .process
            .wait_for(|line| line.contains("stopped").then_some(()));
        let log = server.process.output().join("\n");
        let about_http2 = log.lines().filter(|line| line.contains("h2::")).count();
        assert!(about_http2 > 20, "the log is detailed: {log}");
        let parts = token.split('.').skip(1);
        for secret in parts.chain([SECRET, "canary-", "canary of", "canary too"]) {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} was logged");
        }
    }
}

/// A control plane whose standard error is not read.
struct Blocked {
    child: Child,
    address: String,
    _home: TempDir,
}

impl Drop for Blocked {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Blocked {
    fn start() -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let mut child = Command::new(doorman())
            .args(["--listen", "127.0.0.1:0", "--log", "trace", "--data-dir"])
            .arg(home.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let address = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned));
        Self {
            child,
            address: address.expect("its address"),
            _home: home,
        }
    }

    /// The metric of dropped lines.
    fn dropped_lines(&self) -> u64 {
        let metrics = curl(&[&format!("{}/metrics", self.address)]).body;
        let name = "doorman_log_lines_left_out_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|it| it.parse().ok()).expect("the metric")
    }

    /// Sends requests until lines are dropped.
    fn overflow(&self) {
        let many = format!("{}/nowhere?[1-2000]", self.address);
        for _ in 0..50 {
            if self.dropped_lines() > 0 {
                return;
            }
            let output = Command::new("curl")
                .args(["-sS", "--max-time", "60", "-o", "/dev/null", &many])
                .output()
                .expect("curl is installed");
            assert!(output.status.success(), "{output:?}");
        }
        panic!("no line was dropped");
    }
}

#[test]
fn blocked_log_does_not_block_requests() {
    let mut server = Blocked::start();
    server.overflow();
    assert_eq!(curl(&[&format!("{}/readyz", server.address)]).status, 200);

    // A reader finds the newest lines, and the number of dropped ones.
    let log = server.child.stderr.take().expect("it is piped");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if line.contains("dropped log lines") {
                // Returning closes the pipe, which ends all reading.
                return sender.send(line);
            }
        }
        Ok(())
    });
    let line = receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("a warning");
    assert!(line.contains("WARN"), "{line}");
    let dropped = server.dropped_lines();
    assert!(dropped > 0);
    assert_eq!(curl(&[&format!("{}/readyz", server.address)]).status, 200);
    assert!(
        server.dropped_lines() > dropped,
        "lines that cannot be written are dropped, too"
    );
}
