//! Verdicts on gauges.

use super::fleet::{Fleet, STEP, assert_near, gauge};
use crate::ledger::feedback::{
    control::{Change, ControlState},
    report::OutcomeReport,
    terms::ControlTerms,
};

#[test]
fn gauge_falls_to_the_units_that_the_target_holds() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.run_pool(10.0, 300.0, 0.1);
    assert_eq!(fleet.changes, []);
    // Refused requests are many, since they end soon.
    fleet.run_pool(2.5, 100.0, 0.5);
    assert_eq!(fleet.cuts(), 1);
    // Less by the error of the measurement.
    let (_, cut) = fleet.last_cut();
    assert_near(cut.accepted, 100.0);
    let effective = fleet.effective();
    assert!((80.0..96.0).contains(&effective), "{effective}");
}

#[test]
fn gauge_of_which_few_units_are_refused_falls_by_these() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.run_pool(2.5, 195.0, 0.1);
    assert_eq!(fleet.cuts(), 1);
    let effective = fleet.effective();
    assert!((194.0..=195.0).contains(&effective), "{effective}");
}

#[test]
fn outcomes_before_a_pool_fell_are_no_evidence() {
    let mut fleet = Fleet::new(20, gauge(None));
    // So few are refused that the window stays open.
    fleet.run_pool(2.0, 198.5, 0.1);
    assert_eq!(fleet.cuts(), 0);
    while fleet.cuts() == 0 {
        fleet.run_pool(STEP, 60.0, 0.1);
    }
    let (at, cut) = fleet.last_cut();
    assert!(at < 4.0, "{at}");
    assert_near(cut.accepted, 60.0);
}

#[test]
fn slow_gauge_falls_to_what_the_latency_allows() {
    let mut fleet = Fleet::new(20, gauge(Some(0.15)));
    fleet.run_workers(10.0, 200.0);
    assert_eq!(fleet.changes, []);
    // 300 requests per second are 45 in use for 0.15 seconds each.
    fleet.run_workers(2.5, 30.0);
    assert_eq!(fleet.cuts(), 1);
    let effective = fleet.effective();
    assert!((33.0..45.0).contains(&effective), "{effective}");

    let mut fleet = Fleet::new(20, gauge(None));
    fleet.run_workers(10.0, 30.0);
    assert_eq!(fleet.changes, []);
}

#[test]
fn gauge_rises_only_after_requests_have_ended() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.run_pool(2.5, 100.0, 0.1);
    assert_eq!(fleet.cuts(), 1);
    // Requests that take an hour say nothing. Those before it are reported once more.
    fleet.run_pool(20.0, 300.0, 3600.0);
    assert!(fleet.raises() <= 1);
    fleet.run_pool(40.0, 300.0, 0.1);
    assert_eq!(fleet.effective(), 200.0);
    assert_eq!(fleet.status().state, ControlState::Open);
}

#[test]
fn known_plateau_of_a_gauge_is_held_longer() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.run_pool(120.0, 100.0, 0.1);
    let of = |is: fn(&Change) -> bool| {
        let at = fleet.changes.iter().filter(move |(_, it)| is(it));
        at.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    let cuts = of(|it| matches!(it, Change::Cut(_)));
    let raises = of(|it| *it == Change::Raise);
    let held: Vec<_> = (cuts.iter())
        .filter_map(|cut| Some(raises.iter().find(|it| *it > cut)? - cut))
        .collect();
    assert!(held.len() > 2, "{held:?}");
    assert!((5.0..8.0).contains(&held[0]), "{held:?}");
    assert!(held[1..].iter().all(|it| *it >= 15.0), "{held:?}");
}

#[test]
fn small_gauge_moves_by_whole_units() {
    let small = ControlTerms {
        configured: 4.0,
        floor: 0.0,
        ..gauge(None)
    };
    let mut fleet = Fleet::new(1, small);
    fleet.wants = 10.0;
    while fleet.cuts() == 0 {
        fleet.run_pool(STEP, 0.2, 0.01);
    }
    assert_eq!(fleet.effective(), 1.0);
    while fleet.raises() == 0 {
        fleet.run_pool(STEP, 10.0, 0.01);
    }
    assert_eq!(fleet.effective(), 2.0);
}

#[test]
fn gauge_pauses_while_the_target_accepts_nothing() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.pause = Some(10.0);
    fleet.run_pool(2.5, 0.0, 0.1);
    assert_eq!(fleet.status().state, ControlState::Paused);
    assert_eq!(fleet.effective(), 0.0);
}

#[test]
fn limit_of_the_target_says_nothing_of_units_in_use() {
    let mut fleet = Fleet::new(20, gauge(None));
    fleet.seen = Some((0.0, 60.0));
    fleet.run_pool(10.0, 300.0, 0.1);
    assert_eq!(fleet.effective(), 200.0);
}

#[test]
fn requests_longer_than_an_interval_count_when_they_end() {
    let mut fleet = Fleet::new(20, gauge(None));
    // Ten units each are in use for five seconds, and end at different times.
    let refused = |index: usize| u64::from(index.is_multiple_of(2));
    for step in 0..10 {
        fleet.now += 0.5;
        for index in 0..20 {
            let ends = if step % 10 == index % 10 { 10 } else { 0 };
            let report = OutcomeReport {
                elapsed: 0.5,
                used: 10.0,
                ok: ends,
                overloaded: refused(index),
                ok_seconds: 5.0 * ends as f64,
                wants: 10.0,
                has: 10.0,
                ..OutcomeReport::default()
            };
            fleet.report_of(index, &report);
        }
        fleet.tick();
    }
    assert!(fleet.effective() > 150.0, "{}", fleet.effective());
}
