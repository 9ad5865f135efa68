//! One bucket that all holders spend from.

use doorman_openapi::Balance;

use super::*;
use crate::ledger::ResourceRecord;

fn bucket() -> World {
    World::new(document("SHARED_BUCKET", 4.0))
}

impl World {
    /// What a client is told the balance is when it says that it has used so much.
    fn balance(&mut self, client: &str, used: f64) -> f64 {
        let mut request = request(client, None, 4.0, None);
        request.resources[0].used = Some(Capacity::new(used).unwrap());
        self.send(&request)
            .feedback
            .balance()
            .map(Balance::get)
            .unwrap()
    }
}

#[test]
fn three_hosts_that_overspend_wait_until_it_is_paid_back() {
    let mut world = bucket();
    for host in ["a", "b", "c"] {
        let granted = world.ask(host, 4.0, None);
        assert_eq!(
            granted.capacity.get(),
            4.0,
            "each keeps a bucket of the full rate"
        );
        close(world.balance(host, 0.0), 4.0);
    }
    let balances = ["a", "b", "c"].map(|host| world.balance(host, 4.0));
    assert_eq!(balances, [0.0, -4.0, -8.0], "twelve, of a limit of four");
    for (seconds, balance) in [(1.0, -4.0), (1.0, 0.0), (1.0, 4.0), (10.0, 4.0)] {
        world.wait(seconds);
        close(world.balance("a", 4.0), balance);
    }
}

#[test]
fn holds_a_seconds_worth_and_at_least_one_token() {
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
fn a_total_counts_once_however_often_it_is_told() {
    let mut world = bucket();
    for _ in 0..3 {
        close(world.balance("a", 3.0), 1.0);
    }
}

#[test]
fn a_total_that_shrinks_begins_anew() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 6.0), -2.0);
    close(world.balance("a", 1.0), -2.0);
    close(world.balance("a", 2.0), -3.0);
}

#[test]
fn who_was_forgotten_is_not_charged_for_all_of_its_life() {
    let mut world = bucket();
    world.balance("b", 0.0);
    close(world.balance("a", 1e6), 0.0);
    close(world.balance("a", 1e6 + 1.0), -1.0);
}

#[test]
fn a_debt_outlives_those_who_made_it() {
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
    assert!(world.view().is_none(), "nothing is owed any more");
}

#[test]
fn no_report_shuts_a_resource_for_more_than_an_hour() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 1e15), -4.0 * 3600.0);
}

#[test]
fn a_cut_of_the_rate_leaves_no_longer_debt() {
    let mut world = World::new(document("SHARED_BUCKET", 1000.0));
    world.balance("a", 0.0);
    close(world.balance("a", 10_000.0), -9_000.0);
    world.core.reconfigure(document("SHARED_BUCKET", 0.01));
    close(world.balance("a", 10_000.0), -36.0);
}

#[test]
fn where_there_is_nothing_nothing_is_left() {
    let mut world = World::new(document("SHARED_BUCKET", 0.0));
    close(world.balance("a", 0.0), 0.0);
    world.release("a", None);
    assert!(world.view().is_none());
}

#[test]
fn a_bucket_for_whose_holder_there_was_no_room_is_forgotten() {
    let settings = Settings {
        max_leases: 0,
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 20.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("SHARED_BUCKET", 4.0), settings);
    world.ask("a", 1.0, None);
    world.wait(2.0);
    assert!(world.view().is_none());
}

#[test]
fn a_bucket_is_filled_from_when_a_predecessor_was_gone() {
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
fn where_a_predecessor_may_have_counted_the_first_total_is_the_baseline() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 20.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("SHARED_BUCKET", 4.0), settings);
    close(world.balance("a", 3.0), 0.0);
    close(world.balance("a", 5.0), -2.0);
    let granted = world.ask("b", 4.0, None);
    assert_eq!(granted.capacity.get(), 4.0, "there is nothing to learn");
}

#[test]
fn a_clean_stop_leaves_the_balance_to_the_next() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 10.0), -6.0);
    let records: Vec<ResourceRecord> = world.core.snapshot(world.now).collect();
    let text = serde_json::to_string(&records).unwrap();

    let mut next = bucket();
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        next.core.restore(&record, next.now).unwrap();
    }
    next.wait(1.0);
    close(next.balance("a", 11.0), -3.0);
}

#[test]
fn a_new_rate_counts_from_when_it_is_in_force() {
    let mut world = bucket();
    world.balance("a", 0.0);
    close(world.balance("a", 12.0), -8.0);
    world.core.reconfigure(document("SHARED_BUCKET", 8.0));
    close(world.balance("a", 12.0), -8.0);
    world.wait(1.0);
    close(world.balance("a", 12.0), 0.0);
}

#[test]
fn other_algorithms_tell_of_no_balance() {
    let mut world = World::new(document("FAIR_SHARE", 4.0));
    assert_eq!(
        world.ask("a", 1.0, None).feedback,
        crate::ledger::Feedback::None
    );
    world.core.reconfigure(document("SHARED_BUCKET", 4.0));
    close(world.balance("a", 0.0), 4.0);
    world.core.reconfigure(document("FAIR_SHARE", 4.0));
    assert_eq!(
        world.ask("a", 1.0, None).feedback,
        crate::ledger::Feedback::None
    );
}
