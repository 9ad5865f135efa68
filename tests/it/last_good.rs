//! Starts with an invalid document: the last valid one is used if there is one.

use std::{fs, process::Command};

use tempfile::TempDir;

use crate::support::{ControlPlane, curl, doorman, until};

const INVALID: &str = "resources: [{identifier_glob: '*'}]";

fn document(capacity: u32) -> String {
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, \
         algorithm: {{kind: FAIR_SHARE}}}}]"
    )
}

fn capacity(server: &ControlPlane) -> Option<f64> {
    server.get("/v1/templates")["resources"][0]["capacity"].as_f64()
}

fn config_error(server: &ControlPlane) -> Option<String> {
    let status = server.get("/v1/status");
    status["config_error"].as_str().map(str::to_owned)
}

#[test]
fn restart_with_invalid_document_uses_last_valid_one() {
    let server = ControlPlane::start(&document(70));
    let file = server.home().join("limits.yaml");
    fs::write(&file, document(71)).expect("the file exists");
    until("the edit is active", || capacity(&server) == Some(71.0));
    let copy = server.home().join("data/file.last-good.json");
    until("the copy is written", || {
        fs::read_to_string(&copy).is_ok_and(|text| text.contains("71.0"))
    });
    fs::write(&file, INVALID).expect("the file exists");
    until("the next edit is rejected", || {
        config_error(&server).is_some()
    });

    let server = server.kill().restart();
    assert_eq!(capacity(&server), Some(71.0));
    let error = config_error(&server).expect("the error is reported");
    assert!(
        error.contains("limits.yaml:1") && error.contains("capacity"),
        "{error}"
    );
    let metrics = curl(&[&format!("{}/metrics", server.address())]).body;
    let failed = "doorman_config_last_reload_successful 0";
    assert!(metrics.lines().any(|it| it == failed), "{metrics}");

    // The copy is used without the file, too. A valid file ends that.
    fs::remove_file(&file).expect("the file exists");
    let server = server.kill().restart();
    assert_eq!(capacity(&server), Some(71.0));
    fs::write(&file, document(72)).expect("the directory exists");
    until("the valid file is active", || {
        capacity(&server) == Some(72.0)
    });
    assert_eq!(config_error(&server), None);
}

#[test]
fn first_start_with_invalid_document_fails() {
    let home = TempDir::new().expect("a temporary directory");
    let file = home.path().join("limits.yaml");
    fs::write(&file, INVALID).expect("the directory is new");
    let output = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--config"])
        .arg(format!("file:{}", file.display()))
        .arg("--data-dir")
        .arg(home.path().join("data"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("limits.yaml:1"), "{stderr}");
}
