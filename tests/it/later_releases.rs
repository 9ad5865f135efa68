//! Data of later releases: a store of a later format is refused, and a response with unknown fields
//! is read.

use std::{fs, process::Command};

use axum::{Json, Router, routing::post};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Process, TIMEOUT, doorman};

#[test]
fn store_of_a_later_release_stops_the_start() {
    let data = TempDir::new().expect("a temporary directory");
    let data_dir = data.path().display().to_string();
    let args = ["--listen", "127.0.0.1:0", "--data-dir", &data_dir];
    let mut process = Process::start(&doorman(), &args);
    process.wait_for_address();
    process.terminate();
    process.wait_for(|line| line.ends_with("stopped").then_some(()));
    drop(process);
    let store = data.path().join("doorman.db");
    let database = rusqlite::Connection::open(&store).expect("it is a database");
    let mark = "PRAGMA user_version = 7";
    database.execute_batch(mark).expect("it is writable");
    drop(database);
    let before = fs::read(&store).expect("it exists");

    let file = data.path().join("limits.yaml");
    fs::write(&file, "resources: []").expect("there is space");
    let [path, file] = [&store, &file].map(|it| it.display().to_string());
    for command in [
        &["--listen", "127.0.0.1:0", "--data-dir", &data_dir][..],
        &["export", "--store", &path],
        &["history", "--store", &path],
        &["import", &file, "--store", &path],
        &["rollback", "1", "--store", &path],
    ] {
        let output = Command::new(doorman()).args(command).output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{command:?}: {output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        let expected = format!(
            "doorman: the store {path} has format 7, and this version of doorman knows formats \
             up to 1: start the version that wrote it, or a later one; it was left untouched"
        );
        assert_eq!(last, expected, "{command:?}: {stderr}");
        assert!(!stderr.contains("ERROR"), "{command:?}: {stderr}");
        assert!(
            fs::read(&store).expect("it exists") == before,
            "{command:?}"
        );
    }
    assert!(!data.path().join("doorman.db-wal").exists());
}

#[tokio::test]
async fn layer_leases_from_a_later_server() {
    let later = json!({"of": ["any", 1, null]});
    let gets = json!({"capacity": 5.0, "lease_length": 60.0, "refresh_interval": 5.0,
        "expiry_time": 1_795_392_631, "later": later});
    let resource = json!({"resource_id": "db", "gets": gets, "reason": "later", "template": "db",
        "limit": 30.0, "unit": "rate", "per": 1.0, "safe_capacity": -1.0, "later": later});
    let response = json!({"node": "node-a", "epoch": 1_795_392_570, "resources": [resource],
        "later": later});
    let leased = post(async move || Json(response));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let routes = Router::new().route("/v1/capacity", leased);
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let doorman = tower_doorman::Doorman::builder(format!("http://{address}"))
        .spawn()
        .expect("the settings are valid");
    let _rate = doorman.rate("db");
    doorman.ready(TIMEOUT).await.expect("it has a lease");
    let limits = doorman.snapshot().limits;
    let lease = limits[0].lease.as_ref().map(|lease| lease.capacity);
    assert_eq!(lease.flatten(), Some(5.0), "{limits:?}");
}
