//! The first start: default arguments, the banner, `check`, and restarts.

use std::{
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::support::{ControlPlane, Process, curl, doorman};

#[test]
fn default_start_prints_document_and_working_curl_command() {
    let home = TempDir::new().expect("a temporary directory");
    let data = home.path().join("data").display().to_string();
    let mut process = Process::start(
        &doorman(),
        &["--listen", "127.0.0.1:0", "--data-dir", &data],
    );
    let address = process.wait_for_address();
    let line = process.wait_for(|line| {
        line.find("curl ")
            .and_then(|at| line.get(at..))
            .map(str::to_owned)
    });
    let banner = process.output().join("\n");
    assert!(banner.contains("identifier_glob:"), "{banner}");
    assert!(banner.contains(&format!("{address}/docs")), "{banner}");
    let output = Command::new("sh")
        .args(["-c", &line])
        .output()
        .expect("a shell");
    let response: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(response["resources"][0]["reason"], "granted", "{response}");
}

#[test]
fn documentation_page_loads_nothing_from_other_hosts() {
    let server = ControlPlane::start("resources: []");
    let page = curl(&["-L", &format!("{}/docs", server.address())]);
    assert!(
        page.headers.contains("200 OK") || page.body.contains("200 OK"),
        "{page:?}"
    );
    for remote in ["src=\"http", "href=\"http", "//cdn", "//unpkg"] {
        assert!(!page.body.contains(remote), "{remote} in {}", page.body);
    }
    assert_eq!(server.get("/openapi.json")["openapi"], "3.1.0");
}

#[test]
fn first_start_beyond_loopback_explains_learning_mode() {
    for (listen, more, explains) in [
        ("0.0.0.0:0", &[][..], true),
        ("0.0.0.0:0", &["--first-start"], false),
        ("127.0.0.1:0", &[], false),
    ] {
        let home = TempDir::new().expect("a temporary directory");
        let data = home.path().join("data").display().to_string();
        let mut args = vec!["--listen", listen, "--data-dir", &data];
        args.push("--insecure-no-auth");
        args.extend(more);
        let mut process = Process::start(&doorman(), &args);
        process.wait_for(|line| line.contains("Try: curl").then_some(()));
        let banner = process.output().join("\n");
        for text in [
            "\nLearning mode for 63 s, until 2",
            "new clients get no capacity, and services use their fallback",
            "pass --first-start",
        ] {
            let banner = banner.contains(text) && banner.contains("Listening on");
            assert_eq!(banner, explains, "{text}: {listen} {more:?}");
        }
    }
}

fn check(file: &Path) -> Output {
    let mut command = Command::new(doorman());
    command.arg("check").arg(file).output().expect("it runs")
}

#[test]
fn check_reports_every_error_with_its_line() {
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limits.yaml");
    let invalid = "resources:\n  - identifier_glob: db\n    capacity: -3\n    \
        algorithm: {kind: FAIR}\n  - identifer_glob: x\n";
    std::fs::write(&file, invalid).expect("the directory is new");
    let output = check(&file);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected in ["limits.yaml:3", "capacity", "FAIR", "identifer_glob"] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
}

#[test]
fn check_accepts_a_document_of_the_original_doorman() {
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limits.yaml");
    let valid = "resources:\n- identifier_glob: proportional\n  capacity: 500\n  \
        safe_capacity: 5\n  description: example\n  algorithm:\n    kind: PROPORTIONAL_SHARE\n    \
        lease_length: 60\n    refresh_interval: 15\n    learning_mode_duration: 64\n";
    std::fs::write(&file, valid).expect("the directory is new");
    let output = check(&file);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn restart_keeps_the_node_and_increases_the_epoch() {
    let server = ControlPlane::start("resources: []");
    let before = server.get("/v1/discovery");
    assert_eq!(
        (&before["is_master"], &before["level"]),
        (&true.into(), &0.into())
    );
    assert_eq!(before["mastership"]["master_address"], server.address());
    let server = server.kill().restart();
    let after = server.get("/v1/discovery");
    assert_eq!(after["node"], before["node"]);
    assert!(
        after["epoch"].as_u64() > before["epoch"].as_u64(),
        "{after} after {before}"
    );
}

#[test]
fn only_the_first_start_skips_learning_mode() {
    let document =
        "resources: [{identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}]";
    let request = r#"{"client_id":"a","resources":[{"resource_id":"db","wants":5}]}"#;
    let server = ControlPlane::start(document);
    assert_eq!(
        server.post("/v1/capacity", request)["resources"][0]["reason"],
        "granted"
    );
    let server = server.kill().restart();
    let response = server.post("/v1/capacity", request);
    assert_eq!(response["resources"][0]["reason"], "pending", "{response}");
    assert_eq!(server.get("/v1/resources/db")["in_learning_mode"], true);
    let renewal =
        r#"{"client_id":"b","resources":[{"resource_id":"db","wants":5,"has":{"capacity":4}}]}"#;
    assert_eq!(
        server.post("/v1/capacity", renewal)["resources"][0]["gets"]["capacity"],
        4.0
    );
}
