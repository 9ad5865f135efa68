//! Successive starts on one data directory.

use std::{path::Path, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{CapacityRequest, Moment, Reason, ResourceId, ServerId};
use tempfile::TempDir;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use super::*;
use crate::{
    document::ActiveDocument, durability::Boot, durability::DataDir, durability::DataDirLock,
    durability::StoredBound, leasing::SharedLedger, util::clock, util::testing::Log,
};
use doorman_core::{election::View, ledger::Grant, master::NotGranted, reign::BoundWrites};

const DOCUMENT: &str = "
resources:
  - {identifier_glob: brief, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}}
  - {identifier_glob: long, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 1}}
  - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
";

/// A server without HTTP. It stops without a resignation when it is dropped.
struct Running {
    ledger: Arc<SharedLedger>,
    earlier_leases: Arc<EarlierLeaseLength>,
    data_dir: Arc<DataDir>,
    _lock: Arc<DataDirLock>,
    _resign: oneshot::Sender<Resignation>,
    _task: JoinSet<()>,
}

fn start(home: &Path) -> Running {
    start_with(home, DOCUMENT)
}

fn start_with(home: &Path, document: &str) -> Running {
    let (data_dir, lock) = DataDir::open(home.join("data")).unwrap();
    let data_dir = Arc::new(data_dir);
    let document = Arc::new(Document::parse(document).unwrap());
    let ledger = Arc::new(SharedLedger::with_document(Arc::clone(&document)));
    let active = ActiveDocument::new(Arc::clone(&ledger), Arc::clone(&document));
    let earlier_leases = Arc::new(EarlierLeaseLength::default());
    let parts = Parts {
        earlier_leases: Arc::clone(&earlier_leases),
        ledger: Arc::clone(&ledger),
        document: Arc::new(active),
        data_dir: Arc::clone(&data_dir),
        offer: Arc::default(),
        peers: Peers::new(None, None),
        handovers: handover_counts(),
        view: watch::channel(View::default()).0,
    };
    let candidate = Candidate {
        server_id: ServerId::new("a").unwrap(),
        address: "http://127.0.0.1:1".to_owned(),
        is_first: true,
    };
    let found = data_dir.found(true);
    let (node, epoch) = data_dir.next_epoch(None, clock::unix_seconds()).unwrap();
    let (resign, resignation) = oneshot::channel();
    let mastership =
        Mastership::begin_alone(candidate, &found, node, epoch, parts, resignation).unwrap();
    let mut task = JoinSet::new();
    task.spawn(mastership.task);
    Running {
        ledger,
        earlier_leases,
        data_dir,
        _lock: lock,
        _resign: resign,
        _task: task,
    }
}

/// The request of a client that has a lease.
fn renewal(resource: &str) -> CapacityRequest {
    let request = format!(
        r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5,"has":{{"capacity":5}}}}]}}"#
    );
    serde_json::from_str(&request).unwrap()
}

/// Books a lease, without waiting for the bound to cover it.
fn book(server: &Running, resource: &str, now: Moment) -> Vec<Grant> {
    let request = renewal(resource);
    let booked = server
        .ledger
        .with(|ledger, _| ledger.refresh(&request.clone().into(), now));
    booked.unwrap()
}

/// Leases a resource, as a response would report it.
async fn lease(server: &Running, resource: &str) -> Grant {
    let granted = server.ledger.lease(renewal(resource).into()).await;
    granted.unwrap().unwrap().grants.remove(0)
}

fn is_learning(server: &Running, at: Moment) -> bool {
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
        drop(server);
    }
}

#[tokio::test]
async fn longest_lease_counts_from_the_start_after_another_boot() {
    let home = TempDir::new().unwrap();
    drop(start(home.path()));
    let longest = 63_000_000_000;
    StoredBound::write_of_other_boot(&home.path().join("data"), longest);
    let before = clock::now();
    let _server = start(home.path());
    let StoredBound {
        ends,
        longest: stored,
        boot,
    } = bound(home.path());
    assert_eq!((stored, boot), (longest, Boot::current()));
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
    let reign = second.ledger.end().unwrap();
    let (epoch, now) = (reign.epoch(), clock::now());
    second
        .data_dir
        .write_ledger(&reign.into_ledger(), epoch, now);
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
    let BoundWrites { written, failed } = server.ledger.writes()[0];
    assert!(written > 0 && failed == 0, "{written} {failed}");

    server.data_dir.make_read_only();
    let before = lease(&server, "brief").await;
    assert_eq!(before.lease_length.get(), 2.0, "the bound covers it");
    let uncovered = lease(&server, "long").await;
    assert!(uncovered.lease_length.get() < 66.0, "{uncovered:?}");
    let BoundWrites {
        written: later,
        failed,
    } = server.ledger.writes()[0];
    assert!(later == written && failed > 0, "{later} {failed}");
}

/// Leases a resource through all that a request passes.
async fn grant(server: &Running, resource: &str) -> Result<f64, NotGranted> {
    let request =
        format!(r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5}}]}}"#);
    let request: CapacityRequest = serde_json::from_str(&request).unwrap();
    let granted = server.ledger.lease(request.into()).await.unwrap()?;
    Ok(granted.grants[0].lease_length.get())
}

fn identity(home: &Path) -> serde_json::Value {
    let text = std::fs::read(home.join("data/identity.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

const BRIEF: &str = "
resources: [{identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 10, refresh_interval: 1}}]
";

#[tokio::test]
async fn lost_bound_is_learned_for_the_longest_lease_that_was_granted() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    assert_eq!(grant(&server, "long").await.unwrap(), 3600.0);
    assert_eq!(
        identity(home.path())["longest_booking_nanos"],
        3_780_000_000_000_u64
    );
    drop(server);
    std::fs::remove_file(home.path().join("data/bound")).unwrap();

    let before = clock::now();
    let next = start_with(home.path(), BRIEF);
    let until = next.ledger.learning_until();
    assert!(until >= before.after_seconds(3780.0), "{until:?}");
    assert_eq!(next.earlier_leases.assumed(), 0);
    drop(next);

    // The bound of a machine that has restarted proves it, too.
    StoredBound::write_of_other_boot(&home.path().join("data"), 3_780_000_000_000);
    let before = clock::now();
    let next = start_with(home.path(), BRIEF);
    assert!(next.ledger.learning_until() >= before.after_seconds(3780.0));
}

#[tokio::test]
async fn longest_lease_shrinks_once_its_leases_have_ended() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    grant(&server, "long").await.unwrap();
    grant(&server, "brief").await.unwrap();
    server
        .ledger
        .with(|ledger, _| ledger.reconfigure(Arc::new(Document::parse(BRIEF).unwrap())))
        .unwrap();
    grant(&server, "brief").await.unwrap();
    let longest = |home: &TempDir| {
        identity(home.path())["longest_booking_nanos"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(longest(&home), 3_780_000_000_000, "never within a reign");
    drop(server);
    // The last lease has ended.
    StoredBound::write_of_other_boot(&home.path().join("data"), 0);
    drop(start_with(home.path(), BRIEF));
    assert_eq!(longest(&home), 0);
}

#[tokio::test(start_paused = true)]
async fn longer_lease_needs_no_space_on_the_disk() {
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    assert_eq!(grant(&server, "db").await.unwrap(), 60.0);
    // A directory in place of the new file stands for a full disk: the bound is written in place.
    let block = home.path().join("data/identity.new");
    std::fs::create_dir(&block).unwrap();
    assert_eq!(grant(&server, "long").await.unwrap(), 3600.0);
    let longest = 3_780_000_000_000;
    assert_eq!(bound(home.path()).longest, longest);
    let stored = |home: &TempDir| identity(home.path())["longest_booking_nanos"].as_u64();
    assert!(stored(&home) < Some(longest));

    // The identity follows with the next bound.
    std::fs::remove_dir(&block).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    grant(&server, "long").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(stored(&home), Some(longest));
}

fn terms(home: &Path) -> serde_json::Value {
    let text = std::fs::read(home.join("data/terms.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn lease_in_a_new_unit_waits_for_a_writable_directory() {
    const PER_MINUTE: &str = "
resources:
  - {identifier_glob: db, capacity: 6000, per: 60, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
  - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
";
    let home = TempDir::new().unwrap();
    let server = start(home.path());
    assert_eq!(grant(&server, "db").await.unwrap(), 60.0);
    let first = terms(home.path());
    assert_eq!(first["generations"][0][2]["per"], 1.0);

    let block = home.path().join("data/terms.new");
    std::fs::create_dir(&block).unwrap();
    let document = Arc::new(Document::parse(PER_MINUTE).unwrap());
    server.ledger.reconfigure(&document).unwrap();
    assert_eq!(grant(&server, "db").await, Err(NotGranted::NotDurable));
    assert_eq!(grant(&server, "other").await.unwrap(), 60.0);
    assert_eq!(terms(home.path()), first);

    std::fs::remove_dir(&block).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(grant(&server, "db").await.unwrap(), 60.0);
    let both = terms(home.path());
    let generations = both["generations"].as_array().unwrap();
    assert_eq!(generations.len(), 2, "{both}");
    assert_eq!(generations[1][0]["per"], 60.0);
}
