//! How fast capacity moves between clients, and how many requests hints cause.
//!
//! A measurement prints its figures; `cargo test -p doorman-tests --test sim fleets -- --nocapture`
//! shows them.

#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic fails the test, and the figures are for readers"
)]

use doorman_sim::{Fleet, FleetPlan, PollMode};

/// The longest time between two hints of a client, in seconds.
const SPACING: f64 = 0.25;

/// The most hints of a resource in a window of so many seconds.
const WINDOW_HINTS: u64 = 64;
const WINDOW: f64 = 0.1;

/// A lost packet arrives so many seconds later.
const RETRANSMISSION: f64 = 0.2;

/// The early requests of a client leave at common moments so many seconds apart.
const GRID: f64 = 0.01;

const PLAN: FleetPlan = FleetPlan {
    capacity: 1000.0,
    is_proportional: false,
    servers: 1,
    nodes: &[],
    refresh_interval: 5.0,
    joining: 0.0,
    polls: PollMode::On,
    round_trip: 0.001,
    loss: 0.0,
};

/// The demand that moves from one client to another.
const LARGE: f64 = 800.0;
const SMALL: f64 = 10.0;

/// Clients with a small demand, beside one with a large one that moves.
struct Shifts {
    fleet: Fleet,
    rng: fastrand::Rng,
    clients: usize,
    /// The client with the large demand.
    large: usize,
}

/// How a shift went, in seconds.
struct Shift {
    /// From the change of the demand to the request of the client that wants more.
    asked: f64,
    /// From that request until it may use what it wants.
    served: f64,
    lost_packets: u64,
}

impl Shifts {
    fn new(plan: &FleetPlan, clients: usize) -> Self {
        let mut wants = vec![SMALL; clients];
        wants[0] = LARGE;
        let mut fleet = Fleet::new(2, plan, &wants);
        fleet.run(3.0 * plan.refresh_interval);
        Self {
            fleet,
            rng: fastrand::Rng::with_seed(2),
            clients,
            large: 0,
        }
    }

    /// Moves the large demand, after at most so many seconds.
    fn shift(&mut self, longest_pause: f64) -> Shift {
        let Self { fleet, rng, .. } = self;
        fleet.run(longest_pause * rng.f64());
        let next = (self.large + rng.usize(1..self.clients)) % self.clients;
        let (before, lost) = (fleet.requests_of(next), fleet.lost_packets());
        fleet.set_demand(self.large, SMALL);
        fleet.set_demand(next, LARGE);
        self.large = next;
        let asked = fleet.seconds_until(|fleet| fleet.requests_of(next) > before);
        let served = fleet.seconds_until(|fleet| fleet.usable(next) >= LARGE);
        Shift {
            asked,
            served,
            lost_packets: fleet.lost_packets() - lost,
        }
    }

    fn measure(&mut self, times: usize, longest_pause: f64) -> Vec<Shift> {
        (0..times).map(|_| self.shift(longest_pause)).collect()
    }
}

/// The median and the largest value.
fn summarize(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

fn print_shifts(name: &str, shifts: &[Shift]) -> (f64, f64) {
    let served = summarize(shifts.iter().map(|shift| shift.served));
    let in_all = summarize(shifts.iter().map(|shift| shift.asked + shift.served));
    println!(
        "{name}, {} shifts: served {} ms after the request at the median, {} ms at most; \
         after the change of the demand {} and {} ms",
        shifts.len(),
        milliseconds(served.0),
        milliseconds(served.1),
        milliseconds(in_all.0),
        milliseconds(in_all.1),
    );
    served
}

#[test]
fn shifted_demand_is_served_within_a_few_round_trips() {
    for clients in [2, 10] {
        let shifts = Shifts::new(&PLAN, clients).measure(200, 8.0);
        let (median, most) = print_shifts(&format!("{clients} clients"), &shifts);
        assert!(median <= 5.0 * PLAN.round_trip, "{median}");
        assert!(most <= SPACING + 5.0 * PLAN.round_trip, "{most}");
    }
}

#[test]
fn shifts_in_quick_succession_are_served_after_the_spacing() {
    let shifts = Shifts::new(&PLAN, 10).measure(400, 0.5);
    let (_, most) = print_shifts("shifts up to 0.5 s apart", &shifts);
    assert!(most <= SPACING + 5.0 * PLAN.round_trip, "{most}");
}

#[test]
fn lost_packets_delay_shifted_demand_by_their_retransmission() {
    let plan = FleetPlan { loss: 0.03, ..PLAN };
    let shifts = Shifts::new(&plan, 10).measure(400, 8.0);
    let (median, most) = print_shifts("3 % loss", &shifts);
    let lost: u64 = shifts.iter().map(|shift| shift.lost_packets).sum();
    println!("with {lost} lost packets, {RETRANSMISSION} s each");
    assert!(median <= 5.0 * PLAN.round_trip, "{median}");
    assert!(lost > 0 && most > RETRANSMISSION, "{lost}, {most}");
    for shift in shifts {
        let late = RETRANSMISSION * shift.lost_packets as f64;
        let longest = SPACING + 5.0 * PLAN.round_trip + late;
        assert!(shift.served <= longest, "{} > {longest}", shift.served);
    }
}

#[test]
fn without_hints_shifted_demand_is_served_within_three_refreshes() {
    let longest = 3.0 * PLAN.refresh_interval;
    for polls in [PollMode::Off, PollMode::Lost] {
        let plan = FleetPlan { polls, ..PLAN };
        let shifts = Shifts::new(&plan, 10).measure(50, 30.0);
        let (_, most) = print_shifts(&format!("hints {polls:?}"), &shifts);
        assert!(most > 1.0 && most <= longest, "{most}");
    }
}

#[test]
fn demand_that_fell_unreported_is_found_by_hints() {
    let plan = FleetPlan {
        capacity: 100.0,
        ..PLAN
    };
    let delays = (1..=50).map(|seed| {
        let mut fleet = Fleet::new(seed, &plan, &[100.0; 3]);
        // Between two refreshes.
        fleet.run(3.4 * plan.refresh_interval);
        let growing = 0;
        for client in 1..3 {
            fleet.set_demand(client, 0.0);
        }
        fleet.run(plan.refresh_interval / 10.0);
        let requests = fleet.requests_of(growing);
        fleet.set_demand(growing, 200.0);
        fleet.seconds_until(|fleet| fleet.requests_of(growing) > requests);
        fleet.seconds_until(|fleet| fleet.usable(growing) >= 99.0)
    });
    let (median, most) = summarize(delays);
    println!(
        "stale demand of two: served after {} ms at the median, {} ms at most",
        milliseconds(median),
        milliseconds(most)
    );
    assert!(median <= 5.0 * PLAN.round_trip, "{median}");
    assert!(most <= SPACING + 5.0 * PLAN.round_trip, "{most}");
}

#[test]
fn clients_without_polls_have_no_surplus() {
    for (polls, has_surplus) in [(PollMode::On, true), (PollMode::Off, false)] {
        let mut fleet = Fleet::new(1, &FleetPlan { polls, ..PLAN }, &[LARGE]);
        fleet.run(2.0 * PLAN.refresh_interval);
        assert_eq!(fleet.usable(0) > LARGE, has_surplus, "{polls:?}");
    }
}

#[test]
fn early_request_for_grown_demand_leaves_within_the_grid() {
    let shifts = Shifts::new(&PLAN, 10).measure(100, 8.0);
    let (_, most) = summarize(shifts.iter().map(|shift| shift.asked));
    println!("the request leaves after {} ms at most", milliseconds(most));
    // 20 ms after a regular request that came just before.
    assert!(most <= 0.02 + GRID, "{most}");
}

#[test]
fn newcomer_among_many_gets_its_share() {
    for loss in [0.0, 0.03] {
        let plan = FleetPlan {
            capacity: 3000.0,
            loss,
            ..PLAN
        };
        let newcomer = 300;
        let mut fleet = Fleet::new(1, &plan, &[20.0; 301]);
        fleet.leave(newcomer);
        fleet.run(4.0 * plan.refresh_interval);
        let (requests, hints) = (fleet.requests(), fleet.hints());
        fleet.join(newcomer);
        let share = plan.capacity / 301.0;
        let asked = fleet.seconds_until(|fleet| fleet.requests_of(newcomer) > 0);
        let first = fleet.seconds_until(|fleet| fleet.usable(newcomer) > 0.0);
        let first_hints = fleet.hints() - hints;
        let windows = 2 + (first / WINDOW) as u64;
        assert!(first_hints <= windows * WINDOW_HINTS, "{first_hints}");
        let half = first + fleet.seconds_until(|fleet| fleet.usable(newcomer) >= share / 2.0);
        let all = half + fleet.seconds_until(|fleet| fleet.usable(newcomer) >= 0.98 * share);
        println!(
            "newcomer among 300, loss {loss}: asks after {} ms; then the first capacity after {}, \
             half of its share after {}, all after {} ms; {} requests",
            milliseconds(asked),
            milliseconds(first),
            milliseconds(half),
            milliseconds(all),
            fleet.requests() - requests
        );
        assert!(loss > 0.0 || first <= 5.0 * PLAN.round_trip, "{first}");
        assert!(all <= 1.0, "{all}");
    }
}

#[test]
fn changed_limit_reaches_a_thousand_clients_within_a_second() {
    let clients = 1000;
    let mut fleet = Fleet::new(1, &PLAN, &[2.0; 1000]);
    fleet.run(4.0 * PLAN.refresh_interval);
    let limits = [PLAN.capacity / 2.0, PLAN.capacity];
    let requests = fleet.requests();
    fleet.set_capacity(limits[0]);
    let cut = fleet.seconds_until(|fleet| fleet.sum_usable() <= limits[0] * (1.0 + 1e-9));
    let cut_requests = fleet.requests() - requests;
    fleet.run(4.0 * PLAN.refresh_interval);
    let requests = fleet.requests();
    fleet.set_capacity(limits[1]);
    let raised = fleet.seconds_until(|fleet| fleet.sum_usable() >= limits[1] * 0.999);
    println!(
        "{clients} clients: cut to half after {} ms with {cut_requests} requests, \
         doubled after {} ms with {} requests",
        milliseconds(cut),
        milliseconds(raised),
        fleet.requests() - requests
    );
    assert!(cut <= 1.0 && raised <= 1.0, "{cut}, {raised}");
    assert!(cut_requests <= 2 * clients, "{cut_requests}");
}

#[test]
fn flapping_client_causes_a_bounded_number_of_requests() {
    for period in [0.05, 0.1, 0.5, 1.0] {
        let plan = FleetPlan {
            capacity: 100.0,
            ..PLAN
        };
        let clients = 10;
        let mut fleet = Fleet::new(1, &plan, &[10.0; 10]);
        fleet.run(3.0 * plan.refresh_interval);
        let (requests, seconds) = (fleet.requests(), 20.0);
        for flap in 0..(seconds / period) as usize {
            fleet.set_demand(0, if flap % 2 == 0 { 50.0 } else { 1.0 });
            fleet.run(period);
        }
        let rate = (fleet.requests() - requests) as f64 / seconds;
        println!("a client that flaps every {period} s, among {clients}: {rate} requests a second");
        assert!(rate <= 10.0, "{rate}");
    }
}

#[test]
fn invented_hints_cause_at_most_one_request_each() {
    let clients = 10;
    let mut fleet = Fleet::new(1, &PLAN, &[90.0; 10]);
    fleet.run(4.0 * PLAN.refresh_interval);
    let usable: Vec<f64> = (0..clients).map(|client| fleet.usable(client)).collect();
    let before = fleet.requests();
    for client in 0..clients {
        fleet.invent_hints(client);
    }
    fleet.run(1.0);
    let requests = (fleet.requests() - before) as usize;
    println!("100 invented hints a second to each of {clients} clients: {requests} requests");
    // Most are void: for another resource, or for another transmission.
    assert!(requests > clients && requests <= 45 * clients, "{requests}");
    for (client, usable) in usable.into_iter().enumerate() {
        let now = fleet.usable(client);
        assert!((now - usable).abs() <= 1e-6 * usable, "{now} of {usable}");
    }
}

#[test]
fn steady_demand_causes_no_hinted_requests() {
    for (name, wants) in [("below the limit", 50.0), ("above the limit", 200.0)] {
        let requests = |polls| {
            let mut fleet = Fleet::new(1, &FleetPlan { polls, ..PLAN }, &[wants; 10]);
            fleet.run(30.0);
            let before = fleet.requests();
            fleet.run(100.0);
            fleet.requests() - before
        };
        let (with, without) = (requests(PollMode::On), requests(PollMode::Off));
        println!("ten clients {name}: {with} requests in 100 s, {without} without polls");
        assert!(with <= 2 * without, "{with}, {without}");
    }
}

#[test]
fn clients_that_leave_leave_nothing_behind() {
    let mut fleet = Fleet::new(1, &PLAN, &[90.0; 20]);
    fleet.run(20.0);
    assert!(!fleet.is_server_idle());
    for client in 0..20 {
        fleet.leave(client);
    }
    // A released lease keeps its `seq` for its length, and a poll lasts 25 s.
    fleet.run(1.1 * 12.0 * PLAN.refresh_interval + 25.0);
    assert!(fleet.is_server_idle());
}
