//! Statements of a target about itself: `Retry-After`, and its own limit.

use doorman_openapi::Moment;

use super::fleet::{Fleet, STEP, assert_near, at, half_second, terms};
use crate::ledger::feedback::{
    control::{Change, ControlState},
    report::OutcomeReport,
    rules::FeedbackRule,
    terms::{ControlTerms, ControlUnit},
};

fn is_pause(change: &Change) -> bool {
    matches!(change, Change::Pause { .. })
}

/// A target that accepts nothing for so many seconds.
fn refuse_all(without: Option<FeedbackRule>, pause: Option<f64>) -> Fleet {
    let mut fleet = Fleet::new(10, terms(without));
    fleet.run(10.0, 2000.0);
    fleet.pause = pause;
    fleet.run(1.5, 0.0);
    fleet
}

#[test]
fn fleet_pauses_while_the_target_accepts_nothing() {
    let mut fleet = refuse_all(None, Some(20.0));
    assert_eq!(fleet.count(is_pause), 1);
    assert_eq!(fleet.effective(), 0.0);
    let status = fleet.status();
    assert_eq!(status.state, ControlState::Paused);
    let until = status.until.expect("an end");
    let left = until.seconds_since(at(fleet.now));
    assert!((18.5..=20.0).contains(&left), "{left}");
    assert_eq!(fleet.control.next_tick(at(fleet.now)), until);

    fleet.run(20.0, 2000.0);
    assert_eq!(fleet.count(|it| *it == Change::Resume), 1);
    assert_eq!(fleet.effective(), 985.0);

    let fleet = refuse_all(Some(FeedbackRule::Pause), Some(20.0));
    assert_eq!(fleet.count(is_pause), 0);
    assert_eq!(fleet.effective(), 100.0);
}

#[test]
fn pause_ends_at_the_median_and_within_a_minute() {
    let fleet = refuse_all(None, Some(3600.0));
    let until = fleet.status().until.expect("an end");
    let left = until.seconds_since(at(fleet.now));
    assert!((58.5..=60.0).contains(&left), "{left}");

    let mut fleet = Fleet::new(3, terms(None));
    for _ in 0..4 {
        fleet.now += 0.5;
        for (index, pause) in [10.0, 20.0, 3000.0].into_iter().enumerate() {
            let report = OutcomeReport {
                pause: Some(pause),
                ..half_second(0, 200)
            };
            fleet.report_of(index, &report);
        }
        fleet.tick();
    }
    let until = fleet.status().until.expect("an end");
    assert!(until <= at(fleet.now + 20.0), "{until:?}");
    assert!(until > at(fleet.now + 15.0), "{until:?}");
}

#[test]
fn level_after_two_pauses_is_what_a_cycle_accepted() {
    let mut fleet = refuse_all(None, Some(20.0));
    fleet.pause = None;
    while fleet.effective() == 0.0 {
        fleet.run(STEP, 0.0);
    }
    let resumed = fleet.now;
    fleet.run(20.0, 2000.0);
    fleet.pause = Some(20.0);
    while fleet.effective() > 0.0 {
        fleet.run(STEP, 0.0);
    }
    fleet.pause = None;
    while fleet.effective() == 0.0 {
        fleet.run(STEP, 0.0);
    }
    let cycle = fleet.now - resumed;
    assert_near(fleet.effective(), 0.985 * 985.0 * 20.0 / cycle);

    // The next windows of the target tell whether that is right.
    let raises = fleet.raises();
    fleet.run(2.0 * cycle - 1.0, 2000.0);
    assert_eq!(fleet.raises(), raises);
    fleet.run(5.0, 2000.0);
    assert!(fleet.raises() > raises);
}

#[test]
fn refusals_without_an_end_halve_the_level() {
    let mut fleet = refuse_all(None, None);
    assert_eq!(fleet.effective(), 500.0);
    fleet.run(4.0, 2000.0);
    assert_eq!(fleet.raises(), 0);
}

/// The target says that 6000 are left for a minute.
fn follow(terms: ControlTerms) -> Fleet {
    let mut fleet = Fleet::new(10, terms);
    fleet.run(10.0, 2000.0);
    fleet.seen = Some((6000.0, 60.0));
    fleet.run(10.0, 2000.0);
    fleet
}

#[test]
fn level_follows_the_limit_of_the_target() {
    let mut fleet = follow(terms(None));
    assert!((90.0..105.0).contains(&fleet.effective()));
    assert_eq!(fleet.status().state, ControlState::Held);
    // The pace is told rarely.
    assert!(
        fleet.count(|it| *it == Change::Pace) < 8,
        "{:?}",
        fleet.changes
    );

    fleet.seen = None;
    fleet.run(9.0, 2000.0);
    assert!(fleet.effective() < 500.0);
    fleet.run(12.0, 2000.0);
    assert_eq!(fleet.effective(), 1000.0);
    assert_eq!(fleet.control.next_tick(at(fleet.now)), Moment::NEVER);

    assert_eq!(follow(terms(Some(FeedbackRule::Seen))).effective(), 1000.0);
    let ignored = ControlTerms {
        follows_headers: false,
        ..terms(None)
    };
    assert_eq!(follow(ignored).effective(), 1000.0);
}

#[test]
fn exhausted_limit_of_the_target_stops_all() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.seen = Some((0.0, 60.0));
    fleet.run(2.0, 2000.0);
    assert_eq!(fleet.effective(), 0.0);

    // It will be whole again at once.
    let mut fleet = Fleet::new(10, terms(None));
    fleet.seen = Some((0.0, 1.5));
    fleet.run(2.0, 2000.0);
    assert_eq!(fleet.effective(), 1000.0);
}

/// The effective capacity after the target said what is left for a minute.
fn effective_after(fleet: &mut Fleet, left: f64) -> f64 {
    let report = OutcomeReport {
        seen: Some((left, 60.0)),
        ..half_second(50, 0)
    };
    fleet.report_of(0, &report);
    fleet.tick();
    fleet.effective()
}

#[test]
fn use_since_the_target_said_its_limit_counts() {
    let mut fleet = Fleet::new(1, terms(None));
    assert_eq!(effective_after(&mut fleet, 6000.0), 100.0);
    fleet.now += 5.25;
    fleet.tick();
    assert_near(fleet.effective(), (6000.0 - 5.25 * 1000.0) / 54.75);
}

#[test]
fn small_moves_of_the_pace_are_told_after_seconds() {
    let mut fleet = Fleet::new(1, terms(None));
    fleet.wants = 0.001;
    assert_eq!(effective_after(&mut fleet, 6000.0), 100.0);
    fleet.now += 1.0;
    assert_eq!(effective_after(&mut fleet, 6180.0), 100.0);
    fleet.now += 1.0;
    assert_eq!(effective_after(&mut fleet, 6360.0), 106.0);
    fleet.now += 5.25;
    assert_eq!(effective_after(&mut fleet, 6180.0), 103.0);
}

#[test]
fn pace_is_converted_to_another_period() {
    let mut fleet = follow(terms(None));
    let before = fleet.effective();
    let per_minute = ControlTerms {
        configured: 60_000.0,
        unit: ControlUnit::Rate { per: 60.0 },
        ..terms(None)
    };
    fleet.control.set_terms(per_minute, at(fleet.now));
    assert_near(fleet.effective(), 60.0 * before);
}

#[test]
fn most_holders_decide_on_the_limit_of_the_target() {
    let mut fleet = Fleet::new(3, terms(None));
    for (index, left) in [0.0, 3000.0, 60_000.0].into_iter().enumerate() {
        let report = OutcomeReport {
            seen: Some((left, 60.0)),
            ..half_second(10, 0)
        };
        fleet.report_of(index, &report);
    }
    fleet.tick();
    assert_eq!(fleet.effective(), 50.0);
}
