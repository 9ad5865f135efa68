//! Verdicts on rates: what is evidence, and where a cut goes.

use super::fleet::{Fleet, STEP, assert_near, half_second, terms};
use crate::ledger::feedback::{
    control::{Change, Cut},
    report::OutcomeReport,
    rules::FeedbackRule,
    terms::ControlTerms,
};

#[test]
fn cut_goes_just_below_the_accepted_rate() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(10.0, 2000.0);
    assert_eq!(fleet.changes, []);

    fleet.run(2.0, 300.0);
    let (_, cut) = fleet.last_cut();
    assert_eq!(fleet.cuts(), 1);
    assert_near(cut.leased, 1000.0);
    assert_near(cut.share, 0.7);
    assert_near(cut.accepted, 300.0);
    assert_eq!(fleet.effective(), 0.985 * cut.accepted);
}

#[test]
fn tolerated_overloads_are_no_reason_to_cut() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run_with(20.0, |_, _| 0.009);
    assert_eq!(fleet.changes, []);
    fleet.run_with(20.0, |_, _| 0.04);
    assert!(fleet.cuts() > 0);
}

/// Two holders were calm for ten seconds, and then half of their requests are refused.
fn cut_after_long_intervals(without: Option<FeedbackRule>) -> Cut {
    let mut fleet = Fleet::new(2, terms(without));
    fleet.now = 10.0;
    let calm = |overloaded| OutcomeReport {
        elapsed: 10.0,
        used: 5000.0,
        ok: 5000 - overloaded,
        overloaded,
        ..half_second(250, 0)
    };
    fleet.report_of(0, &calm(10));
    fleet.report_of(1, &calm(0));
    fleet.repeat(5, &half_second(125, 125));
    fleet.last_cut().1
}

#[test]
fn interval_before_the_window_is_no_evidence() {
    let cut = cut_after_long_intervals(None);
    assert_eq!(cut.share, 0.5);
    assert_eq!(cut.accepted, 500.0);
    let cut = cut_after_long_intervals(Some(FeedbackRule::IntervalInWindow));
    assert!(cut.share < 0.3, "{cut:?}");
}

fn cuts_before_leases_follow(without: Option<FeedbackRule>) -> usize {
    let mut fleet = Fleet::new(2, terms(without));
    fleet.repeat(3, &half_second(75, 175));
    assert_eq!(fleet.cuts(), 1);
    fleet.repeat(6, &half_second(75, 175));
    fleet.cuts()
}

#[test]
fn overloads_are_no_evidence_until_the_cut_has_arrived() {
    assert_eq!(cuts_before_leases_follow(None), 1);
    assert!(cuts_before_leases_follow(Some(FeedbackRule::CutArrived)) > 1);
}

#[test]
fn lease_that_never_falls_delays_evidence_by_ten_seconds() {
    let mut fleet = Fleet::new(2, terms(None));
    fleet.repeat(3, &half_second(75, 175));
    fleet.repeat(20, &half_second(75, 175));
    assert_eq!(fleet.cuts(), 1);
    fleet.repeat(6, &half_second(75, 175));
    assert_eq!(fleet.cuts(), 2);
}

fn refuse_a_tenth_at_any_load(without: Option<FeedbackRule>) -> Fleet {
    let mut fleet = Fleet::new(10, terms(without));
    fleet.run_with(45.0, |_, _| 0.1);
    fleet
}

#[test]
fn refusals_at_any_load_become_a_baseline() {
    let fleet = refuse_a_tenth_at_any_load(None);
    assert_eq!(fleet.trials(), 1);
    assert_eq!(fleet.effective(), 1000.0);
    assert_near(fleet.status().base.expect("a baseline"), 0.1);

    let fleet = refuse_a_tenth_at_any_load(Some(FeedbackRule::Trial));
    assert_eq!(fleet.trials(), 0);
    assert!(fleet.effective() < 300.0, "{}", fleet.effective());
}

#[test]
fn baseline_lasts_a_minute_beside_overloads() {
    let mut fleet = refuse_a_tenth_at_any_load(None);
    let trial = fleet.changes.iter().find(|(_, it)| *it == Change::Trial);
    let (tried_at, _) = *trial.expect("a trial");
    let cuts = fleet.cuts();
    fleet.run_with(tried_at + 59.0 - fleet.now, |_, _| 0.1);
    assert_eq!(fleet.cuts(), cuts);
    fleet.run_with(6.0, |_, _| 0.1);
    assert!(fleet.cuts() > cuts);
}

#[test]
fn baseline_ends_when_nothing_is_refused() {
    let mut fleet = refuse_a_tenth_at_any_load(None);
    fleet.run(5.0, 2000.0);
    assert_eq!(fleet.status().base, None);
}

#[test]
fn baseline_follows_fewer_refusals() {
    let mut fleet = refuse_a_tenth_at_any_load(None);
    fleet.run_with(10.0, |_, _| 0.05);
    let base = fleet.status().base.expect("a baseline");
    assert!(base < 0.08, "{base}");
}

#[test]
fn cut_beside_a_baseline_is_by_the_refusals_beyond_it() {
    let mut fleet = refuse_a_tenth_at_any_load(None);
    let refuses = |_, sent: f64| 1.0 - 0.9 * (500.0 / sent).min(1.0);
    // The second cut has no requests from before the drop.
    fleet.run_with(5.0, refuses);
    assert_near(fleet.effective(), 0.985 * 500.0);
}

#[test]
fn overloaded_trial_shows_that_the_load_is_ours() {
    let mut fleet = Fleet::new(10, terms(None));
    while fleet.trials() == 0 {
        fleet.run_with(STEP, |_, _| 0.2);
    }
    let base = fleet.status().base.expect("a baseline");
    assert!((0.18..0.25).contains(&base), "{base}");
    fleet.run(5.0, 300.0);
    assert_eq!(fleet.status().base, None);
    assert_near(fleet.effective(), 295.5);

    // There is no other trial for a minute.
    fleet.run_with(40.0, |_, _| 0.2);
    assert_eq!(fleet.trials(), 1);
}

#[test]
fn more_refusals_than_successes_are_our_load() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run_with(40.0, |_, _| 0.6);
    assert_eq!(fleet.trials(), 0);
    assert_eq!(fleet.effective(), 100.0);
}

#[test]
fn probes_of_a_steady_target_are_no_useless_cuts() {
    // So the cuts follow each other soon.
    let soon = ControlTerms {
        tolerate: 0.0,
        ..terms(Some(FeedbackRule::EarnBack))
    };
    let mut fleet = Fleet::new(10, soon);
    fleet.run(120.0, 300.0);
    assert!(fleet.cuts() > 12, "{:?}", fleet.changes);
    assert_eq!(fleet.trials(), 0);
}

fn refuse_one_of_four(without: Option<FeedbackRule>, passes: f64) -> Fleet {
    let mut fleet = Fleet::new(4, terms(without));
    fleet.run_with(20.0, |index, _| {
        if index == 3 {
            1.0 - passes / 250.0
        } else {
            0.0
        }
    });
    fleet
}

#[test]
fn holder_that_suffers_alone_is_no_evidence() {
    let fleet = refuse_one_of_four(None, 20.0);
    assert_eq!(fleet.changes, []);
    let fleet = refuse_one_of_four(Some(FeedbackRule::SuffersAlone), 20.0);
    assert!(fleet.cuts() > 0);
}

#[test]
fn demand_of_a_holder_that_suffers_alone_is_what_is_accepted() {
    let fleet = refuse_one_of_four(None, 20.0);
    assert_near(fleet.demand_cap(3).expect("a cap"), 22.0);
    assert_eq!(fleet.demand_cap(0), None);
    // It may want a little: it must notice when the target accepts it again.
    assert_near(
        refuse_one_of_four(None, 0.0).demand_cap(3).expect("a cap"),
        2.0,
    );
}

#[test]
fn holder_stops_to_suffer() {
    let mut fleet = refuse_one_of_four(None, 20.0);
    fleet.run(3.0, 2000.0);
    assert_eq!(fleet.demand_cap(3), None);

    // A holder that sends little stops ten seconds after its last overload.
    let mut fleet = refuse_one_of_four(None, 20.0);
    for (seconds, suffers) in [(9.0, true), (1.5, false)] {
        fleet.now += seconds;
        fleet.report_of(3, &half_second(1, 0));
        assert_eq!(fleet.demand_cap(3).is_some(), suffers);
    }
}

#[test]
fn verdict_waits_until_it_is_clear_who_suffers() {
    let first_cut = |refuses: fn(usize) -> f64| {
        let mut fleet = Fleet::new(4, terms(None));
        while fleet.cuts() == 0 {
            fleet.run_with(STEP, |index, _| refuses(index));
        }
        fleet.now
    };
    assert!(first_cut(|_| 0.2) < 2.0);
    assert!(first_cut(|index| if index == 3 { 1.0 } else { 0.2 }) >= 2.5);
}

#[test]
fn common_overload_is_not_suffered_alone() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(10.0, 2000.0);
    let suffering = |fleet: &Fleet| {
        let holders = fleet.holders.iter();
        holders
            .filter(|it| it.evidence.suffers(fleet.control.era))
            .count()
    };
    while fleet.cuts() == 0 {
        fleet.run(STEP, 300.0);
    }
    // It is forgotten with the cut.
    assert_eq!(suffering(&fleet), 0);
    // So are the refusals that were reported before the cut arrived.
    fleet.repeat(1, &half_second(15, 35));
    assert_eq!(suffering(&fleet), 10);
    assert!((0..10).all(|index| fleet.demand_cap(index).is_none()));
}

/// Seconds until half of four requests per second are a verdict.
fn seconds_to_cut_few_requests(without: Option<FeedbackRule>) -> f64 {
    let few = ControlTerms {
        configured: 4.0,
        ..terms(without)
    };
    let mut fleet = Fleet::new(2, few);
    while fleet.changes.is_empty() {
        fleet.repeat(1, &half_second(1, 0));
        fleet.repeat(1, &half_second(0, 1));
    }
    fleet.now
}

#[test]
fn verdict_takes_enough_requests() {
    assert!(seconds_to_cut_few_requests(None) > 5.0);
    assert!(seconds_to_cut_few_requests(Some(FeedbackRule::EnoughRequests)) < 5.0);
}

#[test]
fn refusals_count_against_leases_if_holders_report_rarely() {
    let mut fleet = Fleet::new(100, terms(None));
    let rare = OutcomeReport {
        elapsed: 5.0,
        used: 50.0,
        ok: 45,
        overloaded: 5,
        failed: 0,
        wants: 13.0,
        has: 10.0,
        ..OutcomeReport::default()
    };
    for index in 0..50 {
        fleet.now += 0.05;
        fleet.report_of(index, &rare);
        fleet.tick();
    }
    let (_, cut) = fleet.last_cut();
    assert_near(cut.requests, 1000.0 * 0.75);
    assert_near(cut.share, 0.1);
}

#[test]
fn requests_that_are_not_sent_are_not_counted() {
    let mut fleet = Fleet::new(100, terms(None));
    // Half of the leases is used.
    let rare = OutcomeReport {
        elapsed: 5.0,
        used: 25.0,
        ok: 20,
        overloaded: 5,
        wants: 13.0,
        has: 10.0,
        ..OutcomeReport::default()
    };
    for index in 0..50 {
        fleet.now += 0.05;
        fleet.report_of(index, &rare);
        fleet.tick();
    }
    assert_near(fleet.last_cut().1.requests, 500.0 * 0.75);
}

#[test]
fn cut_on_few_requests_at_most_halves() {
    let few = ControlTerms {
        configured: 30.0,
        ..terms(None)
    };
    let mut fleet = Fleet::new(4, few);
    while fleet.cuts() == 0 {
        fleet.run(STEP, 6.0);
    }
    assert_eq!(fleet.effective(), 15.0);
}

#[test]
fn refused_burst_beyond_the_leases_does_not_lower_them() {
    let mut fleet = Fleet::new(2, terms(None));
    let burst = OutcomeReport {
        has: 500.0,
        wants: 650.0,
        ..half_second(250, 250)
    };
    fleet.repeat(5, &burst);
    assert_eq!(fleet.last_cut().1.accepted, 1000.0);
    assert_eq!(fleet.effective(), 985.0);
}

#[test]
fn level_is_never_below_the_floor() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(60.0, 10.0);
    assert_eq!(fleet.effective(), 100.0);
}

#[test]
fn refusals_of_everything_halve_the_level() {
    let mut fleet = Fleet::new(10, terms(None));
    fleet.run(1.5, 50.0);
    assert_eq!(fleet.cuts(), 1);
    assert_eq!(fleet.effective(), 500.0);
}

/// 20 holders with 50 each, one of which a network refuses a part of what it sends.
fn refuse_one_of_twenty(part: f64) -> Fleet {
    let mut fleet = Fleet::new(20, terms(None));
    fleet.run_with(20.0, |index, _| if index == 3 { part } else { 0.0 });
    fleet
}

#[test]
fn holder_that_is_refused_much_more_than_all_suffers() {
    let fleet = refuse_one_of_twenty(0.24);
    assert_eq!(fleet.changes, []);
    assert_near(fleet.demand_cap(3).expect("a cap"), 0.76 * 50.0 * 1.1);
    // A small share is seldom enough for a cut.
    assert_eq!(refuse_one_of_twenty(0.08).demand_cap(3), None);
    // The same share of all is a common overload.
    let mut fleet = Fleet::new(20, terms(None));
    fleet.run_with(1.5, |_, _| 0.15);
    assert!(fleet.last_cut().1.share > 0.14);
}

#[test]
fn holder_states_no_more_than_its_lease_allows() {
    let stating = |report: &OutcomeReport| {
        let mut fleet = Fleet::new(20, terms(None));
        for _ in 0..40 {
            fleet.run(STEP, 300.0);
            fleet.report_of(3, report);
        }
        fleet.effective()
    };
    let honest = stating(&OutcomeReport::default());
    assert!((280.0..300.0).contains(&honest), "{honest}");
    let lease = OutcomeReport {
        has: 50.0,
        wants: 50.0,
        ..half_second(0, 0)
    };
    let much = OutcomeReport {
        ok: 1 << 50,
        used: 1e15,
        ..lease
    };
    let dear = OutcomeReport {
        used: 1e15,
        ..lease
    };
    for report in [much, dear] {
        let level = stating(&report);
        assert!((250.0..400.0).contains(&level), "{level}");
    }
}

#[test]
fn overloads_of_one_holder_say_little_of_all() {
    let mut fleet = Fleet::new(20, terms(None));
    let overloaded = 1 << 40;
    // A window opens, and an interval that began before it has many.
    fleet.report_of(7, &half_second(24, 1));
    fleet.report_of(
        3,
        &OutcomeReport {
            ok: 4 * overloaded,
            overloaded,
            pause: Some(60.0),
            ..half_second(0, 0)
        },
    );
    fleet.run(3.0, 2000.0);
    assert!(fleet.effective() > 850.0, "{}", fleet.effective());
}
