//! Clients that replace others which are known to be dead.

use std::sync::atomic::{AtomicU64, Ordering};

use doorman_openapi::Reason;

use super::*;
use crate::ledger::HolderId;

fn replacing(client: &str, wants: f64, replaces: &[&str]) -> CapacityRequest {
    CapacityRequest {
        replaces: replaces.iter().map(|id| client_id(id)).collect(),
        heard_epoch: Some(SETTINGS.epoch),
        ..request(client, None, wants, None)
    }
}

/// Sends a request with the next sequence number.
fn send(world: &mut World, request: &CapacityRequest) -> Grant {
    static SENT: AtomicU64 = AtomicU64::new(1);
    let seq = Seq::new(SENT.fetch_add(1, Ordering::Relaxed)).ok();
    world.send(&CapacityRequest {
        seq,
        ..request.clone()
    })
}

fn client_id(id: &str) -> ClientId {
    ClientId::new(id).unwrap()
}

/// Refreshes as it is told until the demand is met. Returns after how many seconds.
fn seconds_until_granted(world: &mut World, request: &CapacityRequest) -> f64 {
    let start = world.now;
    loop {
        let grant = send(world, request);
        if grant.reason == Reason::Granted {
            return world.now.seconds_since(start);
        }
        world.wait(grant.refresh_interval.get());
    }
}

/// The capacity of a client after its second request, the first that may replace others.
fn second(world: &mut World, request: &CapacityRequest) -> f64 {
    send(world, request);
    send(world, request).capacity.get()
}

/// After so many seconds of silence a client of the document counts as dead.
const DEAD_AFTER: f64 = 13.0;
/// The same for one that polls.
const POLLING_DEAD_AFTER: f64 = 8.0;

fn world() -> World {
    World::new(document("FAIR_SHARE", 100.0))
}

#[test]
fn replacing_client_gets_what_is_free_and_the_rest_after_the_silence() {
    let mut world = world();
    world.refresh("a", 80.0, None);
    world.wait(1.0);
    let first = send(&mut world, &replacing("b", 80.0, &["a"]));
    assert_eq!(
        (first.capacity.get(), first.reason),
        (20.0, Reason::Pending)
    );
    assert_eq!(world.ledger.stats().replaced, 0);
    let seconds = seconds_until_granted(&mut world, &replacing("b", 80.0, &["a"]));
    let awaited = DEAD_AFTER - 1.0;
    assert!((awaited..awaited + 0.1).contains(&seconds), "{seconds}");
    assert_eq!(world.ledger.stats().replaced, 1);
    let events = world.ledger.take_events().events;
    assert_eq!(events, [LedgerEvent::Replaced(client_id("a"))]);
    assert_eq!(world.holders().len(), 1);
}

/// The most that a living client and one that replaces it have together. `before` is done before
/// each request of the latter.
fn most_of_both(mut before: impl FnMut(&mut World)) -> f64 {
    let mut world = world();
    let (mut living, mut others, mut most) = (0.0, 0.0, 0.0_f64);
    for _ in 0..20 {
        living = world.refresh("a", 80.0, Some(living)).capacity.get();
        most = most.max(living + others);
        world.wait(4.0);
        before(&mut world);
        let mut request = replacing("b", 80.0, &["a"]);
        request.resources[0].has = Some(HeldLease::from(Capacity::new(others).unwrap()));
        others = second(&mut world, &request);
        most = most.max(living + others);
        world.wait(0.9);
    }
    most
}

/// Without this safety rule a living client would lose its lease, as by a release that
/// it knows nothing of.
#[test]
fn living_client_keeps_its_lease() {
    assert_eq!(most_of_both(|_| ()), 100.0);
    assert_eq!(most_of_both(|world| world.release("a", None)), 160.0);
}

#[test]
fn client_that_is_heard_for_another_resource_lives() {
    let document = parse(
        "resources: [{identifier_glob: '*', capacity: 100, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    );
    let mut world = World::new(document);
    world.refresh("a", 80.0, None);
    world.wait(4.0);
    let mut other = request("a", None, 1.0, None);
    other.resources[0].resource_id = ResourceId::new("cache").unwrap();
    send(&mut world, &other);
    world.wait(DEAD_AFTER - 0.1);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 20.0);
    world.wait(0.1);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 80.0);
}

#[test]
fn client_that_polls_lives() {
    let mut world = world();
    world.refresh("a", 80.0, None);
    let holder = HolderId::Client(client_id("a"), None);
    let ticket = world.ledger.open_poll(&holder, 0, world.now);
    world.refresh("a", 80.0, Some(80.0));
    world.wait(10.0);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 18.0);
    world.ledger.close_poll(ticket, world.now);
    world.wait(POLLING_DEAD_AFTER - 0.1);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 18.0);
    world.wait(0.1);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 80.0);
}

#[test]
fn processes_of_one_instance_replace_each_other() {
    let mut world = world();
    for process in ["pod-7.1", "pod-7.2", "pod-7.3"] {
        let seconds = seconds_until_granted(&mut world, &replacing(process, 60.0, &["pod-7"]));
        assert!(seconds < DEAD_AFTER + 0.1, "{process}: {seconds}");
    }
    assert_eq!(world.ledger.stats().replaced, 2);
    let other = replacing("pod-8.1", 60.0, &["pod-8"]);
    assert_eq!(send(&mut world, &other).capacity.get(), 40.0);
}

#[test]
fn late_request_of_a_replaced_client_takes_nothing() {
    let mut world = world();
    world.refresh("a", 80.0, None);
    world.wait(DEAD_AFTER);
    assert_eq!(second(&mut world, &replacing("b", 80.0, &["a"])), 80.0);
    assert_eq!(world.refresh("a", 80.0, Some(80.0)).capacity.get(), 20.0);
}

/// All processes of an instance give one name, so a late copy of a dead one names the living one.
#[test]
fn request_that_may_be_late_replaces_nobody() {
    let mut world = world();
    let mut late = replacing("pod-7.1", 80.0, &["pod-7"]);
    late.seq = Seq::new(1).ok();
    world.send(&late);
    world.wait(DEAD_AFTER);
    let second_process = replacing("pod-7.2", 80.0, &["pod-7"]);
    assert_eq!(second(&mut world, &second_process), 80.0);
    world.wait(DEAD_AFTER);
    // Of this reign: it is stale.
    world.send(&late);
    // Of the reign before: it does not echo this one.
    late.client_id = client_id("pod-7.0");
    late.heard_epoch = None;
    assert_eq!(second(&mut world, &late), 20.0);
    // Without `seq` its order is unknown.
    let mut unordered = replacing("pod-7.3", 80.0, &["pod-7"]);
    unordered.seq = None;
    world.send(&unordered);
    world.send(&unordered);
    assert_eq!(world.ledger.stats().replaced, 1);
    second(&mut world, &unordered);
    assert_eq!(world.ledger.stats().replaced, 2);
}

#[test]
fn names_of_replaced_clients_are_forgotten_with_the_last_lease() {
    let mut world = world();
    for process in 0..40 {
        send(
            &mut world,
            &replacing(&format!("pod-7.{process}"), 1.0, &["pod-7", "pod-6"]),
        );
    }
    world.wait(60.0);
    assert_eq!(world.ledger.stats().leases, 0);
    assert!(world.ledger.holders.replaces_nobody());
}

/// The capacity of an older and of a newer client that give the same name and live, after one of
/// them was silent.
fn after_silence_of(silent: &str) -> [f64; 2] {
    let mut world = world();
    let clients = ["pod-7.1", "pod-7.2"].map(|client| replacing(client, 40.0, &["pod-7"]));
    for client in &clients {
        second(&mut world, client);
    }
    world.wait(DEAD_AFTER);
    for client in clients.iter().filter(|it| it.client_id.as_str() != silent) {
        second(&mut world, client);
    }
    let holders = world.holders();
    clients.map(|client| {
        let mut holders = holders.iter();
        let holder = holders.find(|it| it.client_id == client.client_id.as_str());
        holder.map_or(0.0, |it| it.has.get())
    })
}

#[test]
fn older_client_replaces_no_newer_one() {
    assert_eq!(after_silence_of("pod-7.1"), [0.0, 40.0]);
    assert_eq!(after_silence_of("pod-7.2"), [40.0, 40.0]);
}

#[test]
fn holders_of_an_inherited_ledger_were_heard_at_its_beginning() {
    let capacity = |inherits: bool| {
        let mut world = world();
        world.refresh("a", 80.0, None);
        world.wait(DEAD_AFTER);
        if inherits {
            world.ledger.begin_reign(world.now);
        }
        second(&mut world, &replacing("b", 80.0, &["a"]))
    };
    assert_eq!([false, true].map(capacity), [80.0, 20.0]);
}
