//! Upgrades: data directories that earlier releases have written, and requests and responses of
//! other releases.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tempfile::TempDir;

use crate::support::{ControlPlane, Process, TIMEOUT, curl, doorman, repository};

/// The recorded data directories, by name.
fn recorded() -> Vec<(String, PathBuf)> {
    let entries =
        fs::read_dir(repository().join("tests/recorded")).expect("it is in the repository");
    let recorded = entries.filter_map(|entry| {
        let entry = entry.expect("it is readable");
        let name = entry.file_name().into_string().expect("it is UTF-8");
        Some((name, entry.path().join("data"))).filter(|(_, data)| data.is_dir())
    });
    recorded.collect()
}

/// Copies a data directory.
fn copy(from: &Path) -> TempDir {
    let to = TempDir::new().expect("a temporary directory");
    for entry in fs::read_dir(from).expect("it is recorded") {
        let entry = entry.expect("it is readable");
        let name = to.path().join(entry.file_name());
        fs::copy(entry.path(), name).expect("there is space");
    }
    to
}

fn start(data: &Path) -> (Process, String) {
    let data = data.display().to_string();
    let args = ["--listen", "127.0.0.1:0", "--data-dir", &data];
    let mut process = Process::start(&doorman(), &args);
    let address = process.wait_for_address();
    (process, address)
}

#[test]
fn upgrade_loses_no_revision_and_no_identity() {
    let recorded = recorded();
    assert!(recorded.len() >= 2, "{recorded:?}");
    for (name, data) in recorded {
        let identity = fs::read_to_string(data.join("identity.json")).expect("it is recorded");
        let identity: serde_json::Value = serde_json::from_str(&identity).expect("JSON");
        let data = copy(&data);
        let (mut process, address) = start(data.path());
        let get = |path: &str| -> serde_json::Value {
            let body = curl(&[&format!("{address}{path}")]).body;
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{name}: {body}"))
        };
        let status = get("/v1/status");
        assert_eq!(status["node"], identity["node"], "{name}");
        assert!(
            status["epoch"].as_u64() > identity["epoch"].as_u64(),
            "{name}: {status}"
        );
        assert!(status.get("config_error").is_none(), "{name}: {status}");
        let history = get("/v1/history");
        assert_eq!(
            history["changes"].as_array().map(Vec::len),
            Some(3),
            "{name}"
        );
        for (revision, capacity) in [(1, 1000.0), (2, 20.0), (3, 30.0)] {
            let document = get(&format!("/v1/history/{revision}"));
            assert_eq!(document["resources"][0]["capacity"], capacity, "{name}");
        }
        assert_eq!(get("/v1/templates"), get("/v1/history/3"), "{name}");

        process.terminate();
        process.wait_for(|line| line.ends_with("stopped").then_some(()));
        let output = process.output();
        let errors: Vec<_> = output
            .iter()
            .filter(|line| line.contains("ERROR"))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        // Either the leases are taken over, or a line says why the server learns.
        let reasons = [
            "ledger of the last server restored",
            "of an earlier build; until",
        ];
        let says = |reason: &&str| output.iter().any(|line| line.contains(reason));
        assert_eq!(
            reasons.iter().filter(|it| says(it)).count(),
            1,
            "{name}: {output:#?}"
        );
    }
}

#[test]
fn store_of_a_later_release_stops_the_start() {
    let (_, data) = recorded().remove(0);
    let data = copy(&data);
    let store = data.path().join("doorman.db");
    let database = rusqlite::Connection::open(&store).expect("it is a database");
    let mark = "PRAGMA user_version = 7";
    database.execute_batch(mark).expect("it is writable");
    drop(database);
    let before = fs::read(&store).expect("it exists");

    let file = data.path().join("limits.yaml");
    fs::write(&file, "resources: []").expect("there is space");
    let [data_dir, path, file] = [data.path(), &store, &file].map(|it| it.display().to_string());
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

/// Adds unknown fields to every object, as a later release may.
fn of_later_release(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(of_later_release);
            fields.insert(
                "later".to_owned(),
                serde_json::json!({"of": ["any", 1, null]}),
            );
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(of_later_release),
        _ => {}
    }
}

#[test]
fn server_answers_requests_of_earlier_and_later_layers() {
    let server = ControlPlane::start("resources: []");
    let text = include_str!("../recorded/layers/third.jsonl");
    let mut leases = 0;
    for line in text.lines() {
        let call: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let path = call["path"].as_str().expect("a path");
        if call["method"] == "GET" {
            assert_eq!(server.curl(path, &[]).status, 200, "{line}");
            continue;
        }
        let body = call["body"].clone();
        let mut later = body.clone();
        of_later_release(&mut later);
        later["client_id"] = "later".into();
        for body in [body, later] {
            let answer = server.post(path, &body.to_string());
            if path.ends_with("release") {
                assert_eq!(answer["released"], 1, "{line}");
            } else {
                let wanted = &body["resources"][0]["wants"];
                let granted = &answer["resources"][0]["gets"]["capacity"];
                assert_eq!(granted.as_f64(), wanted.as_f64(), "{line}: {answer}");
                leases += 1;
            }
        }
    }
    assert!(leases >= 8, "{leases}");
}

#[tokio::test]
async fn layer_leases_from_earlier_and_later_servers() {
    for release in ["first", "second", "third", "later"] {
        let recorded = if release == "later" { "third" } else { release };
        let path = repository().join(format!("tests/recorded/{recorded}/responses/capacity.json"));
        let text = fs::read_to_string(path).expect("it is recorded");
        let mut response: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        if release == "later" {
            of_later_release(&mut response);
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let leased = async move || {
            counted.fetch_add(1, Ordering::Relaxed);
            axum::Json(response)
        };
        let routes = axum::Router::new().route("/v1/capacity", axum::routing::post(leased));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, routes).await });

        let doorman = tower_doorman::Doorman::builder(format!("http://{address}"))
            .spawn()
            .expect("the settings are valid");
        let rate = doorman.rate("db");
        let ready = doorman.ready(TIMEOUT).await;
        ready.unwrap_or_else(|error| panic!("{release}: {error}"));
        let limits = doorman.snapshot().limits;
        let lease = limits[0].lease.as_ref().map(|lease| lease.capacity);
        assert_eq!(lease.flatten(), Some(5.0), "{release}: {limits:?}");
        assert!(asked.load(Ordering::Relaxed) > 0);
        drop(rate);
    }
}
