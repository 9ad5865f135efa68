//! Restarts after a clean stop, a crash and a full disk.

use std::{process::Command, thread::sleep, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{ControlPlane, SmallDisk, doorman, now};

const DOCUMENT: &str = "
resources:
  - identifier_glob: brief
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 3, refresh_interval: 1}
  - identifier_glob: hourly
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 1}
  - identifier_glob: '*'
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}
";

/// Requests a lease; returns the response for the resource.
fn lease(
    server: &ControlPlane,
    client: &str,
    resource: &str,
    wants: f64,
    has: Option<f64>,
) -> Value {
    let has = has.map_or(String::new(), |has| {
        format!(r#","has":{{"capacity":{has}}}"#)
    });
    let body = format!(
        r#"{{"client_id":"{client}","resources":[{{"resource_id":"{resource}","wants":{wants}{has}}}]}}"#
    );
    server.post("/v1/capacity", &body)["resources"][0].clone()
}

#[test]
fn clean_restart_keeps_leases_and_skips_learning_mode() {
    let server = ControlPlane::start(DOCUMENT);
    assert_eq!(lease(&server, "a", "db", 80.0, None)["reason"], "granted");
    let server = server.stop().restart();
    let view = server.get("/v1/resources/db");
    assert_eq!(
        (&view["sum_has"], &view["in_learning_mode"]),
        (&80.0.into(), &false.into()),
        "{view}"
    );
    let expires_in = server.get("/v1/resources/db/leases")["leases"][0]["expires_in"].as_f64();
    assert!(expires_in.is_some_and(|it| it < 63.0), "{expires_in:?}");
    // A newcomer gets the free capacity before the holder has refreshed, and none of its lease.
    let newcomer = lease(&server, "b", "db", 80.0, None);
    assert_eq!(
        (&newcomer["gets"]["capacity"], &newcomer["reason"]),
        (&20.0.into(), &"pending".into()),
        "{newcomer}"
    );
    let holder = lease(&server, "a", "db", 80.0, Some(80.0));
    assert_eq!(holder["gets"]["capacity"], 50.0, "{holder}");

    // A snapshot is used once: a crash does not bring it back.
    let server = server.kill().restart();
    assert_eq!(server.get("/v1/status")["leases"], 0);
    assert_eq!(lease(&server, "c", "db", 10.0, None)["reason"], "pending");
}

/// A document with so much in so many seconds.
fn periodic(capacity: u32, per: u32) -> String {
    format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    )
}

#[test]
fn period_edited_while_stopped_keeps_the_rate() {
    let server = ControlPlane::start(&periodic(10, 1));
    assert_eq!(lease(&server, "a", "db", 10.0, None)["per"], 1.0);
    let home = server.stop().into_home();
    let server = ControlPlane::start_in(home, &periodic(600, 60));
    let newcomer = lease(&server, "b", "db", 600.0, None);
    assert_eq!(newcomer["gets"]["capacity"], 0.0, "{newcomer}");
    // The holder states no unit, and counts in the one that the last server told.
    let holder = lease(&server, "a", "db", 10.0, Some(10.0));
    assert_eq!(holder["gets"]["capacity"], 300.0, "{holder}");
    assert_eq!(server.get("/v1/resources/db")["sum_has"], 600.0);
}

#[test]
fn learning_mode_after_crash_ends_with_last_lease() {
    let server = ControlPlane::start(DOCUMENT);
    assert_eq!(
        lease(&server, "a", "brief", 80.0, None)["reason"],
        "granted"
    );
    let granted = now();
    let server = server.kill().restart();
    assert_eq!(
        lease(&server, "b", "brief", 10.0, None)["reason"],
        "pending"
    );
    let renewed = lease(&server, "a", "brief", 80.0, Some(80.0));
    assert_eq!(renewed["gets"]["capacity"], 80.0, "{renewed}");
    while lease(&server, "b", "brief", 10.0, None)["reason"] == "pending" {
        assert!(
            now() - granted < Duration::from_secs(9),
            "learning mode lasts 3 s, plus drift, plus at most 5 s"
        );
        sleep(Duration::from_millis(50));
    }
    let learned = now() - granted;
    assert!(learned > Duration::from_millis(3100), "{learned:?}");

    // By then all leases have expired, so the next restart has nothing to learn.
    let stopped = server.kill();
    sleep(Duration::from_secs(7));
    let server = stopped.restart();
    assert_eq!(
        lease(&server, "c", "brief", 10.0, None)["reason"],
        "granted"
    );
}

#[test]
fn second_server_on_a_data_directory_is_rejected() {
    let server = ControlPlane::start("resources: []");
    let epoch = server.get("/v1/discovery")["epoch"].clone();
    let data = server.home().join("data");
    let second = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains("in use") && stderr.contains(&*data.to_string_lossy()),
        "{stderr}"
    );
    assert_eq!(server.get("/v1/discovery")["epoch"], epoch);
}

#[test]
fn full_disk_does_not_stop_leases() {
    let home = TempDir::new().expect("a temporary directory");
    let Some(disk) = SmallDisk::mount(&home.path().join("data")) else {
        return;
    };
    let server = ControlPlane::start_in(home, DOCUMENT);
    let lease_length = |resource| {
        lease(&server, "a", resource, 10.0, None)["gets"]["lease_length"]
            .as_f64()
            .expect("a number")
    };
    assert_eq!(lease_length("brief"), 3.0);
    disk.fill();
    // Each of these requires a larger lease bound on disk.
    assert_eq!(lease_length("db"), 60.0);
    assert_eq!(lease_length("hourly"), 3600.0);
    sleep(Duration::from_secs(4));
    assert_eq!(lease_length("new-while-full"), 60.0);
    assert_eq!(lease_length("hourly"), 3600.0);
    // The snapshot cannot be written. The server stops cleanly all the same.
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn restart_in_another_time_namespace_learns() {
    // Root may create one, on Linux.
    let ahead = ["unshare", "--time", "--boottime", "100000"];
    let server = ControlPlane::start(DOCUMENT);
    assert_eq!(lease(&server, "a", "db", 80.0, None)["reason"], "granted");
    // Without learning mode a new client gets 100 where another one still holds 80.
    let restarts: [&[&str]; 2] = [&ahead, &[]];
    let mut server = server;
    for (launcher, newcomer) in restarts.iter().zip(["b", "c"]) {
        server = server.kill().restart_by(launcher);
        let new = lease(&server, newcomer, "db", 100.0, None);
        assert_eq!(
            (&new["gets"]["capacity"], &new["reason"]),
            (&0.0.into(), &"pending".into()),
            "by {launcher:?}: {new}"
        );
        // It learns for the longest lease, not until the end of the bound by the other clock.
        let ready = server.curl("/readyz", &[]).body;
        let learns = ready.split("another ").nth(1);
        let learns: Option<u32> = learns.and_then(|it| it.split(' ').next()?.parse().ok());
        assert!(learns.is_some_and(|it| it <= 64), "{ready}");
    }
}

#[test]
fn restart_with_the_same_clock_offset_learns_no_ended_leases() {
    let ahead = ["unshare", "--time", "--boottime", "100000"];
    let start = ControlPlane::start(DOCUMENT).stop();
    let server = start.restart_by(&ahead);
    assert_eq!(
        lease(&server, "a", "brief", 80.0, None)["reason"],
        "granted"
    );
    let stopped = server.kill();
    // The bound is at most 5 s later than the end of the lease.
    sleep(Duration::from_secs(9));
    let server = stopped.restart_by(&ahead);
    assert_eq!(
        lease(&server, "b", "brief", 80.0, None)["reason"],
        "granted"
    );
}
