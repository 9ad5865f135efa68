//! The document store under crashes, full disks, locks and corruption: no acknowledged change is
//! lost, and leases continue.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    thread::sleep,
    time::Duration,
};

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{ControlPlane, SmallDisk, curl};

/// A document with one number in many places, so that a partial write shows.
fn document(number: u32) -> String {
    let template = |glob: &str| json!({"identifier_glob": glob, "capacity": number, "algorithm": {"kind": "FAIR_SHARE", "lease_length": number}});
    let rule = |name: &str| json!({"name": name, "service": "s", "resource": "r", "cost": number});
    json!({
        "resources": [template("a"), template("b/*"), template("*")],
        "rules": [rule("first"), rule("last")]
    })
    .to_string()
}

/// The number of the active document, which must be complete.
fn number(server: &ControlPlane) -> u32 {
    let document = server.get("/v1/templates");
    let found = document["resources"][0]["capacity"].as_f64();
    let number = found.expect("a document with resources") as u32;
    let expected: Value = serde_json::from_str(&self::document(number)).expect("JSON");
    for (list, fields) in [
        ("resources", &["capacity", "identifier_glob"][..]),
        ("rules", &["cost", "name"]),
    ] {
        let (actual, expected) = (&document[list], &expected[list]);
        let count = expected.as_array().map_or(0, Vec::len);
        assert_eq!(actual.as_array().map_or(0, Vec::len), count, "{document}");
        for index in 0..count {
            for field in fields {
                let (actual, expected) = (&actual[index][field], &expected[index][field]);
                let number = actual.as_f64();
                let same = actual == expected || number.is_some() && number == expected.as_f64();
                assert!(same, "{list}/{index}/{field}: {document}");
            }
        }
    }
    number
}

/// Sends a PUT of a document without waiting for the response.
fn send_put(server: &ControlPlane, number: u32) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let body = document(number);
    let head = format!(
        "PUT /v1/templates HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("the server reads");
    stream
}

/// Reads the response, as far as it came.
fn read_response(mut stream: TcpStream) -> String {
    let mut response = Vec::new();
    // A killed server resets the connection.
    drop(stream.read_to_end(&mut response));
    String::from_utf8_lossy(&response).into_owned()
}

fn is_acknowledged(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200")
}

/// Leases are still granted promptly.
fn assert_leases_continue(server: &ControlPlane) {
    let request = r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1}]}"#;
    let url = format!("{}/v1/capacity", server.address());
    let json = "content-type: application/json";
    let response = curl(&["--max-time", "1", &url, "-H", json, "-d", request]);
    let response: Value = serde_json::from_str(&response.body).expect("JSON");
    assert!(response["resources"][0]["gets"].is_object(), "{response}");
}

/// Starts a control plane with a new store.
fn start() -> (ControlPlane, PathBuf) {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("doorman.db");
    (ControlPlane::start_on(home, &store), store)
}

/// Starts a control plane with a store on a small disk, and the document of this number.
fn start_on_small_disk(number: u32) -> Option<(ControlPlane, SmallDisk)> {
    let home = TempDir::new().expect("a temporary directory");
    let disk = SmallDisk::mount(&home.path().join("small"))?;
    let store = home.path().join("small/doorman.db");
    let server = ControlPlane::start_on(home, &store);
    assert_eq!(server.put("/v1/templates", &document(number)).status, 200);
    Some((server, disk))
}

fn metric(server: &ControlPlane, line: &str) -> bool {
    let metrics = curl(&[&format!("{}/metrics", server.address())]).body;
    metrics.lines().any(|it| it == line)
}

#[test]
fn kills_lose_no_acknowledged_change() {
    let (mut server, _) = start();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut acknowledged, mut unanswered, mut last) = (1000, 0, 1000);
    assert_eq!(server.put("/v1/templates", &document(last)).status, 200);
    for round in 0..100 {
        for _ in 0..round % 3 {
            last += 1;
            let response = read_response(send_put(&server, last));
            assert!(is_acknowledged(&response), "{response}");
            acknowledged = last;
        }
        last += 1;
        let stream = send_put(&server, last);
        // Kill at a random moment, or as soon as the response begins: a change acknowledged too
        // early is not durable yet.
        if round % 2 == 0 {
            sleep(Duration::from_micros(random.u64(0..6000)));
        } else {
            stream.peek(&mut [0]).expect("a response");
        }
        let stopped = server.kill();
        if is_acknowledged(&read_response(stream)) {
            acknowledged = last;
        } else {
            unanswered += 1;
        }
        server = stopped.restart_on_free_port();
        let found = number(&server);
        assert!(
            found == last || found == acknowledged,
            "round {round}: {found}, though {acknowledged} was acknowledged and {last} sent"
        );
        let status = server.get("/v1/status");
        assert!(status.get("config_error").is_none(), "{status}");
        acknowledged = found;
    }
    assert!(
        unanswered > 5,
        "kills came too late: only {unanswered} unanswered"
    );
}

#[test]
fn full_disk_rejects_changes_until_space_is_freed() {
    let Some((server, disk)) = start_on_small_disk(70) else {
        return;
    };
    disk.fill();
    // The database's write-ahead log has a little space left.
    let mut accepted = 70;
    let rejected = loop {
        let response = server.put("/v1/templates", &document(accepted + 1));
        if response.status != 200 {
            break response;
        }
        accepted += 1;
        assert!(accepted < 1000, "the disk is never full");
    };
    assert_eq!(rejected.status, 507, "{rejected:?}");
    let problem: Value = serde_json::from_str(&rejected.body).expect("JSON");
    assert_eq!(problem["type"], "/problems/insufficient-storage");
    assert_eq!(number(&server), accepted);
    assert_leases_continue(&server);
    assert!(metric(
        &server,
        r#"doorman_config_writes_total{outcome="failed"} 1"#
    ));

    disk.clear();
    assert_eq!(server.put("/v1/templates", &document(80)).status, 200);
    let server = server.kill().restart();
    assert_eq!(number(&server), 80);
}

#[test]
fn read_only_store_is_used_and_not_changed() {
    let Some((server, disk)) = start_on_small_disk(70) else {
        return;
    };
    let stopped = server.kill();
    disk.remount("ro");
    let mut server = stopped.restart();
    assert_eq!(number(&server), 70);
    let status = server.get("/v1/status");
    assert!(
        status["config_error"]
            .as_str()
            .is_some_and(|it| it.contains("cannot be written")),
        "{status}"
    );
    assert!(metric(&server, "doorman_config_last_reload_successful 0"));
    let log = server.output();
    assert!(log.contains("cannot write document store"), "{log}");
    assert!(
        log.contains(", which cannot be written: changes will fail"),
        "{log}"
    );
    assert!(
        !log.contains("damaged") && !log.contains("invalid"),
        "{log}"
    );
    assert_eq!(server.put("/v1/templates", &document(71)).status, 503);
    assert_eq!(number(&server), 70);
    let history = server.get("/v1/history");
    let newest = history["changes"][0]["revision"].as_u64();
    let newest = newest.expect("a read-only store has a history");
    server.get(&format!("/v1/history/{newest}"));
    assert_leases_continue(&server);

    let stopped = server.kill();
    disk.remount("rw");
    let server = stopped.restart();
    assert_eq!(server.put("/v1/templates", &document(71)).status, 200);
    assert!(server.get("/v1/status").get("config_error").is_none());
}

#[test]
fn locked_database_rejects_changes_meanwhile() {
    let (server, store) = start();
    assert_eq!(server.put("/v1/templates", &document(70)).status, 200);
    let other = Connection::open(&store).expect("it is a database");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("it is not locked");
    let waits = send_put(&server, 71);
    assert_leases_continue(&server);
    assert!(!is_acknowledged(&read_response(waits)));
    let rejected = server.put("/v1/templates", &document(71));
    assert_eq!(rejected.status, 503, "{rejected:?}");
    assert!(rejected.headers.to_lowercase().contains("retry-after:"));
    assert!(rejected.body.contains("locked"), "{rejected:?}");
    assert_eq!(number(&server), 70);
    other.execute_batch("ROLLBACK").expect("it was locked");
    assert_eq!(server.put("/v1/templates", &document(71)).status, 200);
}

#[test]
fn corrupted_database_loses_no_acknowledged_change() {
    let (mut server, store) = start();
    let garbage = [0xa5; 16 * 1024];
    for (round, while_running) in [true, false, true].into_iter().enumerate() {
        let mut acknowledged = 70 + 10 * round as u32;
        assert_eq!(
            server.put("/v1/templates", &document(acknowledged)).status,
            200
        );
        if while_running {
            // The server may notice or not.
            fs::write(&store, garbage).expect("it exists");
            let response = server.put("/v1/templates", &document(acknowledged + 1));
            assert!([200, 503].contains(&response.status), "{response:?}");
            acknowledged += u32::from(response.status == 200);
            assert_eq!(number(&server), acknowledged);
            assert_leases_continue(&server);
        }
        let stopped = server.kill();
        fs::write(&store, garbage).expect("it exists");
        fs::write(store.with_extension("db-wal"), garbage).expect("it exists");
        server = stopped.restart();
        assert_eq!(number(&server), acknowledged);
        let status = server.get("/v1/status");
        let error = status["config_error"].as_str().unwrap_or_default();
        assert!(
            error.contains("was damaged") && error.contains("corrupted-"),
            "{status}"
        );
        assert_leases_continue(&server);
    }
    // The next change clears the error. Corrupted files are retained.
    assert_eq!(server.put("/v1/templates", &document(99)).status, 200);
    assert!(server.get("/v1/status").get("config_error").is_none());
    let files = fs::read_dir(store.parent().expect("a directory")).expect("it exists");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let aside = names
        .filter(|it| it.contains(".corrupted-") && !it.ends_with("-wal") && !it.ends_with("-shm"));
    assert_eq!(aside.count(), 3);
}

#[test]
fn start_skips_an_invalid_document_in_the_store() {
    let (server, store) = start();
    for number in [70, 71] {
        assert_eq!(server.put("/v1/templates", &document(number)).status, 200);
    }
    let stopped = server.kill();
    let database = Connection::open(&store).expect("it is a database");
    let spoil = "UPDATE changes SET document = replace(document, 'FAIR_SHARE', 'UNFAIR') \
        WHERE revision = 3";
    assert_eq!(database.execute(spoil, []).expect("it is the table"), 1);
    drop(database);
    fs::remove_file(store.with_extension("db.last-good.json")).expect("it exists");
    let server = stopped.restart();
    assert_eq!(number(&server), 70);
    let status = server.get("/v1/status");
    let error = status["config_error"].as_str().unwrap_or_default();
    assert!(
        error.contains("revision 3") && error.contains("UNFAIR"),
        "{status}"
    );
    assert!(metric(&server, "doorman_config_last_reload_successful 0"));
    assert_leases_continue(&server);
    assert_eq!(server.put("/v1/templates", &document(72)).status, 200);
    assert_eq!(number(&server.kill().restart()), 72);
}
