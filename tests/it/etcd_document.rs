//! The document in etcd, shared by several servers.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{ControlPlane, Etcd, Response, curl, doorman, now, until};

fn start(etcd: &Etcd) -> ControlPlane {
    start_in(TempDir::new().expect("a temporary directory"), etcd)
}

fn start_in(home: TempDir, etcd: &Etcd) -> ControlPlane {
    start_at(home, &etcd.endpoints())
}

fn start_at(home: TempDir, endpoints: &str) -> ControlPlane {
    let flags = ["--etcd-endpoints", endpoints, "--config", "etcd:doc"];
    ControlPlane::start_with_flags(home, &flags)
}

fn document(capacity: u32) -> String {
    let template =
        json!({"identifier_glob": "*", "capacity": capacity, "algorithm": {"kind": "FAIR_SHARE"}});
    json!({ "resources": [template] }).to_string()
}

fn capacity(server: &ControlPlane) -> Option<f64> {
    server.get("/v1/templates")["resources"][0]["capacity"].as_f64()
}

fn set(server: &ControlPlane, capacity: u32) -> Response {
    server.put("/v1/templates", &document(capacity))
}

/// PUTs to a server by its address, as threads can.
fn put_at(address: &str, path: &str, body: &str, headers: &[&str]) -> Response {
    let url = format!("{address}{path}");
    let mut args = vec![&*url, "-X", "PUT", "-d", body];
    args.extend(["-H", "content-type: application/json"]);
    args.extend(headers.iter().flat_map(|header| ["-H", header]));
    curl(&args)
}

/// Sets a capacity if the document has this version.
fn set_if(address: &str, version: &str, capacity: u32) -> Response {
    let condition = format!("if-match: \"{version}\"");
    put_at(address, "/v1/templates", &document(capacity), &[&condition])
}

fn version(server: &ControlPlane) -> String {
    let status = server.get("/v1/status");
    let version = status["config_version"].as_str();
    version.expect("it has a document").to_owned()
}

fn config_error(server: &ControlPlane) -> Option<String> {
    let status = server.get("/v1/status");
    status["config_error"].as_str().map(str::to_owned)
}

fn history(server: &ControlPlane) -> Vec<Value> {
    let history = server.get("/v1/history");
    history["changes"].as_array().expect("a list").clone()
}

fn put_key(etcd: &Etcd, key: &str, value: &str) {
    etcd.ctl(&["put", key, value]);
}

#[test]
fn servers_agree_within_a_second() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    assert_eq!(one.get("/v1/status")["config_source"], "etcd:doc");
    for (n, (by, seen_by)) in (2..).zip([(&one, &other), (&other, &one), (&one, &other)]) {
        let response = set(by, n);
        assert_eq!(response.status, 200, "{}", response.body);
        let deadline = now() + Duration::from_secs(1);
        while capacity(seen_by) != Some(f64::from(n)) {
            assert!(now() < deadline, "{:?}", capacity(seen_by));
        }
        assert_eq!(version(&one), version(&other));
    }
    // Both have the same history.
    let changes = history(&one);
    assert_eq!(changes, history(&other));
    let revisions: Vec<_> = changes.iter().map(|it| it["revision"].as_u64()).collect();
    assert_eq!(revisions, [Some(4), Some(3), Some(2), Some(1)]);
    assert_eq!(changes[3]["change"], "the first document");
    assert_eq!(other.get("/v1/history/2")["resources"][0]["capacity"], 2.0);
    assert_eq!(other.curl("/v1/history/9", &[]).status, 404);
    assert_eq!(
        other.get("/v1/history?limit=1&cursor=3")["changes"][0],
        changes[2]
    );
}

#[test]
fn one_of_two_concurrent_writers_wins() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    for round in 0..10 {
        let version = version(&one);
        until("both have the document", || {
            self::version(&other) == version
        });
        let start = Barrier::new(2);
        let write = &|address, capacity| {
            start.wait();
            set_if(address, &version, capacity).status
        };
        let statuses = thread::scope(|scope| {
            let (one, other) = (one.address(), other.address());
            let first = scope.spawn(move || write(one, 100 + round));
            let second = scope.spawn(move || write(other, 200 + round));
            [first, second].map(|it| it.join().expect("it responds"))
        });
        let winner = match statuses {
            [200, 412] => 100 + round,
            [412, 200] => 200 + round,
            _ => panic!("{statuses:?}"),
        };
        for server in [&one, &other] {
            until("the change is seen", || {
                capacity(server) == Some(f64::from(winner))
            });
        }
    }
}

#[test]
fn concurrent_edits_of_different_templates_are_all_kept() {
    let etcd = Etcd::start();
    let servers = [(); 2].map(|()| start(&etcd));
    thread::scope(|scope| {
        for (name, server) in ["a", "b"].into_iter().zip(&servers) {
            let address = server.address();
            scope.spawn(move || {
                for n in 1..=10 {
                    let path = format!("/v1/templates/{name}{n}");
                    let response = put_at(address, &path, r#"{"capacity": 5}"#, &[]);
                    assert_eq!(response.status, 201, "{}", response.body);
                }
            });
        }
    });
    let [one, other] = &servers;
    until("both have all templates", || {
        [one, other].iter().all(|server| {
            let document = server.get("/v1/templates");
            document["resources"].as_array().map(Vec::len) == Some(21)
        })
    });
    assert_eq!(history(one).len(), 21);
}

#[test]
fn edit_is_evaluated_on_the_newest_document() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    for n in 2..12 {
        let old = version(&one);
        assert_eq!(set_if(one.address(), &old, n).status, 200);
        // The other server may not have seen it yet.
        let new = version(&one);
        assert_eq!(set_if(other.address(), &old, 500).status, 412);
        assert_eq!(set_if(other.address(), &new, 100 + n).status, 200);
        until("it is seen", || capacity(&one) == Some(f64::from(100 + n)));
    }
}

#[test]
fn reads_continue_without_etcd() {
    let mut etcd = Etcd::start();
    let server = start(&etcd);
    assert_eq!(set(&server, 7).status, 200);
    etcd.kill(0);
    let response = set(&server, 8);
    assert_eq!(response.status, 503, "{}", response.body);
    assert!(
        response.headers.to_lowercase().contains("retry-after:"),
        "{}",
        response.headers
    );
    assert!(
        response
            .body
            .contains("nothing was changed: cannot write to etcd"),
        "{}",
        response.body
    );
    assert_eq!(server.curl("/v1/history", &[]).status, 503);
    assert_eq!(capacity(&server), Some(7.0));
    let known = server.curl("/v1/templates", &["-H", "cache-control: no-cache"]);
    assert_eq!(known.status, 200, "{}", known.body);
    let headers = known.headers.to_lowercase();
    assert!(headers.contains("warning: 111 "), "{headers}");
    let exported = Command::new(doorman())
        .args(["export", "--server", server.address()])
        .output()
        .expect("it runs");
    assert!(exported.status.success(), "{exported:?}");
    let errors = String::from_utf8_lossy(&exported.stderr);
    assert!(
        errors.contains("cannot read the newest document"),
        "{errors}"
    );
    let dry_run = server.put("/v1/templates?dry_run=true", &document(8));
    assert_eq!(dry_run.status, 200, "{}", dry_run.body);
    assert_eq!(server.curl("/readyz", &[]).status, 200);
    until("the outage is reported", || {
        config_error(&server).is_some_and(|it| it.contains("last known document stays active"))
    });

    etcd.restart(0);
    until("the outage is over", || config_error(&server).is_none());
    assert_eq!(capacity(&server), Some(7.0));
    assert_eq!(set(&server, 9).status, 200);
    assert_eq!(history(&server).len(), 3);
}

#[test]
fn frozen_etcd_fails_writes_in_time() {
    let etcd = Etcd::start();
    let server = start(&etcd);
    etcd.pause(0);
    let response = set(&server, 8);
    assert_eq!(response.status, 503, "{}", response.body);
    assert_eq!(capacity(&server), Some(1000.0));
    etcd.resume(0);
    until("writes work again", || set(&server, 9).status == 200);
}

#[test]
fn frozen_member_fails_no_write() {
    let etcd = Etcd::start_cluster();
    let server = start(&etcd);
    let follower = (etcd.leader() + 1) % 3;
    etcd.pause(follower);
    for n in 2..8 {
        let response = set(&server, n);
        assert_eq!(response.status, 200, "{}", response.body);
    }
    etcd.resume(follower);
}

#[test]
fn poisoned_document_stops_no_server() {
    let etcd = Etcd::start();
    let server = start(&etcd);
    assert_eq!(set(&server, 7).status, 200);
    assert_eq!(set(&server, 8).status, 200);
    let newest = "doc/revision/00000000000000000003";
    let whole = etcd.ctl(&["get", "doc/document", "--print-value-only"]);
    let other_version = whole.replace("\"version\":\"", "\"version\":\"0");
    let missing = whole.replace("\"revision\":3", "\"revision\":99");
    for poison in ["no JSON", "{}", &other_version, &missing] {
        put_key(&etcd, "doc/document", poison);
        until("it is reported", || config_error(&server).is_some());
        assert_eq!(capacity(&server), Some(8.0));
        let second = start(&etcd);
        assert!(config_error(&second).is_some(), "{poison}");
        assert_eq!(capacity(&second), Some(8.0), "{poison}");
        put_key(&etcd, "doc/document", &whole);
        for server in [&server, &second] {
            until("it is valid again", || config_error(server).is_none());
        }
    }
    // A start uses the newest valid document of the history, and a write repairs the key.
    let text = etcd.ctl(&["get", newest, "--print-value-only"]);
    put_key(&etcd, newest, &text.replace("8.0", "80.0"));
    put_key(&etcd, "doc/document", &whole);
    until("it is reported", || {
        config_error(&server).is_some_and(|it| it.contains("it was altered"))
    });
    let second = start(&etcd);
    assert_eq!(capacity(&second), Some(7.0));
    assert_eq!(set(&second, 9).status, 200);
    for server in [&server, &second] {
        until("it is repaired", || {
            config_error(server).is_none() && capacity(server) == Some(9.0)
        });
    }
    assert_eq!(history(&server)[0]["revision"], 4);
}

#[test]
fn start_without_etcd_uses_the_last_valid_document() {
    let mut etcd = Etcd::start();
    let server = start(&etcd);
    let other = start(&etcd);
    assert_eq!(set(&server, 7).status, 200);
    let copy = server.home().join("data/file.last-good.json");
    until("the copy is written", || {
        std::fs::read_to_string(&copy).is_ok_and(|text| text.contains("7.0"))
    });
    let stopped = server.kill();
    assert_eq!(set(&other, 8).status, 200);
    etcd.kill(0);
    let server = stopped.restart();
    assert_eq!(capacity(&server), Some(7.0));
    let error = config_error(&server).expect("the document is outdated");
    assert!(
        error.contains("cannot read the document from etcd"),
        "{error}"
    );
    assert_eq!(set(&server, 9).status, 503);
    etcd.restart(0);
    until("the newest document is active", || {
        capacity(&server) == Some(8.0) && config_error(&server).is_none()
    });
}

#[test]
fn start_without_any_document_fails() {
    let mut etcd = Etcd::start();
    etcd.kill(0);
    let home = TempDir::new().expect("a temporary directory");
    let data = home.path().join("data").display().to_string();
    let output = Command::new(doorman())
        .args(["--listen", "127.0.0.1:0", "--data-dir", &data])
        .args(["--etcd-endpoints", &etcd.endpoints()])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot read the document from etcd"),
        "{errors}"
    );
}

#[test]
fn document_survives_an_etcd_that_lost_it() {
    let mut etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    assert_eq!(set(&one, 7).status, 200);
    until("both have it", || capacity(&other) == Some(7.0));
    etcd.rebuild();
    let restored = |server: &ControlPlane| {
        let response = server.curl("/v1/history", &[]);
        response.status == 200 && response.body.contains("restored")
    };
    until("it is restored", || restored(&one) && restored(&other));
    for server in [&one, &other] {
        assert_eq!(capacity(server), Some(7.0));
        assert_eq!(history(server)[0]["revision"], 3);
    }
    assert_eq!(set(&other, 8).status, 200);
    until("both have it", || capacity(&one) == Some(8.0));
}

#[test]
fn kills_of_servers_and_etcd_lose_no_acknowledged_change() {
    let mut etcd = Etcd::start();
    let mut servers = [(); 2].map(|()| Some(start(&etcd)));
    let mut acknowledged = 1000;
    for round in 0..10_u32 {
        let writer = servers[round as usize % 2].take().expect("it runs");
        let number = 2000 + round;
        let status = thread::scope(|scope| {
            let address = writer.address();
            let body = document(number);
            let put = scope.spawn(move || put_at(address, "/v1/templates", &body, &[]).status);
            if round % 3 == 0 {
                etcd.kill(0);
            }
            put.join().expect("it responds")
        });
        if round % 3 == 0 {
            etcd.restart(0);
        }
        let writer = writer.kill().restart_on_free_port();
        let is = |n: u32| capacity(&writer) == Some(f64::from(n));
        match status {
            200 => assert!(is(number), "acknowledged"),
            503 => assert!(is(number) || is(acknowledged)),
            _ => panic!("status {status}"),
        }
        if is(number) {
            acknowledged = number;
        }
        servers[round as usize % 2] = Some(writer);
    }
}

#[test]
fn document_that_etcd_refuses_is_too_large() {
    let etcd = Etcd::start();
    let server = start(&etcd);
    let description = "x".repeat(200);
    let templates: Vec<_> = (0..5_000)
        .map(|n| {
            json!({"identifier_glob": format!("t{n}"), "capacity": 1, "description": description, "algorithm": {"kind": "STATIC"}})
        })
        .collect();
    let text = json!({ "resources": templates }).to_string();
    let file = server.home().join("large.json");
    std::fs::write(&file, text).expect("the directory exists");
    let body = format!("@{}", file.display());
    let args = ["-X", "PUT", "--data-binary", &body];
    let headers = ["-H", "content-type: application/json", "-H", "expect:"];
    let response = server.curl("/v1/templates", &[&args[..], &headers].concat());
    assert_eq!(response.status, 413, "{}", response.body);
    assert!(
        response.body.contains("nothing was changed"),
        "{}",
        response.body
    );
    assert_eq!(history(&server).len(), 1);
    assert_eq!(set(&server, 7).status, 200);
}

/// Base64 of `doc/document`, which writes and polls have.
const NEWEST: &str = "ZG9jL2RvY3VtZW50";

/// Base64 of `doc/history/`, of which the history is read before each write.
const HISTORY: &str = "ZG9jL2hpc3Rvcnkv";

/// A relay to etcd that interferes with the requests that contain a text.
struct Interference {
    address: String,
    next: Arc<Mutex<Option<Interfere>>>,
}

enum Interfere {
    /// Closes the connection instead of forwarding the answer, so many times.
    LoseAnswers(usize, &'static [&'static str]),
    /// Does something before it forwards the request.
    Before(Box<dyn FnOnce() + Send>, &'static [&'static str]),
}

impl Interference {
    fn start(to: &str) -> Self {
        let to = to.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let next = Arc::<Mutex<Option<Interfere>>>::default();
        let shared = Arc::clone(&next);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut etcd = TcpStream::connect(&to).expect("etcd runs");
                let mut back_from = etcd.try_clone().expect("a socket");
                let mut back_to = client.try_clone().expect("a socket");
                let loses_answer = Arc::new(AtomicBool::new(false));
                let (next, is_lost) = (Arc::clone(&shared), Arc::clone(&loses_answer));
                thread::spawn(move || {
                    copy(&mut client, &mut etcd, |bytes| {
                        interfere(&next, &String::from_utf8_lossy(bytes), &loses_answer);
                        true
                    });
                });
                thread::spawn(move || {
                    copy(&mut back_from, &mut back_to, |_| !is_lost.load(SeqCst));
                });
            }
        });
        Self { address, next }
    }

    fn set(&self, interfere: Interfere) {
        *self.next.lock().expect("not poisoned") = Some(interfere);
    }

    fn is_over(&self) -> bool {
        self.next.lock().expect("not poisoned").is_none()
    }
}

fn interfere(next: &Mutex<Option<Interfere>>, request: &str, loses_answer: &AtomicBool) {
    let mut guard = next.lock().expect("not poisoned");
    let concerns = |texts: &[&str]| texts.iter().all(|text| request.contains(text));
    match guard.take() {
        Some(Interfere::LoseAnswers(times, texts)) if concerns(texts) => {
            loses_answer.store(true, SeqCst);
            *guard = (times > 1).then(|| Interfere::LoseAnswers(times - 1, texts));
        }
        Some(Interfere::Before(act, texts)) if concerns(texts) => {
            drop(guard);
            act();
        }
        other => *guard = other,
    }
}

/// Forwards until the end, or until `passes` returns `false`. Then it closes both connections.
fn copy(from: &mut TcpStream, to: &mut TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..length];
        if !passes(bytes) || to.write_all(bytes).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

#[test]
fn write_whose_answer_is_lost_has_one_effect() {
    let etcd = Etcd::start();
    let relay = Interference::start(etcd.endpoint(0));
    let home = TempDir::new().expect("a temporary directory");
    let server = start_at(home, &relay.address);
    let write = &["request_put", NEWEST];
    for (losses, n) in [(1, 2), (2, 3)] {
        relay.set(Interfere::LoseAnswers(losses, write));
        let response = set_if(server.address(), &version(&server), n);
        assert_eq!(response.status, 200, "{}", response.body);
        assert!(relay.is_over());
    }
    assert_eq!(history(&server).len(), 3, "each change is stored once");

    // As many as there are attempts.
    relay.set(Interfere::LoseAnswers(3, write));
    let response = set_if(server.address(), &version(&server), 4);
    assert_eq!(response.status, 503, "{}", response.body);
    let reason = "the outcome of the change is unknown";
    assert!(response.body.contains(reason), "{}", response.body);
    until("the stored change is active", || {
        capacity(&server) == Some(4.0)
    });
    assert_eq!(history(&server).len(), 4);
}

#[test]
fn change_during_a_change_is_never_overwritten() {
    let etcd = Etcd::start();
    let relay = Interference::start(etcd.endpoint(0));
    let home = TempDir::new().expect("a temporary directory");
    let slow = start_at(home, &relay.address);
    let fast = start(&etcd);
    let moments: [&[&str]; 2] = [&[HISTORY, "range_end"], &["request_put", NEWEST]];
    for (n, moment) in (10..).step_by(10).zip(moments) {
        let seen = version(&slow);
        let address = fast.address().to_owned();
        let meanwhile = move || {
            let response = put_at(&address, "/v1/templates", &document(n), &[]);
            assert_eq!(response.status, 200, "{}", response.body);
        };
        relay.set(Interfere::Before(Box::new(meanwhile), moment));
        let response = set_if(slow.address(), &seen, n + 1);
        assert!(relay.is_over());
        assert_eq!(response.status, 412, "{}", response.body);
        until("both have the change", || {
            [&slow, &fast].map(capacity) == [Some(f64::from(n)); 2]
        });
    }
    assert_eq!(history(&slow).len(), 3);
}

#[test]
fn commands_change_the_shared_document() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    let file = one.home().join("limits.yaml");
    let run = |args: &[&str], server: &ControlPlane| {
        let output = Command::new(doorman())
            .args(args)
            .args(["--server", server.address()])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    write(&file, &document(7));
    let file = file.display().to_string();
    run(&["import", &file], &one);
    until("it is seen", || capacity(&other) == Some(7.0));
    run(&["rollback", "1"], &other);
    until("it is seen", || capacity(&one) == Some(1000.0));
    assert!(run(&["export", "--revision", "2"], &one).contains("capacity: 7"));
}

#[test]
fn commands_read_what_a_server_has_not_seen_yet() {
    let etcd = Etcd::start();
    let [one, other] = [(); 2].map(|()| start(&etcd));
    let run = |args: &[&str], server: &ControlPlane| {
        let output = Command::new(doorman())
            .args(args)
            .args(["--server", server.address()])
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    for n in 1..=5 {
        let name = format!("r{n}");
        run(&["set", &name, "capacity=5", "--create"], &one);
        let changed = run(&["set", &name, "capacity=6"], &other);
        assert!(changed.contains("capacity: 5 → 6"), "{changed}");
        let exported = run(&["export"], &one);
        assert!(exported.contains("capacity: 6"), "{exported}");
        let back = run(&["rollback", "1"], &one);
        assert!(back.contains(&format!("{name}\" removed")), "{back}");
    }
    assert_eq!(history(&one).len(), 16);
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the directory exists");
}

#[test]
fn new_prefix_begins_with_the_document_of_the_store() {
    let home = TempDir::new().expect("a temporary directory");
    let store = home.path().join("data/doorman.db");
    std::fs::create_dir(home.path().join("data")).expect("it is new");
    let alone = ControlPlane::start_on(home, &store);
    assert_eq!(set(&alone, 7).status, 200);
    let home = alone.stop().into_home();
    let etcd = Etcd::start();
    let server = start_in(home, &etcd);
    assert_eq!(capacity(&server), Some(7.0));
    assert_eq!(capacity(&start(&etcd)), Some(7.0));
}

#[test]
fn servers_that_start_together_write_one_first_document() {
    let etcd = Etcd::start();
    let endpoints = &etcd.endpoints();
    let start = || start_at(TempDir::new().expect("a temporary directory"), endpoints);
    let servers = thread::scope(|scope| {
        let starts = [(); 3].map(|()| scope.spawn(start));
        starts.map(|it| it.join().expect("it starts"))
    });
    for server in &servers {
        assert_eq!(history(server).len(), 1);
        assert_eq!(config_error(server), None);
    }
}
