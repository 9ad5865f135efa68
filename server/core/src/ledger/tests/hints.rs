//! Polls and their hints.

use doorman_openapi::{ClientId, NodeId};

use super::*;
use crate::ledger::{HintBatch, HolderId, PollTicket, keys::ResourceKey};

impl World {
    pub(super) fn poll(&mut self, client: &str, after: u64) -> PollTicket {
        let client = ClientId::new(client).unwrap();
        let holder = &HolderId::Client(client.clone(), None);
        self.ledger.open_poll(holder, after, self.now)
    }

    /// The answers to polls that are due.
    fn answers(&mut self) -> Vec<(PollTicket, HintBatch)> {
        let has_hints = self.ledger.has_hints(self.now);
        let answers = self.ledger.take_hints(self.now);
        assert_eq!(has_hints, !answers.is_empty());
        answers
    }

    fn hint(&mut self, client: &str) {
        let id = HolderId::Client(ClientId::new(client).unwrap(), None);
        let holder = self.ledger.holders.find(&id).unwrap();
        let ledger = &mut self.ledger;
        let resource = ResourceKey::new(0);
        ledger.polls.hint(&mut ledger.holders, holder, resource);
    }
}

fn world() -> World {
    World::new(document("FAIR_SHARE", 100.0))
}

#[test]
fn later_poll_replaces_the_earlier_one() {
    let mut world = world();
    let first = world.poll("a", 0);
    assert_eq!(world.answers(), []);
    let second = world.poll("a", 7);
    let answers = world.answers();
    let [(ticket, batch)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!((*ticket, batch.after), (first, 7));
    assert!(batch.refresh.is_empty() && !batch.all);
    world.ledger.close_poll(first, world.now);
    world.send(&request("a", Some(3), 10.0, None));
    world.hint("a");
    let answers = world.answers();
    let [(ticket, batch)] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!((*ticket, batch.after), (second, 8));
    assert_eq!(batch.refresh[0].resource_id, db());
    assert_eq!(batch.refresh[0].seq, Seq::new(3).ok());
}

#[test]
fn first_request_may_overtake_its_poll() {
    let first = |polls| CapacityRequest {
        polls,
        replaces: Vec::new(),
        ..request("a", Some(1), 10.0, None)
    };
    assert_eq!(world().send(&first(false)).capacity.get(), 10.0);
    let mut world = world();
    assert_eq!(world.send(&first(true)).capacity.get(), 55.0);
    // It needs no hint when its poll arrives.
    world.poll("a", 0);
    assert_eq!(world.answers(), []);
    assert_eq!(world.refresh("a", 10.0, Some(55.0)).capacity.get(), 90.0);
}

#[test]
fn announced_poll_that_does_not_arrive_counts_for_five_seconds() {
    let mut world = world();
    let mut announced = request("a", Some(1), 10.0, None);
    announced.polls = true;
    world.send(&announced);
    for (seconds, capacity) in [(4.0, 90.0), (2.0, 10.0)] {
        world.wait(seconds);
        world.ledger.sweep(world.now, 64);
        world.ledger.take_hints(world.now);
        // Only a client without leases is believed.
        announced.seq = announced.seq.map(Seq::next);
        announced.resources[0].has = Some(HeldLease::from(Capacity::new(55.0).unwrap()));
        assert_eq!(world.send(&announced).capacity.get(), capacity);
    }
}

#[test]
fn announced_poll_of_a_call_without_leases_leaves_nothing() {
    let mut world = world();
    let announced = CapacityRequest {
        polls: true,
        replaces: Vec::new(),
        resources: Vec::new(),
        ..request("a", Some(1), 10.0, None)
    };
    let call = announced.into();
    world.ledger.refresh_part(&call, 0, world.now);
    world.wait(0.1);
    assert_eq!(world.ledger.hints_due(), None);
    let id = HolderId::Client(ClientId::new("a").unwrap(), None);
    assert!(world.ledger.holders.find(&id).is_none());
}

#[test]
fn unconfirmed_hint_is_repeated() {
    let mut world = world();
    world.send(&request("a", Some(1), 10.0, None));
    world.poll("a", 0);
    world.hint("a");
    assert_eq!(world.answers().len(), 1);
    // The response was lost.
    world.poll("a", 0);
    world.wait(0.1);
    let answers = world.answers();
    assert_eq!(answers[0].1.refresh.len(), 1);
    assert_eq!(answers[0].1.after, 2);
    // It arrived, and the refresh is on its way.
    world.poll("a", 2);
    world.wait(0.3);
    assert_eq!(world.answers(), []);
    world.send(&request("a", Some(2), 10.0, Some(10.0)));
    world.wait(2.0);
    assert_eq!(world.answers(), []);
}

#[test]
fn hint_without_refresh_is_repeated_a_few_times() {
    let mut world = world();
    world.send(&request("a", Some(1), 10.0, None));
    let mut after = 0;
    world.hint_repeatedly("a", &mut after);
    assert_eq!(after, 4);
}

impl World {
    fn hint_repeatedly(&mut self, client: &str, after: &mut u64) {
        self.poll(client, *after);
        self.hint(client);
        for _ in 0..40 {
            for (_, batch) in self.answers() {
                *after = batch.after;
                self.poll(client, *after);
            }
            self.wait(0.25);
        }
    }
}

#[test]
fn hints_of_a_holder_are_spaced() {
    let mut world = world();
    world.send(&request("a", Some(1), 10.0, None));
    let mut times = Vec::new();
    for tenth in 0..100 {
        world.poll("a", 0);
        world.hint("a");
        if world
            .ledger
            .take_hints(world.now)
            .iter()
            .any(|it| !it.1.refresh.is_empty())
        {
            times.push(tenth);
        }
        world.wait(0.01);
    }
    assert_eq!(times, [0, 5, 15, 35, 60, 85]);
}

#[test]
fn hints_stay_spaced_when_the_leases_end() {
    let mut world = world();
    let mut times = Vec::new();
    for hundredth in 0..20 {
        world.refresh("a", 10.0, None);
        world.poll("a", 0);
        world.hint("a");
        let answers = world.ledger.take_hints(world.now);
        if answers.iter().any(|it| !it.1.refresh.is_empty()) {
            times.push(hundredth);
        }
        world.release("a", None);
        world.wait(0.01);
    }
    assert_eq!(times, [0, 5, 15]);
}

#[test]
fn poll_of_a_holder_without_leases_leaves_nothing() {
    let mut world = world();
    let node = NodeId::new("n").unwrap();
    let ticket = world
        .ledger
        .open_poll(&HolderId::Node(node.clone()), 0, world.now);
    assert!(
        world
            .ledger
            .holders
            .find(&HolderId::Node(node.clone()))
            .is_some()
    );
    world.ledger.close_poll(ticket, world.now);
    world.wait(0.1);
    assert!(world.ledger.holders.find(&HolderId::Node(node)).is_none());
    // Its key may be another holder's now.
    world.poll("a", 0);
    world.ledger.close_poll(ticket, world.now);
    assert_eq!(world.answers(), []);
    assert_eq!(world.ledger.hints_due(), None);
}

#[test]
fn poll_ends_with_the_last_lease() {
    let mut world = world();
    world.refresh("a", 10.0, None);
    let ticket = world.poll("a", 0);
    world.ledger.take_hints(world.now);
    world.ledger.close_poll(ticket, world.now);
    assert!(world.ledger.hints_due().is_some());
    world.release("a", None);
    // The spacing of its hints is kept.
    world.wait(0.06);
    let id = HolderId::Client(ClientId::new("a").unwrap(), None);
    assert!(world.ledger.holders.find(&id).is_none());
    assert_eq!(world.ledger.hints_due(), None);
}

#[test]
fn hint_of_an_expired_lease_is_dropped() {
    let mut world = world();
    world.refresh("a", 100.0, None);
    world.poll("a", 0);
    world.hint("a");
    world.wait(22.0);
    assert_eq!(world.ledger.stats().leases, 0);
    assert_eq!(world.answers(), []);
}

#[test]
fn many_hints_are_one_for_all() {
    let text = "resources: [{identifier_glob: '*', capacity: 100, \
                algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
    let mut world = World::new(parse(text));
    let mut request = request("a", Some(1), 10.0, None);
    let one = request.resources.remove(0);
    request.resources = (0..257)
        .map(|index| ResourceRequest {
            resource_id: ResourceId::new(format!("r{index}")).unwrap(),
            ..one.clone()
        })
        .collect();
    world.send(&request);
    world.poll("a", 0);
    let id = HolderId::Client(ClientId::new("a").unwrap(), None);
    let holder = world.ledger.holders.find(&id).unwrap();
    for index in 0..257 {
        let ledger = &mut world.ledger;
        let resource = ResourceKey::new(index);
        ledger.polls.hint(&mut ledger.holders, holder, resource);
    }
    let answers = world.answers();
    assert!(answers[0].1.all && answers[0].1.refresh.is_empty());
}
