//! The store of a control plane, and everything that can happen to it: what was acknowledged is there, and leases go on.

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

/// A document in which one number stands in many places: half of one would show.
fn document(number: u32) -> String {
    let template = |glob: &str| json!({"identifier_glob": glob, "capacity": number, "algorithm": {"kind": "FAIR_SHARE", "lease_length": number}});
    let rule = |name: &str| json!({"name": name, "service": "s", "resource": "r", "cost": number});
    json!({
        "resources": [template("a"), template("b/*"), template("*")],
        "rules": [rule("first"), rule("last")]
    })
    .to_string()
}

/// The number of the document that is in force, which must be whole.
fn number(server: &ControlPlane) -> u32 {
    let document = server.get("/v1/templates");
    let found = document["resources"][0]["capacity"].as_f64();
    let number = found.expect("a document with resources") as u32;
    let expected: Value = serde_json::from_str(&self::document(number)).expect("JSON");
    for (list, fields) in [
        ("resources", &["capacity", "identifier_glob"][..]),
        ("rules", &["cost", "name"]),
    ] {
        let (is, should) = (&document[list], &expected[list]);
        let count = should.as_array().map_or(0, Vec::len);
        assert_eq!(is.as_array().map_or(0, Vec::len), count, "{document}");
        for index in 0..count {
            for field in fields {
                let (is, should) = (&is[index][field], &should[index][field]);
                let same = is == should || is.as_f64().is_some() && is.as_f64() == should.as_f64();
                assert!(same, "{list}/{index}/{field}: {document}");
            }
        }
    }
    number
}

/// Sends a request to put a document, and does not wait for the answer.
fn send(server: &ControlPlane, number: u32) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let body = document(number);
    let head = format!(
        "PUT /v1/templates HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("it takes the request");
    stream
}

/// What came back, if anything did.
fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that was cut off has no more to say.
    drop(stream.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

fn is_acknowledged(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200")
}

/// That leases are still granted, and promptly.
fn assert_leases_go_on(server: &ControlPlane) {
    let ask = r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1}]}"#;
    let url = format!("{}/v1/capacity", server.address());
    let json = "content-type: application/json";
    let answer = curl(&["--max-time", "1", &url, "-H", json, "-d", ask]);
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert!(answer["resources"][0]["gets"].is_object(), "{answer}");
}

/// A control plane with a store of its own.
fn start() -> (ControlPlane, PathBuf) {
    let home = TempDir::new().expect("a folder for temporary files");
    let store = home.path().join("doorman.db");
    (ControlPlane::start_on(home, &store), store)
}

/// The same, whose store is on a disk of its own, if one is to be had; it has the document of this number.
fn start_on_small_disk(number: u32) -> Option<(ControlPlane, SmallDisk)> {
    let home = TempDir::new().expect("a folder for temporary files");
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
fn a_hundred_kills_between_request_and_answer_lose_nothing_that_was_acknowledged() {
    let (mut server, _) = start();
    let (mut acknowledged, mut unanswered, mut last) = (1000, 0, 1000);
    assert_eq!(server.put("/v1/templates", &document(last)).status, 200);
    for round in 0..100 {
        for _ in 0..round % 3 {
            last += 1;
            let answer = answer(send(&server, last));
            assert!(is_acknowledged(&answer), "{answer}");
            acknowledged = last;
        }
        last += 1;
        let stream = send(&server, last);
        // At any moment, or as soon as the answer begins: what is acknowledged too early has no time to become true.
        if round % 2 == 0 {
            sleep(Duration::from_micros(fastrand::u64(0..6000)));
        } else {
            stream.peek(&mut [0]).expect("it answers");
        }
        let down = server.kill();
        if is_acknowledged(&answer(stream)) {
            acknowledged = last;
        } else {
            unanswered += 1;
        }
        server = down.restart_on_free_port();
        let found = number(&server);
        assert!(
            found == last || found == acknowledged,
            "round {round}: {found}, though {acknowledged} was acknowledged and {last} sent"
        );
        let status = server.get("/v1/status");
        assert!(status.get("config_error").is_none(), "{status}");
        acknowledged = found;
    }
    assert!(unanswered > 5, "the kills came too late: {unanswered}");
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_room_again() {
    let Some((server, disk)) = start_on_small_disk(70) else {
        return;
    };
    disk.fill();
    // What was written before leaves a little room in the log of the database.
    let mut number_then = 70;
    let refused = loop {
        let answer = server.put("/v1/templates", &document(number_then + 1));
        if answer.status != 200 {
            break answer;
        }
        number_then += 1;
        assert!(number_then < 1000, "the disk is never full");
    };
    assert_eq!(refused.status, 507, "{refused:?}");
    let problem: Value = serde_json::from_str(&refused.body).expect("JSON");
    assert_eq!(problem["type"], "/problems/insufficient-storage");
    assert_eq!(number(&server), number_then);
    assert_leases_go_on(&server);
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
fn a_store_that_cannot_be_written_counts_and_is_not_changed() {
    let Some((server, disk)) = start_on_small_disk(70) else {
        return;
    };
    let down = server.kill();
    disk.remount("ro");
    let server = down.restart();
    assert_eq!(number(&server), 70);
    let status = server.get("/v1/status");
    assert!(
        status["config_error"]
            .as_str()
            .is_some_and(|it| it.contains("cannot be written")),
        "{status}"
    );
    assert!(metric(&server, "doorman_config_last_reload_successful 0"));
    assert_eq!(server.put("/v1/templates", &document(71)).status, 503);
    assert_eq!(number(&server), 70);
    assert_leases_go_on(&server);

    let down = server.kill();
    disk.remount("rw");
    let server = down.restart();
    assert_eq!(server.put("/v1/templates", &document(71)).status, 200);
    assert!(server.get("/v1/status").get("config_error").is_none());
}

#[test]
fn a_database_that_somebody_else_holds_refuses_changes_meanwhile() {
    let (server, store) = start();
    assert_eq!(server.put("/v1/templates", &document(70)).status, 200);
    let other = Connection::open(&store).expect("it is a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("it is free");
    let waits = send(&server, 71);
    assert_leases_go_on(&server);
    assert!(!is_acknowledged(&answer(waits)));
    let refused = server.put("/v1/templates", &document(71));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.to_lowercase().contains("retry-after:"));
    assert!(refused.body.contains("locked"), "{refused:?}");
    assert_eq!(number(&server), 70);
    other.execute_batch("ROLLBACK").expect("it was held");
    assert_eq!(server.put("/v1/templates", &document(71)).status, 200);
}

#[test]
fn a_damaged_database_stops_no_start_and_loses_nothing_that_was_acknowledged() {
    let (mut server, store) = start();
    let garbage = [0xa5; 16 * 1024];
    for (round, meanwhile) in [true, false, true].into_iter().enumerate() {
        let mut acknowledged = 70 + 10 * round as u32;
        assert_eq!(
            server.put("/v1/templates", &document(acknowledged)).status,
            200
        );
        if meanwhile {
            // Under the feet of a server that runs: it may notice or not.
            fs::write(&store, garbage).expect("it is there");
            let answer = server.put("/v1/templates", &document(acknowledged + 1));
            assert!([200, 503].contains(&answer.status), "{answer:?}");
            acknowledged += u32::from(answer.status == 200);
            assert_eq!(number(&server), acknowledged);
            assert_leases_go_on(&server);
        }
        let down = server.kill();
        fs::write(&store, garbage).expect("it is there");
        fs::write(store.with_extension("db-wal"), garbage).expect("it is there");
        server = down.restart();
        assert_eq!(number(&server), acknowledged);
        let status = server.get("/v1/status");
        let told = status["config_error"].as_str().unwrap_or_default();
        assert!(
            told.contains("was damaged") && told.contains("corrupted-"),
            "{status}"
        );
        assert_leases_go_on(&server);
    }
    // A change is all it takes to be well again; what was damaged is kept.
    assert_eq!(server.put("/v1/templates", &document(99)).status, 200);
    assert!(server.get("/v1/status").get("config_error").is_none());
    let kept = fs::read_dir(store.parent().expect("a folder")).expect("it is there");
    let names = kept.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let aside = names
        .filter(|it| it.contains(".corrupted-") && !it.ends_with("-wal") && !it.ends_with("-shm"));
    assert_eq!(aside.count(), 3);
}

#[test]
fn a_wrong_document_in_the_store_stops_no_start() {
    let (server, store) = start();
    for number in [70, 71] {
        assert_eq!(server.put("/v1/templates", &document(number)).status, 200);
    }
    let down = server.kill();
    let database = Connection::open(&store).expect("it is a database");
    let spoil = "UPDATE changes SET document = replace(document, 'FAIR_SHARE', 'UNFAIR') WHERE revision = 3";
    assert_eq!(database.execute(spoil, []).expect("it is the table"), 1);
    drop(database);
    fs::remove_file(store.with_extension("db.last-good.json")).expect("it is there");
    let server = down.restart();
    assert_eq!(number(&server), 70);
    let status = server.get("/v1/status");
    let told = status["config_error"].as_str().unwrap_or_default();
    assert!(
        told.contains("revision 3") && told.contains("UNFAIR"),
        "{status}"
    );
    assert!(metric(&server, "doorman_config_last_reload_successful 0"));
    assert_leases_go_on(&server);
    assert_eq!(server.put("/v1/templates", &document(72)).status, 200);
    assert_eq!(number(&server.kill().restart()), 72);
}
