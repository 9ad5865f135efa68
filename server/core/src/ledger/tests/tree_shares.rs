//! Clients of a tree beside the same clients of a single server.

use std::collections::BTreeMap;

use doorman_openapi::{Balance, MAX_BANDS, Probability, SafeCapacity};
use proptest::prelude::*;

use super::{parents::Tree, *};
use crate::ledger::HolderId;

/// Names of nodes with their parents. The last two have the clients.
type Layout = &'static [(&'static str, Option<usize>)];

const TWO_LEVELS: Layout = &[("eu", None), ("us", None)];

const THREE_LEVELS: Layout = &[
    ("eu", None),
    ("us", None),
    ("eu-1", Some(0)),
    ("us-1", Some(1)),
];

const LAYOUTS: [Layout; 2] = [TWO_LEVELS, THREE_LEVELS];

/// A tree whose last two nodes have clients, and a single server with the same clients.
struct Fleet {
    tree: Tree,
    flat: World,
    clients: Vec<Client>,
}

struct Client {
    node: usize,
    name: String,
    priority: i32,
    wants: f64,
    /// The running total of its use of each.
    used: f64,
    in_tree: f64,
    in_flat: f64,
}

impl Fleet {
    fn new(document: &Arc<Document>, layout: Layout) -> Self {
        Self {
            tree: Tree::new(Arc::clone(document), layout),
            flat: World::new(Arc::clone(document)),
            clients: Vec::new(),
        }
    }

    /// With clients of the last two nodes that want so much.
    fn with_clients(self, wants: [&[f64]; 2]) -> Self {
        let first_leaf = self.tree.nodes.len() - 2;
        let clients = wants.iter().enumerate().flat_map(|(leaf, wants)| {
            wants.iter().enumerate().map(move |(number, wants)| Client {
                node: first_leaf + leaf,
                name: format!("{leaf}-{number}"),
                priority: 0,
                wants: *wants,
                used: 0.0,
                in_tree: 0.0,
                in_flat: 0.0,
            })
        });
        Self {
            clients: clients.collect(),
            ..self
        }
    }

    /// A client refreshes at its node and at the single server. Returns both grants.
    fn refresh(&mut self, index: usize) -> [Grant; 2] {
        let client = &mut self.clients[index];
        let ask = |has: f64| {
            let mut request = request(&client.name, None, client.wants, Some(has));
            request.resources[0].priority = Some(client.priority);
            request.resources[0].used = Some(Capacity::new(client.used).unwrap());
            request
        };
        let grants = [
            self.tree.send(client.node, &ask(client.in_tree)),
            self.flat.send(&ask(client.in_flat)),
        ];
        [client.in_tree, client.in_flat] = grants.each_ref().map(|it| it.capacity.get());
        grants
    }

    fn refresh_all(&mut self) -> Vec<[Grant; 2]> {
        (0..self.clients.len()).map(|it| self.refresh(it)).collect()
    }

    /// All clients and nodes ask in turn, at one moment.
    fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.refresh_all();
            self.tree.ask_all();
        }
    }

    fn wait(&mut self, seconds: f64) {
        self.tree.wait(seconds);
        self.flat.wait(seconds);
    }

    /// The sum of what the clients of a leaf have.
    fn has(&self, leaf: usize) -> f64 {
        let node = self.tree.nodes.len() - 2 + leaf;
        let clients = self.clients.iter().filter(|it| it.node == node);
        clients.map(|it| it.in_tree).sum()
    }

    #[track_caller]
    fn assert_same_shares(&self, what: &str) {
        for client in &self.clients {
            let (tree, flat) = (client.in_tree, client.in_flat);
            let is_same = (tree - flat).abs() <= 1e-6 * (1.0 + flat);
            assert!(is_same, "{what}: {} has {tree}, not {flat}", client.name);
        }
    }
}

/// Demands of the clients of two nodes, and a capacity.
const DEMANDS: [([&[f64]; 2], f64); 6] = [
    ([&[1000.0, 1.0, 1.0], &[100.0, 100.0, 100.0]], 300.0),
    ([&[1000.0, 10.0], &[50.0]], 120.0),
    ([&[5.0, 200.0, 30.0], &[70.0, 70.0, 1.0, 900.0]], 250.0),
    ([&[45.0, 1.0, 2.0], &[70.0, 50.0]], 100.0),
    ([&[10.0], &[10.0, 20.0]], 100.0),
    ([&[0.0, 400.0], &[0.5, 0.25, 300.0]], 1.0),
];

#[test]
fn divided_shares_are_those_of_one_server() {
    for kind in ["FAIR_SHARE", "PROPORTIONAL_SHARE", "PRIORITY_SHARE"] {
        for layout in LAYOUTS {
            for (wants, capacity) in DEMANDS {
                let document = document(kind, capacity);
                let mut fleet = Fleet::new(&document, layout).with_clients(wants);
                for (number, client) in (0..).zip(&mut fleet.clients) {
                    client.priority = number % 3;
                }
                fleet.settle(30);
                let levels = layout.len();
                fleet.assert_same_shares(&format!("{kind} {levels} {wants:?}"));
            }
        }
    }
}

#[test]
fn max_min_fairness_of_clients_survives_aggregation() {
    for layout in LAYOUTS {
        let document = document("FAIR_SHARE", 300.0);
        let wants: [&[f64]; 2] = [&[1000.0, 1.0, 1.0], &[100.0, 100.0, 100.0]];
        let mut fleet = Fleet::new(&document, layout).with_clients(wants);
        fleet.settle(30);
        for (leaf, expected) in [76.5, 223.5].into_iter().enumerate() {
            let has = fleet.has(leaf);
            assert!((has - expected).abs() < 1e-6, "{has}");
            let ledger = &fleet.tree.nodes[layout.len() - 2 + leaf].ledger;
            let view = ledger.resource(&db(), fleet.tree.now).unwrap();
            let leased = view.parent.unwrap().has.get();
            assert!((leased - expected).abs() < 1e-6, "{leased}");
        }
    }
}

#[test]
fn undivided_grants_are_those_of_one_server() {
    for kind in ["STATIC", "NO_ALGORITHM"] {
        for layout in LAYOUTS {
            let wants: [&[f64]; 2] = [&[50.0, 200.0, 300.0], &[1000.0, 120.0]];
            let mut fleet = Fleet::new(&document(kind, 120.0), layout).with_clients(wants);
            for _ in 0..3 {
                fleet.settle(2);
                fleet.assert_same_shares(kind);
                fleet.wait(3.0);
            }
            let expected = match kind {
                "STATIC" => 50.0 + 2.0 * 120.0,
                _ => 550.0,
            };
            assert_eq!(fleet.has(0), expected, "{kind}");
        }
    }
}

fn probability(grant: &Grant) -> f64 {
    let probability = grant.signal.admission_probability();
    probability.map(Probability::get).unwrap()
}

#[test]
fn suppression_counts_demand_of_all_nodes() {
    for layout in LAYOUTS {
        let document = document("SUPPRESSION", 100.0);
        let mut fleet = Fleet::new(&document, layout).with_clients([&[300.0], &[100.0]]);
        for (wants, expected) in [
            ([300.0, 100.0], 0.25),
            ([300.0, 500.0], 0.125),
            ([40.0, 500.0], 100.0 / 540.0),
            ([40.0, 50.0], 1.0),
        ] {
            for (client, wants) in fleet.clients.iter_mut().zip(wants) {
                client.wants = wants;
            }
            for _ in 0..40 {
                fleet.settle(1);
                fleet.wait(1.0);
            }
            for [in_tree, in_flat] in fleet.refresh_all() {
                close(probability(&in_flat), expected);
                close(probability(&in_tree), expected);
                assert_eq!(in_tree.capacity.get(), 100.0);
            }
        }
    }
}

fn balance(grant: &Grant) -> f64 {
    grant.signal.balance().map(Balance::get).unwrap()
}

#[test]
fn shared_bucket_counts_usage_of_all_nodes() {
    for layout in LAYOUTS {
        let document = document("SHARED_BUCKET", 100.0);
        let mut fleet = Fleet::new(&document, layout).with_clients([&[90.0], &[60.0]]);
        fleet.settle(2);
        for second in 1..=20 {
            fleet.wait(1.0);
            for (client, used) in fleet.clients.iter_mut().zip([90.0, 60.0]) {
                client.used += used;
            }
            fleet.refresh_all();
            // The leaves hear at last what the root has been told at first.
            for _ in 0..3 {
                fleet.tree.ask_all();
            }
            for [in_tree, in_flat] in fleet.refresh_all() {
                assert_eq!(balance(&in_tree), balance(&in_flat), "{second}");
            }
        }
        // 50 a second more than the rate.
        let balances = fleet.refresh_all();
        close(balance(&balances[0][0]), 100.0 - 20.0 * 50.0);
    }
}

/// A gauge: whole steps, without surplus.
fn gauge(kind: &str, capacity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, unit: gauge, \
         algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5}}}}]"
    ))
}

/// Nothing is lost to rounding once all have asked: each level hands out whole steps only, so that
/// every step of the root reaches a client.
#[test]
fn gauge_divides_every_unit_over_three_levels() {
    for kind in ["FAIR_SHARE", "PROPORTIONAL_SHARE", "PRIORITY_SHARE"] {
        for capacity in [1.0, 7.0, 100.0, 101.0] {
            let none: [&[f64]; 2] = [&[0.0; 3], &[0.0; 4]];
            let mut fleet = Fleet::new(&gauge(kind, capacity), THREE_LEVELS).with_clients(none);
            // Only holders that poll for hints could have a surplus.
            for client in &fleet.clients {
                let id = ClientId::new(&*client.name).unwrap();
                let ledger = &mut fleet.tree.nodes[client.node].ledger;
                ledger.open_poll(&HolderId::Client(id.clone(), None), 0, fleet.tree.now);
            }
            for (wants, _) in DEMANDS {
                for client in &mut fleet.clients {
                    let (leaf, number) = client.name.split_once('-').unwrap();
                    let leaf: usize = leaf.parse().unwrap();
                    let wants = wants[leaf].get(number.parse::<usize>().unwrap());
                    client.wants = wants.map_or(0.0, |it| it.ceil());
                }
                for _ in 0..10 {
                    fleet.wait(1.0);
                    fleet.settle(1);
                    let shares = || fleet.clients.iter().map(|it| it.in_tree);
                    assert!(shares().all(|it| it.fract() == 0.0), "{kind} {wants:?}");
                    assert!(shares().sum::<f64>() <= capacity, "{kind} {wants:?}");
                    let root = fleet.tree.root.resource(&db(), fleet.tree.now);
                    assert!(root.unwrap().sum_has <= capacity, "{kind} {wants:?}");
                }
                let wanted: f64 = fleet.clients.iter().map(|it| it.wants).sum();
                let has = fleet.has(0) + fleet.has(1);
                assert_eq!(has, wanted.min(capacity), "{kind} {capacity} {wants:?}");
                let has_surplus = |it: &Client| it.in_tree > it.wants;
                assert!(!fleet.clients.iter().any(has_surplus), "{kind} {wants:?}");
            }
        }
    }
}

#[test]
fn safe_capacity_counts_clients_of_whole_tree() {
    for layout in LAYOUTS {
        let document = document("FAIR_SHARE", 120.0);
        let wants: [&[f64]; 2] = [&[10.0, 20.0, 30.0], &[40.0]];
        let mut fleet = Fleet::new(&document, layout).with_clients(wants);
        fleet.settle(3);
        let safe = |fleet: &mut Fleet| -> Vec<SafeCapacity> {
            let grants = fleet.refresh_all();
            grants.iter().map(|[it, _]| it.safe_capacity).collect()
        };
        let part = |of: f64| SafeCapacity::AtMost(Capacity::new(120.0 / of).unwrap());
        assert_eq!(safe(&mut fleet), [part(4.0); 4]);

        let left = fleet.clients.remove(1);
        let release = ReleaseRequest {
            client_id: ClientId::new(left.name).unwrap(),
            run: None,
            seq: None,
            heard_epoch: None,
            resource_ids: None,
            tokens: BTreeMap::new(),
        };
        let ledger = &mut fleet.tree.nodes[left.node].ledger;
        ledger.release(&release.clone().into(), fleet.tree.now);
        fleet.settle(3);
        assert_eq!(safe(&mut fleet), [part(3.0); 3]);

        // The only client of its node. Its lease ends, then that of each level above.
        let left = fleet.clients.remove(2);
        for _ in 0..8 {
            fleet.wait(10.0);
            fleet.settle(1);
        }
        assert_eq!(
            safe(&mut fleet),
            [part(2.0); 2],
            "{} has expired",
            left.name
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn node_states_demand_in_three_entries_per_priority(
        clients in prop::collection::vec((-20..20i32, 0..1000u32), 1..120),
        capacity in 1..20_000u32,
    ) {
        let document = document("PRIORITY_SHARE", f64::from(capacity));
        let mut fleet = Fleet::new(&document, TWO_LEVELS).with_clients([&[], &[500.0]]);
        fleet.clients.extend((0..).zip(&clients).map(|(number, (priority, wants))| Client {
            node: 0,
            name: format!("c{number}"),
            priority: *priority,
            wants: f64::from(*wants),
            used: 0.0,
            in_tree: 0.0,
            in_flat: 0.0,
        }));
        fleet.settle(3);
        let node = &mut fleet.tree.nodes[0].ledger;
        let requests = node.parent_requests([&db()], fleet.tree.now);
        let mut stated: BTreeMap<i32, (usize, u64, f64)> = BTreeMap::new();
        for band in &requests[0].wants {
            let (entries, clients, wants) = stated.entry(band.priority).or_default();
            *entries += 1;
            *clients += band.num_clients.get();
            *wants += band.wants.get();
        }
        prop_assert!(stated.len() <= MAX_BANDS);
        prop_assert!(stated.values().all(|(entries, ..)| *entries <= 3), "{stated:?}");
        // Whole numbers add up exactly. Priorities below the last band are part of it.
        let mut wanted: BTreeMap<i32, (u64, f64)> = BTreeMap::new();
        let lowest = *stated.keys().next().unwrap();
        for (priority, wants) in clients {
            let (clients, sum) = wanted.entry(priority.max(lowest)).or_default();
            *clients += 1;
            *sum += f64::from(wants);
        }
        let stated: BTreeMap<_, _> = stated
            .into_iter()
            .map(|(priority, (_, clients, wants))| (priority, (clients, wants)))
            .collect();
        prop_assert_eq!(stated, wanted);
    }
}
