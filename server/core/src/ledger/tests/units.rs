//! Units of amounts: of requests, after a change of the document, and of a predecessor.

use doorman_openapi::{Seconds, Unit};

use super::*;
use crate::ledger::{EarlierTemplate, EarlierTerms, ResourceRecord};

const PER_SECOND: (f64, f64) = (10.0, 1.0);
/// The same rate.
const PER_MINUTE: (f64, f64) = (600.0, 60.0);

/// The last lease of the predecessor ends 21 s after the start.
const SUCCESSOR: Settings = Settings {
    predecessor: Predecessor::Until(Moment::from_nanos(3621 * 1_000_000_000)),
    ..SETTINGS
};

fn of((capacity, per): (f64, f64)) -> Arc<Document> {
    periodic(capacity, per)
}

pub(super) fn gauge(capacity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, unit: gauge, algorithm: \
         {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, parameters: \
         [{{name: granularity, value: 0}}]}}}}]"
    ))
}

/// Two requests of a holder within 2 s are one too many.
fn seldom((capacity, per): (f64, f64)) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
         minimum_refresh_interval: 2, algorithm: {{kind: FAIR_SHARE, lease_length: 20, \
         refresh_interval: 5}}}}]"
    ))
}

fn per(seconds: f64) -> (Option<Unit>, Option<Seconds>) {
    (Some(Unit::Rate), Some(Seconds::new(seconds).unwrap()))
}

const UNITS_IN_USE: (Option<Unit>, Option<Seconds>) = (Some(Unit::Gauge), None);

/// A request that states its unit, and echoes the epoch.
fn stating(
    client: &str,
    unit: (Option<Unit>, Option<Seconds>),
    wants: f64,
    has: f64,
) -> CapacityRequest {
    let mut request = echoing(client, wants, has);
    (request.resources[0].unit, request.resources[0].per) = unit;
    request
}

/// A request without a unit that echoes the epoch.
fn echoing(client: &str, wants: f64, has: f64) -> CapacityRequest {
    CapacityRequest {
        heard_epoch: Some(SETTINGS.epoch),
        polls: false,
        replaces: Vec::new(),
        ..request(client, None, wants, (has > 0.0).then_some(has))
    }
}

impl World {
    fn capacity(&mut self, request: &CapacityRequest) -> f64 {
        self.send(request).capacity.get()
    }

    /// A successor with another document that takes over a snapshot, as it is stored.
    fn restarted(&self, document: Arc<Document>) -> Self {
        let records: Vec<ResourceRecord> = self.ledger.snapshot(self.now).collect();
        self.restarted_with(document, &serde_json::to_string(&records).unwrap())
    }

    fn restarted_with(&self, document: Arc<Document>, records: &str) -> Self {
        let mut ledger = Ledger::new(document, SETTINGS, self.now);
        for record in serde_json::from_str::<Vec<ResourceRecord>>(records).unwrap() {
            ledger.restore(&record, self.now).unwrap();
        }
        Self {
            ledger,
            now: self.now,
        }
    }

    /// A successor that learns, of a predecessor that had these documents.
    fn learning(document: Arc<Document>, earlier: &[Arc<Document>]) -> Self {
        let mut world = Self::with(document, SUCCESSOR);
        let earlier = earlier.iter().map(|it| EarlierTemplate::all_of(it));
        world.ledger = world.ledger.with_earlier_terms(EarlierTerms::new(earlier));
        world
    }

    fn sum_has(&self) -> f64 {
        self.view().map_or(0.0, |view| view.sum_has)
    }
}

#[test]
fn stated_unit_converts_exactly() {
    for (before, after) in [(PER_SECOND, PER_MINUTE), (PER_MINUTE, PER_SECOND)] {
        let mut world = World::new(of(before));
        world.refresh("a", before.0, None);
        world.ledger.reconfigure(of(after));
        // The holder has not heard of it, and neither once the response is lost.
        for _ in 0..2 {
            let grant = world.capacity(&stating("a", per(before.1), before.0, before.0));
            close(grant, after.0);
        }
        let grant = world.capacity(&stating("a", per(after.1), after.0, after.0));
        close(grant, after.0);
        close(world.refresh("b", after.0, None).capacity.get(), 0.0);
        close(world.holder("a").wants.get(), after.0);
    }
}

#[test]
fn stated_part_frees_the_rest() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.ledger.reconfigure(of(PER_MINUTE));
    let part = world.capacity(&stating("a", per(1.0), 4.0, 4.0));
    close(part, 240.0);
    close(world.refresh("b", 600.0, None).capacity.get(), 360.0);
}

#[test]
fn period_without_a_unit_is_that_of_a_rate() {
    let mut world = World::new(of(PER_MINUTE));
    let unit = (None, per(1.0).1);
    close(world.capacity(&stating("a", unit, 5.0, 0.0)), 300.0);
    let unit = (Some(Unit::Rate), None);
    close(world.capacity(&stating("b", unit, 5.0, 0.0)), 300.0);
}

#[test]
fn many_changes_within_one_refresh_interval_keep_the_rate() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.refresh("old", 0.0, None);
    for step in 1..=40 {
        world.wait(0.1);
        let period = f64::from(step * 7 % 60 + 1);
        world.ledger.reconfigure(of((10.0 * period, period)));
        close(world.refresh("old", 0.0, None).capacity.get(), 0.0);
        close(world.sum_has(), 10.0 * period);
    }
    world.ledger.reconfigure(of(PER_MINUTE));
    close(world.refresh("b", 600.0, None).capacity.get(), 0.0);
    // Without a unit it is the one that the holder was told last.
    close(world.refresh("a", 10.0, Some(10.0)).capacity.get(), 300.0);
    close(world.sum_has(), 600.0);
}

#[test]
fn unstated_claim_after_a_lost_response_is_not_misread() {
    for (before, after) in [(PER_SECOND, PER_MINUTE), (PER_MINUTE, PER_SECOND)] {
        let mut world = World::new(of(before));
        world.refresh("a", before.0, None);
        world.ledger.reconfigure(of(after));
        for time in 0..3 {
            world.wait(1.0);
            let grant = world.refresh("a", before.0, Some(before.0));
            let share = if time == 0 { after.0 } else { after.0 / 2.0 };
            close(grant.capacity.get(), share);
            close(world.sum_has(), after.0);
            let other = world.refresh("b", after.0, None);
            assert_eq!(other.capacity.get(), 0.0, "{time}");
        }
    }
}

#[test]
fn unstated_claim_counts_exactly_once_the_holder_has_heard() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.ledger.reconfigure(of(PER_MINUTE));
    world.refresh("a", 10.0, Some(10.0));
    close(world.refresh("a", 600.0, Some(600.0)).capacity.get(), 600.0);
    close(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
    close(world.refresh("b", 600.0, None).capacity.get(), 540.0);
}

#[test]
fn claim_equal_to_the_last_lease_may_be_an_older_lease() {
    for changes_back in [false, true] {
        let mut world = World::new(of(PER_SECOND));
        world.refresh("a", 10.0, None);
        world.ledger.reconfigure(of(PER_MINUTE));
        for other in 0..59 {
            world.refresh(&format!("b{other}"), 600.0, None);
        }
        // The response is lost.
        close(world.refresh("a", 10.0, Some(10.0)).capacity.get(), 10.0);
        let mut total = 600.0;
        if changes_back {
            world.ledger.reconfigure(of(PER_SECOND));
            total = 10.0;
        }
        // The claim is 10 per second still.
        for _ in 0..2 {
            world.refresh("a", 10.0, Some(10.0));
            close(world.sum_has(), total);
            close(world.refresh("b0", 600.0, None).capacity.get(), 0.0);
        }
    }
}

#[test]
fn claim_equal_to_the_last_lease_is_exact_once_older_leases_have_ended() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.ledger.reconfigure(of(PER_MINUTE));
    for other in 0..59 {
        world.refresh(&format!("b{other}"), 600.0, None);
    }
    world.refresh("a", 10.0, Some(10.0));
    for _ in 0..5 {
        world.wait(5.0);
        world.refresh("a", 10.0, Some(10.0));
    }
    close(world.sum_has(), 10.0);
}

#[test]
fn only_the_first_request_after_a_change_may_be_early() {
    let mut world = World::new(seldom(PER_MINUTE));
    let ask = |wants, has| stating("a", per(1.0), wants, has);
    close(world.capacity(&ask(5.0, 0.0)), 300.0);
    close(world.capacity(&ask(10.0, 5.0)), 300.0);
    world.ledger.reconfigure(seldom((20.0, 2.0)));
    close(world.capacity(&ask(10.0, 5.0)), 20.0);
    close(world.capacity(&ask(5.0, 10.0)), 20.0);
    world.ledger.reconfigure(gauge(10.0));
    world.capacity(&ask(5.0, 10.0));
    world.ledger.reconfigure(seldom((20.0, 2.0)));
    close(world.capacity(&ask(5.0, 10.0)), 10.0);
    close(world.capacity(&ask(10.0, 5.0)), 10.0);
}

#[test]
fn claims_are_exact_again_when_leases_in_the_unit_before_have_ended() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.ledger.reconfigure(of(PER_MINUTE));
    world.refresh("a", 10.0, Some(10.0));
    for _ in 0..5 {
        world.wait(5.0);
        // It has given up some by itself, so its claim is no lease of the server.
        world.refresh("a", 600.0, Some(599.0));
    }
    close(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
    close(world.refresh("b", 600.0, None).capacity.get(), 540.0);
}

#[test]
fn late_duplicate_does_not_hide_that_a_change_was_missed() {
    let mut world = World::new(of(PER_MINUTE));
    let ask = |seq, wants, has| request("a", Some(seq), wants, has);
    world.send(&ask(1, 600.0, None));
    world.ledger.reconfigure(of(PER_SECOND));
    // The holder takes the response to the duplicate.
    close(world.send(&ask(1, 600.0, None)).capacity.get(), 10.0);
    let grant = world.send(&ask(2, 10.0, Some(10.0)));
    close(grant.capacity.get(), 10.0);
    close(world.refresh("b", 10.0, None).capacity.get(), 0.0);
}

#[test]
fn restart_with_another_period_keeps_the_rate() {
    for (before, after) in [(PER_SECOND, PER_MINUTE), (PER_MINUTE, PER_SECOND)] {
        for states in [true, false] {
            let mut world = World::new(of(before));
            world.refresh("a", before.0, None);
            let mut world = world.restarted(of(after));
            close(world.sum_has(), after.0);
            close(world.refresh("b", after.0, None).capacity.get(), 0.0);
            let ask = if states {
                stating("a", per(before.1), before.0, before.0)
            } else {
                echoing("a", before.0, before.0)
            };
            close(world.capacity(&ask), after.0 / 2.0);
            close(world.holder("a").wants.get(), after.0);
            close(world.sum_has(), after.0);
        }
    }
}

#[test]
fn restarts_remember_what_a_silent_holder_was_told() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    for period in [60.0, 3600.0, 2.0, 0.5] {
        let document = of((10.0 * period, period));
        world.ledger.reconfigure(Arc::clone(&document));
        world.refresh("old", 0.0, None);
        world = world.restarted(of(PER_MINUTE));
        world = world.restarted(document);
        world.wait(1.0);
    }
    let mut world = world.restarted(of(PER_MINUTE));
    close(world.refresh("b", 600.0, None).capacity.get(), 0.0);
    close(world.refresh("a", 10.0, Some(10.0)).capacity.get(), 300.0);
    close(world.sum_has(), 600.0);
}

#[test]
fn record_without_a_unit_is_in_that_of_the_document() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    let records: Vec<ResourceRecord> = world.ledger.snapshot(world.now).collect();
    let mut records = serde_json::to_value(&records).unwrap();
    let record = records[0].as_object_mut().unwrap();
    assert_eq!(record.remove("unit").unwrap(), "rate");
    assert_eq!(record.remove("per").unwrap(), 1.0);
    let world = world.restarted_with(of((20.0, 2.0)), &records.to_string());
    close(world.sum_has(), 10.0);
}

#[test]
fn old_holder_keeps_its_rate_while_the_server_learns() {
    for (before, after) in [(PER_SECOND, PER_MINUTE), (PER_MINUTE, PER_SECOND)] {
        let mut world = World::learning(of(after), &[of(before)]);
        // Its claim, and the same again after a lost response.
        for _ in 0..2 {
            let grant = world.refresh("a", before.0, Some(before.0));
            close(grant.capacity.get(), after.0);
        }
        close(world.capacity(&echoing("b", after.0, 0.0)), 0.0);
        let share = after.0 / 2.0;
        for has in [after.0, share] {
            close(world.capacity(&echoing("a", after.0, has)), share);
        }
        close(world.capacity(&echoing("b", after.0, 0.0)), share);
        close(world.sum_has(), after.0);
        assert_eq!(world.ledger.stats().excess_claims, 0);
    }
}

#[test]
fn late_copy_tells_a_holder_no_unit() {
    let mut world = World::learning(of(PER_SECOND), &[of(PER_MINUTE)]);
    // A copy of its first request. The holder ignores the response.
    assert_eq!(world.refresh("a", 300.0, None).capacity.get(), 0.0);
    let grant = world.refresh("a", 300.0, Some(300.0));
    close(grant.capacity.get(), 5.0);
}

#[test]
fn stated_unit_is_exact_while_the_server_learns() {
    for earlier in [vec![], vec![of(PER_SECOND), of(PER_MINUTE)]] {
        let mut world = World::learning(of(PER_MINUTE), &earlier);
        let ask = stating("a", per(1.0), 4.0, 4.0);
        close(world.capacity(&ask), 240.0);
        close(
            world.capacity(&stating("b", per(60.0), 600.0, 360.0)),
            360.0,
        );
        close(world.sum_has(), 600.0);
    }
}

#[test]
fn claim_in_one_of_several_units_is_booked_large_and_leased_small() {
    let mut world = World::learning(of(PER_SECOND), &[of(PER_SECOND), of(PER_MINUTE)]);
    // 5 per second, or 300 per second, which is more than there is.
    let first = world.refresh("a", 300.0, Some(300.0));
    close(first.capacity.get(), 5.0);
    close(world.sum_has(), 10.0);
    // The same again after a lost response, then what the response told.
    close(world.refresh("a", 300.0, Some(300.0)).capacity.get(), 5.0);
    close(world.capacity(&echoing("a", 5.0, 5.0)), 5.0);
    close(world.sum_has(), 5.0);
    // The pool has the small reading, too.
    close(world.capacity(&echoing("b", 10.0, 0.0)), 0.0);
    close(world.capacity(&echoing("c", 300.0, 300.0)), 10.0 / 3.0);
    assert_eq!(world.ledger.stats().excess_claims, 0);
}

#[test]
fn newcomer_counts_in_the_unit_of_the_document() {
    let mut world = World::learning(of(PER_MINUTE), &[of(PER_SECOND)]);
    world.refresh("a", 600.0, None);
    close(world.holder("a").wants.get(), 600.0);
}

#[test]
fn earlier_units_are_forgotten_with_the_last_earlier_lease() {
    let mut world = World::learning(of(PER_MINUTE), &[of(PER_SECOND)]);
    world.wait(21.1);
    close(world.refresh("a", 10.0, Some(10.0)).capacity.get(), 10.0);
}

#[test]
fn amounts_of_another_kind_are_none() {
    let mut world = World::new(of(PER_SECOND));
    let lease = world.refresh("a", 10.0, None);
    assert_eq!(lease.template.unwrap().unit(), Unit::Rate);
    world.ledger.reconfigure(gauge(10.0));
    close(world.capacity(&stating("b", UNITS_IN_USE, 10.0, 0.0)), 10.0);
    for ask in [stating("a", per(1.0), 10.0, 10.0), echoing("a", 10.0, 10.0)] {
        let grant = world.send(&ask);
        close(grant.capacity.get(), 0.0);
        assert_eq!(grant.template.unwrap().unit(), Unit::Gauge);
        close(world.sum_has(), 10.0);
    }
}

#[test]
fn leases_of_another_kind_count_when_the_unit_is_changed_back() {
    for refreshes in [false, true] {
        for restarts in [false, true] {
            let mut world = World::new(of(PER_SECOND));
            world.refresh("a", 10.0, None);
            let change = |world: &mut World, document: Arc<Document>| {
                if restarts {
                    *world = world.restarted(document);
                } else {
                    world.ledger.reconfigure(document);
                }
            };
            change(&mut world, gauge(8.0));
            close(world.capacity(&stating("b", UNITS_IN_USE, 8.0, 0.0)), 8.0);
            if refreshes {
                // The response is lost.
                world.send(&stating("a", per(1.0), 10.0, 10.0));
            }
            change(&mut world, of(PER_MINUTE));
            close(world.capacity(&stating("c", per(60.0), 600.0, 0.0)), 0.0);
            close(world.sum_has(), 600.0);
            let kept = world.capacity(&stating("a", per(1.0), 10.0, 10.0));
            close(kept, 300.0);
            world.wait(30.0);
            close(world.sum_has(), 0.0);
        }
    }
}

#[test]
fn holder_that_heard_of_another_kind_has_no_lease_of_the_one_before() {
    let mut world = World::new(of(PER_SECOND));
    world.refresh("a", 10.0, None);
    world.ledger.reconfigure(gauge(10.0));
    world.send(&stating("a", per(1.0), 10.0, 10.0));
    world.send(&stating("a", UNITS_IN_USE, 4.0, 0.0));
    world.ledger.reconfigure(of(PER_SECOND));
    close(world.refresh("b", 10.0, None).capacity.get(), 10.0);
}

#[test]
fn claim_of_another_kind_is_none_while_the_server_learns() {
    let mut world = World::learning(gauge(10.0), &[of(PER_SECOND)]);
    for ask in [stating("a", per(1.0), 10.0, 10.0), echoing("b", 10.0, 10.0)] {
        let grant = world.send(&ask);
        assert_eq!(
            (grant.capacity, grant.lease_length),
            (Capacity::ZERO, Seconds::ZERO)
        );
        assert_eq!(grant.template.unwrap().unit(), Unit::Gauge);
    }
    close(world.sum_has(), 0.0);
    world.wait(21.1);
    close(world.capacity(&stating("a", UNITS_IN_USE, 10.0, 0.0)), 10.0);
}

/// Three clients that have nothing claim all.
fn lies(mut world: World, claim: f64) -> World {
    for client in ["x", "y", "z"] {
        world.send(&echoing(client, claim, claim));
    }
    world
}

#[test]
fn confirmed_claims_above_the_capacity_before_are_counted() {
    for earlier in [vec![], vec![document("FAIR_SHARE", 100.0)]] {
        let lied = World::learning(document("FAIR_SHARE", 100.0), &earlier);
        let mut world = lies(lied, 100.0);
        assert_eq!(world.ledger.stats().excess_claims, 2);
        let events = world.ledger.take_events().events;
        assert_eq!(events, [LedgerEvent::ClaimsAboveCapacity(db())]);
        // The same claims are in the sum once.
        let mut world = lies(world, 30.0);
        assert_eq!(world.ledger.stats().excess_claims, 2);
        assert!(world.ledger.take_events().events.is_empty());
    }
}

#[test]
fn capacity_before_decides_what_is_an_excess() {
    let (small, large) = (document("FAIR_SHARE", 100.0), document("FAIR_SHARE", 300.0));
    for (now, before, excess) in [
        (&large, vec![&small], 2),
        (&large, vec![&small, &large], 0),
        (&large, vec![&large], 0),
        // The first claims may be larger than what is left of the capacity.
        (&small, vec![&large], 0),
        (&small, vec![&document("STATIC", 100.0)], 0),
    ] {
        let before: Vec<_> = before.into_iter().cloned().collect();
        let world = lies(World::learning(Arc::clone(now), &before), 100.0);
        assert_eq!(world.ledger.stats().excess_claims, excess, "{before:?}");
    }
}

#[test]
fn claims_up_to_the_capacity_are_no_excess() {
    let mut world = World::learning(of(PER_MINUTE), &[of(PER_SECOND)]);
    for client in ["a", "b", "c"] {
        world.send(&stating(client, per(1.0), 10.0, 10.0 / 3.0));
    }
    assert_eq!(world.ledger.stats().excess_claims, 0);
    world.send(&stating("d", per(1.0), 1.0, 1e-6));
    assert_eq!(world.ledger.stats().excess_claims, 1);
}

#[test]
fn capacity_before_counts_after_a_handover_while_learning() {
    let large = document("FAIR_SHARE", 300.0);
    let mut world = World::learning(Arc::clone(&large), &[]);
    let clients = ["a", "b", "c"];
    for client in clients {
        world.send(&echoing(client, 100.0, 100.0));
    }
    let records: Vec<ResourceRecord> = world.ledger.snapshot(world.now).collect();
    let learning = world.ledger.learning_snapshot(world.now).unwrap();

    let mut ledger = Ledger::new(document("FAIR_SHARE", 100.0), SETTINGS, world.now);
    ledger.restore_learning(learning, world.now);
    for record in &records {
        ledger.restore(record, world.now).unwrap();
    }
    // The terms are known when the reign begins.
    let terms = EarlierTerms::new([EarlierTemplate::all_of(&large)]);
    world.ledger = ledger.with_earlier_terms(terms);
    for client in clients {
        world.send(&echoing(client, 100.0, 100.0));
    }
    assert_eq!(world.ledger.stats().excess_claims, 0);
}

#[test]
fn earlier_templates_make_parts_smaller_while_their_leases_last() {
    let templates = (0..2048).map(|index| {
        format!("{{identifier_glob: 'x{index}-*', capacity: 1, algorithm: {{kind: FAIR_SHARE}}}}")
    });
    let text = format!("resources: [{}]", templates.collect::<Vec<_>>().join(", "));
    let mut world = World::learning(of(PER_SECOND), &[parse(&text)]);
    let resources: Vec<_> = (0..100)
        .map(|index| format!(r#"{{"resource_id":"r{index}","wants":1}}"#))
        .collect();
    let request = format!(
        r#"{{"client_id":"c","resources":[{}]}}"#,
        resources.join(",")
    );
    let request: CapacityRequest = serde_json::from_str(&request).unwrap();
    let mut part = |now| {
        world
            .ledger
            .refresh_part(&request.clone().into(), 0, now)
            .len()
    };
    assert_eq!(part(world.now), 21);
    assert!(part(world.now.after_seconds(22.0)) > 60);
}

#[test]
fn client_that_limits_a_gauge_as_a_rate_is_reported() {
    let mut world = World::new(gauge(10.0));
    let mut of_client = request("a", None, 0.0, None);
    for (limited_as, reported) in [(None, 0), (Some(Unit::Gauge), 0), (Some(Unit::Rate), 1)] {
        of_client.resources[0].limited_as = limited_as;
        world.send(&of_client);
        let events = world.ledger.take_events().events;
        let is_reported = |it: &&LedgerEvent| matches!(it, LedgerEvent::OtherUnit(..));
        assert_eq!(events.iter().filter(is_reported).count(), reported);
    }
}
