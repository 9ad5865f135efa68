//! PRIORITY_SHARE: bands of priorities, the highest first.

use doorman_openapi::{
    Band, ClientBand, ClientCount, HeldBackBy, NodeId, SafeCapacity, ServerCapacityRequest,
    ServerResourceRequest,
};
use proptest::prelude::*;

use super::{
    super::{algorithm::tests::priority_by_definition, demands::Demand},
    *,
};

/// A document with the resource `db` and this floor.
pub(super) fn with_floor(capacity: f64, floor: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: PRIORITY_SHARE, \
         lease_length: 20, refresh_interval: 5, parameters: [{{name: floor, value: '{floor}'}}]}}}}]"
    ))
}

impl World {
    pub(super) fn refresh_at(
        &mut self,
        priority: i32,
        client: &str,
        wants: f64,
        has: Option<f64>,
    ) -> Grant {
        let mut request = request(client, None, wants, has);
        request.resources[0].priority = Some(priority);
        self.send(&request)
    }

    /// All holders refresh until their demands are in their bands and nothing changes.
    fn settle_priorities(&mut self, demands: &[(i32, f64)]) -> Vec<f64> {
        let mut has = vec![None; demands.len()];
        for _ in 0..4 {
            for _ in 0..2 {
                for (client, (priority, wants)) in demands.iter().enumerate() {
                    let name = client.to_string();
                    let grant = self.refresh_at(*priority, &name, *wants, has[client]);
                    has[client] = Some(grant.capacity.get());
                }
            }
            self.wait(5.0);
        }
        has.into_iter().flatten().collect()
    }
}

/// A client's request for `db` with several bands.
pub(super) fn request_in_bands(
    client: &str,
    bands: &[(i32, f64)],
    has: Option<f64>,
) -> CapacityRequest {
    let wants = bands.iter().map(|(_, wants)| wants).sum();
    let mut request = request(client, None, wants, has);
    let bands = bands.iter().map(|(priority, wants)| ClientBand {
        priority: *priority,
        wants: Capacity::new(*wants).unwrap(),
    });
    request.resources[0].bands = Some(bands.collect());
    request
}

impl World {
    pub(super) fn refresh_in_bands(
        &mut self,
        client: &str,
        bands: &[(i32, f64)],
        has: Option<f64>,
    ) -> Grant {
        self.send(&request_in_bands(client, bands, has))
    }

    /// All clients refresh until nothing changes.
    fn settle_bands(&mut self, clients: &[Vec<(i32, f64)>]) -> Vec<f64> {
        let mut has = vec![None; clients.len()];
        for _ in 0..4 {
            for _ in 0..2 {
                for (client, bands) in clients.iter().enumerate() {
                    let grant = self.refresh_in_bands(&client.to_string(), bands, has[client]);
                    has[client] = Some(grant.capacity.get());
                }
            }
            self.wait(5.0);
        }
        has.into_iter().flatten().collect()
    }
}

fn shares(capacity: f64, floor: f64, demands: &[(i32, f64)]) -> Vec<f64> {
    let demands: Vec<_> = demands
        .iter()
        .map(|(priority, wants)| {
            let demand = Demand {
                wants: *wants,
                weight: 1.0,
            };
            (*priority, demand)
        })
        .collect();
    priority_by_definition(capacity, floor, &demands)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn constant_demands_converge_to_their_priority_shares(
        demands in prop::collection::vec((prop_oneof![-2i32..3, -40i32..40], 0.0..500.0f64), 1..60),
        capacity in 1.0..5000.0f64,
        floor in prop_oneof![Just(0.0), 0.0..=1.0f64],
        before in prop::sample::select(vec!["PRIORITY_SHARE", "FAIR_SHARE", "STATIC"]),
    ) {
        let mut world = World::new(document(before, capacity));
        for (client, (priority, wants)) in demands.iter().enumerate() {
            world.refresh_at(*priority, &client.to_string(), *wants, None);
        }
        world.ledger.reconfigure(with_floor(capacity, floor));
        let has = world.settle_priorities(&demands);
        for (got, expected) in has.iter().zip(shares(capacity, floor, &demands)) {
            prop_assert!((got - expected).abs() <= 1e-6 * (1.0 + expected), "{got} is not {expected}");
        }
        // Without priorities again.
        world.ledger.reconfigure(document("FAIR_SHARE", capacity));
        let has = world.settle_priorities(&demands);
        let alike: Vec<_> = demands.iter().map(|(_, wants)| (0, *wants)).collect();
        for (got, expected) in has.iter().zip(shares(capacity, 0.0, &alike)) {
            prop_assert!((got - expected).abs() <= 1e-6 * (1.0 + expected), "{got} is not {expected}");
        }
    }
}

fn bands() -> impl Strategy<Value = Vec<(i32, f64)>> {
    prop::collection::btree_map(-2i32..3, 0.0..500.0f64, 1..4)
        .prop_map(|bands| bands.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn client_gets_its_share_of_each_of_its_priorities(
        clients in prop::collection::vec(bands(), 1..20),
        capacity in 1.0..5000.0f64,
        floor in prop_oneof![Just(0.0), 0.0..=1.0f64],
    ) {
        let of_clients = |shares: Vec<f64>| {
            let mut shares = shares.into_iter();
            let sums = clients.iter().map(|bands| shares.by_ref().take(bands.len()).sum());
            sums.collect::<Vec<f64>>()
        };
        let by_priority = of_clients(shares(capacity, floor, &clients.concat()));
        let sums: Vec<_> = clients.iter().map(|it| (0, it.iter().map(|it| it.1).sum())).collect();
        let alike = shares(capacity, 0.0, &sums);

        // Without priorities a client has one demand, also before and after.
        let mut world = World::new(document("FAIR_SHARE", capacity));
        let documents = [
            (document("FAIR_SHARE", capacity), &alike),
            (with_floor(capacity, floor), &by_priority),
            (document("FAIR_SHARE", capacity), &alike),
        ];
        for (document, expected) in documents {
            world.ledger.reconfigure(document);
            let has = world.settle_bands(&clients);
            for (got, expected) in has.iter().zip(expected) {
                prop_assert!((got - expected).abs() <= 1e-6 * (1.0 + expected), "{got} is not {expected}");
            }
            prop_assert_eq!(world.view().unwrap().clients, clients.len() as u64);
        }
        for client in 0..clients.len() {
            world.release(&client.to_string(), None);
        }
        prop_assert!(world.view().is_none_or(|view| view.clients == 0));
    }
}

#[test]
fn client_with_bands_counts_as_one() {
    let mut world = World::new(document("PRIORITY_SHARE", 100.0));
    world.refresh_in_bands("a", &[(1, 30.0), (0, 70.0)], None);
    let safe = |grant: Grant| grant.safe_capacity;
    let half = SafeCapacity::AtMost(Capacity::new(50.0).unwrap());
    assert_eq!(safe(world.refresh_at(0, "b", 10.0, None)), half);
    // More bands, fewer, and none.
    for bands in [&[(2, 1.0), (1, 1.0), (0, 1.0)][..], &[(1, 3.0)]] {
        assert_eq!(safe(world.refresh_in_bands("a", bands, None)), half);
    }
    world.release("a", None);
    assert_eq!(world.view().unwrap().clients, 1);
}

#[test]
fn why_names_the_lowest_priority_that_is_short() {
    let mut world = World::new(document("PRIORITY_SHARE", 100.0));
    let bands = [(5, 30.0), (2, 10.0), (0, 70.0)];
    world.refresh_in_bands("a", &bands, None);
    world.refresh_at(2, "b", 40.0, None);
    world.refresh_in_bands("a", &bands, Some(100.0));
    world.wait(1.0);
    world.refresh_at(2, "b", 40.0, Some(0.0));
    world.refresh_in_bands("a", &bands, Some(60.0));
    let holder = world.holder("a");
    assert_eq!(holder.held_back_by, Some(HeldBackBy::HigherPriorities));
    assert_eq!(
        holder.why,
        "its share is 60, held back by higher priorities, which want 80 of 100: priority 0 gets at \
         most 20, and each of its clients at most 20"
    );
    let priorities: Vec<_> = holder.bands.iter().map(|band| band.priority).collect();
    assert_eq!((holder.priority, priorities), (5, vec![5, 2, 0]));

    // Nobody else has a higher priority.
    world.release("b", None);
    let bands = [(5, 30.0), (0, 100.0)];
    world.refresh_in_bands("a", &bands, Some(60.0));
    let holder = world.holder("a");
    assert_eq!(holder.held_back_by, Some(HeldBackBy::Share));
    assert!(
        holder.why.contains("clients of priority 0 want 100"),
        "{}",
        holder.why
    );
}

#[test]
fn clients_of_more_than_32_priorities_share_the_lowest_band() {
    let mut world = World::new(document("PRIORITY_SHARE", 355.0));
    let mut demands: Vec<_> = (0..40).map(|priority| (priority, 10.0)).collect();
    let has = world.settle_priorities(&demands);
    for (client, got) in has.into_iter().enumerate() {
        close(got, if client < 9 { 5.0 } else { 10.0 });
    }
    // Fewer priorities: each is a band again.
    for demand in demands.iter_mut().skip(20) {
        demand.0 = 39;
    }
    let has = world.settle_priorities(&demands);
    for (client, got) in has.into_iter().enumerate() {
        let expected = match client {
            0..4 => 0.0,
            4 => 5.0,
            _ => 10.0,
        };
        close(got, expected);
    }
}

#[test]
fn node_gets_its_share_of_each_priority() {
    let mut world = World::new(document("PRIORITY_SHARE", 100.0));
    let band = |priority, clients, wants| Band {
        priority,
        num_clients: ClientCount::new(clients).unwrap(),
        wants: Capacity::new(wants).unwrap(),
    };
    let mut has = 0.0;
    for _ in 0..3 {
        let request = ServerCapacityRequest {
            node_id: NodeId::new("eu").unwrap(),
            epoch: None,
            seq: None,
            heard_epoch: None,
            address: None,
            resources: vec![ServerResourceRequest {
                resource_id: db(),
                wants: vec![band(0, 3, 300.0), band(7, 1, 20.0)],
                has: Some(HeldLease::from(Capacity::new(has).unwrap())),
                outstanding: Capacity::ZERO,
                used: None,
                unit: None,
                per: None,
                outcomes: None,
                pause: None,
                seen: None,
            }],
        };
        let grant = world
            .ledger
            .refresh(&request.clone().into(), world.now)
            .remove(0);
        has = grant.capacity.get();
        let mut known = world.holders().into_iter();
        let known = known.find(|it| it.client_id == "a");
        let known = known.map(|it| it.has.get());
        world.refresh_at(0, "a", 100.0, known);
        world.wait(1.0);
    }
    // All 20 of priority 7, and three quarters of the rest.
    close(has, 80.0);
    close(world.holder("a").has.get(), 20.0);
}

#[test]
fn gauge_has_whole_units_from_the_highest_priority_down() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 10, unit: gauge, \
         algorithm: {kind: PRIORITY_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    let has = world.settle_priorities(&[(2, 3.5), (1, 9.0), (1, 9.0), (0, 9.0)]);
    assert_eq!(has.iter().sum::<f64>(), 10.0, "{has:?}");
    assert_eq!((has[0], has[3]), (4.0, 0.0), "{has:?}");
}

#[test]
fn surplus_is_granted_only_while_all_demands_fit() {
    let text = |surplus: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: 100, algorithm: {{kind: PRIORITY_SHARE, \
             lease_length: 20, refresh_interval: 5, parameters: [{{name: surplus, value: {surplus}}}]}}}}]"
        ))
    };
    let mut world = World::new(text(1.0));
    assert_eq!(
        world.settle_priorities(&[(1, 20.0), (0, 40.0)]),
        [40.0, 60.0]
    );
    let mut world = World::new(text(1.0));
    assert_eq!(
        world.settle_priorities(&[(1, 20.0), (0, 90.0)]),
        [20.0, 80.0]
    );
}
