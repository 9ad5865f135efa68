//! The log of a real control plane: what can be found in it, what can not, and what becomes of those who do not read it.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Process, Relay, Service, curl, doorman};

/// A control plane that logs in JSON.
struct Logging {
    process: Process,
    address: String,
    _home: TempDir,
}

impl Logging {
    fn start(level: &str, more: &[&str]) -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
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

    /// Waits for a line that says this of a field, and gives it.
    fn wait_for(&mut self, field: &str, says: &str) -> Value {
        self.process.wait_for(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line[field] == says).then_some(line)
        })
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn every_line_is_json_and_those_about_a_request_name_it() {
    let mut server = Logging::start("doorman::access=debug", &["--log-format", "json"]);
    let address = server.address.clone();
    let json = "content-type: application/json";
    let traced = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");

    // The change, and the request that it came with, have one name and one trace.
    let url = format!("{address}/v1/templates/db");
    let name = "x-request-id: say-\"hi\"";
    let put = [
        "-X",
        "PUT",
        "-H",
        json,
        "-d",
        "{\"capacity\":5}",
        "-H",
        name,
        "-H",
        &traced,
    ];
    let put = curl(&[&[url.as_str()], &put[..]].concat());
    assert_eq!(put.status, 201, "{put:?}");
    assert!(put.headers.contains(name), "{put:?}");
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

    // A request that gives no name is given one, which the log has, too.
    let unknown = curl(&[&format!("{address}/nowhere")]);
    let given = unknown
        .headers
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "))
        .expect("every answer has one");
    let access = server.wait_for("request_id", given);
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
fn what_a_layer_asks_is_found_in_the_log_of_the_control_plane_by_its_trace() {
    let mut server = Logging::start("doorman::access=debug", &["--log-format", "json"]);
    let relay = Relay::start(&server.address);
    let service = Service::follow_rules(relay.address(), &[]);
    let mut logged = BTreeSet::new();
    for route in ["/v1/rules", "/v1/capacity"] {
        if route == "/v1/capacity" {
            // Leases are asked for when there is a rule that needs them.
            let url = format!("{}/v1/rules/all", server.address);
            let rule = r#"{"service":"*","resource":"all"}"#;
            let json = "content-type: application/json";
            let put = curl(&[&url, "-X", "PUT", "-H", json, "-d", rule]);
            assert!([200, 201].contains(&put.status), "{put:?}");
        }
        let line = server.wait_for("route", route);
        logged.insert(line["trace_id"].as_str().expect("it has one").to_owned());
        // A request by one who follows rules comes only with requests.
        curl(&[service.address()]);
    }
    let sent = relay.sent();
    for trace in &logged {
        let header = format!("traceparent: 00-{trace}-");
        assert!(sent.contains(&header), "{header} in {sent}");
    }
}

/// Whatever is secret in a request or a file, in places where it is right and in places where it is wrong.
#[test]
fn no_secret_is_ever_logged() {
    const SECRET: &str = "the canary secret of more than thirty-two bytes";

    for form in ["text", "json"] {
        let home = TempDir::new().expect("a folder for temporary files");
        let file = home.path().join("secret").display().to_string();
        fs::write(&file, SECRET).expect("the folder is new");
        let auth = ["--auth-secret-file", &file, "--log-format", form];
        let mut server = Logging::start("trace", &auth);
        let made = Command::new(doorman())
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
        let token = String::from_utf8(made.stdout).expect("text");
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
                let answer = curl(&all);
                assert!(
                    answer.status == status || (status == 200 && answer.status == 201),
                    "{answer:?}"
                );
            }
            for refused in [
                wrong.as_str(),
                "authorization: Basic canary-of-a-user",
                "authorization: canary of two words",
            ] {
                let url = format!("{}/v1/status", server.address);
                assert_eq!(curl(&[&url, version, "-H", refused]).status, 401);
            }
        }
        // A secret that is too short is complained of.
        fs::write(&file, "canary too short").expect("it is there");
        server.process.wait_for(|line| {
            line.contains("previous keys and grants stay active")
                .then_some(())
        });
        server.process.terminate();
        server
            .process
            .wait_for(|line| line.contains("stopped").then_some(()));
        let said = server.process.output().join("\n");
        let about_http2 = said.lines().filter(|line| line.contains("h2::")).count();
        assert!(about_http2 > 20, "it says all that it can: {said}");
        let parts = token.split('.').skip(1);
        for secret in parts.chain([SECRET, "canary-", "canary of", "canary too"]) {
            let line = said.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "it has {secret}");
        }
    }
}

/// A control plane the log of which nobody reads, once it has said where it is.
struct Unread {
    child: Child,
    address: String,
    _home: TempDir,
}

impl Drop for Unread {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Unread {
    fn start() -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
        let mut child = Command::new(doorman())
            .args(["--listen", "127.0.0.1:0", "--log", "trace", "--data-dir"])
            .arg(home.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        let address = said
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned));
        Self {
            child,
            address: address.expect("it says so"),
            _home: home,
        }
    }

    /// How many lines were left out, by its metrics.
    fn left_out(&self) -> u64 {
        let metrics = curl(&[&format!("{}/metrics", self.address)]).body;
        let name = "doorman_log_lines_left_out_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|it| it.parse().ok()).expect("it is counted")
    }

    /// Sends requests until lines have been left out.
    fn overflow(&self) {
        let many = format!("{}/nowhere?[1-2000]", self.address);
        for _ in 0..50 {
            if self.left_out() > 0 {
                return;
            }
            let output = Command::new("curl")
                .args(["-sS", "--max-time", "60", "-o", "/dev/null", &many])
                .output()
                .expect("curl is installed");
            assert!(output.status.success(), "{output:?}");
        }
        panic!("it has room for everything");
    }
}

#[test]
fn a_server_serves_on_when_nobody_reads_its_log() {
    let mut server = Unread::start();
    server.overflow();
    assert_eq!(curl(&[&format!("{}/readyz", server.address)]).status, 200);

    // Who reads again finds the newest lines, and how many are missing.
    let log = server.child.stderr.take().expect("it is piped");
    let (found, is_found) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if line.contains("dropped log lines") {
                // The pipe is closed behind it: nobody will ever read the log again.
                return found.send(line);
            }
        }
        Ok(())
    });
    let line = is_found
        .recv_timeout(Duration::from_secs(60))
        .expect("it is told");
    assert!(line.contains("WARN"), "{line}");
    let before = server.left_out();
    assert!(before > 0);
    assert_eq!(curl(&[&format!("{}/readyz", server.address)]).status, 200);
    assert!(
        server.left_out() > before,
        "what cannot be written is left out as well"
    );
}
