//! SHARED_BUCKET.

use doorman_openapi::Balance;

use super::*;
use crate::ledger::ResourceRecord;

fn bucket() -> World {
    World::new(document("SHARED_BUCKET", 4.0))
}

impl World {
    /// The balance in the response to a client that reports this total.
    fn balance(&mut self, client: &str, used: f64) -> f64 {
        self.report(client, 4.0, used)
    }

    fn report(&mut self, client: &str, wants: f64, used: f64) -> f64 {
        let mut request = request(client, None, wants, None);
        request.resources[0].used = Some(Capacity::new(used).unwrap());
        self.send(&request)
            .signal
            .balance()
            .map(Balance::get)
            .unwrap()
    }
}

#[test]
fn overspent_bucket_refills_before_admitting() {
    let mut world = bucket();
    for host in ["a", "b", "c"] {
        let granted = world.refresh(host, 4.0, None);
        assert_eq!(
            granted.capacity.get(),
            4.0,
            "each holder has a bucket of the full rate"
        );
        close(world.balance(host, 0.0), 4.0);
    }
    let balances = ["a", "b", "c"].map(|host| world.balance(host, 4.0));
    assert_eq!(balances, [0.0, -4.0, -8.0], "12 used of a burst of 4");
    for (seconds, balance) in [(1.0, -4.0), (1.0, 0.0), (1.0, 4.0), (10.0, 4.0)] {
        world.wait(seconds);
        close(world.balance("a", 4.0), balance);
    }
}

#[test]
fn bucket_holds_a_second_and_at_least_one_token() {
    let text = |capacity: f64, per: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
             algorithm: {{kind: SHARED_BUCKET, lease_length: 20, refresh_interval: 0.1}}}}]"
        ))
    };
    for (capacity, per, size) in [(600.0, 60.0, 10.0), (6.0, 60.0, 1.0), (0.5, 1.0, 1.0)] {
        let mut world = World::new(text(capacity, per));
        close(world.balance("a", 0.0), size);
        world.balance("a", size);
        world.wait(size * per / capacity / 2.0);
        close(world.balance("a", size), size / 2.0);
    }
}

#[test]
fn repeated_total_is_charged_once() {
    let mut world = bucket();
    for _ in 0..3 {
        close(world.balance("a", 3.0), 1.0);
    }
}

#[test]
fn smaller_total_starts_a_new_count() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 6.0), -2.0);
    close(world.balance("a", 1.0), -2.0);
    close(world.balance("a", 2.0), -3.0);
}

#[test]
fn first_total_is_charged_one_burst_at_most() {
    let mut world = bucket();
    world.balance("b", 0.0);
    close(world.balance("a", 1e6), 0.0);
    close(world.balance("a", 1e6 + 1.0), -1.0);
}

#[test]
fn overflow_pays_only_for_what_was_wanted_meanwhile() {
    for (wanted, left) in [
        (0.5, 4.0 - (14.0 - 2.5)),
        (2.0, 4.0 - (14.0 - 10.0)),
        (9.0, 4.0),
    ] {
        let mut world = bucket();
        world.balance("a", 0.0);
        world.refresh("a", wanted, None);
        // The bucket is full: 40 tokens overflow, of which one interval's worth is kept. With the
        // 4 that b wants the demands do not fit.
        world.wait(10.0);
        close(world.balance("b", 0.0), 4.0);
        close(world.balance("b", 14.0), left);
    }
}

#[test]
fn fleet_that_starts_within_the_rate_has_no_debt() {
    let mut world = bucket();
    for host in ["a", "b", "c"] {
        world.report(host, 0.0, 0.0);
    }
    world.wait(5.0);
    for host in ["a", "b", "c"] {
        close(world.report(host, 1.0, 5.0), 4.0);
    }
}

#[test]
fn demand_beyond_the_rate_is_in_debt_at_once() {
    let mut world = bucket();
    for host in ["a", "b"] {
        world.report(host, 0.0, 0.0);
    }
    world.wait(10.0);
    close(world.report("a", 4.0, 20.0), 4.0);
    close(world.report("b", 4.0, 20.0), 4.0 - 20.0);
}

#[test]
fn debt_survives_its_holders() {
    let mut world = bucket();
    world.balance("a", 0.0);
    world.balance("a", 404.0);
    world.wait(30.0);
    assert_eq!(world.view().unwrap().clients, 0, "the lease has ended");
    close(world.balance("b", 0.0), -280.0);
    world.release("b", None);
    world.wait(70.0);
    close(world.view().unwrap().balance.unwrap().get(), 0.0);
    world.wait(2.0);
    assert!(world.view().is_none(), "no debt is left");
}

#[test]
fn debt_is_limited_to_an_hour() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 1e15), -4.0 * 3600.0);
}

#[test]
fn lower_rate_limits_the_debt() {
    let mut world = World::new(document("SHARED_BUCKET", 1000.0));
    world.balance("a", 0.0);
    close(world.balance("a", 10_000.0), -9_000.0);
    world.ledger.reconfigure(document("SHARED_BUCKET", 0.01));
    close(world.balance("a", 10_000.0), -36.0);
}

#[test]
fn zero_rate_has_no_balance() {
    let mut world = World::new(document("SHARED_BUCKET", 0.0));
    close(world.balance("a", 0.0), 0.0);
    world.release("a", None);
    assert!(world.view().is_none());
}

#[test]
fn bucket_without_holders_is_dropped_when_full() {
    let settings = Settings {
        max_leases: 0,
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 20.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("SHARED_BUCKET", 4.0), settings);
    world.refresh("a", 1.0, None);
    world.wait(2.0);
    assert!(world.view().is_none());
}

#[test]
fn bucket_refills_from_the_start_after_a_loss() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 600.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("SHARED_BUCKET", 4.0), settings);
    world.wait(0.5);
    close(world.balance("a", 0.0), 2.0);
    world.release("a", None);
    world.wait(30.0);
    close(world.balance("b", 0.0), 4.0);
}

#[test]
fn first_total_is_the_baseline_after_a_loss() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 20.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("SHARED_BUCKET", 4.0), settings);
    close(world.balance("a", 3.0), 0.0);
    close(world.balance("a", 5.0), -2.0);
    let granted = world.refresh("b", 4.0, None);
    assert_eq!(granted.capacity.get(), 4.0, "no learning mode");
}

#[test]
fn balance_survives_a_clean_restart() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 10.0), -6.0);
    let records: Vec<ResourceRecord> = world.ledger.snapshot(world.now).collect();
    let text = serde_json::to_string(&records).unwrap();

    let mut next = bucket();
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        next.ledger.restore(&record, next.now).unwrap();
    }
    next.wait(1.0);
    close(next.balance("a", 11.0), -3.0);
}

#[test]
fn new_rate_applies_from_its_adoption() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 12.0), -8.0);
    world.ledger.reconfigure(document("SHARED_BUCKET", 8.0));
    close(world.balance("a", 12.0), -8.0);
    world.wait(1.0);
    close(world.balance("a", 12.0), 0.0);
}

#[test]
fn other_algorithms_have_no_balance() {
    let mut world = World::new(document("FAIR_SHARE", 4.0));
    assert_eq!(
        world.refresh("a", 1.0, None).signal,
        crate::ledger::Signal::None
    );
    world.ledger.reconfigure(document("SHARED_BUCKET", 4.0));
    close(world.balance("a", 0.0), 4.0);
    world.ledger.reconfigure(document("FAIR_SHARE", 4.0));
    assert_eq!(
        world.refresh("a", 1.0, None).signal,
        crate::ledger::Signal::None
    );
}
