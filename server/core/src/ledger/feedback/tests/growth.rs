//! More under load.

use super::fleet::{Fleet, STEP, assert_near, at, half_second, terms};
use crate::ledger::feedback::{
    control::{ControlState, FeedbackControl},
    rules::FeedbackRule,
    terms::ControlTerms,
};

/// A fleet that is held at 300.
fn held(without: Option<FeedbackRule>) -> Fleet {
    let mut fleet = Fleet::new(10, terms(without));
    fleet.run(10.0, 2000.0);
    while fleet.cuts() == 0 {
        fleet.run(STEP, 300.0);
    }
    assert_near(fleet.effective(), 295.5);
    fleet.changes.clear();
    fleet
}

#[test]
fn level_rises_to_the_capacity_under_load() {
    let mut fleet = held(None);
    assert_eq!(fleet.status().state, ControlState::Held);
    fleet.run(8.0, 2000.0);
    assert_eq!(fleet.status().state, ControlState::Probing);
    fleet.run(40.0, 2000.0);
    assert_eq!(fleet.effective(), 1000.0);
    assert_eq!(fleet.status().state, ControlState::Open);
}

#[test]
fn level_is_held_after_a_cut() {
    let mut fleet = held(None);
    fleet.run(4.75, 2000.0);
    assert_eq!(fleet.raises(), 0);
    fleet.run(1.0, 2000.0);
    assert_eq!(fleet.raises(), 1);
}

#[test]
fn steps_double_up_to_a_sixth() {
    let mut fleet = held(None);
    let mut steps = Vec::new();
    while steps.len() < 6 {
        let before = fleet.effective();
        fleet.run(STEP, 2000.0);
        if fleet.effective() > before {
            steps.push((100.0 * (fleet.effective() / before - 1.0)).round());
        }
    }
    assert_eq!(steps, [2.0, 4.0, 8.0, 16.0, 16.0, 16.0]);
}

fn raises_without_load(without: Option<FeedbackRule>) -> usize {
    let mut fleet = held(without);
    fleet.wants = 200.0;
    fleet.run(30.0, 2000.0);
    fleet.raises()
}

#[test]
fn level_stays_without_load() {
    assert_eq!(raises_without_load(None), 0);
    assert!(raises_without_load(Some(FeedbackRule::GrowthUnderLoad)) > 0);
}

#[test]
fn level_stays_while_most_requests_fail() {
    let mut fleet = held(None);
    let wants = std::mem::replace(&mut fleet.wants, 200.0);
    fleet.failing = 0.6;
    fleet.run(40.0, 2000.0);
    fleet.wants = wants;
    fleet.run(20.0, 2000.0);
    assert_eq!(fleet.raises(), 0);
    fleet.failing = 0.4;
    fleet.run(30.0, 2000.0);
    assert!(fleet.raises() > 0);
}

#[test]
fn level_stays_until_enough_requests_were_sent() {
    let small = ControlTerms {
        configured: 10.0,
        ..terms(None)
    };
    let control = FeedbackControl::new(small, Some(2.0), at(0.0));
    let mut fleet = Fleet::of(control, 1);
    fleet.run(9.5, 2000.0);
    assert_eq!(fleet.raises(), 0);
    fleet.run(3.0, 2000.0);
    assert_eq!(fleet.raises(), 1);

    // As many requests per second, that cost more.
    let control = FeedbackControl::new(terms(None), Some(100.0), at(0.0));
    let mut fleet = Fleet::of(control, 1);
    fleet.cost = 50.0;
    fleet.run(9.5, 2000.0);
    assert_eq!(fleet.raises(), 0);
    fleet.run(3.0, 2000.0);
    assert_eq!(fleet.raises(), 1);
}

#[test]
fn level_lasts_a_second_even_if_leases_follow_at_once() {
    let mut fleet = held(Some(FeedbackRule::CutArrived));
    fleet.run(20.0, 2000.0);
    let raised: Vec<_> = fleet.changes.iter().map(|(at, _)| *at).collect();
    assert!(raised.len() > 5, "{raised:?}");
    assert!(
        raised.windows(2).all(|it| it[1] - it[0] >= 1.0),
        "{raised:?}"
    );
}

/// The raises in the second after the first one, in which a request is refused before the leases
/// have followed.
fn raises_beside_an_early_overload(without: Option<FeedbackRule>) -> usize {
    let mut fleet = held(without);
    while fleet.raises() == 0 {
        fleet.run(STEP, 2000.0);
    }
    fleet.run(2.0 * STEP, 2000.0);
    fleet.report_of(0, &half_second(7, 1));
    fleet.run(2.0 * STEP, 2000.0);
    fleet.raises() - 1
}

#[test]
fn level_stays_until_there_was_a_verdict_or_silence() {
    assert_eq!(raises_beside_an_early_overload(None), 0);
    let without = Some(FeedbackRule::GrowthAfterVerdict);
    assert_eq!(raises_beside_an_early_overload(without), 1);
}

/// The first step after the target was measured twice.
fn step_near_a_known_plateau(without: Option<FeedbackRule>) -> f64 {
    let mut fleet = held(without);
    while fleet.cuts() == 0 {
        fleet.run(STEP, 300.0);
    }
    let before = fleet.effective();
    let raises = fleet.raises();
    while fleet.raises() == raises {
        fleet.run(STEP, 300.0);
    }
    fleet.effective() / before - 1.0
}

#[test]
fn steps_near_a_known_plateau_are_small() {
    assert_near(step_near_a_known_plateau(None), 0.01);
    let without = Some(FeedbackRule::CarefulZone);
    assert_near(step_near_a_known_plateau(without), 0.02);
}

/// The hold after a probe that the target refused.
fn hold_after_a_probe(without: Option<FeedbackRule>) -> f64 {
    let mut fleet = held(without);
    while fleet.cuts() == 0 {
        fleet.run(STEP, 300.0);
    }
    let until = fleet.status().until.expect("a hold");
    until.seconds_since(at(fleet.now))
}

#[test]
fn probe_earns_back_what_it_cost() {
    let hold = hold_after_a_probe(None);
    assert!(hold > 5.5 && hold <= 15.0, "{hold}");
    assert_eq!(hold_after_a_probe(Some(FeedbackRule::EarnBack)), 5.0);
}

#[test]
fn moments_of_demand_are_no_load() {
    let mut fleet = held(None);
    for _ in 0..60 {
        fleet.wants = 1300.0;
        fleet.run(3.0 * STEP, 2000.0);
        fleet.wants = 200.0;
        fleet.run(STEP, 2000.0);
    }
    assert_eq!(fleet.raises(), 0);
}
