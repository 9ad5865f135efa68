//! Bounds of a tenant: its leases and its clients.

use std::{num::NonZeroU32, sync::Arc};

use doorman_openapi::{CapacityRequest, Reason, ResourceRequest, Run};

use super::{SETTINGS, World, document, parse, request};
use crate::ledger::{LeaseCall, Ledger, Predecessor, Settings, Tenant, TenantId};

const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 9, \
     algorithm: {kind: STATIC, lease_length: 20, refresh_interval: 5}}]";

fn tenant(id: u64, max_clients: u32) -> Tenant {
    Tenant {
        id: TenantId(id),
        max_clients: NonZeroU32::new(max_clients),
    }
}

impl World {
    /// A request for `db`, with a `seq`, of a client that has nothing.
    fn ask(&mut self, client: &str, seq: u64, of: impl Into<Option<Tenant>>) -> Reason {
        self.call(client, Some(seq), None, of.into())
    }

    fn call(
        &mut self,
        client: &str,
        seq: Option<u64>,
        has: Option<f64>,
        of: Option<Tenant>,
    ) -> Reason {
        let call = LeaseCall::from(request(client, seq, 1.0, has)).of_tenant(of);
        self.ledger.refresh(&call, self.now).remove(0).reason
    }
}

#[test]
fn tenant_has_a_quarter_of_the_leases_but_renews() {
    let settings = Settings {
        max_leases: 8,
        ..SETTINGS
    };
    let mut world = World::with(parse(DOCUMENT), settings);
    let (one, two) = (tenant(1, 0), tenant(2, 0));
    for client in ["a1", "a2"] {
        assert_eq!(world.call(client, None, None, Some(one)), Reason::Granted);
    }
    assert_eq!(world.call("a3", None, None, Some(one)), Reason::Full);
    assert_eq!(world.call("a1", None, None, Some(one)), Reason::Granted);
    for (client, tenant) in [
        ("b", Some(two)),
        ("free1", None),
        ("free2", None),
        ("free3", None),
    ] {
        assert_eq!(
            world.call(client, None, None, tenant),
            Reason::Granted,
            "{client}"
        );
    }
    assert_eq!(world.call("a3", None, None, Some(one)), Reason::Full);
    world.release("a2", None);
    assert_eq!(world.call("a3", None, None, Some(one)), Reason::Granted);
}

#[test]
fn tenant_has_a_bounded_number_of_clients() {
    let mut world = World::new(parse(DOCUMENT));
    let of = tenant(1, 2);
    assert_eq!(world.ask("a", 1, of), Reason::Granted);
    assert_eq!(world.ask("b", 1, of), Reason::Granted);
    assert_eq!(world.ask("c", 1, of), Reason::Full);
    assert_eq!(world.ask("other", 1, tenant(2, 2)), Reason::Granted);
    // A client with a lease may have more.
    let further = ResourceRequest {
        resource_id: "cache".parse().unwrap(),
        ..request("a", Some(2), 1.0, None).resources.remove(0)
    };
    let mut both = request("a", Some(2), 1.0, Some(1.0));
    both.resources.push(further);
    let grants = world
        .ledger
        .refresh(&LeaseCall::from(both).of_tenant(Some(of)), world.now);
    assert!(grants.iter().all(|it| it.reason == Reason::Granted));
    // Its released leases are retained, since they have a `seq`, and take no place.
    world.release("b", Some(2));
    assert_eq!(world.ask("c", 2, of), Reason::Granted);
    assert_eq!(world.ask("b", 3, of), Reason::Full);
    world.wait(25.0);
    assert_eq!(world.ask("b", 4, of), Reason::Granted);
    assert_eq!(world.ask("d", 1, of), Reason::Granted);
    assert_eq!(world.ask("a", 3, of), Reason::Full);
}

#[test]
fn two_tokens_in_turn_pass_no_bound() {
    let mut world = World::new(parse(DOCUMENT));
    let (one, two) = (tenant(1, 2), tenant(2, 2));
    let mut seq = 0;
    for client in ["a", "b", "c", "d", "e", "f"] {
        for of in [one, two, one, two] {
            seq += 1;
            world.ask(client, seq, of);
        }
    }
    assert_eq!(world.holders().len(), 4);
}

#[test]
fn next_master_knows_the_clients_of_a_tenant() {
    let mut world = World::new(parse(DOCUMENT));
    let of = tenant(1, 2);
    for client in ["a", "b", "c"] {
        world.ask(client, 1, of);
    }
    world.release("b", Some(2));
    assert_eq!(world.ask("c", 2, of), Reason::Granted);
    let mut next = Ledger::new(parse(DOCUMENT), SETTINGS, world.now);
    for record in world.ledger.snapshot(world.now) {
        next.restore(&record, world.now).unwrap();
    }
    world.ledger = next;
    assert_eq!(world.ask("d", 1, of), Reason::Full);
    assert_eq!(world.ask("b", 3, of), Reason::Full);
    for client in ["a", "c"] {
        assert_eq!(
            world.call(client, Some(3), Some(1.0), Some(of)),
            Reason::Granted
        );
    }
}

#[test]
fn runs_of_one_id_are_clients_of_a_tenant() {
    let mut world = World::new(parse(DOCUMENT));
    let mut ask = |run: u64| {
        let request = CapacityRequest {
            run: Some(Run::new(run).unwrap()),
            ..request("a", Some(1), 1.0, None)
        };
        let call = LeaseCall::from(request).of_tenant(Some(tenant(1, 2)));
        world.ledger.refresh(&call, world.now).remove(0).reason
    };
    assert_eq!(
        [1, 2, 3].map(&mut ask),
        [Reason::Granted, Reason::Granted, Reason::Full]
    );
}

#[test]
fn late_request_after_a_release_takes_no_place() {
    let mut world = World::new(parse(DOCUMENT));
    let of = tenant(1, 1);
    assert_eq!(world.ask("a", 1, of), Reason::Granted);
    world.release("a", Some(3));
    world.ask("a", 2, of);
    assert_eq!(world.ask("b", 1, of), Reason::Granted);
}

#[test]
fn clients_above_a_lowered_bound_get_no_more() {
    let mut world = World::new(parse(DOCUMENT));
    for client in ["a", "b", "c"] {
        assert_eq!(world.ask(client, 1, tenant(1, 3)), Reason::Granted);
    }
    let lowered = tenant(1, 1);
    for client in ["a", "b", "c"] {
        let renewed = world.call(client, Some(2), Some(1.0), Some(lowered));
        assert_eq!(renewed, Reason::Granted, "{client}");
    }
    assert_eq!(world.ask("d", 1, lowered), Reason::Full);
    world.release("a", Some(3));
    world.release("b", Some(3));
    assert_eq!(world.ask("d", 2, lowered), Reason::Full);
    world.release("c", Some(3));
    assert_eq!(world.ask("d", 3, lowered), Reason::Granted);
}

#[test]
fn learning_server_has_room_for_claims_alone() {
    let document = document("FAIR_SHARE", 9.0);
    let mut world = World::new(Arc::clone(&document));
    let settings = Settings {
        predecessor: Predecessor::Until(world.now.after_seconds(20.0)),
        ..SETTINGS
    };
    world.ledger = Ledger::new(document, settings, world.now);
    let of = tenant(1, 2);
    assert_eq!(world.ask("waiting", 1, of), Reason::Full);
    for client in ["a", "b"] {
        let claimed = world.call(client, Some(1), Some(1.0), Some(of));
        assert_ne!(claimed, Reason::Full, "{client}");
    }
    let claimed = world.call("c", Some(1), Some(1.0), Some(of));
    assert_eq!(claimed, Reason::Full);
    world.release("b", Some(2));
    world.wait(20.0);
    assert_ne!(world.ask("waiting", 2, of), Reason::Full);
}
