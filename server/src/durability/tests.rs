//! Successive starts on one data directory.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{CapacityRequest, Moment, Reason, ResourceId};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{
    bound_file::{BoundFile, StoredBound},
    data_dir::{Boot, Lock},
    *,
};
use crate::{
    leasing::{BoundWrites, DurableBound},
    ledger::{Grant, UnmatchedPolicy},
    util::{clock, testing::Log},
};

const DOCUMENT: &str = "
resources:
  - {identifier_glob: brief, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}}
  - {identifier_glob: long, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 1}}
  - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
";

fn start(home: &Path) -> Recovery {
    let options = StartOptions {
        data_dir: home.join("data"),
        node: None,
        document: Arc::new(Document::parse(DOCUMENT).unwrap()),
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        is_loopback: true,
        empty_directory: EmptyDirectory::MayBeLost,
    };
    options.recover().unwrap()
}

/// Books a lease, without waiting for the bound to cover it.
fn book(server: &Recovery, resource: &str, now: Moment) -> Vec<Grant> {
    let request = format!(
        r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5,"has":{{"capacity":5}}}}]}}"#
    );
    let request: CapacityRequest = serde_json::from_str(&request).unwrap();
    let booked = server
        .ledger
        .with(|ledger, _| ledger.refresh_client(&request, now));
    booked.unwrap()
}

/// Leases a resource, as a response would report it.
async fn lease(server: &Recovery, resource: &str) -> Grant {
    let now = clock::now();
    let booked = book(server, resource, now);
    server.ledger.bound().cover(booked, now).await.remove(0)
}

fn is_learning(server: &Recovery, at: Moment) -> bool {
    let db = ResourceId::new("db").unwrap();
    let view = server.ledger.with(|ledger, _| ledger.resource(&db, at));
    view.unwrap().unwrap().in_learning_mode
}

fn bound(home: &Path) -> StoredBound {
    StoredBound::in_dir(&home.join("data"))
}

#[tokio::test]
async fn reported_leases_are_on_the_disk_and_little_more() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    assert_eq!(bound(home.path()).ends, Moment::ORIGIN);
    let mut needed = Moment::ORIGIN;
    for (resource, seconds) in [
        ("brief", 2.0),
        ("brief", 2.0),
        ("db", 60.0),
        ("brief", 2.0),
        ("long", 3600.0),
        ("db", 60.0),
    ] {
        let lease = lease(&server, resource).await;
        let reported = (lease.lease_length.get(), lease.capacity.get());
        assert_eq!(reported, (seconds, 5.0));
        needed = needed.max(lease.booked_until);
        let ends = bound(home.path()).ends;
        assert!(needed <= ends, "{ends:?} does not cover {needed:?}");
        assert!(ends.seconds_since(needed) <= 5.0, "{ends:?} for {needed:?}");
    }
}

#[tokio::test]
async fn starts_without_grants_leave_the_bound_unchanged() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    lease(&server, "db").await;
    drop(server);
    let first = bound(home.path());
    for _ in 0..3 {
        let server = start(home.path());
        let now = clock::now();
        assert_eq!(bound(home.path()), first);
        // A holder keeps what it claims of the last server until the bound.
        let kept = book(&server, "db", now).remove(0);
        assert_eq!((kept.capacity.get(), kept.reason), (5.0, Reason::Granted));
        assert!(is_learning(&server, now) && !is_learning(&server, first.ends));
    }
}

#[tokio::test]
async fn longest_lease_counts_from_the_start_after_another_boot() {
    let home = TempDir::new().unwrap();
    drop(start(home.path()));
    let (mut file, _) = BoundFile::open(&home.path().join("data")).unwrap();
    let elsewhere = StoredBound {
        ends: Moment::NEVER,
        longest: 63_000_000_000,
        boot: Boot(1),
    };
    file.write(&elsewhere).unwrap();
    let before = clock::now();
    let _server = start(home.path());
    let StoredBound {
        ends,
        longest,
        boot,
    } = bound(home.path());
    assert_eq!((longest, boot), (63_000_000_000, Boot::current()));
    let learns = ends.seconds_since(before);
    assert!((63.0..70.0).contains(&learns), "{learns}");
}

#[tokio::test]
async fn stop_while_learning_leaves_the_rest_to_the_next_start() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    lease(&server, "db").await;
    drop(server);
    let ends = bound(home.path()).ends;

    let second = start(home.path());
    book(&second, "db", clock::now());
    let written = second
        .ledger
        .with(|ledger, _| second.guard.write_ledger(ledger, clock::now()));
    written.unwrap();
    drop(second);
    let (log, _guard) = Log::capture();
    let third = start(home.path());
    assert_eq!(log.count("stopped in learning mode, which continues"), 1);
    let stats = third.ledger.with(|ledger, _| ledger.stats());
    assert_eq!(stats.unwrap().leases, 1);
    assert!(is_learning(&third, clock::now()) && !is_learning(&third, ends));
    assert_eq!(bound(home.path()).ends, ends);
}

#[tokio::test(start_paused = true)]
async fn successful_and_failed_writes_are_counted() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    assert_eq!(lease(&server, "db").await.lease_length.get(), 60.0);
    let BoundWrites { written, failed } = server.ledger.bound().writes();
    assert!(written > 0 && failed == 0, "{written} {failed}");

    let bound = Arc::new(DurableBound::new(Moment::ORIGIN, 0));
    let file = BoundFile::read_only(&home.path().join("data"));
    let lock = Arc::new(Lock::acquire(home.path()).unwrap());
    let mut writer = JoinSet::new();
    writer.spawn(file.keep_ahead(Arc::clone(&bound), Boot(1), Arc::downgrade(&lock)));
    let now = clock::now();
    let lease = bound.cover(book(&server, "db", now), now).await.remove(0);
    assert_eq!(lease.lease_length.get(), 0.0);
    let BoundWrites { written, failed } = bound.writes();
    assert!(written == 0 && failed > 0, "{written} {failed}");
}

#[test]
fn new_data_directory_is_private_and_a_file_is_refused() {
    let home = TempDir::new().unwrap();
    let parent = home.path().join("new");
    let directory = parent.join("data");
    create_dir(&directory).unwrap();
    for created in [&parent, &directory] {
        let mode = fs::metadata(created).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    // One that exists stays as it is.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    create_dir(&directory).unwrap();
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);

    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let error = create_dir(&file).unwrap_err().to_string();
    assert!(
        error.starts_with("--data-dir ") && error.ends_with("is a file, not a directory"),
        "{error}"
    );
}
