//! Ledgers of nodes below a root, which exchange requests and responses directly.

use std::collections::BTreeMap;

use doorman_openapi::{
    CLOCK_DRIFT, ClientId, HeldLease, NodeId, Reason, Seconds, ServerCapacityRequest,
    ServerCapacityResponse, ServerReleaseRequest, Unit,
};

use super::*;
use crate::{
    ledger::{HolderId, ReleasePosition},
    upstream::{Effect, Event, ParentLink, Upstream},
};

/// A root with nodes below it, one of which may be below another.
pub(super) struct Tree {
    pub(super) root: Ledger,
    pub(super) nodes: Vec<Node>,
    pub(super) now: Moment,
}

pub(super) struct Node {
    name: &'static str,
    pub(super) ledger: Ledger,
    /// Its parent; the root if there is none.
    parent: Option<usize>,
    epoch: u64,
    seq: u64,
    heard: Option<Epoch>,
}

impl Tree {
    pub(super) fn new(document: Arc<Document>, nodes: &[(&'static str, Option<usize>)]) -> Self {
        let now = Moment::ORIGIN.after_seconds(3600.0);
        Self {
            root: Ledger::new(document, SETTINGS, now),
            nodes: nodes
                .iter()
                .map(|(name, parent)| Node {
                    name,
                    ledger: Ledger::new(built_in(), SETTINGS, now).of_parent(),
                    parent: *parent,
                    epoch: 1,
                    seq: 0,
                    heard: None,
                })
                .collect(),
            now,
        }
    }

    pub(super) fn wait(&mut self, seconds: f64) {
        self.now = self.now.after_seconds(seconds);
        let ledgers = self.nodes.iter_mut().map(|node| &mut node.ledger);
        for ledger in ledgers.chain([&mut self.root]) {
            while ledger
                .sweep(self.now, 1)
                .is_some_and(|next| next <= self.now)
            {}
        }
    }

    /// A node asks its parent, and takes the response.
    pub(super) fn ask(&mut self, index: usize) {
        let now = self.now;
        let request = node_request(self, index);
        let parent = match self.nodes[index].parent {
            None => &mut self.root,
            Some(parent) => {
                let awaits = self.nodes[parent]
                    .ledger
                    .register_part(&request.clone().into(), 0, now)
                    .0;
                if awaits {
                    self.ask(parent);
                }
                &mut self.nodes[parent].ledger
            }
        };
        let grants = parent.refresh(&request.clone().into(), now);
        let node = &mut self.nodes[index];
        node.heard = Some(Epoch::ZERO);
        for grant in grants {
            let response = grant.into_server_response(1000);
            node.ledger.record_parent_response(&response, now, now);
        }
    }

    /// A node asks the root, and the response is lost.
    fn ask_in_vain(&mut self, index: usize) {
        let request = node_request(self, index);
        self.root.refresh(&request.clone().into(), self.now);
    }

    /// A client asks its node, which asks its parent first if it must.
    pub(super) fn send(&mut self, node: usize, request: &CapacityRequest) -> Grant {
        let mut request = request.clone();
        request.heard_epoch = Some(Epoch::ZERO);
        let now = self.now;
        for _ in 0..2 {
            let ledger = &mut self.nodes[node].ledger;
            if ledger.register_part(&request.clone().into(), 0, now).0 {
                self.ask(node);
            }
        }
        self.nodes[node]
            .ledger
            .refresh(&request.clone().into(), now)
            .remove(0)
    }

    pub(super) fn refresh(&mut self, node: usize, client: &str, wants: f64, has: f64) -> Grant {
        self.send(
            node,
            &request(client, None, wants, (has > 0.0).then_some(has)),
        )
    }

    /// All nodes ask in turn, the leaves first.
    pub(super) fn ask_all(&mut self) {
        for node in (0..self.nodes.len()).rev() {
            self.ask(node);
        }
    }

    /// The parent answers a request of a node with this lease.
    fn answer(&mut self, index: usize, capacity: f64, length: f64, reason: Reason) {
        let now = self.now;
        let resources = self.nodes[index].ledger.parent_requests([&db()], now);
        let request = ServerCapacityRequest {
            node_id: NodeId::new("other").unwrap(),
            epoch: None,
            seq: None,
            heard_epoch: None,
            address: None,
            resources,
        };
        let grant = self.root.refresh(&request.clone().into(), now).remove(0);
        let mut response = grant.into_server_response(1000);
        response.answer.gets.capacity = Capacity::new(capacity).unwrap();
        response.answer.gets.lease_length = Seconds::new(length).unwrap();
        response.answer.reason = reason;
        let node = &mut self.nodes[index];
        node.ledger.record_parent_response(&response, now, now);
    }

    /// A node has a new master, which knows nothing.
    fn fail_over(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.ledger = Ledger::new(built_in(), SETTINGS, self.now).of_parent();
        (node.epoch, node.seq, node.heard) = (node.epoch + 1, 0, None);
    }

    /// The master of a node stops and hands its ledger over to the next one.
    pub(super) fn hand_over(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let mut ledger = Ledger::new(built_in(), SETTINGS, self.now).of_parent();
        for record in node.ledger.snapshot(self.now) {
            ledger.restore(&record, self.now).unwrap();
        }
        node.ledger = ledger;
        (node.epoch, node.seq) = (node.epoch + 1, 0);
    }

    /// The root restarts with another document.
    fn restart_root(&mut self, document: Arc<Document>) {
        let mut root = Ledger::new(document, SETTINGS, self.now);
        for record in self.root.snapshot(self.now) {
            root.restore(&record, self.now).unwrap();
        }
        self.root = root;
    }

    /// All ask in turn, the leaves first.
    fn settle(&mut self, clients: &mut [Client]) {
        for _ in 0..8 {
            for client in &mut *clients {
                let grant = self.refresh(client.node, client.name, client.wants, client.has);
                client.has = grant.capacity.get();
            }
            self.ask_all();
        }
    }
}

/// The next request of a node to its parent.
fn node_request(tree: &mut Tree, index: usize) -> ServerCapacityRequest {
    let node = &mut tree.nodes[index];
    node.seq += 1;
    ServerCapacityRequest {
        node_id: NodeId::new(node.name).unwrap(),
        epoch: Some(Epoch::new(node.epoch).unwrap()),
        seq: Some(Seq::new(node.seq).unwrap()),
        heard_epoch: node.heard,
        address: None,
        resources: node.ledger.parent_requests([&db()], tree.now),
    }
}

struct Client {
    node: usize,
    name: &'static str,
    wants: f64,
    has: f64,
}

fn client(node: usize, name: &'static str, wants: f64) -> Client {
    Client {
        node,
        name,
        wants,
        has: 0.0,
    }
}

fn built_in() -> Arc<Document> {
    Arc::new(Document::built_in())
}

#[test]
fn first_client_of_a_node_gets_what_the_parent_grants() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let grant = tree.refresh(0, "a", 30.0, 0.0);
    assert_eq!(
        (grant.capacity.get(), grant.reason),
        (30.0, Reason::Granted)
    );
    let template = grant.template.unwrap();
    assert_eq!(
        (
            template.identifier_glob(),
            template.capacity().get(),
            template.unit()
        ),
        ("db", 100.0, Unit::Rate)
    );
    // The parent's lease ends 20 s after its request, and no lease of the node after it.
    close(grant.lease_length.get(), 20.0 / 1.05);
    assert_eq!(grant.refresh_interval.get(), 2.5);
    assert_eq!(grant.safe_capacity.get(), 100.0);
}

#[test]
fn leases_of_a_node_end_with_its_own() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    tree.wait(15.0);
    let grant = tree.refresh(0, "a", 30.0, 30.0);
    close(grant.lease_length.get(), 5.0 / 1.05);
    tree.wait(5.0);
    // Without an answer of the parent there is nothing to lease.
    let request = request("a", None, 30.0, None);
    let ledger = &mut tree.nodes[0].ledger;
    let grant = ledger.refresh(&request.clone().into(), tree.now).remove(0);
    assert_eq!(grant.lease_length, Seconds::ZERO);
    assert_eq!((grant.capacity.get(), grant.reason), (0.0, Reason::Pending));
    assert_eq!(tree.refresh(0, "a", 30.0, 0.0).capacity.get(), 30.0);
}

#[test]
fn clients_of_all_nodes_get_max_min_shares() {
    for kind in ["FAIR_SHARE", "PROPORTIONAL_SHARE"] {
        let nodes = [
            ("eu", None),
            ("us", None),
            ("eu-1", Some(0)),
            ("eu-2", Some(0)),
        ];
        let mut tree = Tree::new(document(kind, 300.0), &nodes);
        let mut clients = [
            client(2, "a", 1000.0),
            client(2, "b", 1.0),
            client(3, "c", 1.0),
            client(1, "d", 100.0),
            client(1, "e", 100.0),
            client(3, "f", 100.0),
        ];
        tree.settle(&mut clients);
        // The same clients at one server.
        let mut flat = World::new(document(kind, 300.0));
        let mut shares = [0.0; 6];
        for _ in 0..4 {
            for (client, share) in clients.iter().zip(&mut shares) {
                *share = flat
                    .refresh(client.name, client.wants, Some(*share))
                    .capacity
                    .get();
            }
        }
        for (client, share) in clients.iter().zip(shares) {
            assert!(
                (client.has - share).abs() < share * 0.01,
                "{kind} {} {share}",
                client.has
            );
        }
    }
}

/// Other nodes lack the capacity that a demand no longer needs.
#[test]
fn node_without_surplus_hands_out_none() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None), ("us", None)]);
    let mut clients = [client(0, "a", 90.0), client(1, "b", 90.0)];
    let id = ClientId::new("a").unwrap();
    let ledger = &mut tree.nodes[0].ledger;
    ledger.open_poll(&HolderId::Client(id.clone(), None), 0, tree.now);
    tree.settle(&mut clients);
    assert_eq!([clients[0].has, clients[1].has], [50.0, 50.0]);
    let grant = tree.refresh(0, "a", 10.0, 50.0);
    assert_eq!(grant.capacity.get(), 10.0);
}

#[test]
fn smaller_lease_of_the_parent_keeps_older_leases_covered() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None), ("us", None)]);
    let mut clients = [client(0, "a", 50.0), client(0, "b", 50.0)];
    tree.settle(&mut clients);
    assert_eq!([clients[0].has, clients[1].has], [50.0, 50.0]);
    tree.wait(1.0);
    // Another node wants half of it: the share of the first one shrinks at its next request.
    let first = tree.refresh(1, "c", 1000.0, 0.0);
    assert_eq!(first.capacity.get(), 0.0);
    tree.ask(0);
    let level = 100.0 / 3.0;
    // `b` still has 50, so the rest of the new lease is free for `a`.
    let grant = tree.refresh(0, "a", 50.0, 50.0);
    close(grant.capacity.get(), level);
    // Beside the 50 of `b` it does not fit under the new lease: it ends with the older one.
    assert!(grant.lease_length.get() < 19.0 / 1.05 + 1e-9, "{grant:?}");
    let view = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    assert_eq!(view.sum_has, 100.0);
    let leased = view.parent.unwrap();
    close(leased.has.get(), 2.0 * level);
    assert_eq!(view.capacity, Some(leased.has));
    let amounts = [leased.limit, leased.older].map(|it| it.map(Capacity::get));
    assert_eq!(amounts, [Some(100.0); 2]);
    close(leased.expires_in.get(), 20.0);
    let grant = tree.refresh(0, "b", 50.0, 50.0);
    close(grant.capacity.get(), level);
    tree.refresh(0, "a", 50.0, level);
    tree.ask(0);
    assert!(
        tree.refresh(1, "c", 1000.0, 0.0).capacity.get() < 1e-9,
        "not asked yet"
    );
    tree.ask(1);
    close(
        tree.refresh(1, "c", 1000.0, 0.0).capacity.get(),
        100.0 - 50.0 - level,
    );
}

#[test]
fn new_master_of_a_node_learns_what_the_parent_states() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let mut clients = [client(0, "a", 40.0), client(0, "b", 30.0)];
    tree.settle(&mut clients);
    tree.wait(1.0);
    tree.fail_over(0);
    // `a` keeps its lease; a newcomer gets nothing of what `b` may have.
    let grant = tree.refresh(0, "a", 40.0, 40.0);
    assert_eq!(grant.capacity.get(), 40.0);
    assert_eq!(tree.refresh(0, "c", 50.0, 0.0).capacity.get(), 0.0);
    assert_eq!(tree.root.resource(&db(), tree.now).unwrap().sum_has, 70.0);
    // The parent grants the rest for the known demand, which are nobody else's.
    tree.ask(0);
    assert_eq!(tree.refresh(0, "c", 50.0, 0.0).capacity.get(), 30.0);
    assert_eq!(tree.refresh(0, "b", 30.0, 30.0).capacity.get(), 30.0);
}

#[test]
fn statement_of_the_parent_begins_learning_mode() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 40.0), client(0, "b", 60.0)]);
    tree.fail_over(0);
    let learning = |tree: &Tree| {
        let ledger = &tree.nodes[0].ledger;
        let left = ledger.learning_until().seconds_since(tree.now);
        (left, ledger.resources_learning(tree.now))
    };
    // The node itself has nothing to learn.
    assert_eq!(learning(&tree), (0.0, 0));
    tree.refresh(0, "a", 40.0, 40.0);
    let learns = 20.0 * CLOCK_DRIFT * CLOCK_DRIFT;
    close(learning(&tree).0, learns);
    assert_eq!(learning(&tree).1, 1);
    // The rules of the parent do not end it.
    tree.nodes[0].ledger.reconfigure(built_in());
    close(learning(&tree).0, learns);

    let ends = |tree: &mut Tree, seconds| {
        tree.wait(seconds);
        tree.nodes[0].ledger.take_events().learning_ended
    };
    assert!(!ends(&mut tree, 1.0));
    tree.hand_over(0);
    close(learning(&tree).0, learns - 1.0);
    assert!(!ends(&mut tree, learns - 1.1));
    assert!(ends(&mut tree, 0.2));
    assert_eq!(learning(&tree), (0.0, 0));
}

#[test]
fn new_master_of_a_node_learns_longer_than_stated() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 40.0), client(0, "b", 60.0)]);
    tree.fail_over(0);
    // The root states 20 s. The clock of the node may be as slow as that of its holders.
    let learns = 20.0 * CLOCK_DRIFT * CLOCK_DRIFT;
    tree.refresh(0, "a", 40.0, 40.0);
    for _ in 0..10 {
        tree.wait((learns - 0.1) / 10.0);
        tree.ask(0);
        tree.refresh(0, "a", 40.0, 40.0);
        // `b` may have its lease still.
        assert_eq!(tree.refresh(0, "c", 60.0, 0.0).capacity.get(), 0.0);
    }
    tree.wait(0.2);
    tree.ask(0);
    assert!(tree.refresh(0, "c", 60.0, 0.0).capacity.get() > 0.0);
}

/// A root and a node that both learn, the root for `root` seconds and the node for `node`.
fn tree_that_learns_everywhere(root: f64, node: f64) -> Tree {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let learning = |seconds| Settings {
        predecessor: Predecessor::Until(tree.now.after_seconds(seconds)),
        ..SETTINGS
    };
    let (root, node) = (learning(root), learning(node));
    tree.root = Ledger::new(document("FAIR_SHARE", 100.0), root, tree.now);
    tree.nodes[0].ledger = Ledger::new(built_in(), node, tree.now).of_parent();
    tree
}

/// Whether the node has no answer yet for a holder, which keeps its lease.
fn waits(tree: &mut Tree, client: &str, has: f64) -> bool {
    let request = request(client, None, has, Some(has));
    let ledger = &mut tree.nodes[0].ledger;
    let awaits = ledger.register_part(&request.clone().into(), 0, tree.now).0;
    awaits && ledger.may_have_lost_leases(tree.now)
}

#[test]
fn node_claims_nothing_for_its_holders() {
    let mut tree = tree_that_learns_everywhere(21.0, 30.0);
    for (name, has) in [("a", 40.0), ("b", 30.0)] {
        assert!(waits(&mut tree, name, has), "{name}");
        let requests = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
        assert_eq!(requests[0].has, None);
        assert_eq!(requests[0].outstanding, Capacity::ZERO);
        tree.ask(0);
        tree.wait(0.1);
    }
    assert!(waits(&mut tree, "a", 40.0));
    assert_eq!(tree.root.resource(&db(), tree.now).unwrap().sum_has, 0.0);
    // The root has learned that nobody has anything, so all leases of the node have ended.
    tree.wait(21.0);
    tree.ask(0);
    assert!(!waits(&mut tree, "a", 40.0));
    assert_eq!(tree.refresh(0, "a", 40.0, 0.0).capacity.get(), 40.0);
    assert!(
        !tree.nodes[0]
            .ledger
            .resource(&db(), tree.now)
            .unwrap()
            .in_learning_mode
    );
}

#[test]
fn node_asks_again_when_its_parent_has_learned() {
    let mut tree = tree_that_learns_everywhere(21.0, 30.0);
    let interval = |tree: &mut Tree| {
        waits(tree, "a", 40.0);
        let request = node_request(tree, 0);
        let answer = tree
            .root
            .refresh(&request.clone().into(), tree.now)
            .remove(0);
        assert_eq!(answer.lease_length, Seconds::ZERO);
        answer.refresh_interval.get()
    };
    assert_eq!(interval(&mut tree), 4.0);
    tree.wait(18.0);
    close(interval(&mut tree), 3.0);
    tree.wait(2.95);
    close(interval(&mut tree), 0.1);
}

#[test]
fn answer_after_the_claimed_lease_has_ended_is_late() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let is_late = |tree: &Tree| tree.nodes[0].ledger.is_parent_answer_late(&db(), tree.now);
    tree.refresh(0, "a", 30.0, 0.0);
    // The request was sent without a lease, so there is nothing that could end.
    tree.wait(1.0);
    assert!(!is_late(&tree));
    // The newest lease is the shorter one.
    tree.answer(0, 50.0, 5.0, Reason::Granted);
    tree.ask_in_vain(0);
    tree.wait(4.9);
    assert!(!is_late(&tree));
    tree.wait(0.2);
    assert!(is_late(&tree));
    // The next request names the older one.
    tree.ask_in_vain(0);
    tree.wait(13.8);
    assert!(!is_late(&tree));
}

#[test]
fn answer_that_is_late_changes_nothing() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    tree.answer(0, 50.0, 5.0, Reason::Granted);
    let mut ledger = std::mem::replace(
        &mut tree.nodes[0].ledger,
        Ledger::new(built_in(), SETTINGS, tree.now),
    );
    let parent = ParentLink {
        node: NodeId::new("eu").unwrap(),
        endpoints: 1,
        seed: 0,
        polls: false,
    };
    let mut upstream = Upstream::new(parent, Epoch::new(1).unwrap());
    let send = |upstream: &mut Upstream, event, ledger: &mut Ledger, now| {
        let effects = upstream.handle(event, ledger, now);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Send { seq, request, .. } => Some((seq, request)),
            _ => None,
        })
    };
    let ask = request("b", None, 100.0, None);
    ledger.refresh(&ask.clone().into(), tree.now);
    let mut sent = send(&mut upstream, Event::Wake, &mut ledger, tree.now);
    while sent.is_none() {
        tree.now = upstream.wake_at().max(tree.now);
        sent = send(&mut upstream, Event::Wake, &mut ledger, tree.now);
    }
    let (seq, node_request) = sent.unwrap();
    let has = |request: &ServerCapacityRequest| request.resources[0].has.unwrap().capacity.get();
    assert_eq!(has(&node_request), 50.0);
    let answer = tree
        .root
        .refresh(&node_request.clone().into(), tree.now)
        .remove(0);
    let response = ServerCapacityResponse {
        warnings: Vec::new(),
        node: NodeId::new("root").unwrap(),
        epoch: Epoch::ZERO,
        level: 0,
        resources: vec![answer.into_server_response(1000)],
    };
    tree.wait(5.1);
    let event = Event::Answered { seq, response };
    // The older lease stays the only one, and the node asks at once.
    assert!(send(&mut upstream, event, &mut ledger, tree.now).is_none());
    assert_eq!(upstream.wake_at(), tree.now);
    let (_, again) = send(&mut upstream, Event::Wake, &mut ledger, tree.now).unwrap();
    assert_eq!(has(&again), 30.0);
}

#[test]
fn outstanding_is_not_leased_while_learning() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 80.0)]);
    tree.wait(1.0);
    // Half of it belongs to others; the older lease covers what `a` has.
    tree.answer(0, 50.0, 20.0, Reason::Share);
    let learning = Settings {
        predecessor: Predecessor::Until(tree.now.after_seconds(21.0)),
        epoch: Epoch::new(1).unwrap(),
        ..SETTINGS
    };
    tree.root = Ledger::new(document("FAIR_SHARE", 100.0), learning, tree.now);
    let booked = |tree: &Tree| tree.root.resource(&db(), tree.now).unwrap().sum_has;
    for heard in [None, Some(learning.epoch), Some(learning.epoch)] {
        let mut ask = node_request(&mut tree, 0);
        ask.heard_epoch = heard;
        let claim = (
            ask.resources[0].has.unwrap().capacity.get(),
            ask.resources[0].outstanding.get(),
        );
        assert_eq!(claim, (50.0, 80.0));
        let grant = tree.root.refresh(&ask.clone().into(), tree.now).remove(0);
        assert_eq!((grant.capacity.get(), booked(&tree)), (50.0, 50.0));
    }
    // When all have learned, it is booked as usual.
    let mut ask = node_request(&mut tree, 0);
    tree.wait(21.5);
    ask.resources[0].outstanding = Capacity::new(80.0).unwrap();
    tree.root.refresh(&ask.clone().into(), tree.now);
    assert_eq!(booked(&tree), 80.0);
}

#[test]
fn lease_on_late_claim_is_not_granted_to_node_that_does_not_know_it() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 80.0)]);
    let mut ask = node_request(&mut tree, 0);
    ask.heard_epoch = None;
    assert_eq!(ask.resources[0].has.unwrap().capacity.get(), 80.0);
    let learning = Settings {
        predecessor: Predecessor::Until(tree.now.after_seconds(21.0)),
        epoch: Epoch::new(1).unwrap(),
        ..SETTINGS
    };
    tree.root = Ledger::new(document("FAIR_SHARE", 100.0), learning, tree.now);
    // It arrives late: all leases of the node may have ended, and others have the capacity.
    tree.wait(20.0);
    tree.root.refresh(&ask.clone().into(), tree.now);
    tree.wait(2.0);
    // The node, whose master is the same, had forgotten the resource in between.
    ask.seq = ask.seq.map(Seq::next);
    ask.resources[0].has = None;
    let grant = tree.root.refresh(&ask.clone().into(), tree.now).remove(0);
    assert_eq!(grant.lease_length, Seconds::ZERO, "{grant:?}");
    ask.seq = ask.seq.map(Seq::next);
    tree.wait(20.0);
    let grant = tree.root.refresh(&ask.into(), tree.now).remove(0);
    assert_eq!(grant.capacity.get(), 80.0, "{grant:?}");
}

#[test]
fn older_lease_covers_holders_that_are_not_heard() {
    let mut tree = tree_that_learns();
    // The parent states 70, of which `a` has confirmed 40. Then its leases shrink twice.
    tree.answer(0, 60.0, 20.0, Reason::Share);
    tree.answer(0, 50.0, 21.0, Reason::Share);
    let view = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    let older = view.parent.unwrap().older.unwrap().get();
    assert_eq!(older, 70.0);
}

#[test]
fn claim_that_no_lease_covers_gets_none_while_learning() {
    let mut tree = tree_that_learns();
    tree.answer(0, 50.0, 60.0, Reason::Share);
    // The lease that was stated has ended, and the newest does not cover the 30 beside the 40.
    tree.wait(20.0);
    assert_eq!(tree.refresh(0, "a", 40.0, 40.0).capacity.get(), 20.0);
    let claim = request("b", None, 30.0, Some(30.0));
    let ledger = &mut tree.nodes[0].ledger;
    let grant = ledger.refresh(&claim.clone().into(), tree.now).remove(0);
    assert_eq!(
        (grant.capacity.get(), grant.lease_length),
        (0.0, Seconds::ZERO)
    );
}

#[test]
fn signal_of_the_parent_is_passed_down() {
    let mut tree = Tree::new(document("SUPPRESSION", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 400.0, 0.0);
    for _ in 0..40 {
        tree.wait(1.0);
        tree.ask(0);
        tree.refresh(0, "a", 400.0, 100.0);
    }
    let grant = tree.refresh(0, "a", 400.0, 100.0);
    assert_eq!(grant.capacity.get(), 100.0);
    assert_eq!(grant.signal.admission_probability().unwrap().get(), 0.25);

    let mut tree = Tree::new(document("SHARED_BUCKET", 100.0), &[("eu", None)]);
    let used = |used: f64| {
        let mut request = request("a", None, 400.0, Some(100.0));
        request.resources[0].used = Some(Capacity::new(used).unwrap());
        request
    };
    tree.refresh(0, "a", 400.0, 0.0);
    tree.nodes[0].ledger.refresh(&used(0.0).into(), tree.now);
    tree.nodes[0].ledger.refresh(&used(150.0).into(), tree.now);
    tree.ask(0);
    let balance = |ledger: &mut Ledger, now| {
        let grant = ledger.refresh(&used(150.0).into(), now).remove(0);
        grant.signal.balance().unwrap().get()
    };
    assert_eq!(balance(&mut tree.nodes[0].ledger, tree.now), -50.0);
    assert_eq!(
        tree.root
            .resource(&db(), tree.now)
            .unwrap()
            .balance
            .unwrap()
            .get(),
        -50.0
    );
}

#[test]
fn priorities_of_all_nodes_count() {
    let nodes = [("eu", None), ("us", None)];
    let mut tree = Tree::new(document("PRIORITY_SHARE", 100.0), &nodes);
    let send = |tree: &mut Tree, node: usize, name: &str, priority, wants, has: f64| {
        let mut request = request(name, None, wants, (has > 0.0).then_some(has));
        request.resources[0].priority = Some(priority);
        tree.send(node, &request).capacity.get()
    };
    let (mut low, mut high, mut other) = (0.0, 0.0, 0.0);
    for _ in 0..8 {
        low = send(&mut tree, 0, "low", 0, 90.0, low);
        high = send(&mut tree, 0, "high", 1, 30.0, high);
        other = send(&mut tree, 1, "other", 1, 40.0, other);
        tree.ask(0);
        tree.ask(1);
    }
    assert_eq!((low, high, other), (30.0, 30.0, 40.0));
}

#[test]
fn unmatched_resource_is_granted_through_the_tree() {
    let document =
        parse("resources: [{identifier_glob: other, capacity: 1, algorithm: {kind: STATIC}}]");
    let mut tree = Tree::new(document, &[("eu", None)]);
    let grant = tree.refresh(0, "a", 30.0, 0.0);
    assert_eq!(
        (grant.capacity.get(), grant.reason),
        (30.0, Reason::Granted)
    );
    assert!(grant.template.is_none());
}

#[test]
fn resource_without_holders_is_forgotten() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    assert_eq!(tree.nodes[0].ledger.take_parent_updates(), []);
    let release = ReleaseRequest {
        client_id: ClientId::new("a").unwrap(),
        run: None,
        seq: None,
        heard_epoch: None,
        resource_ids: None,
        tokens: BTreeMap::new(),
    };
    tree.nodes[0]
        .ledger
        .release(&release.clone().into(), tree.now);
    let news = tree.nodes[0].ledger.take_parent_updates();
    assert_eq!(news, [crate::ledger::ParentUpdate::Gone(db())]);
}

/// A node whose new master has been told that clients have 70, and knows of 40.
fn tree_that_learns() -> Tree {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 40.0), client(0, "b", 30.0)]);
    tree.wait(1.0);
    tree.fail_over(0);
    assert_eq!(tree.refresh(0, "a", 40.0, 40.0).capacity.get(), 40.0);
    tree
}

#[test]
fn stated_leases_stay_covered_while_learning() {
    let mut tree = tree_that_learns();
    tree.answer(0, 50.0, 20.0, Reason::Share);
    // Half of the newest lease. Beside `a` it ends with the lease that was stated.
    let grant = tree.refresh(0, "b", 30.0, 30.0);
    assert_eq!(grant.capacity.get(), 25.0);
    close(grant.lease_length.get(), 20.0 / 1.05 / 1.05);
}

#[test]
fn false_claim_takes_nothing_from_confirmed_holders() {
    let mut tree = tree_that_learns();
    let late = request("late", None, 0.0, Some(60.0));
    tree.nodes[0].ledger.refresh(&late.clone().into(), tree.now);
    assert_eq!(tree.refresh(0, "b", 30.0, 30.0).capacity.get(), 30.0);
}

#[test]
fn stop_while_learning_keeps_what_was_stated() {
    let mut tree = tree_that_learns();
    tree.hand_over(0);
    assert_eq!(tree.refresh(0, "c", 50.0, 0.0).capacity.get(), 0.0);
}

#[test]
fn longer_lease_stays_beside_a_larger_one() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    tree.answer(0, 50.0, 5.0, Reason::Granted);
    tree.wait(6.0);
    let grant = tree.refresh(0, "a", 30.0, 30.0);
    assert_eq!(grant.capacity.get(), 30.0);
    close(grant.lease_length.get(), 14.0 / 1.05);
}

#[test]
fn longer_lease_covers_only_what_was_reported() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 60.0, 0.0);
    tree.refresh(0, "a", 20.0, 20.0);
    tree.answer(0, 30.0, 5.0, Reason::Share);
    // The parent hears of 30, and frees the other 30.
    tree.answer(0, 30.0, 5.0, Reason::Share);
    tree.wait(6.0);
    assert_eq!(tree.refresh(0, "a", 60.0, 20.0).capacity.get(), 30.0);
}

#[test]
fn lease_of_0_for_no_demand_takes_nothing_from_holders() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    tree.answer(0, 0.0, 20.0, Reason::Granted);
    let grant = tree.refresh(0, "a", 30.0, 30.0);
    assert_eq!(
        (grant.capacity.get(), grant.reason),
        (30.0, Reason::Pending)
    );
    // Others have the capacity.
    tree.answer(0, 0.0, 20.0, Reason::Share);
    assert_eq!(tree.refresh(0, "a", 30.0, 30.0).capacity.get(), 0.0);
}

#[test]
fn claim_of_a_new_master_lowers_nothing_until_confirmed() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 40.0), client(0, "b", 30.0)]);
    let claim = |tree: &mut Tree, heard: Option<Epoch>, seq| {
        let mut resources = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
        let has = Capacity::new(40.0).unwrap();
        resources[0].has = Some(HeldLease::from(has));
        resources[0].outstanding = has;
        let request = ServerCapacityRequest {
            node_id: NodeId::new("eu").unwrap(),
            epoch: Some(Epoch::new(2).unwrap()),
            seq: Some(Seq::new(seq).unwrap()),
            heard_epoch: heard,
            address: None,
            resources,
        };
        tree.root.refresh(&request.clone().into(), tree.now);
        tree.root.resource(&db(), tree.now).unwrap().sum_has
    };
    // Its demand is lower, too.
    tree.refresh(0, "b", 0.0, 0.0);
    assert_eq!(claim(&mut tree, None, 1), 70.0);
    assert_eq!(claim(&mut tree, Some(Epoch::ZERO), 2), 40.0);
}

#[test]
fn returned_capacity_is_not_granted_again_while_learning() {
    let mut tree = tree_that_learns();
    // The parent hears that 20 of the 70 are free, and leases them to others.
    tree.refresh(0, "a", 20.0, 20.0);
    tree.answer(0, 50.0, 20.0, Reason::Share);
    tree.answer(0, 50.0, 20.0, Reason::Share);
    // 30 of the 50 are those of `b`.
    assert_eq!(tree.refresh(0, "a", 40.0, 20.0).capacity.get(), 20.0);
}

#[test]
fn handed_over_grants_are_not_free_while_learning() {
    let mut tree = tree_that_learns();
    // The rest of the root's capacity, which no earlier master had.
    tree.refresh(0, "c", 50.0, 0.0);
    tree.ask(0);
    assert_eq!(tree.refresh(0, "c", 50.0, 0.0).capacity.get(), 30.0);
    tree.hand_over(0);
    assert_eq!(tree.refresh(0, "d", 50.0, 0.0).capacity.get(), 0.0);
    assert_eq!(tree.refresh(0, "c", 50.0, 30.0).capacity.get(), 30.0);
}

#[test]
fn lost_first_response_is_no_lease_of_an_earlier_master() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let request = request("a", None, 30.0, None);
    let ledger = &mut tree.nodes[0].ledger;
    assert!(ledger.register_part(&request.clone().into(), 0, tree.now).0);
    tree.ask_in_vain(0);
    tree.wait(1.0);
    let grant = tree.refresh(0, "a", 30.0, 0.0);
    assert_eq!(
        (grant.capacity.get(), grant.reason),
        (30.0, Reason::Granted)
    );
    let view = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    assert!(!view.in_learning_mode);

    // That of an earlier master is, although this one has asked before, and the root has handed
    // over.
    tree.fail_over(0);
    let ledger = &mut tree.nodes[0].ledger;
    ledger.register_part(&request.clone().into(), 0, tree.now);
    tree.ask_in_vain(0);
    let mut next = Ledger::new(document("FAIR_SHARE", 100.0), SETTINGS, tree.now);
    for record in tree.root.snapshot(tree.now) {
        next.restore(&record, tree.now).unwrap();
    }
    tree.root = next;
    assert_eq!(tree.refresh(0, "b", 30.0, 0.0).capacity.get(), 0.0);
    let view = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    assert!(view.in_learning_mode);
}

#[test]
fn restored_lease_ends_by_the_earliest_time_of_the_stop() {
    for (earliest, length) in [(Some(5.0), 15.0), (Some(0.0), 10.0), (None, 0.0)] {
        let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
        tree.refresh(0, "a", 30.0, 0.0);
        let stopped = tree.now.after_seconds(5.0);
        let earliest = earliest.map(|seconds| tree.now.after_seconds(seconds));
        let records: Vec<_> = tree.nodes[0].ledger.snapshot(stopped).collect();
        tree.wait(5.0);
        let mut ledger = Ledger::new(built_in(), SETTINGS, tree.now).of_parent();
        for mut record in records {
            record.shorten_parent(earliest, stopped);
            ledger.restore(&record, stopped).unwrap();
        }
        let request = request("a", None, 30.0, Some(30.0));
        let grant = ledger.refresh(&request.clone().into(), tree.now).remove(0);
        close(grant.lease_length.get(), length / 1.05);
    }
}

#[test]
fn node_without_demand_asks_for_nothing() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.refresh(0, "a", 30.0, 0.0);
    let release = r#"{"client_id":"a","seq":2}"#;
    let release: ReleaseRequest = serde_json::from_str(release).unwrap();
    tree.nodes[0].ledger.release(&release.into(), tree.now);
    let requests = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
    // An empty list is invalid.
    let wants = &requests[0].wants;
    assert_eq!((wants.len(), wants[0].wants.get()), (1, 0.0));
    // It reports that it has given up its lease.
    tree.ask(0);
    tree.ask(0);
    assert_eq!(tree.root.resource(&db(), tree.now).unwrap().sum_has, 0.0);
}

#[test]
fn huge_demands_of_a_node_are_valid_together() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let most = Capacity::MAX.get();
    for (name, wants) in [("a", 1.0), ("b", most), ("c", most), ("d", 30.0)] {
        tree.refresh(0, name, wants, 0.0);
        tree.ask(0);
    }
    let requests = tree.nodes[0].ledger.parent_requests([&db()], tree.now);
    let wants = requests[0].wants.iter();
    let sum: f64 = wants.clone().map(|band| band.wants.get()).sum();
    assert!(wants.len() > 1 && sum <= most && sum > 0.99 * most, "{sum}");
}

#[test]
fn restated_claim_ends_with_the_lease_of_the_parent() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let settings = Settings {
        predecessor: Predecessor::Until(tree.now.after_seconds(60.0)),
        ..SETTINGS
    };
    tree.refresh(0, "a", 40.0, 0.0);
    tree.fail_over(0);
    tree.nodes[0].ledger = Ledger::new(built_in(), settings, tree.now).of_parent();
    tree.refresh(0, "b", 40.0, 0.0);
    let claim = request("a", Some(2), 40.0, Some(40.0));
    let ledger = &mut tree.nodes[0].ledger;
    ledger.refresh(&claim.clone().into(), tree.now);
    // The claim is booked until the predecessor's leases have ended.
    tree.wait(10.0);
    tree.ask(0);
    let late = request("a", Some(1), 40.0, Some(40.0));
    let ledger = &mut tree.nodes[0].ledger;
    let grant = ledger.refresh(&late.clone().into(), tree.now).remove(0);
    assert_eq!(grant.capacity.get(), 40.0);
    assert!(grant.lease_length.get() <= 20.0, "{grant:?}");
}

#[test]
fn hand_over_of_a_node_keeps_rates_when_the_period_has_changed() {
    let mut tree = Tree::new(periodic(100.0, 1.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 100.0)]);
    tree.root.reconfigure(periodic(6000.0, 60.0));
    // The new master has not heard of it, and neither has the client.
    tree.hand_over(0);
    close(tree.refresh(0, "a", 100.0, 100.0).capacity.get(), 100.0);
    tree.ask(0);
    close(tree.refresh(0, "a", 100.0, 100.0).capacity.get(), 6000.0);
    let root = tree.root.resource(&db(), tree.now).unwrap();
    close(root.sum_has, 6000.0);
}

#[test]
fn node_states_the_unit_of_the_last_answer() {
    let mut tree = Tree::new(periodic(100.0, 1.0), &[("eu", None)]);
    let unit = |tree: &mut Tree| {
        let now = tree.now;
        let requests = tree.nodes[0].ledger.parent_requests([&db()], now);
        (requests[0].unit, requests[0].per.map(Seconds::get))
    };
    let ask = request("a", None, 100.0, None);
    let node = &mut tree.nodes[0].ledger;
    assert!(node.register_part(&ask.clone().into(), 0, tree.now).0);
    assert_eq!(unit(&mut tree), (None, None));
    tree.ask(0);
    assert_eq!(unit(&mut tree), (Some(Unit::Rate), Some(1.0)));
    tree.root.reconfigure(periodic(6000.0, 60.0));
    assert_eq!(unit(&mut tree), (Some(Unit::Rate), Some(1.0)));
    tree.ask(0);
    assert_eq!(unit(&mut tree), (Some(Unit::Rate), Some(60.0)));
}

#[test]
fn units_stated_before_the_parent_has_answered_are_converted() {
    let mut tree = Tree::new(periodic(6000.0, 60.0), &[("eu", None)]);
    let mut ask = request("a", None, 40.0, None);
    ask.resources[0].per = Some(Seconds::new(1.0).unwrap());
    let node = &mut tree.nodes[0].ledger;
    assert!(node.register_part(&ask.clone().into(), 0, tree.now).0);
    tree.ask(0);
    let node = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    close(node.sum_wants, 2400.0);
}

#[test]
fn registered_request_does_not_count_as_answered() {
    let mut tree = Tree::new(periodic(100.0, 1.0), &[("eu", None)]);
    tree.refresh(0, "b", 100.0, 0.0);
    assert_eq!(tree.refresh(0, "a", 5.0, 0.0).capacity.get(), 0.0);
    tree.root.reconfigure(periodic(6000.0, 60.0));
    tree.ask(0);
    // In the unit that the client was told last.
    tree.refresh(0, "a", 5.0, 0.0);
    let node = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    close(node.sum_wants, 6300.0);
}

/// The master of a node while the unit is one of another kind.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Master {
    Same,
    HandsOver,
    /// It knows of no lease.
    New,
    /// It has released the resource, too.
    Idle,
}

#[test]
fn leases_below_a_node_count_when_the_unit_is_changed_back() {
    for master in [Master::Same, Master::HandsOver, Master::New, Master::Idle] {
        for restarts in [false, true] {
            let mut tree = Tree::new(periodic(100.0, 1.0), &[("eu", None)]);
            tree.settle(&mut [client(0, "c", 60.0)]);
            // The client is cut off.
            tree.wait(1.0);
            tree.root.reconfigure(units::gauge(100.0));
            match master {
                Master::Same => {}
                Master::HandsOver => tree.hand_over(0),
                Master::New | Master::Idle => {
                    tree.fail_over(0);
                    tree.refresh(0, "d", 1.0, 0.0);
                }
            }
            tree.ask(0);
            tree.ask(0);
            if master == Master::Idle {
                release_node(&mut tree, 0);
            }
            tree.wait(1.0);
            if restarts {
                tree.restart_root(periodic(100.0, 1.0));
            } else {
                tree.root.reconfigure(periodic(100.0, 1.0));
            }
            for _ in 0..3 {
                tree.wait(0.5);
                tree.ask(0);
                let below = tree.refresh(0, "d", 100.0, 0.0);
                assert_eq!(below.template.unwrap().unit(), Unit::Rate);
                assert_eq!(below.capacity.get(), 0.0, "{master:?} {restarts}");
                let ask = request("b", None, 100.0, None);
                let beside = tree.root.refresh(&ask.clone().into(), tree.now).remove(0);
                // A third, or what is left.
                let beside = beside.capacity.get();
                assert!(
                    (33.0..=40.0).contains(&beside),
                    "{beside} {master:?} {restarts}"
                );
                tree.root.release(&release_of("b").into(), tree.now);
            }
            for _ in 0..8 {
                tree.wait(5.0);
                let ask = request("b", None, 50.0, None);
                tree.root.refresh(&ask.clone().into(), tree.now);
                tree.refresh(0, "d", 50.0, 0.0);
                tree.ask(0);
            }
            assert_eq!(tree.refresh(0, "d", 50.0, 0.0).capacity.get(), 50.0);
        }
    }
}

fn release_of(client: &str) -> ReleaseRequest {
    ReleaseRequest {
        client_id: ClientId::new(client).unwrap(),
        run: None,
        seq: None,
        heard_epoch: None,
        resource_ids: None,
        tokens: BTreeMap::new(),
    }
}

/// A node gives up all that it has.
fn release_node(tree: &mut Tree, index: usize) {
    let node = &mut tree.nodes[index];
    node.seq += 1;
    let release = ServerReleaseRequest {
        node_id: NodeId::new(node.name).unwrap(),
        epoch: Some(Epoch::new(node.epoch).unwrap()),
        seq: Some(Seq::new(node.seq).unwrap()),
        heard_epoch: node.heard,
        resource_ids: None,
    };
    let all = |_: &ResourceId| true;
    tree.root.release_part(
        &release.clone().into(),
        &all,
        ReleasePosition::default(),
        tree.now,
    );
}

#[test]
fn older_lease_follows_a_new_period() {
    let of = periodic;
    let mut tree = Tree::new(of(100.0, 1.0), &[("eu", None)]);
    let mut clients = [client(0, "a", 50.0), client(0, "b", 50.0)];
    tree.settle(&mut clients);
    tree.wait(1.0);
    // A fifth of the capacity, by the minute. The older lease covers what clients hold.
    tree.root.reconfigure(of(1200.0, 60.0));
    tree.ask(0);
    let grant = tree.refresh(0, "a", 50.0, 50.0);
    assert_eq!(grant.capacity.get(), 600.0);
    assert!(grant.lease_length.get() > 10.0, "{grant:?}");
    let parent = tree.nodes[0].ledger.resource(&db(), tree.now).unwrap();
    assert_eq!(parent.sum_has, 6000.0);
}

#[test]
fn rejected_resource_is_not_awaited() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    let ask = request("a", None, 10.0, None);
    let ledger = &mut tree.nodes[0].ledger;
    assert!(ledger.register_part(&ask.clone().into(), 0, tree.now).0);
    ledger.record_parent_rejection(&db());
    assert!(!ledger.register_part(&ask.clone().into(), 0, tree.now).0);
    let grant = ledger.refresh(&ask.clone().into(), tree.now).remove(0);
    assert_eq!((grant.capacity.get(), grant.lease_length.get()), (0.0, 0.0));
    assert_eq!(ledger.stats().unmatched, 0);
    // The next answer counts.
    tree.ask(0);
    assert_eq!(tree.refresh(0, "a", 10.0, 0.0).capacity.get(), 10.0);
}

#[test]
fn levels_pass_through_a_node_with_enough() {
    for algorithm in ["FAIR_SHARE", "PROPORTIONAL_SHARE"] {
        let nodes = [("eu", None), ("us", None), ("eu-1", Some(0))];
        let mut tree = Tree::new(document(algorithm, 100.0), &nodes);
        // Together the first three want less than three equal shares.
        let mut clients = [
            client(2, "a", 45.0),
            client(2, "b", 1.0),
            client(2, "c", 2.0),
            client(1, "d", 70.0),
            client(1, "e", 50.0),
        ];
        tree.settle(&mut clients);
        let share = match algorithm {
            "FAIR_SHARE" => 97.0 / 3.0,
            // The equal share of 20, and what is left in proportion to what is missing.
            _ => 20.0 + 37.0 * 25.0 / 105.0,
        };
        let has = clients[0].has;
        assert!((has - share).abs() < 0.01 * share, "{algorithm}: {has}");
    }
}

#[test]
fn refresh_intervals_shrink_by_the_decay_factor() {
    let intervals = |parameters: &str| {
        let text = format!(
            "resources: [{{identifier_glob: db, capacity: 100, algorithm: {{kind: STATIC, \
             refresh_interval: 8{parameters}}}}}]"
        );
        let document = Arc::new(Document::parse(&text).unwrap());
        let mut tree = Tree::new(document, &[("eu", None), ("eu-1", Some(0))]);
        [(1, "a"), (0, "b")].map(|(node, client)| {
            let grant = tree.refresh(node, client, 5.0, 0.0);
            grant.refresh_interval.get()
        })
    };
    assert_eq!(intervals(""), [2.0, 4.0]);
    let quarter = ", parameters: [{name: decay_factor, value: 0.25}]";
    assert_eq!(intervals(quarter), [1.0, 2.0]);
    let whole = ", parameters: [{name: decay_factor, value: '1'}]";
    assert_eq!(intervals(whole), [8.0, 8.0]);
}

#[test]
fn release_while_learning_gives_nothing_back() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("eu", None)]);
    tree.settle(&mut [client(0, "a", 80.0)]);
    tree.wait(1.0);
    tree.fail_over(0);
    assert_eq!(tree.refresh(0, "b", 10.0, 0.0).capacity.get(), 0.0);
    let release = ReleaseRequest {
        client_id: ClientId::new("b").unwrap(),
        run: None,
        seq: None,
        heard_epoch: None,
        resource_ids: None,
        tokens: BTreeMap::new(),
    };
    let now = tree.now;
    let ledger = &mut tree.nodes[0].ledger;
    ledger.take_parent_updates();
    ledger.release(&release.clone().into(), now);
    let gone = crate::ledger::ParentUpdate::Gone(db());
    assert!(!ledger.take_parent_updates().contains(&gone));
    // Later nobody can have anything.
    tree.wait(25.0);
    assert!(tree.nodes[0].ledger.take_parent_updates().contains(&gone));
}
