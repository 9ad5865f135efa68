//! How fast capacity moves between leaves of different regions, and how soon a tree settles.
//!
//! `cargo test -p doorman-tests --test sim trees -- --nocapture` shows the figures.

#![expect(clippy::indexing_slicing, reason = "a panic fails the test")]

use doorman_server::simulation::{Fleet, FleetPlan, PollMode};

/// Two regions with two leaves each.
const PLAN: FleetPlan = FleetPlan {
    capacity: 1000.0,
    is_proportional: false,
    nodes: &[2, 2],
    refresh_interval: 8.0,
    polls: PollMode::On,
    round_trip: 0.001,
    loss: 0.0,
};

/// The root, the regions and the leaves.
const LEVELS: f64 = 3.0;

/// The demand that moves from the client of the first leaf to one of the other region. With the
/// others it is above the capacity, and the algorithms divide that differently.
const LARGE: f64 = 800.0;
const MEDIUM: f64 = 400.0;
const SMALL: f64 = 100.0;

/// Seconds from the request of the client that wants more until it has its share, in the order of
/// their length.
fn shifts(plan: &FleetPlan) -> Vec<f64> {
    let shifts = (1..=100).map(|seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut fleet = Fleet::new(seed, plan);
        let clients = [LARGE, MEDIUM, SMALL, SMALL].map(|wants| fleet.join(wants));
        fleet.run((3.0 + rng.f64()) * plan.refresh_interval);
        let (from, to) = (clients[0], clients[2 + rng.usize(..2)]);
        let requests = fleet.requests_of(to);
        fleet.set_demand(from, SMALL);
        fleet.set_demand(to, LARGE);
        fleet.seconds_until(|fleet| fleet.requests_of(to) > requests);
        let share = fleet.shares()[to];
        fleet.seconds_until(|fleet| fleet.usable(to) >= 0.999 * share)
    });
    let mut shifts: Vec<f64> = shifts.collect();
    shifts.sort_unstable_by(f64::total_cmp);
    shifts
}

#[test]
fn demand_moves_between_regions_in_few_round_trips() {
    for is_proportional in [false, true] {
        for round_trip in [0.001, 0.01] {
            let plan = FleetPlan {
                is_proportional,
                round_trip,
                ..PLAN
            };
            let shifts = shifts(&plan);
            let a_level =
                |percent: usize| shifts[shifts.len() * percent / 100] / round_trip / LEVELS;
            let most = shifts[shifts.len() - 1];
            println!(
                "proportional: {is_proportional}, round trip {round_trip} s: {} round trips a level \
                 at the median, {} at 90 %; {most} s at most",
                a_level(50),
                a_level(90)
            );
            assert!(a_level(90) <= 5.0, "{shifts:?}");
            // A demand that was reported less than 100 ms ago is not doubted at once.
            assert!(most <= 0.5, "{shifts:?}");
        }
    }
}

/// Without hints, and with a demand above the capacity, changed at once at all clients.
#[test]
fn constant_demand_is_exact_within_five_refreshes_of_the_root() {
    for is_proportional in [false, true] {
        let plan = FleetPlan {
            is_proportional,
            polls: PollMode::Off,
            ..PLAN
        };
        let seconds = (1..=50).map(|seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut fleet = Fleet::new(seed, &plan);
            let mut demand = || 40.0 + 200.0 * rng.f64() * rng.f64();
            let clients: Vec<usize> = (0..12).map(|_| fleet.join(demand())).collect();
            fleet.run(5.0 * plan.refresh_interval * (1.0 + 0.2 * f64::from(seed as u8 % 5)));
            for client in &clients {
                fleet.set_demand(*client, demand());
            }
            let shares = fleet.shares();
            fleet.seconds_until(|fleet| {
                let is_exact = |client: &usize| {
                    let share = shares[*client];
                    (fleet.usable(*client) - share).abs() <= 1e-6 * share
                };
                clients.iter().all(is_exact)
            })
        });
        let most = seconds.fold(0.0, f64::max) / plan.refresh_interval;
        println!(
            "proportional: {is_proportional}: exact after {most} refreshes of the root at most"
        );
        assert!(most <= 5.0, "{most}");
    }
}
