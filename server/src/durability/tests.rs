//! Starts after starts on one data directory.

use std::{fs, path::Path};

use doorman_openapi::{CapacityRequest, Reason, ResourceId};
use tempfile::TempDir;

use super::{slot::newest, *};
use crate::{leasing::BoundWrites, ledger::Grant};

const DOCUMENT: &str = "
resources:
  - {identifier_glob: brief, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}}
  - {identifier_glob: long, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 1}}
  - {identifier_glob: '*', capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}
";

fn start(home: &Path) -> Started {
    let start = Start {
        directory: home.join("data"),
        node: None,
        document: Arc::new(Document::parse(DOCUMENT).unwrap()),
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        is_loopback: true,
        empty_directory: EmptyDirectory::MayBeLost,
    };
    start.take().unwrap()
}

fn ask(started: &mut Started, resource: &str, now: Moment) -> Vec<Grant> {
    let request = format!(
        r#"{{"client_id":"c","resources":[{{"resource_id":"{resource}","wants":5,"has":{{"capacity":5}}}}]}}"#
    );
    let request: CapacityRequest = serde_json::from_str(&request).unwrap();
    started.core.refresh_client(&request, now)
}

fn db() -> ResourceId {
    ResourceId::new("db").unwrap()
}

/// What is on the disk.
fn bound(home: &Path) -> Bound {
    newest(&fs::read(home.join("data/bound")).unwrap())
        .unwrap()
        .1
}

#[tokio::test]
async fn whatever_is_told_is_on_the_disk_by_then_and_not_much_more() {
    let home = TempDir::new().unwrap();
    let mut started = start(home.path());
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
        let now = clock::now();
        let granted = ask(&mut started, resource, now);
        let told = started.bound.cover(granted, now).await.remove(0);
        assert_eq!(
            (told.lease_length.get(), told.capacity.get()),
            (seconds, 5.0)
        );
        needed = needed.max(told.booked_until);
        let ends = bound(home.path()).ends;
        assert!(needed <= ends, "{ends:?} does not cover {needed:?}");
        assert!(ends.seconds_since(needed) <= 5.0, "{ends:?} for {needed:?}");
    }
}

#[tokio::test]
async fn starts_that_grant_nothing_leave_the_bound_where_it_is() {
    let home = TempDir::new().unwrap();
    let mut started = start(home.path());
    let now = clock::now();
    let granted = ask(&mut started, "db", now);
    drop(started.bound.cover(granted, now).await);
    drop(started);
    let first = bound(home.path());
    for _ in 0..3 {
        let mut started = start(home.path());
        let now = clock::now();
        assert_eq!(bound(home.path()), first);
        // What a holder says it has of the server before is kept for it until then.
        let kept = ask(&mut started, "db", now).remove(0);
        assert_eq!((kept.capacity.get(), kept.reason), (5.0, Reason::Granted));
        let view = started.core.resource(&db(), now).unwrap();
        assert!(view.in_learning_mode);
        let view = started.core.resource(&db(), first.ends).unwrap();
        assert!(!view.in_learning_mode);
    }
}

#[tokio::test]
async fn after_another_boot_the_longest_lease_counts_from_the_start() {
    let home = TempDir::new().unwrap();
    drop(start(home.path()));
    let (mut file, _) = BoundFile::open(&home.path().join("data")).unwrap();
    let elsewhere = Bound {
        ends: Moment::NEVER,
        longest: 63_000_000_000,
        boot: Boot(1),
    };
    file.write(&elsewhere).unwrap();
    let before = clock::now();
    let _started = start(home.path());
    let Bound {
        ends,
        longest,
        boot,
    } = bound(home.path());
    assert_eq!((longest, boot), (63_000_000_000, Boot::current()));
    let learns = ends.seconds_since(before);
    assert!((63.0..70.0).contains(&learns), "{learns}");
}

#[tokio::test]
async fn a_server_that_stops_while_it_learns_leaves_the_rest_of_it_to_the_next() {
    let home = TempDir::new().unwrap();
    let mut started = start(home.path());
    let now = clock::now();
    let granted = ask(&mut started, "db", now);
    drop(started.bound.cover(granted, now).await);
    drop(started);
    let ends = bound(home.path()).ends;

    let mut second = start(home.path());
    ask(&mut second, "db", clock::now());
    second.held.leave(&second.core, clock::now());
    drop(second);
    let third = start(home.path());
    assert_eq!(third.core.stats().leases, 1);
    let learns = |at| third.core.resource(&db(), at).unwrap().in_learning_mode;
    assert!(learns(clock::now()) && !learns(ends));
    assert_eq!(bound(home.path()).ends, ends);
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_takes_and_what_it_does_not_is_counted() {
    let home = TempDir::new().unwrap();
    let mut started = start(home.path());
    let now = clock::now();
    let granted = ask(&mut started, "db", now);
    let told = started.bound.cover(granted.clone(), now).await.remove(0);
    assert_eq!(told.lease_length.get(), 60.0);
    let BoundWrites { written, failed } = started.bound.writes();
    assert!(written > 0 && failed == 0, "{written} {failed}");

    let horizon = Arc::new(DurableBound::new(Moment::ORIGIN, 0));
    let file = BoundFile::that_takes_nothing(&home.path().join("data"));
    let lock = Arc::new(Lock::take(home.path()).unwrap());
    let mut keeper = JoinSet::new();
    keeper.spawn(keeper::run(
        Arc::clone(&horizon),
        file,
        Boot(1),
        Arc::downgrade(&lock),
    ));
    let told = horizon.cover(granted, now).await.remove(0);
    assert_eq!(told.lease_length.get(), 0.0);
    let BoundWrites { written, failed } = horizon.writes();
    assert!(written == 0 && failed > 0, "{written} {failed}");
}
