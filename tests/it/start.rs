//! The first minute with the program: no arguments, what it prints, what can be pasted.

use std::process::Command;

use tempfile::TempDir;

use crate::support::{ControlPlane, Process, curl, doorman};

#[test]
fn without_a_document_it_prints_the_built_in_one_and_a_curl_line_that_works_as_pasted() {
    let home = TempDir::new().expect("a folder for temporary files");
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
    let said = process.output().join("\n");
    assert!(
        said.contains("identifier_glob:"),
        "it prints the document:\n{said}"
    );
    assert!(
        said.contains(&format!("{address}/docs")),
        "it names the documentation page:\n{said}"
    );
    let output = Command::new("sh")
        .args(["-c", &line])
        .output()
        .expect("a shell");
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    assert_eq!(answer["resources"][0]["reason"], "granted", "{answer}");
}

#[test]
fn the_documentation_page_loads_nothing_from_elsewhere() {
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
fn a_check_names_every_fault_and_where_it_is() {
    let home = TempDir::new().expect("a folder for temporary files");
    let file = home.path().join("limits.yaml");
    let bad = "resources:\n  - identifier_glob: db\n    capacity: -3\n    algorithm: {kind: FAIR}\n  - identifer_glob: x\n";
    std::fs::write(&file, bad).expect("the folder is new");
    let output = Command::new(doorman())
        .arg("check")
        .arg(&file)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for named in ["limits.yaml:3", "capacity", "FAIR", "identifer_glob"] {
        assert!(said.contains(named), "{named} in:\n{said}");
    }
    let doormans_own = "resources:\n- identifier_glob: proportional\n  capacity: 500\n  safe_capacity: 5\n  description: example\n  \
        algorithm:\n    kind: PROPORTIONAL_SHARE\n    lease_length: 60\n    refresh_interval: 15\n    learning_mode_duration: 64\n";
    std::fs::write(&file, doormans_own).expect("the folder is there");
    let output = Command::new(doorman())
        .arg("check")
        .arg(&file)
        .output()
        .expect("it runs");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_node_keeps_its_name_and_its_epoch_grows_through_a_restart() {
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
fn a_fresh_data_directory_on_loopback_needs_no_learning_and_a_used_one_does() {
    let document =
        "resources: [{identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}]";
    let ask = r#"{"client_id":"a","resources":[{"resource_id":"db","wants":5}]}"#;
    let server = ControlPlane::start(document);
    assert_eq!(
        server.post("/v1/capacity", ask)["resources"][0]["reason"],
        "granted"
    );
    let server = server.kill().restart();
    let answer = server.post("/v1/capacity", ask);
    assert_eq!(answer["resources"][0]["reason"], "pending", "{answer}");
    assert_eq!(server.get("/v1/resources/db")["in_learning_mode"], true);
    let keeps =
        r#"{"client_id":"b","resources":[{"resource_id":"db","wants":5,"has":{"capacity":4}}]}"#;
    assert_eq!(
        server.post("/v1/capacity", keeps)["resources"][0]["gets"]["capacity"],
        4.0
    );
}
