//! The situations.

mod alone;
mod crashes;
mod failover;
mod limits;
mod priorities;
mod repeated_bursts;
mod shares;
mod shifts;

use std::iter;

use super::{
    Error, Outcome, Programs,
    load::{Arrivals, Load},
    outcome::Result as Measured,
    plan::{Plan, Report},
};

/// A situation that can be measured.
#[derive(Debug)]
pub struct Situation {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in a few words.
    pub about: &'static str,
    /// The file and the name of the test that guards its promise in CI: the situation itself, in
    /// `it`, or its twin in virtual time, among the tests of the worker.
    pub test: (&'static str, &'static str),
    measure: fn(&Programs) -> Result<Vec<Outcome>, Error>,
}

impl Situation {
    /// Measures it.
    ///
    /// # Errors
    /// If a process fails.
    pub fn measure(&self, programs: &Programs) -> Result<Vec<Outcome>, Error> {
        (self.measure)(programs)
    }
}

/// All situations. Unless stated, a limit is 1000/s and all else as in the built-in document.
pub const SITUATIONS: &[Situation] = &[
    Situation {
        name: "one-request",
        about: "one request, then nothing",
        test: (
            "bursts.rs",
            "one_request_causes_at_most_one_lease_request_an_interval",
        ),
        measure: alone::one_request,
    },
    Situation {
        name: "page-of-six",
        about: "a page with 6 parallel requests every 15 s",
        test: (
            "bursts.rs",
            "parallel_requests_of_a_page_are_admitted_each_time",
        ),
        measure: alone::page_of_six,
    },
    Situation {
        name: "slow-requests",
        about: "one process with 0.5/s, 2/s and 20/s",
        test: ("bursts.rs", "quiet_poisson_load_is_admitted"),
        measure: alone::slow_requests,
    },
    Situation {
        name: "step-up",
        about: "one process with 1/s for 20 s, then 100/s",
        test: ("bursts.rs", "rise_of_a_trickle_is_admitted"),
        measure: alone::step_up,
    },
    Situation {
        name: "hey",
        about: "ten connections with 100/s each on a limit of 10,000,000/s",
        test: (
            "it/situations.rs",
            "fast_client_far_below_the_limit_is_admitted",
        ),
        measure: alone::hey,
    },
    Situation {
        name: "ten-at-once",
        about: "10 requests at once every 10 s, alone on 10/s",
        test: (
            "bursts.rs",
            "bucket_for_recent_bursts_is_kept_without_surplus",
        ),
        measure: alone::ten_at_once,
    },
    Situation {
        name: "idle-key",
        about: "an idle key, alone on 10/s, then 60 requests at once",
        test: ("it/situations.rs", "idle_key_admits_a_bucket_at_once"),
        measure: alone::idle_key,
    },
    Situation {
        name: "new-tenant",
        about: "a new tenant's first 60 requests at once on 10/s, safe capacity known",
        test: ("it/situations.rs", "new_tenant_is_admitted_a_bucket"),
        measure: alone::new_tenant,
    },
    Situation {
        name: "wait-loop",
        about: "one wait after the other, alone on 100/s",
        test: ("it/situations.rs", "waiting_requests_lease_the_whole_limit"),
        measure: alone::wait_loop,
    },
    Situation {
        name: "crash",
        about: "a process crashes, and is back after a second: alone at 50 %, one of three at 80 %",
        test: ("tuning/mod.rs", "crash_costs_its_successor_little"),
        measure: crashes::back_after_a_second,
    },
    Situation {
        name: "shift-to-one",
        about: "100/s on three instances, then all on one",
        test: (
            "shifts.rs",
            "load_that_moves_to_one_process_finds_the_whole_limit",
        ),
        measure: shifts::to_one,
    },
    Situation {
        name: "shift-825",
        about: "45 → 825/s moves to another instance, 900/s in all, refreshed every second",
        test: (
            "shifts.rs",
            "shifted_load_is_served_before_a_bucket_is_empty",
        ),
        measure: shifts::of_825,
    },
    Situation {
        name: "shift-800",
        about: "800/s moves to another instance, refreshed every 5 s",
        test: (
            "shifts.rs",
            "shifted_load_is_served_before_a_bucket_is_empty",
        ),
        measure: shifts::of_800,
    },
    Situation {
        name: "bursts-shift",
        about: "800/s in bursts of 50, as of `hey`, moves to another instance",
        test: (
            "shifts.rs",
            "repeated_bursts_that_move_are_served_within_two_of_them",
        ),
        measure: repeated_bursts::shift,
    },
    Situation {
        name: "bursts-overload",
        about: "2700 + 250 + 50/s, the last in bursts of 50",
        test: (
            "shifts.rs",
            "repeated_bursts_in_overload_take_little_from_others",
        ),
        measure: repeated_bursts::overload,
    },
    Situation {
        name: "bursts-beside-even",
        about: "a burst of 40 each second, beside 850/s",
        test: (
            "shifts.rs",
            "repeated_bursts_beside_an_even_load_are_admitted",
        ),
        measure: repeated_bursts::beside_even,
    },
    Situation {
        name: "small-bursts",
        about: "700 + 150 + 50/s, the last in bursts of 50",
        test: ("shifts.rs", "bursts_beside_large_loads_are_admitted"),
        measure: shares::small_bursts,
    },
    Situation {
        name: "readme",
        about: "the first seconds of the README's first command",
        test: (
            "it/situations.rs",
            "first_seconds_of_the_readme_stay_within_the_limit",
        ),
        measure: shares::readme,
    },
    Situation {
        name: "start-together",
        about: "12 services start together on 100/s",
        test: (
            "shifts.rs",
            "services_that_start_together_admit_the_limit_and_a_bucket",
        ),
        measure: shares::start_together,
    },
    Situation {
        name: "overload",
        about: "3000/s on three instances, split 90/9/1",
        test: ("shifts.rs", "overload_leaves_nothing_unused"),
        measure: |programs| shares::overload(programs, DEFAULTS),
    },
    Situation {
        name: "overload-1s",
        about: "the same, refreshed every second",
        test: ("shifts.rs", "overload_leaves_nothing_unused"),
        measure: |programs| shares::overload(programs, (1.0, 20.0)),
    },
    Situation {
        name: "priorities",
        about: "700/s of a high priority join a low one, PRIORITY_SHARE",
        test: (
            "priorities.rs",
            "high_priority_takes_over_soon_after_it_begins",
        ),
        measure: priorities::high_joins_low,
    },
    Situation {
        name: "changed-limit",
        about: "a limit is changed with curl",
        test: (
            "it/hints.rs",
            "changed_limit_is_seen_by_every_service_within_200_ms",
        ),
        measure: limits::changed,
    },
    Situation {
        name: "suppression",
        about: "SUPPRESSION, 900/s on 100/s",
        test: (
            "small_limits.rs",
            "suppression_limits_a_flood_within_two_seconds",
        ),
        measure: limits::suppression,
    },
    Situation {
        name: "sigkill",
        about: "newcomers and shifted load after a SIGKILL of the control plane",
        test: ("it/outage.rs", "capacity_moves_before_learning_mode_ends"),
        measure: limits::sigkill,
    },
    Situation {
        name: "master-killed",
        about: "SIGKILL of the master of three servers, leases of 25 s",
        test: (
            "it/failover.rs",
            "layer_keeps_its_lease_over_fail_overs_behind_one_address",
        ),
        measure: failover::killed,
    },
    Situation {
        name: "learning-master-killed",
        about: "the same while each master still learns, leases of 60 s",
        test: (
            "it/failover.rs",
            "third_master_learns_as_long_as_leases_of_the_first_last",
        ),
        measure: failover::killed_while_learning,
    },
    Situation {
        name: "master-stopped",
        about: "SIGTERM of the master of three servers",
        test: ("it/failover.rs", "stopped_master_hands_its_ledger_over"),
        measure: failover::stopped,
    },
    Situation {
        name: "etcd-paused",
        about: "etcd does not answer for a minute",
        test: (
            "it/failover.rs",
            "master_without_etcd_grants_nothing_after_its_deadline",
        ),
        measure: failover::etcd_paused,
    },
    Situation {
        name: "twenty-fair-share",
        about: "20 instances with 9/s each of 200/s, FAIR_SHARE",
        test: ("shifts.rs", "algorithms_differ_for_small_shares"),
        measure: |programs| shares::twenty(programs, "FAIR_SHARE"),
    },
    Situation {
        name: "twenty-shared-bucket",
        about: "the same with SHARED_BUCKET",
        test: ("shifts.rs", "algorithms_differ_for_small_shares"),
        measure: |programs| shares::twenty(programs, "SHARED_BUCKET"),
    },
    Situation {
        name: "twenty-suppression",
        about: "the same with SUPPRESSION",
        test: ("shifts.rs", "algorithms_differ_for_small_shares"),
        measure: |programs| shares::twenty(programs, "SUPPRESSION"),
    },
];

/// Refresh interval and lease length of the built-in document, in seconds.
const DEFAULTS: (f64, f64) = (5.0, 60.0);

/// A document whose resources all have this limit per second.
fn document(capacity: f64, intervals: (f64, f64)) -> String {
    document_with(capacity, "FAIR_SHARE", intervals)
}

fn document_with(
    capacity: f64,
    kind: &str,
    (refresh_interval, lease_length): (f64, f64),
) -> String {
    format!(
        "resources:
  - identifier_glob: '*'
    capacity: {capacity}
    algorithm: {{kind: {kind}, lease_length: {lease_length}, refresh_interval: {refresh_interval}}}
"
    )
}

/// Services that share a limit, which no other case uses.
#[derive(Debug)]
struct Case {
    name: String,
    plans: Vec<Plan>,
}

impl Case {
    fn new(name: impl Into<String>, plans: impl IntoIterator<Item = Plan>) -> Self {
        Self {
            name: name.into(),
            plans: plans.into_iter().collect(),
        }
    }
}

/// Runs all cases at the same time, beside one control plane, and evaluates each.
fn measure(
    programs: &Programs,
    document: &str,
    refresh_interval: f64,
    cases: &[Case],
    evaluate: impl Fn(&Case, &[Report]) -> Measured,
) -> Result<Vec<Outcome>, Error> {
    let plans: Vec<_> = cases.iter().flat_map(|case| case.plans.clone()).collect();
    let reports = programs.run(document, &plans)?;
    Ok(outcomes(cases, reports, refresh_interval, evaluate))
}

/// Evaluates the reports of all cases, which are in the order of their plans.
fn outcomes(
    cases: &[Case],
    reports: Vec<Report>,
    refresh_interval: f64,
    evaluate: impl Fn(&Case, &[Report]) -> Measured,
) -> Vec<Outcome> {
    let mut reports = reports.into_iter();
    let outcomes = cases.iter().map(|case| {
        let reports: Vec<_> = reports.by_ref().take(case.plans.len()).collect();
        let plans = case.plans.iter();
        let seconds = plans.map(|plan| plan.ends - plan.joins).fold(0.0, f64::max);
        let result = evaluate(case, &reports);
        Outcome::new(&case.name, &reports, seconds, refresh_interval, result)
    });
    outcomes.collect()
}

/// Both distributions of arrivals, with their names.
const PACES: [&str; 2] = ["even", "Poisson"];

/// Arrivals of a pace; every seed gives other arrivals.
fn arrivals(pace: &str, seed: u64) -> Arrivals {
    if pace == "even" {
        Arrivals::Even
    } else {
        Arrivals::Poisson { seed }
    }
}

/// A load of these rates in successive intervals, of which the first begins at 0.
fn steps(pace: &str, seed: u64, rates: &[(f64, f64)]) -> impl Iterator<Item = Load> {
    let starts = iter::once(0.0).chain(rates.iter().map(|(until, _)| *until));
    let steps = starts.zip(rates.to_vec()).zip(seed..);
    let arrivals = move |seed| arrivals(pace, seed);
    let loads: Vec<_> = steps
        .filter(|((_, (_, per_second)), _)| *per_second > 0.0)
        .map(|((from, (until, per_second)), seed)| Load::Rate {
            from,
            until,
            per_second,
            arrivals: arrivals(seed),
        })
        .collect();
    loads.into_iter()
}

/// A service with the load of [`steps`]; its end is that of the last step.
fn stepping(key: &str, pace: &str, seed: u64, rates: &[(f64, f64)]) -> Plan {
    let ends = rates.last().map(|(until, _)| *until).unwrap_or_default();
    steps(pace, seed, rates).fold(Plan::new(key, ends), Plan::load)
}

/// Numbers in a list such as `39, 34, 80`.
fn list(numbers: impl IntoIterator<Item = usize>) -> String {
    let numbers: Vec<_> = numbers.into_iter().map(|it| it.to_string()).collect();
    numbers.join(", ")
}
