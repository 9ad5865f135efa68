//! Changes by an operator, hand-over and views.

use std::mem::size_of;

use doorman_openapi::Moment;

use super::fleet::{Fleet, STEP, assert_near, at, gauge, half_second, terms};
use crate::ledger::feedback::{
    control::{ControlState, FeedbackControl},
    holder::HolderEvidence,
    survey::Survey,
    terms::{ControlTerms, ControlUnit},
};

fn held() -> Fleet {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(10.0, 2000.0);
    fleet.run(2.0, 300.0);
    assert_near(fleet.effective(), 295.5);
    fleet
}

fn of_capacity(configured: f64) -> ControlTerms {
    ControlTerms {
        configured,
        ..terms(None)
    }
}

#[test]
fn operator_changes_what_is_not_held_back() {
    let mut fleet = Fleet::new(10, terms(None));
    for capacity in [2000.0, 500.0] {
        fleet.control.set_terms(of_capacity(capacity), at(0.0));
        assert_eq!(fleet.effective(), capacity);
    }
}

#[test]
fn operator_cannot_raise_what_is_held_back() {
    let mut fleet = held();
    let before = fleet.effective();
    for (capacity, effective) in [(2000.0, before), (500.0, before), (200.0, 200.0)] {
        fleet
            .control
            .set_terms(of_capacity(capacity), at(fleet.now));
        assert_eq!(fleet.effective(), effective);
    }
    // Nothing is held back any more.
    fleet.control.set_terms(of_capacity(1000.0), at(fleet.now));
    assert_eq!(fleet.effective(), 1000.0);
}

#[test]
fn operator_raises_the_floor() {
    let mut fleet = held();
    let floor = ControlTerms {
        floor: 0.5,
        ..terms(None)
    };
    fleet.control.set_terms(floor, at(fleet.now));
    assert_eq!(fleet.effective(), 500.0);
}

#[test]
fn change_of_the_period_converts_amounts() {
    let mut fleet = held();
    let before = fleet.effective();
    let per_minute = ControlTerms {
        configured: 60_000.0,
        unit: ControlUnit::Rate { per: 60.0 },
        ..terms(None)
    };
    fleet.control.set_terms(per_minute, at(fleet.now));
    assert_near(fleet.effective(), 60.0 * before);
    assert_near(fleet.status().plateau.expect("one"), 60.0 * 300.0);

    fleet.wants *= 60.0;
    fleet.run(60.0, 300.0);
    assert_near(fleet.status().plateau.expect("one"), 60.0 * 300.0);
    assert!((17_000.0..19_500.0).contains(&fleet.effective()));
}

#[test]
fn change_of_the_kind_of_unit_begins_anew() {
    let mut fleet = held();
    fleet.control.set_terms(gauge(None), at(fleet.now));
    assert_eq!(fleet.effective(), 200.0);
    // Counts of the first window are not those of the next one.
    fleet.report_of(0, &half_second(5, 1));
    let survey = |fleet: &Fleet| {
        let window = fleet.control.window.expect("a window");
        let holders = fleet.holders.iter().map(|it| (it.evidence, it.booked));
        Survey::take(&window, holders, 0, |_| f64::INFINITY)
            .counted(true)
            .outcomes
    };
    assert_eq!(survey(&fleet), 0);
}

#[test]
fn successor_continues_the_record() {
    let fleet = held();
    let record = fleet.control.record(at(fleet.now)).expect("a record");
    let text = serde_json::to_string(&record).expect("numbers");
    let record = serde_json::from_str(&text).expect("numbers");
    // Clocks of processes differ.
    let restored = FeedbackControl::restore(&record, terms(None), at(5.0));
    assert_eq!(restored.effective(at(5.0)), fleet.effective());
    let before = fleet.status();
    let status = restored.status(at(5.0));
    assert_eq!(status.plateau, before.plateau);
    let left = |until: Option<Moment>, now| until.expect("a hold").seconds_since(now);
    let (is, expected) = (
        left(status.until, at(5.0)),
        left(before.until, at(fleet.now)),
    );
    assert_eq!(is, expected);

    let mut successor = Fleet::of(restored, 20);
    successor.wants = 1300.0;
    successor.run(60.0, 300.0);
    assert_near(successor.status().plateau.expect("one"), 300.0);
}

#[test]
fn successor_knows_the_plateau() {
    let mut fleet = held();
    for is_known in [false, true] {
        let record = fleet.control.record(at(fleet.now)).expect("a record");
        let restored = FeedbackControl::restore(&record, terms(None), at(0.0));
        assert_eq!(restored.plateau.is_known, is_known);
        fleet.run(30.0, 300.0);
    }
}

#[test]
fn successor_continues_a_baseline() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run_with(45.0, |_, _| 0.1);
    let record = fleet.control.record(at(fleet.now)).expect("a record");
    let restored = FeedbackControl::restore(&record, terms(None), at(0.0));
    assert_eq!(restored.status(at(0.0)).base, fleet.status().base);
    let mut successor = Fleet::of(restored, 20);
    successor.run_with(10.0, |_, _| 0.1);
    assert_eq!(successor.changes, []);
}

#[test]
fn successor_continues_a_pause_and_its_cycle() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.pause = Some(20.0);
    fleet.run(5.0, 0.0);
    while fleet.effective() == 0.0 {
        fleet.run(STEP, 0.0);
    }
    assert_eq!(fleet.effective(), 985.0);
    fleet.run(10.0, 2000.0);
    let hand_over = |fleet: &mut Fleet| {
        let record = fleet.control.record(at(fleet.now)).expect("a record");
        fleet.control = FeedbackControl::restore(&record, terms(None), at(fleet.now));
    };
    hand_over(&mut fleet);
    fleet.run(10.0, 2000.0);
    while fleet.effective() > 0.0 {
        fleet.run(STEP, 0.0);
    }
    hand_over(&mut fleet);
    assert_eq!(fleet.status().state, ControlState::Paused);
    fleet.run(20.0, 0.0);
    // As without a hand-over: about 20 of 42 seconds.
    assert!(
        (400.0..540.0).contains(&fleet.effective()),
        "{}",
        fleet.effective()
    );
    let raises = fleet.raises();
    fleet.run(60.0, 2000.0);
    assert_eq!(fleet.raises(), raises);
}

#[test]
fn record_of_an_idle_resource_is_none() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(10.0, 2000.0);
    assert_eq!(fleet.control.record(at(fleet.now)), None);
}

#[test]
fn new_server_continues_at_the_level_of_the_claims() {
    let control = FeedbackControl::new(terms(None), Some(300.0), at(0.0));
    let mut fleet = Fleet::of(control, 20);
    fleet.wants = 1300.0;
    assert_eq!(fleet.effective(), 300.0);
    fleet.run(4.75, 2000.0);
    assert_eq!(fleet.raises(), 0);
    // The predecessor has measured it.
    fleet.run(0.5, 2000.0);
    assert_eq!(fleet.effective(), 303.0);
    fleet.run(40.0, 2000.0);
    assert_eq!(fleet.effective(), 1000.0);
}

#[test]
fn claims_count_until_the_first_own_cut() {
    let mut fleet = Fleet::new(10, terms(None));
    for effective in [300.0, 400.0] {
        fleet.control.follow_claims(effective, at(fleet.now));
        assert_eq!(fleet.effective(), effective);
    }
    let mut fleet = held();
    let before = fleet.effective();
    fleet.control.follow_claims(900.0, at(fleet.now));
    assert_eq!(fleet.effective(), before);
}

#[test]
fn idle_resource_needs_no_ticks() {
    let mut fleet = Fleet::new(10, terms(None));
    let next_tick = |fleet: &Fleet| fleet.control.next_tick(at(fleet.now));
    fleet.run(10.0, 2000.0);
    assert_eq!(next_tick(&fleet), Moment::NEVER);

    fleet.report_of(0, &half_second(10, 1));
    assert_eq!(next_tick(&fleet), at(fleet.now + STEP));

    // A hold that nothing interrupts needs none either.
    let mut fleet = held();
    fleet.run(2.0, 2000.0);
    assert_eq!(Some(next_tick(&fleet)), fleet.status().until);
    fleet.wants = 100.0;
    fleet.run(10.0, 2000.0);
    assert_eq!(next_tick(&fleet), at(fleet.now + STEP));
    // Without any report nothing can change.
    fleet.now += 11.0;
    fleet.tick();
    assert_eq!(next_tick(&fleet), Moment::NEVER);
    fleet.report_of(0, &half_second(10, 0));
    assert!(next_tick(&fleet) <= at(fleet.now + STEP));
}

#[test]
fn state_is_shown_since_it_began() {
    let mut fleet = held();
    let status = fleet.status();
    assert_eq!(status.state, ControlState::Held);
    assert_near(status.overloaded_share, 0.7);
    fleet.run(3.0, 2000.0);
    assert_eq!(fleet.status().since, status.since);
    assert!(status.since > at(10.0) && status.since < at(12.0));
}

#[test]
fn evidence_of_a_holder_is_small() {
    assert!(size_of::<HolderEvidence>() <= 64);
}

#[test]
fn level_that_is_told_anew_must_arrive_first() {
    let mut fleet = held();
    for holder in &mut fleet.holders {
        holder.booked *= 3.0;
    }
    fleet.control.tell_level(at(fleet.now));
    fleet.repeat(10, &half_second(10, 20));
    assert_eq!(fleet.cuts(), 1);
}
