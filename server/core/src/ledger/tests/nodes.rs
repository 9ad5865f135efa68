//! Requests of nodes.

use doorman_openapi::{
    Band, ClientCount, Epoch, HolderKind, NodeId, Reason, ServerCapacityRequest,
    ServerReleaseRequest, ServerResourceRequest,
};

use super::*;
use crate::ledger::ReleasePosition;

fn node_request(
    epoch: u64,
    seq: u64,
    bands: &[(i32, u64, f64)],
    has: Option<f64>,
) -> ServerCapacityRequest {
    let bands = bands.iter().map(|(priority, clients, wants)| Band {
        priority: *priority,
        num_clients: ClientCount::new(*clients).unwrap(),
        wants: Capacity::new(*wants).unwrap(),
    });
    ServerCapacityRequest {
        node_id: NodeId::new("eu").unwrap(),
        epoch: Some(Epoch::new(epoch).unwrap()),
        seq: Some(Seq::new(seq).unwrap()),
        heard_epoch: None,
        address: None,
        resources: vec![ServerResourceRequest {
            resource_id: db(),
            wants: bands.collect(),
            has: has.map(|has| HeldLease::from(Capacity::new(has).unwrap())),
            outstanding: Capacity::ZERO,
            used: None,
            unit: None,
            per: None,
            outcomes: None,
            pause: None,
            seen: None,
        }],
    }
}

fn send(world: &mut World, request: &ServerCapacityRequest) -> Grant {
    world
        .ledger
        .refresh(&request.clone().into(), world.now)
        .remove(0)
}

#[test]
fn node_weighs_as_much_as_its_clients() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let node = send(&mut world, &node_request(1, 1, &[(0, 3, 300.0)], Some(0.0)));
    assert_eq!(node.capacity.get(), 100.0);
    world.refresh("a", 100.0, None);
    assert_eq!(
        send(
            &mut world,
            &node_request(1, 2, &[(0, 3, 300.0)], Some(100.0))
        )
        .capacity
        .get(),
        75.0
    );
    send(
        &mut world,
        &node_request(1, 3, &[(0, 3, 300.0)], Some(75.0)),
    );
    let client = world.refresh("a", 100.0, None);
    assert_eq!(
        (client.capacity.get(), client.safe_capacity.get()),
        (25.0, 25.0)
    );
}

#[test]
fn new_master_gets_the_lease_of_its_node() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    send(&mut world, &node_request(1, 7, &[(0, 1, 80.0)], Some(0.0)));
    world.wait(10.0);
    let grant = send(&mut world, &node_request(2, 1, &[(0, 1, 5.0)], None));
    assert_eq!(grant.capacity.get(), 80.0);
    close(grant.lease_length.get(), 11.0 / 1.05);
    assert_eq!(world.view().unwrap().sum_has, 80.0);
    // Requests of the deposed master are stale. The lease is that of the new one.
    let stale = send(&mut world, &node_request(1, 8, &[(0, 1, 99.0)], Some(80.0)));
    assert_eq!(stale.lease_length.get(), 0.0);
    assert_eq!(stale.capacity.get(), 0.0);
    assert_eq!(world.view().unwrap().sum_wants, 5.0);
}

#[test]
fn new_node_without_has_gets_its_share() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    assert_eq!(
        send(&mut world, &node_request(1, 1, &[(0, 1, 80.0)], None))
            .capacity
            .get(),
        80.0
    );
}

#[test]
fn outstanding_leases_of_a_node_stay_booked() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    send(&mut world, &node_request(1, 1, &[(0, 1, 100.0)], Some(0.0)));
    world.refresh("a", 100.0, None);
    let mut body = node_request(1, 2, &[(0, 1, 100.0)], Some(50.0));
    body.resources[0].outstanding = Capacity::new(90.0).unwrap();
    let granted = send(&mut world, &body);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (50.0, Reason::Share)
    );
    close(world.view().unwrap().sum_has, 90.0);
    assert_eq!(world.refresh("a", 100.0, None).capacity.get(), 10.0);
}

#[test]
fn excess_bands_are_merged() {
    let mut world = World::new(document("FAIR_SHARE", 1e6));
    let bands: Vec<_> = (0..1000).map(|priority| (priority, 1, 1.0)).collect();
    assert_eq!(
        send(&mut world, &node_request(1, 1, &bands, Some(0.0)))
            .capacity
            .get(),
        1000.0
    );
    assert_eq!(world.holders()[0].bands.len(), 32);
    assert_eq!(world.view().unwrap().clients, 1000);
}

#[test]
fn node_and_client_with_one_name_are_distinct() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let mut body = node_request(1, 1, &[(0, 2, 10.0)], Some(0.0));
    body.address = Some("http://eu:7300".parse().unwrap());
    send(&mut world, &body);
    world.refresh("eu", 10.0, None);
    assert_eq!(world.view().unwrap().sum_has, 20.0);
    let shown = world.holders().into_iter();
    let shown: Vec<_> = shown.map(|it| (it.kind, it.clients, it.address)).collect();
    let node = (HolderKind::Node, Some(2), Some("http://eu:7300".to_owned()));
    assert_eq!(shown, [node, (HolderKind::Client, None, None)]);
    let release = ServerReleaseRequest {
        node_id: NodeId::new("eu").unwrap(),
        epoch: Some(Epoch::new(1).unwrap()),
        seq: Some(Seq::new(2).unwrap()),
        heard_epoch: None,
        resource_ids: Some(vec![db()]),
    };
    world.ledger.release_part(
        &release.clone().into(),
        &|_| true,
        ReleasePosition::default(),
        world.now,
    );
    assert_eq!(world.view().unwrap().sum_has, 10.0);
}

#[test]
fn outstanding_counts_for_nothing_without_has() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let mut body = node_request(1, 1, &[(0, 1, 10.0)], None);
    body.resources[0].outstanding = Capacity::new(90.0).unwrap();
    send(&mut world, &body);
    assert_eq!(world.view().unwrap().sum_has, 10.0);
}

#[test]
fn new_master_gets_the_older_and_larger_lease() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    send(&mut world, &node_request(1, 1, &[(0, 1, 100.0)], Some(0.0)));
    world.refresh("a", 100.0, None);
    let shrunk = send(
        &mut world,
        &node_request(1, 2, &[(0, 1, 100.0)], Some(100.0)),
    );
    assert_eq!(shrunk.capacity.get(), 50.0);
    // The node's clients may not know the smaller lease. A repeated request gets the same.
    for _ in 0..2 {
        let grant = send(&mut world, &node_request(2, 1, &[(0, 1, 100.0)], None));
        assert_eq!(grant.capacity.get(), 100.0);
    }
    let mut body = node_request(2, 2, &[(0, 1, 100.0)], Some(100.0));
    body.resources[0].outstanding = Capacity::new(100.0).unwrap();
    send(&mut world, &body);
    assert_eq!(world.refresh("a", 100.0, None).capacity.get(), 0.0);
}

#[test]
fn learning_server_reports_no_lease_to_new_master() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3621.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    world.wait(10.0);
    send(
        &mut world,
        &node_request(1, 9, &[(0, 1, 100.0)], Some(80.0)),
    );
    let grant = send(&mut world, &node_request(2, 1, &[(0, 1, 100.0)], None));
    assert_eq!(
        (grant.capacity.get(), grant.lease_length.get(), grant.reason),
        (0.0, 0.0, Reason::Pending)
    );
    // After learning mode.
    world.wait(11.5);
    let grant = send(&mut world, &node_request(2, 2, &[(0, 1, 100.0)], None));
    assert_eq!((grant.capacity.get(), grant.lease_length.get()), (0.0, 0.0));
    assert_eq!(world.view().unwrap().sum_has, 80.0);
    // After the lease, which may be that of a late request.
    world.wait(10.0);
    let grant = send(&mut world, &node_request(2, 3, &[(0, 1, 100.0)], None));
    assert_eq!(grant.capacity.get(), 100.0);
}

#[test]
fn node_gone_during_learning_is_dropped() {
    let learning = Settings {
        predecessor: Predecessor::Until(Moment::NEVER),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), learning);
    let grant = send(&mut world, &node_request(1, 1, &[(0, 1, 10.0)], None));
    assert_eq!(grant.lease_length.get(), 0.0);
    world.wait(22.0);
    assert_eq!(world.ledger.stats().leases, 0);
}

#[test]
fn new_master_of_a_confirmed_node_gets_its_lease() {
    let learning = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3621.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), learning);
    let mut confirmed = node_request(1, 9, &[(0, 1, 100.0)], Some(80.0));
    confirmed.heard_epoch = Some(learning.epoch);
    assert_eq!(send(&mut world, &confirmed).capacity.get(), 80.0);
    let unknown = node_request(2, 1, &[(0, 1, 100.0)], None);
    assert_eq!(send(&mut world, &unknown).capacity.get(), 80.0);
    // Late requests of the deposed master change nothing.
    let mut late = node_request(1, 10, &[(0, 1, 0.0)], Some(0.0));
    late.heard_epoch = Some(learning.epoch);
    send(&mut world, &late);
    assert_eq!(world.view().unwrap().sum_has, 80.0);
}

#[test]
fn unknown_lease_of_a_node_is_not_confirmed() {
    let learning = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3621.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), learning);
    let mut unknown = node_request(2, 1, &[(0, 1, 100.0)], None);
    unknown.heard_epoch = Some(learning.epoch);
    assert_eq!(send(&mut world, &unknown).lease_length.get(), 0.0);
    // Its claim is still its first one.
    let mut claim = node_request(2, 2, &[(0, 1, 30.0)], Some(90.0));
    claim.heard_epoch = Some(learning.epoch);
    // Of the surplus that it had it keeps what it would get outside of learning mode.
    assert_eq!(send(&mut world, &claim).capacity.get(), 82.5);
}
