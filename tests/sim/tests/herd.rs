//! No second after a change of the master brings twice the refreshes of a calm one.
//!
//! `cargo test -p doorman-tests --test sim herd -- --nocapture` shows the figures.

#![expect(clippy::print_stdout, reason = "the figures are for readers")]

use doorman_sim::{Fleet, FleetPlan, PollMode};

const CLIENTS: usize = 10_000;

/// Clients that begin at once are in step for long.
const PLAN: FleetPlan = FleetPlan {
    capacity: CLIENTS as f64,
    is_proportional: false,
    servers: 3,
    nodes: &[],
    refresh_interval: 5.0,
    joining: 20.0,
    polls: PollMode::Off,
    round_trip: 0.0,
    loss: 0.0,
};

/// Seconds until all is calm.
const CALM: f64 = 40.0;

/// Refreshes per second of a calm herd: 10,000 clients, every 5 s.
const STEADY: f64 = 2_000.0;

/// Seconds between two looks at the herd.
const STEP: f64 = 0.05;

/// How a master ends.
#[derive(Debug, Clone, Copy)]
enum Departure {
    /// It is lost, and the next one is elected so much later: it learns.
    Lost(f64),
    /// It hands its ledger over.
    HandedOver,
}

/// Changes the master of a herd, which wants so many parts of the capacity. Watches the next one
/// for some seconds.
#[track_caller]
fn check(plan: &FleetPlan, demand: f64, departure: Departure, watched: f64) {
    let mut fleet = Fleet::new(1, plan, &[demand; CLIENTS]);
    fleet.run(CALM - plan.refresh_interval);
    let before = fleet.responses();
    fleet.run(plan.refresh_interval);
    let steady = (fleet.responses() - before) as f64 / plan.refresh_interval;
    let lapses = fleet.lapses();
    let outage = match departure {
        Departure::Lost(seconds) => {
            fleet.lose_master(seconds);
            seconds
        }
        Departure::HandedOver => {
            fleet.stop_master();
            0.0
        }
    };
    let mut responses = vec![fleet.responses()];
    for _ in 0..((outage + watched) / STEP) as usize {
        fleet.run(STEP);
        responses.push(fleet.responses());
    }
    // Any second lies within such a window.
    let window = (1.0 / STEP) as usize + 1;
    let seconds = responses.iter().zip(responses.iter().skip(window));
    let most = seconds.map(|(before, after)| after - before).max();
    let most = most.expect("the watch lasts longer than a second");
    println!(
        "demand {demand}, polls {:?}, {departure:?}: {steady} refreshes a second, at most {most} \
         after the change",
        plan.polls
    );
    assert!((0.95 * STEADY..1.1 * STEADY).contains(&steady), "{steady}");
    assert!((most as f64) < 2.0 * STEADY, "{most}");
    assert_eq!(fleet.lapses() - lapses, 0);
    assert_eq!(fleet.clients_of_master(), CLIENTS);
}

/// With hints it is watched for longer than the next master learns.
#[track_caller]
fn check_lost(demand: f64) {
    check(&PLAN, demand, Departure::Lost(6.0), 25.0);
    let polls = PollMode::On;
    let plan = FleetPlan { polls, ..PLAN };
    check(&plan, demand, Departure::Lost(6.0), 70.0);
}

#[test]
fn herd_comes_slowly_after_its_master_was_lost() {
    check_lost(0.6);
}

#[test]
fn herd_in_overload_comes_slowly_after_its_master_was_lost() {
    check_lost(2.0);
}

#[test]
fn herd_comes_slowly_after_a_hand_over() {
    for demand in [0.6, 2.0] {
        for polls in [PollMode::Off, PollMode::On] {
            let plan = FleetPlan { polls, ..PLAN };
            check(&plan, demand, Departure::HandedOver, 25.0);
        }
    }
}
