use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{CapacityRequest, ResourceId};

use super::*;
use crate::ledger::{Predecessor, Settings, UnmatchedPolicy};

const NOW: Moment = Moment::from_nanos(5_000_000_000_000);
const HERE: Boot = Boot(1);

fn core(now: Moment) -> Ledger {
    let settings = Settings {
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
    };
    Ledger::new(Arc::new(Document::built_in()), settings, now)
}

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

/// Books with one lease of `db` on 400 of 1000, booked for 63 s, and one of `cache`.
fn left() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut core = core(NOW);
    for resource in ["db", "cache"] {
        let request = format!(
            r#"{{"client_id":"c","seq":1,"resources":[{{"resource_id":"{resource}","wants":400}}]}}"#
        );
        let request: CapacityRequest = serde_json::from_str(&request).unwrap();
        core.refresh_client(&request, NOW);
    }
    write(directory.path(), &core, epoch(7), HERE, NOW).unwrap();
    directory
}

fn has(core: &Ledger, now: Moment) -> Option<f64> {
    core.resource(&ResourceId::new("db").unwrap(), now)
        .map(|view| view.sum_has)
}

#[test]
fn the_next_start_has_all_of_it() {
    let directory = left();
    let now = NOW.after_seconds(3.0);
    let mut next = core(now);
    let ends = read(directory.path(), &mut next, Some(epoch(7)), HERE, now).unwrap();
    assert_eq!(ends, Some(NOW.after_seconds(63.0)));
    assert_eq!((has(&next, now), next.stats().leases), (Some(400.0), 2));
}

#[test]
fn after_another_boot_what_is_left_counts_from_the_start() {
    let directory = left();
    let now = Moment::ORIGIN.after_seconds(9.0);
    let mut next = core(now);
    let ends = read(directory.path(), &mut next, Some(epoch(7)), Boot(2), now).unwrap();
    assert_eq!(ends, Some(now.after_seconds(63.0)));
    assert_eq!(has(&next, now), Some(400.0));
}

#[test]
fn once_another_server_has_started_they_are_old() {
    let directory = left();
    for last in [None, Some(epoch(6)), Some(epoch(8))] {
        let mut next = core(NOW);
        assert_eq!(
            read(directory.path(), &mut next, last, HERE, NOW).unwrap(),
            None
        );
        assert_eq!(next.stats().leases, 0);
    }
}

#[test]
fn they_can_be_forgotten() {
    let directory = left();
    for _ in 0..2 {
        forget(directory.path()).unwrap();
        let taken = read(directory.path(), &mut core(NOW), Some(epoch(7)), HERE, NOW);
        assert_eq!(taken.unwrap(), None);
    }
}

#[test]
fn any_damage_is_found() {
    let directory = left();
    let path = path(directory.path());
    let whole = fs::read(&path).unwrap();
    let damaged = |text: &[u8]| {
        fs::write(&path, text).unwrap();
        let taken = read(directory.path(), &mut core(NOW), Some(epoch(7)), HERE, NOW);
        assert!(matches!(taken, Err(Unusable::Damaged(_))), "{taken:?}");
    };
    // The last byte is a line break, without which nothing is missing.
    for length in 0..whole.len() - 1 {
        damaged(&whole[..length]);
    }
    for at in 0..whole.len() - 1 {
        let mut text = whole.clone();
        text[at] ^= 1;
        damaged(&text);
    }
}
