//! Capacity that follows the target, by what holders report.

use std::ops::Range;

use doorman_openapi::{
    Balance, Bucket, CLOCK_DRIFT, FeedbackState, Outcomes, RequestCount, SafeCapacity, Seconds,
};

use super::{parents::Tree, *};
use crate::ledger::{LeaseCall, ResourceRecord};

const CAPACITY: f64 = 1000.0;
const CLIENTS: usize = 10;
/// Seconds between the reports of a client.
const CADENCE: f64 = 0.5;

fn partner(feedback: &str) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {CAPACITY}, feedback: {feedback}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    ))
}

/// Clients that use their whole lease, and a target that accepts the same part of each.
struct Fleet {
    world: World,
    clients: Vec<Client>,
    /// Whether outcomes move the capacity.
    counts: bool,
    epoch: Epoch,
    /// The wait that the target asks for, in seconds.
    pause: Option<f64>,
}

#[derive(Debug, Clone, Default)]
struct Client {
    seq: u64,
    has: f64,
    used: f64,
    ok: f64,
    overloaded: f64,
    effective: Option<Capacity>,
    heard: Option<Epoch>,
    claims_overload: bool,
}

impl Fleet {
    fn new(document: Arc<Document>) -> Self {
        let mut fleet = Self {
            world: World::new(document),
            clients: vec![Client::default(); CLIENTS],
            counts: true,
            epoch: Epoch::ZERO,
            pause: None,
        };
        fleet.run(3.0, f64::INFINITY);
        fleet
    }

    /// The target accepts so much a second.
    fn run(&mut self, seconds: f64, accepts: f64) {
        self.run_some(seconds, accepts, 0..CLIENTS);
    }

    /// The same, while only some clients send and report.
    fn run_some(&mut self, seconds: f64, accepts: f64, clients: Range<usize>) {
        let rounds = (seconds / CADENCE) as usize;
        for _ in 0..rounds {
            let step = CADENCE / CLIENTS as f64;
            let all: f64 = self.clients.iter().map(|client| client.has).sum();
            let part = (accepts / all).min(1.0);
            for index in clients.clone() {
                let client = &mut self.clients[index];
                let sent = client.has * CADENCE;
                let part = if client.claims_overload { 0.0 } else { part };
                client.used += sent;
                client.ok += sent * part;
                client.overloaded += sent * (1.0 - part);
                self.report(index);
                self.world.wait(step);
            }
        }
    }

    fn report(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.seq += 1;
        let mut request = request(
            &format!("c{index}"),
            Some(client.seq),
            200.0,
            Some(client.has),
        );
        let asked = &mut request.resources[0];
        asked.used = Some(Capacity::saturating(client.used));
        if let Some(has) = &mut asked.has {
            has.effective = client.effective;
        }
        asked.pause = self.pause.map(Seconds::saturating);
        asked.outcomes = Some(Box::new(Outcomes {
            ok: RequestCount::saturating(client.ok as u64),
            overloaded: RequestCount::saturating(client.overloaded as u64),
            ..Outcomes::default()
        }));
        request.heard_epoch = client.heard;
        let mut call = LeaseCall::from(request);
        if !self.counts {
            call = call.without_evidence();
        }
        let grant = self.world.ledger.refresh(&call, self.world.now).remove(0);
        assert!(grant.reporting.is_early);
        let client = &mut self.clients[index];
        client.has = grant.capacity.get();
        client.effective = grant.reporting.effective;
        client.heard = Some(self.epoch);
    }

    fn effective(&self) -> f64 {
        self.world.view().unwrap().effective.unwrap().get()
    }

    fn booked(&self) -> f64 {
        self.world.view().unwrap().sum_has
    }

    /// The same clients at a successor that knows nothing.
    fn after_a_crash(self) -> Self {
        let now = self.world.now;
        let settings = Settings {
            predecessor: Predecessor::Until(now.after_seconds(60.0 * CLOCK_DRIFT)),
            epoch: Epoch::new(1).unwrap(),
            ..SETTINGS
        };
        let ledger = Ledger::new(partner("{}"), settings, now);
        let fleet = self.at(ledger);
        Self {
            epoch: settings.epoch,
            ..fleet
        }
    }

    /// The same clients at a successor.
    fn at(self, ledger: Ledger) -> Self {
        Self {
            world: World {
                ledger,
                now: self.world.now,
            },
            ..self
        }
    }
}

#[track_caller]
fn assert_between(number: f64, least: f64, most: f64) {
    assert!((least..=most).contains(&number), "{number}");
}

#[test]
fn capacity_falls_to_what_the_target_accepts_and_returns() {
    let mut fleet = Fleet::new(partner("{}"));
    assert_eq!(fleet.effective(), CAPACITY);
    fleet.run(8.0, 300.0);
    assert_between(fleet.effective(), 270.0, 310.0);
    assert_between(fleet.booked(), 270.0, 330.0);
    fleet.run(20.0, 300.0);
    assert_between(fleet.effective(), 270.0, 330.0);
    fleet.run(60.0, CAPACITY);
    assert_eq!(fleet.effective(), CAPACITY);
}

#[test]
fn observed_capacity_is_shown_and_not_leased() {
    let mut fleet = Fleet::new(partner("{mode: observe}"));
    fleet.run(6.0, 300.0);
    assert!(fleet.effective() < 800.0, "{}", fleet.effective());
    assert_eq!(fleet.booked(), CAPACITY);
}

#[test]
fn outcomes_that_do_not_count_move_nothing() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.counts = false;
    fleet.run(20.0, 300.0);
    assert_eq!(fleet.booked(), CAPACITY);
    let outcomes = fleet.world.view().unwrap().outcomes.unwrap();
    assert!(outcomes.total.overloaded.get() > 0, "they are shown");
}

#[test]
fn holder_that_claims_overload_takes_nothing_from_others() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.clients[3].claims_overload = true;
    fleet.run(30.0, CAPACITY);
    assert_eq!(fleet.effective(), CAPACITY);
    let others: f64 = fleet.clients.iter().map(|it| it.has).sum::<f64>() - fleet.clients[3].has;
    assert!(others > 0.9 * CAPACITY, "{others}");
    let suffers = |client: &str| fleet.world.holder(client).suffers_alone;
    assert!(suffers("c3") && !suffers("c4"));
}

#[test]
fn operators_change_bounds_the_level_and_removal_ends_it() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    fleet.world.ledger.reconfigure(parse(
        "resources: [{identifier_glob: db, capacity: 200, feedback: {}, algorithm: {kind: \
         FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]",
    ));
    fleet.run(2.0, 300.0);
    assert_eq!(fleet.effective(), 200.0);
    fleet
        .world
        .ledger
        .reconfigure(document("FAIR_SHARE", CAPACITY));
    for index in 0..CLIENTS {
        let client = format!("c{index}");
        let has = fleet.clients[index].has;
        fleet.world.refresh(&client, 200.0, Some(has));
    }
    assert!(fleet.booked() > 900.0, "{}", fleet.booked());
    assert_eq!(fleet.world.view().unwrap().effective, None);
}

#[test]
fn view_shows_an_operators_change_before_the_next_request() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    let lowered = |capacity: f64, feedback: &str| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}{feedback}, \
             algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
        ))
    };
    fleet
        .world
        .ledger
        .reconfigure(lowered(200.0, ", feedback: {}"));
    assert_eq!(fleet.effective(), 200.0);
    let floor = lowered(CAPACITY, ", feedback: {floor: 0.5}");
    fleet.world.ledger.reconfigure(floor);
    assert_eq!(fleet.effective(), 0.5 * CAPACITY);
    fleet.world.ledger.reconfigure(lowered(CAPACITY, ""));
    let view = fleet.world.view().unwrap();
    assert_eq!((view.effective, view.feedback), (None, None));
}

#[test]
fn clean_successor_continues_at_the_level() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    let level = fleet.effective();
    let records: Vec<_> = fleet.world.ledger.snapshot(fleet.world.now).collect();
    let text = serde_json::to_string(&records).unwrap();
    let mut next = Ledger::new(partner("{}"), SETTINGS, fleet.world.now);
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        next.restore(&record, fleet.world.now).unwrap();
    }
    let mut fleet = fleet.at(next);
    close(fleet.effective(), level);
    fleet.run(1.0, 300.0);
    assert_between(fleet.effective(), 250.0, 330.0);
}

#[test]
fn master_after_a_crash_continues_at_the_level_that_claims_echo() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    let level = fleet.effective();
    let mut fleet = fleet.after_a_crash();
    // Nothing is refused, so that the level is not measured again.
    fleet.run(2.0, f64::INFINITY);
    assert!(level < 500.0);
    close(fleet.effective(), level);
    for round in 0..200 {
        fleet.run(CADENCE, f64::INFINITY);
        assert!(fleet.booked() <= CAPACITY * (1.0 + 1e-9));
        if round < 100 {
            // In learning mode not all holders are known.
            close(fleet.effective(), level);
        }
    }
    assert_eq!(fleet.effective(), CAPACITY);
}

#[test]
fn claims_of_one_client_do_not_set_the_level() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    let level = fleet.effective();
    fleet.clients[0].effective = Some(Capacity::saturating(1.0));
    let mut fleet = fleet.after_a_crash();
    // All have asked, and only one has confirmed its claim.
    fleet.run(CADENCE, f64::INFINITY);
    fleet.report(0);
    assert!(fleet.effective() >= level, "{}", fleet.effective());
}

#[test]
fn level_outlasts_a_crash_in_a_pause() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(4.0, 300.0);
    fleet.pause = Some(20.0);
    fleet.run(3.0, 0.0);
    assert_eq!(fleet.effective(), 0.0);
    assert_eq!(fleet.booked(), 0.0);
    let level = fleet.clients[0].effective.unwrap().get();
    assert!(level > 0.0);
    fleet.pause = None;
    let mut fleet = fleet.after_a_crash();
    fleet.run(65.0, f64::INFINITY);
    assert_between(fleet.effective(), 0.9 * level, 1.5 * level);
}

#[test]
fn demand_that_does_not_count_is_demand_for_the_law() {
    let fleet = Fleet::new(partner("{}"));
    let mut fleet = fleet.after_a_crash();
    // Each client suffers, until it is known that all do.
    fleet.run(6.0, 200.0);
    assert_between(fleet.effective(), 170.0, 230.0);
}

#[test]
fn pause_of_the_target_stops_the_fleet() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.pause = Some(20.0);
    fleet.run(6.0, 0.0);
    assert_eq!(fleet.effective(), 0.0);
    // Without a control plane, holders do not stop for ever.
    let view = fleet.world.view().unwrap();
    assert_ne!(view.safe_capacity, SafeCapacity::AtMost(Capacity::ZERO));
    assert_eq!(view.feedback.unwrap().state, Some(FeedbackState::Paused));
    fleet.pause = None;
    fleet.world.wait(21.0);
    assert!(fleet.effective() > 0.0, "{}", fleet.effective());
}

/// A report of `c`, at a node, with totals.
fn at_node(seq: u64, ok: u64, overloaded: u64) -> CapacityRequest {
    let mut request = request("c", Some(seq), 200.0, Some(0.0));
    request.resources[0].pause = Seconds::new(30.0).ok();
    request.resources[0].outcomes = Some(Box::new(Outcomes {
        ok: RequestCount::saturating(ok),
        overloaded: RequestCount::saturating(overloaded),
        ..Outcomes::default()
    }));
    request
}

#[test]
fn node_reports_overloads_at_once_and_until_there_is_no_new_one() {
    let mut tree = Tree::new(partner("{}"), &[("n", None)]);
    let has_updates = |tree: &Tree| tree.nodes[0].ledger.has_parent_updates();
    tree.send(0, &at_node(1, 0, 0));
    // The parent's answer to a request with outcomes wants early reports.
    tree.ask(0);
    assert!(tree.send(0, &at_node(2, 20, 0)).reporting.is_early);
    tree.ask(0);
    assert!(!has_updates(&tree));
    tree.send(0, &at_node(4, 40, 1));
    assert!(has_updates(&tree), "the first overload");
    tree.ask(0);
    tree.wait(0.2);
    tree.send(0, &at_node(5, 50, 2));
    assert!(!has_updates(&tree), "half a second has not passed");
    tree.wait(0.4);
    assert!(has_updates(&tree));
    tree.ask(0);
    tree.wait(0.6);
    assert!(has_updates(&tree), "the last report had a new one");
    tree.ask(0);
    tree.wait(0.6);
    assert!(!has_updates(&tree));
    let root = tree.root.resource(&db(), tree.now).unwrap();
    assert_eq!(root.outcomes.unwrap().total.overloaded.get(), 2);
}

#[test]
fn node_states_the_pause_of_its_holders() {
    let mut tree = Tree::new(partner("{}"), &[("n", None)]);
    tree.send(0, &at_node(1, 0, 0));
    tree.ask(0);
    tree.send(0, &at_node(2, 0, 30));
    tree.wait(1.0);
    let requests = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
    close(requests[0].pause.unwrap().get(), 29.0);
    tree.wait(30.0);
    let requests = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
    assert_eq!(requests[0].pause, None);
}

#[test]
fn level_without_holders_is_kept_for_a_while() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.run(8.0, 300.0);
    let level = fleet.effective();
    for index in 0..CLIENTS {
        fleet.clients[index].seq += 1;
        let seq = fleet.clients[index].seq;
        fleet.world.release(&format!("c{index}"), Some(seq));
        fleet.clients[index].has = 0.0;
    }
    fleet.world.wait(600.0);
    assert!(fleet.world.holders().is_empty());
    fleet.run(CADENCE, 300.0);
    close(fleet.effective(), level);
    for index in 0..CLIENTS {
        fleet.clients[index].seq += 1;
        let seq = fleet.clients[index].seq;
        fleet.world.release(&format!("c{index}"), Some(seq));
    }
    fleet.world.wait(4000.0);
    assert!(fleet.world.view().is_none());
}

#[test]
fn holder_that_stops_to_report_is_not_capped_for_ever() {
    let mut fleet = Fleet::new(partner("{}"));
    fleet.clients[3].claims_overload = true;
    fleet.run(20.0, CAPACITY);
    assert!(fleet.clients[3].has < 10.0);
    for _ in 0..60 {
        fleet.world.wait(0.25);
        for index in (0..CLIENTS).filter(|index| *index != 3) {
            fleet.report(index);
        }
        let client = &mut fleet.clients[3];
        client.seq += 1;
        let request = request("c3", Some(client.seq), 200.0, Some(client.has));
        client.has = fleet.world.send(&request).capacity.get();
    }
    assert!(fleet.clients[3].has > 80.0, "{}", fleet.clients[3].has);
}

#[test]
fn pause_in_learning_mode_takes_nothing_from_claims() {
    let mut fleet = Fleet::new(partner("{}"));
    let now = fleet.world.now;
    let settings = Settings {
        predecessor: Predecessor::Until(now.after_seconds(60.0 * CLOCK_DRIFT)),
        epoch: Epoch::new(1).unwrap(),
        ..SETTINGS
    };
    fleet = fleet.at(Ledger::new(partner("{}"), settings, now));
    fleet.epoch = settings.epoch;
    // Half of the holders confirm their claims in a pause.
    fleet.pause = Some(5.0);
    fleet.run_some(3.0, 0.0, 0..CLIENTS / 2);
    assert_eq!(fleet.effective(), 0.0);
    fleet.run_some(1.0, 0.0, CLIENTS / 2..CLIENTS);
    fleet.pause = None;
    for client in &mut fleet.clients {
        client.has = 0.0;
    }
    fleet.world.wait(6.0);
    fleet.run(3.0, f64::INFINITY);
    assert!(fleet.booked() > 0.8 * CAPACITY, "{}", fleet.booked());
}

#[test]
fn pause_does_not_refill_a_long_bucket() {
    let mut world = World::new(partner("{}"));
    let (mut has, mut used, mut ok, mut overloaded) = (0.0, 0.0, 0.0, 0.0);
    let mut tokens = 0.0;
    let mut was_paused = false;
    for round in 0..60 {
        let sent = has * CADENCE;
        let is_refused = (20..30).contains(&round);
        used += sent;
        if is_refused {
            overloaded += sent;
        } else {
            ok += sent;
        }
        let mut request = request("c", Some(round), 2000.0, Some(has));
        let asked = &mut request.resources[0];
        asked.used = Some(Capacity::saturating(used));
        asked.pause = is_refused.then(|| Seconds::saturating(5.0));
        // It spends all that it has.
        asked.bucket = Some(Bucket {
            burst: Seconds::saturating(600.0),
            tokens: (round > 0).then(|| Balance::saturating(0.0)),
        });
        asked.outcomes = Some(Box::new(Outcomes {
            ok: RequestCount::saturating(ok as u64),
            overloaded: RequestCount::saturating(overloaded as u64),
            ..Outcomes::default()
        }));
        request.heard_epoch = Some(Epoch::ZERO);
        let grant = world.send(&request);
        if round > 2 {
            tokens += grant.tokens.map_or(0.0, |it| it.get().max(0.0));
        }
        has = grant.capacity.get();
        was_paused |= has == 0.0;
        world.wait(CADENCE);
    }
    assert!(was_paused && has > 0.0);
    // Those that the free capacity got meanwhile.
    assert!(tokens <= 30.0 * CAPACITY, "{tokens}");
}

#[test]
fn slow_gauge_has_the_latency_as_reason() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, unit: gauge, capacity: 100, \
         feedback: {latency: 0.1}, \
         algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1}}]",
    ));
    let mut has = 0.0;
    for seq in 1..=20 {
        let mut request = request("c", Some(seq), 200.0, Some(has));
        request.heard_epoch = Some(Epoch::ZERO);
        let asked = &mut request.resources[0];
        asked.used = Some(Capacity::saturating(100.0 * seq as f64));
        // 100 requests in a report, of 0.5 s each.
        asked.outcomes = Some(Box::new(Outcomes {
            ok: RequestCount::saturating(100 * seq),
            ok_seconds: Some(Capacity::saturating(50.0 * seq as f64)),
            ..Outcomes::default()
        }));
        let call = LeaseCall::from(request);
        has = world
            .ledger
            .refresh(&call, world.now)
            .remove(0)
            .capacity
            .get();
        world.wait(0.5);
    }
    let feedback = world.view().unwrap().feedback.unwrap();
    assert_eq!(feedback.state, Some(FeedbackState::Held));
    let reason = &feedback.reason;
    assert!(reason.contains("longer than `latency`"), "{reason}");
}
