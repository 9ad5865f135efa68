//! Schedules of faults, each of which breaks the capacity without one safety rule, and the same for
//! scenarios whose faults are aimed at the ends of leases.

use doorman_sim::{Extras, Invariant, Plan, Rule, Scenario, Violation, check_scenario};
use doorman_tests::sim::{Replay, aimed_scenario, describe};

/// Runs of each schedule with all rules.
const SEEDS: u64 = 25;
/// The aimed scenarios, and the runs of each.
const AIMED: u64 = 60;
const AIMED_RUNS: u64 = 2;

const PLAN: Plan = Plan {
    seconds: 0.0,
    without: None,
    extras: Extras::NONE,
    trace: false,
};

fn path(name: &str) -> std::path::PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/sim/schedules");
    format!("{folder}/{name}.yaml").into()
}

fn read(name: &str) -> Scenario {
    let text = std::fs::read_to_string(path(name)).unwrap();
    Scenario::parse(&text, None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn fail(violation: &Violation, name: &str) -> ! {
    panic!("{}", describe(violation, Replay::Schedule(&path(name))))
}

#[track_caller]
fn assert_holds(name: &str) {
    let scenario = read(name);
    for seed in 0..SEEDS {
        if let Err(violation) = check_scenario(&scenario, seed, &PLAN) {
            fail(&violation, name);
        }
    }
}

/// `seed` is one that fails. After a change of the simulation, `invariants --schedule FILE --seeds
/// 1000 --without RULE` finds others.
#[track_caller]
fn assert_needs(name: &str, rule: Rule, seed: u64) {
    let scenario = read(name);
    let plan = Plan {
        without: Some(rule),
        ..PLAN
    };
    let violation = check_scenario(&scenario, seed, &plan).expect_err("it breaks without the rule");
    assert_eq!(violation.invariant, Invariant::Capacity, "{violation}");
    if let Err(violation) = check_scenario(&scenario, seed, &PLAN) {
        fail(&violation, name);
    }
}

macro_rules! schedules {
    ($($test:ident: $name:literal $(needs $rule:ident at $seed:literal)*,)*) => {
        $(
            #[test]
            fn $test() {
                assert_holds($name);
                $(assert_needs($name, Rule::$rule, $seed);)*
            }
        )*
    };
}

schedules! {
    node_claims_nothing_for_its_holders: "claims-for-holders",
    learning_server_leases_no_outstanding: "outstanding-leased"
        needs OutstandingWhileLearning at 3,
    learning_server_leases_nothing_unheard: "unheard-outstanding"
        needs OutstandingWhileLearning at 26 needs OwnLeasesOnly at 5,
    late_answer_to_claim_of_older_lease_is_ignored: "late-older-lease"
        needs LateClaim at 262,
    older_lease_covers_unheard_holders: "shrink-shrink-grow"
        needs StatedOutstanding at 0 needs OwnLeasesOnly at 0,
}

#[test]
fn capacity_holds_in_aimed_scenarios() {
    for number in 0..AIMED {
        let scenario = aimed_scenario(number);
        for run in 0..AIMED_RUNS {
            let result = check_scenario(&scenario, run, &PLAN);
            result.unwrap_or_else(|it| panic!("{}", describe(&it, Replay::Aimed(number))));
        }
    }
}

#[test]
fn number_decides_aimed_scenario() {
    let yaml = doorman_tests::sim::aimed_yaml;
    assert_eq!(yaml(7), yaml(7));
    assert_ne!(yaml(7), yaml(8));
}
