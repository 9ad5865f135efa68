//! Nodes of a tree: their servers, their parents and their etcd.

use std::ops::Range;

use doorman_openapi::NodeId;
use fastrand::Rng;

use super::{clock::Clock, etcd::Etcd, scenario::Scenario};

/// The longest election lease, in seconds.
pub(super) const ELECTION_LEASE: u32 = 6;

/// The most servers of a node below the root.
const LOWER_SERVERS: usize = 2;

/// A node, with the parts that its servers share.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: NodeId,
    /// The numbers of its servers. They count over all nodes.
    pub(super) servers: Range<usize>,
    /// The index of the parent; `None` for the root.
    pub(super) parent: Option<usize>,
    /// Present if there are several servers.
    pub(super) etcd: Option<Etcd>,
    pub(super) participation: Participation,
    /// Where the number of servers changes.
    pub(super) only: Option<OnlyServer>,
}

/// The only server of a node that may start.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnlyServer {
    pub(super) index: usize,
    /// Whether it takes no part in elections. Otherwise the others follow once it is master.
    pub(super) is_alone: bool,
}

/// How a server takes part in elections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Participation {
    /// Seconds of an election lease in etcd; `None` for the only server.
    pub(super) ttl: Option<u32>,
    /// Whether it may assume that there was no server before.
    pub(super) is_first: bool,
}

/// The node of a server, as the server knows it.
#[derive(Debug, Clone)]
pub(super) struct Membership {
    /// The index of the node.
    pub(super) index: usize,
    pub(super) name: NodeId,
    /// The number of nodes above it.
    pub(super) level: u32,
    pub(super) servers: Range<usize>,
    /// The servers of the parent.
    pub(super) parent: Option<Range<usize>>,
}

impl Node {
    /// The only node of a run without a tree.
    pub(super) fn root(servers: usize, etcd: Option<Etcd>, participation: Participation) -> Self {
        Self {
            name: node_id("root"),
            servers: 0..servers,
            parent: None,
            etcd,
            participation,
            only: None,
        }
    }

    /// How one of its servers takes part in elections; `None` if it may not start.
    pub(super) fn participation_of(&self, server: usize) -> Option<Participation> {
        let ttl = match self.only {
            Some(only) if only.index != server => return None,
            Some(only) if only.is_alone => None,
            _ => self.participation.ttl,
        };
        Some(Participation {
            ttl,
            ..self.participation
        })
    }
}

/// One or two nodes below the root, and sometimes one below these. Their servers are numbered from
/// `first` on.
pub(super) fn random_nodes(first: usize, is_first: bool, rng: &mut Rng) -> Vec<Node> {
    let mut parents = vec![0; rng.usize(1..=2)];
    if rng.u8(..3) == 0 {
        parents.push(rng.usize(1..=parents.len()));
    }
    let mut next = first;
    let nodes = parents.into_iter().zip(1..).map(|(parent, number)| {
        let servers = next..next + rng.usize(1..=LOWER_SERVERS);
        next = servers.end;
        let etcd = (servers.len() > 1).then(|| Etcd::new(Clock::random(rng)));
        Node {
            name: node_id(&format!("node-{number}")),
            servers,
            parent: Some(parent),
            participation: Participation {
                ttl: etcd.is_some().then(|| rng.u32(2..=ELECTION_LEASE)),
                is_first: is_first || etcd.is_none(),
            },
            etcd,
            only: None,
        }
    });
    nodes.collect()
}

/// The nodes of a scenario.
pub(super) fn scenario_nodes(scenario: &Scenario, rng: &mut Rng) -> Vec<Node> {
    let mut next = 0;
    let nodes = scenario.nodes.iter().map(|node| {
        let servers = next..next + node.servers;
        next = servers.end;
        let etcd =
            (servers.len() > 1).then(|| Etcd::new(Clock::with_drift(scenario.clock_drift, rng)));
        Node {
            name: node.name.clone(),
            servers,
            parent: node.parent,
            participation: Participation {
                ttl: etcd.is_some().then_some(scenario.election_lease),
                is_first: true,
            },
            etcd,
            only: None,
        }
    });
    nodes.collect()
}

/// The membership of the servers of a node.
pub(super) fn membership(nodes: &[Node], index: usize) -> Membership {
    let parent_of = |node: &usize| nodes[*node].parent;
    let level = std::iter::successors(Some(index), parent_of).count() - 1;
    Membership {
        index,
        name: nodes[index].name.clone(),
        level: level as u32,
        servers: nodes[index].servers.clone(),
        parent: nodes[index].parent.map(|it| nodes[it].servers.clone()),
    }
}

fn node_id(name: &str) -> NodeId {
    NodeId::new(name).expect("the name is valid")
}
