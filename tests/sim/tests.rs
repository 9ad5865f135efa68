//! What the simulation shows: the limit holds whatever goes wrong, and each rule is needed for that.

use std::{
    num::NonZero,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use doorman_tests::sim::{Broken, Plan, Rule, Tally, play};

/// Ten minutes of everything going wrong.
const PLAN: Plan = Plan {
    seconds: 600.0,
    without: None,
    traced: false,
};
const SEEDS: u64 = 1_000;
/// Without a rule one of so many seeds must fail.
const SEEDS_TO_MISS_A_RULE: u64 = 200;

#[test]
fn the_limit_holds_whatever_goes_wrong() {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Tally::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let tally = play(seed, &PLAN).unwrap_or_else(|violation| panic!("{violation}"));
                    *total.lock().unwrap() += tally;
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    // Nothing is shown by worlds in which nothing happens.
    assert!(total.answers > 100 * SEEDS, "{total}");
    assert!(total.mishaps > 50 * SEEDS, "{total}");
    assert!(total.reigns > 5 * SEEDS, "{total}");
    assert!(total.cuts > SEEDS / 5, "{total}");
}

#[test]
fn a_seed_always_runs_the_same() {
    let run = || play(7, &PLAN).map_err(|violation| violation.to_string());
    assert_eq!(run(), run());
}

#[test]
fn a_violation_says_how_to_see_it_again() {
    let plan = Plan {
        without: Some(Rule::Granting),
        traced: true,
        ..PLAN
    };
    let violation = (0..).find_map(|seed| play(seed, &plan).err()).unwrap();
    let seed = violation.seed;
    let command = format!("--bin simulate -- --seed {seed} --minutes 10 --without granting");
    assert!(violation.to_string().ends_with(&command), "{violation}");
    assert!(!violation.trace.is_empty());
}

/// Without the rule something breaks within a few seeds.
#[track_caller]
fn misses(rule: Rule, broken: Broken) {
    let plan = Plan {
        without: Some(rule),
        ..PLAN
    };
    let missed = (0..SEEDS_TO_MISS_A_RULE)
        .filter_map(|seed| play(seed, &plan).err())
        .any(|violation| violation.broken == broken);
    assert!(
        missed,
        "nobody misses {rule} in {SEEDS_TO_MISS_A_RULE} seeds"
    );
}

macro_rules! needs {
    ($($name:ident: $rule:ident => $broken:ident,)*) => {
        $(
            #[test]
            fn $name() {
                misses(Rule::$rule, Broken::$broken);
            }
        )*
    };
}

needs! {
    the_limit_needs_leases_counted_from_the_sending: CountingFromSending => Limit,
    the_limit_needs_old_and_new_booked_together: Booking => Limit,
    the_limit_needs_grants_within_held_and_free: Granting => Limit,
    the_limit_needs_the_numbers_of_requests: SeqOfRequests => Limit,
    the_limit_needs_the_numbers_of_releases: SeqOfReleases => Limit,
    the_limit_needs_leases_stated_again_at_what_is_left: Restating => Limit,
    the_limit_needs_epochs: Epoch => Limit,
    the_limit_needs_masters_that_fence_themselves: SelfFencing => Limit,
    the_limit_needs_the_margin_for_clocks: Drift => Limit,
    the_limit_needs_learning: Learning => Limit,
    the_limit_needs_learning_as_long_as_anything_may_last: LearningBound => Limit,
    keeping_a_part_after_a_cut_needs_its_rule: Cuts => Part,
}
