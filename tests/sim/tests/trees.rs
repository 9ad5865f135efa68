//! How fast capacity moves between leaves of different regions, and how soon a tree settles.
//!
//! `cargo test -p doorman-tests --test sim trees -- --nocapture` shows the figures.

#![expect(clippy::indexing_slicing, reason = "a panic fails the test")]

use doorman_sim::{Fleet, FleetPlan, PollMode};

/// Two regions with two leaves each.
const PLAN: FleetPlan = FleetPlan {
    capacity: 1000.0,
    is_proportional: false,
    servers: 1,
    nodes: &[2, 2],
    refresh_interval: 8.0,
    joining: 0.0,
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

/// Round trips a level for a reallocation.
const ROUND_TRIPS: f64 = 5.0;

/// A client reports a grown demand 20 ms after a regular request at the earliest, and at common
/// moments 10 ms apart.
const CLIENT_PAUSE: f64 = 0.02 + 0.01;

/// Seconds between two early reports of a node to its parent.
const NODE_PAUSE: f64 = 0.02;

/// Moves the large demand from the first client to one of the other region. Returns the seconds
/// from the change of the demand to the request of the client that wants more, and until that
/// client has its share: infinity if it does not ask, or does not get it.
fn shift(seed: u64, plan: &FleetPlan) -> (f64, f64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut fleet = Fleet::new(seed, plan, &[LARGE, MEDIUM, SMALL, SMALL]);
    fleet.run((3.0 + rng.f64()) * plan.refresh_interval);
    let (from, to) = (0, 2 + rng.usize(..2));
    let requests = fleet.requests_of(to);
    fleet.set_demand(from, SMALL);
    fleet.set_demand(to, LARGE);
    let asked = fleet.seconds_until(|fleet| fleet.requests_of(to) > requests);
    let share = fleet.shares()[to];
    let served = fleet.seconds_until(|fleet| fleet.usable(to) >= 0.999 * share);
    (asked, asked + served)
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
            // On a fast network the pauses between early reports count, too.
            let pauses = if round_trip < NODE_PAUSE / 2.0 {
                CLIENT_PAUSE + NODE_PAUSE
            } else {
                0.0
            };
            let longest = ROUND_TRIPS * LEVELS * round_trip + pauses;
            let mut all = Vec::new();
            for seed in 1..=100 {
                let (asked, served) = shift(seed, &plan);
                assert!(asked <= CLIENT_PAUSE, "seed {seed}: {asked}");
                assert!(served <= longest, "seed {seed}: {served} > {longest}");
                all.push(served);
            }
            all.sort_unstable_by(f64::total_cmp);
            let milliseconds = |seconds: f64| 1e3 * seconds;
            println!(
                "proportional: {is_proportional}, round trip {} ms: {} ms after the change of the \
                 demand at the median, {} ms at most",
                milliseconds(round_trip),
                milliseconds(all[all.len() / 2]),
                milliseconds(all[all.len() - 1]),
            );
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
            let mut demands = || [(); 12].map(|()| 40.0 + 200.0 * rng.f64() * rng.f64());
            let mut fleet = Fleet::new(seed, &plan, &demands());
            fleet.run(5.0 * plan.refresh_interval * (1.0 + 0.2 * f64::from(seed as u8 % 5)));
            for (client, wants) in demands().into_iter().enumerate() {
                fleet.set_demand(client, wants);
            }
            let shares = fleet.shares();
            fleet.seconds_until(|fleet| {
                let mut shares = shares.iter().enumerate();
                shares.all(|(client, share)| (fleet.usable(client) - share).abs() <= 1e-6 * share)
            })
        });
        let most = seconds.fold(0.0, f64::max) / plan.refresh_interval;
        println!(
            "proportional: {is_proportional}: exact after {most} refreshes of the root at most"
        );
        assert!(most <= 5.0, "{most}");
    }
}

/// The largest part by which a client may differ from its share of one server for all.
const TOLERANCE: f64 = 0.01;

/// Of twelve clients whose demands differ by up to 1 : 60, and all change at once.
#[test]
fn hints_settle_shares_of_one_server() {
    for nodes in [&[4][..], &[2, 2]] {
        for is_proportional in [false, true] {
            let plan = FleetPlan {
                is_proportional,
                nodes,
                ..PLAN
            };
            // How far the worst client is off after so many seconds.
            let mut worst = [
                (1.0, 0.0),
                (5.0, 0.0),
                (10.0, 0.0),
                (20.0, 0.0),
                (40.0, 0.0),
            ];
            for seed in 1..=30 {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut demands = || [(); 12].map(|()| 10.0 + 590.0 * rng.f64().powi(3));
                let mut fleet = Fleet::new(seed, &plan, &demands());
                fleet.run(3.0 * plan.refresh_interval);
                let mut wants = demands();
                // The sum is above the capacity in each run.
                (wants[0], wants[1]) = (600.0, 450.0);
                for (client, wants) in wants.into_iter().enumerate() {
                    fleet.set_demand(client, wants);
                }
                let shares = fleet.shares();
                let mut passed = 0.0;
                for (seconds, worst) in &mut worst {
                    fleet.run(*seconds - passed);
                    passed = *seconds;
                    for (client, share) in shares.iter().enumerate() {
                        let off = (fleet.usable(client) / share - 1.0).abs();
                        *worst = f64::max(*worst, off);
                    }
                }
            }
            for (seconds, worst) in worst {
                println!(
                    "nodes {nodes:?}, proportional: {is_proportional}: the worst client is off by \
                     {:.3} % after {seconds} s",
                    100.0 * worst
                );
            }
            assert!(worst[1].1 <= TOLERANCE, "{worst:?}");
        }
    }
}
