//! A control plane stops, one way or another, and the next goes on from what it left.

use std::{process::Command, thread::sleep, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ControlPlane, SmallDisk, doorman, now};

const DOCUMENT: &str = "
resources:
  - identifier_glob: brief
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 3, refresh_interval: 1}
  - identifier_glob: never-asked-for
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 1}
  - identifier_glob: '*'
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
";

/// A client asks for a resource, and says what it has.
fn ask(server: &ControlPlane, client: &str, resource: &str, wants: f64, has: Option<f64>) -> Value {
    let has = has.map_or(String::new(), |has| {
        format!(r#","has":{{"capacity":{has}}}"#)
    });
    let body = format!(
        r#"{{"client_id":"{client}","resources":[{{"resource_id":"{resource}","wants":{wants}{has}}}]}}"#
    );
    server.post("/v1/capacity", &body)["resources"][0].clone()
}

#[test]
fn after_a_clean_stop_nothing_is_learned_and_everybody_keeps_what_they_have() {
    let server = ControlPlane::start(DOCUMENT);
    assert_eq!(ask(&server, "a", "db", 80.0, None)["reason"], "granted");
    let server = server.stop().restart();
    let view = server.get("/v1/resources/db");
    assert_eq!(
        (&view["sum_has"], &view["in_learning_mode"]),
        (&80.0.into(), &false.into()),
        "{view}"
    );
    let left = server.get("/v1/resources/db/leases")["leases"][0]["expires_in"].as_f64();
    assert!(left.is_some_and(|left| left < 63.0), "{left:?}");
    // A newcomer gets at once what is free, though the holder has not been heard of again, and nothing of what it holds.
    let newcomer = ask(&server, "b", "db", 80.0, None);
    assert_eq!(
        (&newcomer["gets"]["capacity"], &newcomer["reason"]),
        (&20.0.into(), &"pending".into()),
        "{newcomer}"
    );
    let holder = ask(&server, "a", "db", 80.0, Some(80.0));
    assert_eq!(holder["gets"]["capacity"], 50.0, "{holder}");

    // What was taken over is used up: a crash does not bring it back.
    let server = server.kill().restart();
    assert_eq!(server.get("/v1/status")["leases"], 0);
    assert_eq!(ask(&server, "c", "db", 10.0, None)["reason"], "pending");
}

#[test]
fn after_a_crash_it_learns_until_what_was_granted_has_ended_and_not_longer() {
    let server = ControlPlane::start(DOCUMENT);
    assert_eq!(ask(&server, "a", "brief", 80.0, None)["reason"], "granted");
    let granted = now();
    let server = server.kill().restart();
    assert_eq!(ask(&server, "b", "brief", 10.0, None)["reason"], "pending");
    let kept = ask(&server, "a", "brief", 80.0, Some(80.0));
    assert_eq!(kept["gets"]["capacity"], 80.0, "{kept}");
    while ask(&server, "b", "brief", 10.0, None)["reason"] == "pending" {
        assert!(
            now() - granted < Duration::from_secs(9),
            "3 s and the drift, at most 5 s more, and some to see it"
        );
        sleep(Duration::from_millis(50));
    }
    let learned = now() - granted;
    assert!(learned > Duration::from_millis(3100), "{learned:?}");

    // All of it has ended by now: the next one has nothing to learn but of what it granted since.
    let down = server.kill();
    sleep(Duration::from_secs(7));
    let server = down.restart();
    assert_eq!(ask(&server, "c", "brief", 10.0, None)["reason"], "granted");
}

#[test]
fn a_second_server_on_the_same_data_directory_stops_with_one_line() {
    let server = ControlPlane::start("resources: []");
    let epoch = server.get("/v1/discovery")["epoch"].clone();
    let data = server.home().join("data");
    let second = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("in use") && said.contains(&*data.to_string_lossy()),
        "{said}"
    );
    assert_eq!(server.get("/v1/discovery")["epoch"], epoch);
}

#[test]
fn a_full_disk_does_not_stop_leases() {
    let home = TempDir::new().expect("a folder for temporary files");
    let Some(disk) = SmallDisk::mount(&home.path().join("data")) else {
        return;
    };
    let server = ControlPlane::start_in(home, DOCUMENT);
    let lease = |resource| {
        ask(&server, "a", resource, 10.0, None)["gets"]["lease_length"]
            .as_f64()
            .expect("a number")
    };
    assert_eq!(lease("brief"), 3.0);
    disk.fill();
    // Each of these needs more of what is kept on the disk than what was there before.
    assert_eq!(lease("db"), 60.0);
    assert_eq!(lease("never-asked-for"), 3600.0);
    sleep(Duration::from_secs(4));
    assert_eq!(lease("never-asked-for-again"), 60.0);
    assert_eq!(lease("never-asked-for"), 3600.0);
    // The books find no room; the server stops in good order all the same.
    assert_eq!(server.terminate().code(), Some(0));
}
