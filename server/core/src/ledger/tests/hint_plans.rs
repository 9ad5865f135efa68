//! Which holders are hinted. Holders act on a hint at once and poll again.

use std::collections::BTreeMap;

use doorman_openapi::Reason;
use proptest::prelude::*;

use super::{
    super::{algorithm::tests::priority_by_definition, demands::Demand},
    priority_share::with_floor,
    *,
};
use crate::ledger::PollTicket;

/// Polling holders of `db` that refresh when hinted and when their refresh is due.
struct Fleet {
    world: World,
    holders: BTreeMap<PollTicket, String>,
    state: BTreeMap<String, State>,
    requests: usize,
}

#[derive(Debug, Clone)]
struct State {
    wants: f64,
    priority: i32,
    has: f64,
    seq: u64,
    due: Moment,
}

/// The time of a round trip.
const STEP: f64 = 0.001;

impl Fleet {
    fn new(document: Arc<Document>) -> Self {
        Self {
            world: World::new(document),
            holders: BTreeMap::new(),
            state: BTreeMap::new(),
            requests: 0,
        }
    }

    fn join(&mut self, name: &str, wants: f64) {
        self.join_at(0, name, wants);
    }

    fn join_at(&mut self, priority: i32, name: &str, wants: f64) {
        let ticket = self.world.poll(name, 0);
        self.holders.insert(ticket, name.to_owned());
        let state = State {
            wants,
            priority,
            has: 0.0,
            seq: 0,
            due: self.world.now,
        };
        self.state.insert(name.to_owned(), state);
        self.refresh(name);
    }

    fn refresh(&mut self, name: &str) -> Grant {
        self.requests += 1;
        let state = self.state.get_mut(name).unwrap();
        state.seq += 1;
        let mut request = request(name, Some(state.seq), state.wants, Some(state.has));
        request.resources[0].priority = Some(state.priority);
        let grant = self.world.send(&request);
        let state = self.state.get_mut(name).unwrap();
        let is_shrunk = grant.capacity.get() < state.has;
        state.has = grant.capacity.get();
        state.due = if is_shrunk {
            self.world.now
        } else {
            self.world.now.after_seconds(grant.refresh_interval.get())
        };
        grant
    }

    /// The holder notices its new demand at its next refresh.
    fn set_demand(&mut self, name: &str, wants: f64) {
        self.state.get_mut(name).unwrap().wants = wants;
    }

    fn has(&self, name: &str) -> f64 {
        self.state[name].has
    }

    fn step(&mut self) {
        self.world.wait(STEP);
        let mut due: Vec<String> = Vec::new();
        for (ticket, batch) in self.world.ledger.take_hints(self.world.now) {
            let Some(name) = self.holders.remove(&ticket) else {
                continue;
            };
            let ticket = self.world.poll(&name, batch.after);
            self.holders.insert(ticket, name.clone());
            due.push(name);
        }
        let now = self.world.now;
        let regular = self.state.iter().filter(|(_, state)| state.due <= now);
        due.extend(regular.map(|(name, _)| name.clone()));
        for name in due {
            self.refresh(&name);
        }
    }

    /// Steps until `done`; how many there were.
    fn steps_until(&mut self, mut done: impl FnMut(&Self) -> bool) -> usize {
        for steps in 0..20_000 {
            if done(self) {
                return steps;
            }
            self.step();
        }
        panic!("not within 20 s: {:?}", self.state);
    }

    fn run(&mut self, seconds: f64) -> usize {
        let before = self.requests;
        for _ in 0..(seconds / STEP) as usize {
            self.step();
        }
        self.requests - before
    }
}

#[test]
fn lone_polling_holder_leaves_something_to_another_one() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    close(world.refresh("a", 20.0, None).capacity.get(), 20.0);
    world.poll("a", 0);
    let hints = world.ledger.take_hints(world.now);
    assert_eq!(hints[0].1.refresh.len(), 1);
    let grant = world.refresh("a", 20.0, Some(20.0));
    // As much as it wants is left, or nine tenths of the rest.
    close(grant.capacity.get(), 80.0);
    assert_eq!(grant.reason, Reason::Granted);
    let grant = world.refresh("a", 40.0, Some(80.0));
    close(grant.capacity.get(), 60.0);
    close(grant.lease_length.get(), 20.0);
    close(world.refresh("a", 56.0, Some(60.0)).capacity.get(), 60.4);
    // Nothing beyond the wants in overload.
    close(world.refresh("b", 200.0, None).capacity.get(), 39.6);
    close(world.refresh("a", 30.0, Some(60.4)).capacity.get(), 30.0);
}

#[test]
fn surplus_is_recalled_for_a_pending_holder() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
    fleet.join("a", 10.0);
    fleet.run(6.0);
    close(fleet.has("a"), 90.0);
    fleet.join("b", 60.0);
    let steps = fleet.steps_until(|fleet| fleet.has("b") >= 60.0);
    assert!(steps <= 5, "{steps}");
}

#[test]
fn stale_demand_is_probed() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
    for name in ["a", "b", "c"] {
        fleet.join(name, 100.0);
    }
    fleet.run(7.0);
    close(fleet.has("c"), 100.0 / 3.0);
    fleet.set_demand("a", 0.0);
    fleet.set_demand("b", 0.0);
    fleet.run(0.2);
    fleet.set_demand("c", 200.0);
    fleet.refresh("c");
    let steps = fleet.steps_until(|fleet| fleet.has("c") >= 99.0);
    assert!(steps <= 60, "{steps}");
}

#[test]
fn steady_overload_costs_no_more_hints_than_refreshes() {
    for holders in [3, 30, 300] {
        let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
        for holder in 0..holders {
            fleet.join(&format!("c{holder}"), 100.0);
        }
        fleet.run(20.0);
        let requests = fleet.run(20.0);
        assert!(
            requests <= 2 * 4 * holders + holders,
            "{requests} of {holders}"
        );
    }
}

#[test]
fn steady_demand_is_not_hinted() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
    for holder in 0..10 {
        fleet.join(&format!("c{holder}"), 5.0);
    }
    fleet.run(10.0);
    assert_eq!(fleet.run(10.0), 20);
}

#[test]
fn changed_limit_reaches_all_holders_within_a_second() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 1000.0));
    for holder in 0..1000 {
        fleet.join(&format!("c{holder}"), 10.0);
    }
    fleet.run(10.0);
    fleet
        .world
        .ledger
        .reconfigure(document("FAIR_SHARE", 500.0));
    let before = fleet.requests;
    let steps = fleet.steps_until(|fleet| {
        fleet.state.values().map(|state| state.has).sum::<f64>() <= 500.0 * (1.0 + 1e-9)
    });
    let requests = fleet.requests - before;
    println!("1,000 holders cut to half: {steps} ms, {requests} requests");
    assert!(steps <= 1000 && requests <= 2000, "{steps}, {requests}");
    fleet
        .world
        .ledger
        .reconfigure(document("FAIR_SHARE", 1000.0));
    let steps = fleet
        .steps_until(|fleet| fleet.state.values().map(|state| state.has).sum::<f64>() >= 999.0);
    println!("and doubled again: {steps} ms");
    assert!(steps <= 1000, "{steps}");
}

#[test]
fn freed_capacity_is_hinted_to_the_waiting() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
    fleet.join("a", 100.0);
    fleet.join("b", 100.0);
    fleet.run(7.0);
    close(fleet.has("b"), 50.0);
    let state = fleet.state.remove("a").unwrap();
    fleet.holders.retain(|_, name| name != "a");
    fleet.world.release("a", Some(state.seq + 1));
    let steps = fleet.steps_until(|fleet| fleet.has("b") >= 100.0);
    assert!(steps <= 5, "{steps}");
}

#[test]
fn suppressed_holders_learn_of_overload() {
    let mut fleet = Fleet::new(document("SUPPRESSION", 100.0));
    for holder in 0..3 {
        fleet.join(&format!("c{holder}"), 10.0);
    }
    fleet.run(30.0);
    fleet.set_demand("c0", 900.0);
    fleet.refresh("c0");
    let before = fleet.requests;
    fleet.run(2.0);
    let requests = fleet.requests - before;
    assert!((3..=20).contains(&requests), "{requests}");
}

#[test]
fn holders_of_a_spent_bucket_are_hinted_once() {
    let mut fleet = Fleet::new(document("SHARED_BUCKET", 10.0));
    for holder in 0..5 {
        fleet.join(&format!("c{holder}"), 10.0);
    }
    fleet.run(7.0);
    let mut report = request("c0", Some(1000), 10.0, Some(10.0));
    report.resources[0].used = Capacity::new(0.0).ok();
    fleet.world.send(&report);
    report.seq = Seq::new(1001).ok();
    // The holders may have used 50 in the last interval, without a report.
    report.resources[0].used = Capacity::new(80.0).ok();
    fleet.world.send(&report);
    fleet.state.get_mut("c0").unwrap().seq = 1001;
    // Once for the debt, once for the recovery.
    let requests = fleet.run(2.9);
    assert!((8..=15).contains(&requests), "{requests}");
}

#[test]
fn newcomer_among_many_gets_its_share() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 3000.0));
    for holder in 0..300 {
        fleet.join(&format!("c{holder}"), 20.0);
    }
    fleet.run(10.0);
    fleet.join("new", 20.0);
    let share = 3000.0 / 301.0;
    let first = fleet.steps_until(|fleet| fleet.has("new") > 0.0);
    let half = first + fleet.steps_until(|fleet| fleet.has("new") >= share / 2.0);
    let all = half + fleet.steps_until(|fleet| fleet.has("new") >= 0.98 * share);
    println!("newcomer among 300: {first} ms, half of its share {half} ms, all {all} ms");
    assert!(first <= 5 && all <= 1000, "{first}, {all}");
}

#[test]
fn flapping_demand_costs_a_bounded_number_of_requests() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 100.0));
    for holder in 0..10 {
        fleet.join(&format!("c{holder}"), 10.0);
    }
    fleet.run(10.0);
    let before = fleet.requests;
    for round in 0..100 {
        fleet.set_demand("c0", if round % 2 == 0 { 50.0 } else { 1.0 });
        fleet.refresh("c0");
        fleet.run(0.1);
    }
    let rate = (fleet.requests - before) as f64 / 10.0;
    println!("a client that flaps ten times a second, among 10: {rate} requests a second");
    assert!(rate <= 50.0, "{rate}");
}

#[test]
fn low_priority_is_recalled_for_a_high_one() {
    let mut fleet = Fleet::new(with_floor(100.0, 0.1));
    // More than are examined in vain, with more than the low ones have.
    for holder in 0..20 {
        fleet.join_at(5, &format!("high{holder}"), 3.0);
    }
    for holder in 0..40 {
        fleet.join_at(-5, &format!("low{holder}"), 10.0);
    }
    fleet.run(7.0);
    close(fleet.has("high7"), 3.0);
    close(fleet.has("low7"), 1.0);
    fleet.join_at(1, "middle", 30.0);
    let steps = fleet.steps_until(|fleet| fleet.has("middle") >= 30.0 * (1.0 - 1e-9));
    println!("30 of 100 for a priority in the middle: {steps} ms");
    assert!(steps <= 50, "{steps}");
    close(fleet.has("high7"), 3.0);
}

#[test]
fn freed_capacity_is_hinted_to_the_highest_priority() {
    let mut fleet = Fleet::new(with_floor(100.0, 0.0));
    fleet.join_at(9, "gone", 60.0);
    for holder in 0..20 {
        fleet.join_at(0, &format!("low{holder}"), 10.0);
    }
    fleet.join_at(1, "high", 200.0);
    fleet.run(7.0);
    close(fleet.has("high"), 40.0);
    let state = fleet.state.remove("gone").unwrap();
    fleet.holders.retain(|_, name| name != "gone");
    fleet.world.release("gone", Some(state.seq + 1));
    let steps = fleet.steps_until(|fleet| fleet.has("high") >= 100.0 * (1.0 - 1e-9));
    assert!(steps <= 5, "{steps}");
}

#[test]
fn middle_priority_is_recalled_past_a_lower_one() {
    let mut fleet = Fleet::new(with_floor(100.0, 0.1));
    // Less than the floor: more of them than are examined in vain have nothing to give.
    for holder in 0..20 {
        fleet.join_at(-5, &format!("low{holder}"), 0.2);
    }
    for holder in 0..10 {
        fleet.join_at(0, &format!("middle{holder}"), 20.0);
    }
    fleet.run(7.0);
    fleet.join_at(5, "high", 40.0);
    let steps = fleet.steps_until(|fleet| fleet.has("high") >= 40.0 * (1.0 - 1e-9));
    assert!(steps <= 50, "{steps}");
    close(fleet.has("low7"), 0.2);
}

#[test]
fn rounds_of_probes_reach_all_holders() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 120.0));
    for holder in 10..22 {
        fleet.join(&format!("c{holder}"), 100.0);
    }
    fleet.run(20.05);
    close(fleet.has("c21"), 10.0);
    // Just after its regular refresh.
    fleet.set_demand("c21", 0.0);
    fleet.set_demand("c10", 600.0);
    fleet.refresh("c10");
    let steps = fleet.steps_until(|fleet| fleet.has("c21") == 0.0);
    assert!(steps <= 3500, "{steps}");
}

/// More holders than one round examines.
#[test]
fn rounds_of_probes_begin_anew_after_a_smaller_excess() {
    let mut fleet = Fleet::new(document("FAIR_SHARE", 120.0));
    for holder in 10..90 {
        fleet.join(&format!("c{holder}"), 10.0);
    }
    fleet.run(20.0);
    for holder in 10..90 {
        fleet.set_demand(&format!("c{holder}"), 2.0);
    }
    fleet.run(60.05);
    fleet.refresh("c11");
    fleet.run(0.2);
    close(fleet.has("c11"), 1.5);
    fleet.set_demand("c11", 0.0);
    fleet.set_demand("c89", 100.0);
    fleet.refresh("c89");
    let steps = fleet.steps_until(|fleet| fleet.has("c11") == 0.0);
    assert!(steps <= 500, "{steps}");
}

#[test]
fn first_poll_is_answered_for_a_surplus_only() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for (client, wants) in [("a", 60.0), ("b", 40.0)] {
        world.refresh(client, wants, None);
        world.poll(client, 0);
        let is_hinted = !world.ledger.take_hints(world.now).is_empty();
        assert_eq!(is_hinted, client == "a", "{client}");
    }
    close(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
}

#[test]
fn changed_limits_are_told_in_turns() {
    let resources = |capacity| {
        parse(&format!(
            "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{\
             kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, \
             parameters: [{{name: surplus, value: '0'}}]}}}}]"
        ))
    };
    let mut world = World::new(resources(1000.0));
    let join = |world: &mut World, client: &str, resource: &str| {
        let mut request = request(client, Some(1), 0.1, None);
        request.resources[0].resource_id = ResourceId::new(resource).unwrap();
        world.send(&request);
        world.poll(client, 0)
    };
    for holder in 0..1000 {
        join(&mut world, &format!("c{holder}"), "many");
    }
    let one = join(&mut world, "one", "few");
    assert_eq!(world.ledger.take_hints(world.now), []);
    world.ledger.reconfigure(resources(900.0));
    let mut hinted = 0;
    for _ in 0..100 {
        world.wait(0.001);
        let answers = world.ledger.take_hints(world.now);
        hinted += answers.len();
        if answers.iter().any(|(ticket, _)| *ticket == one) {
            return;
        }
    }
    panic!("not within 0.1 s, but {hinted} others");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Holders join and change in random order; hints move the capacity within a second.
    #[test]
    fn low_priority_never_keeps_more_than_its_floor(
        floor in prop_oneof![Just(0.0), 0.0..0.5f64],
        first in prop::collection::vec((-2i32..3, 0.0..60.0f64), 2..20),
        later in prop::collection::vec((-2i32..3, 0.0..60.0f64), 20),
    ) {
        let mut fleet = Fleet::new(with_floor(100.0, floor));
        for (number, (priority, wants)) in first.iter().enumerate() {
            fleet.join_at(*priority, &number.to_string(), *wants);
            fleet.run(0.05);
        }
        let demands: Vec<_> = first.iter().zip(later).map(|(_, later)| later).collect();
        for (number, (priority, wants)) in demands.iter().enumerate() {
            let name = number.to_string();
            let state = fleet.state.get_mut(&name).unwrap();
            (state.priority, state.wants) = (*priority, *wants);
            fleet.refresh(&name);
            fleet.run(0.01);
        }
        fleet.run(1.5);
        let wanted: f64 = demands.iter().map(|(_, wants)| wants).sum();
        prop_assume!(wanted > 100.0);
        let demands: Vec<_> = demands
            .into_iter()
            .map(|(priority, wants)| (priority, Demand { wants, weight: 1.0 }))
            .collect();
        let shares = priority_by_definition(100.0, floor, &demands);
        // Small differences are not worth a hint.
        let up_to = |priority: i32, of: &dyn Fn(usize) -> f64| -> f64 {
            let lower = (0..demands.len()).filter(|number| demands[*number].0 <= priority);
            lower.map(of).sum()
        };
        for priority in -2..3 {
            let has = up_to(priority, &|number| fleet.has(&number.to_string()));
            let share = up_to(priority, &|number| shares[number]);
            prop_assert!(has <= share + 0.05 * share + 2.0, "{priority}: {has}, not {share}: {:?}", fleet.state);
        }
    }
}
