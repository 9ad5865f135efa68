//! No second after a change of the master brings twice the refreshes of a calm one.
//!
//! `cargo test -p doorman-tests --test sim herd -- --nocapture` shows the figures.

#![expect(clippy::print_stdout, reason = "the figures are for readers")]

use doorman_tests::sim::{Departure, HerdPlan, change_master};

const PLAN: HerdPlan = HerdPlan {
    clients: 10_000,
    demand: 0.6,
    polls: false,
    departure: Departure::Lost,
    outage: 6.0,
    watched: 25.0,
};

/// Longer than the next master learns.
const LEARNING: f64 = 70.0;

/// Refreshes per second of a calm herd: 10,000 clients, every 5 s.
const STEADY: f64 = 2_000.0;

#[track_caller]
fn check(plan: HerdPlan) {
    let report = change_master(1, plan);
    println!("{plan:?}: {report:?}");
    assert!((0.95 * STEADY..1.1 * STEADY).contains(&report.steady));
    assert!((report.most.0 as f64) < 2.0 * STEADY, "{report:?}");
    assert_eq!((report.lapsed, report.arrived), (0, plan.clients));
}

#[test]
fn herd_comes_slowly_after_its_master_was_lost() {
    check(PLAN);
    check(HerdPlan {
        polls: true,
        watched: LEARNING,
        ..PLAN
    });
}

#[test]
fn herd_in_overload_comes_slowly_after_its_master_was_lost() {
    let overload = HerdPlan {
        demand: 2.0,
        ..PLAN
    };
    check(overload);
    check(HerdPlan {
        polls: true,
        watched: LEARNING,
        ..overload
    });
}

#[test]
fn herd_comes_slowly_after_a_hand_over() {
    for demand in [0.6, 2.0] {
        for polls in [false, true] {
            check(HerdPlan {
                demand,
                polls,
                departure: Departure::HandedOver,
                outage: 0.5,
                ..PLAN
            });
        }
    }
}
