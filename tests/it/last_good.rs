//! A file with a fault stops no server that has known it without one.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use tempfile::TempDir;

use crate::support::{ControlPlane, TIMEOUT, curl, doorman};

const LOOK: Duration = Duration::from_millis(50);

fn limits(capacity: u32) -> String {
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}]"
    )
}

fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..TIMEOUT.as_millis() / LOOK.as_millis() {
        if is() {
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("never: {what}");
}

fn capacity(server: &ControlPlane) -> Option<f64> {
    server.get("/v1/templates")["resources"][0]["capacity"].as_f64()
}

fn fault(server: &ControlPlane) -> Option<String> {
    let status = server.get("/v1/status");
    status["config_error"].as_str().map(str::to_owned)
}

#[test]
fn a_crash_makes_no_outage_of_an_edit_that_was_refused() {
    let server = ControlPlane::start(&limits(70));
    let file = server.home().join("limits.yaml");
    fs::write(&file, limits(71)).expect("it can be edited");
    until("the edit counts", || capacity(&server) == Some(71.0));
    let kept = server.home().join("data/file.last-good.json");
    until("it is kept", || {
        fs::read_to_string(&kept).is_ok_and(|text| text.contains("71.0"))
    });
    fs::write(&file, "resources: [{identifier_glob: '*'}]").expect("it can be edited");
    until("the next one is refused", || fault(&server).is_some());

    let server = server.kill().restart();
    assert_eq!(capacity(&server), Some(71.0));
    let told = fault(&server).expect("it is told");
    assert!(
        told.contains("limits.yaml:1") && told.contains("capacity"),
        "{told}"
    );
    let metrics = curl(&[&format!("{}/metrics", server.address())]).body;
    let failed = "doorman_config_last_reload_successful 0";
    assert!(metrics.lines().any(|it| it == failed), "{metrics}");

    // Nor is it missed when the file is gone. One that is good counts again, and ends it.
    fs::remove_file(&file).expect("it is there");
    let server = server.kill().restart();
    assert_eq!(capacity(&server), Some(71.0));
    fs::write(&file, limits(72)).expect("the folder is there");
    until("it is good again", || capacity(&server) == Some(72.0));
    assert_eq!(fault(&server), None);
}

#[test]
fn a_first_start_with_a_fault_fails_and_names_it() {
    let home = TempDir::new().expect("a folder for temporary files");
    let file = home.path().join("limits.yaml");
    fs::write(&file, "resources: [{identifier_glob: '*'}]").expect("the folder is new");
    let output = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--config"])
        .arg(named(&file))
        .arg("--data-dir")
        .arg(home.path().join("data"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("limits.yaml:1"), "{said}");
}

fn named(file: &Path) -> String {
    format!("file:{}", file.display())
}
