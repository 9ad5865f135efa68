//! Steps that a run executes at their seconds: faults, and changes of demands and documents.
//!
//! Which fault affects which process, and when, is drawn. Only what depends on the run is open: the
//! master of a node, and the [`End`] of a lease or an election.

use std::sync::Arc;

use doorman_config::Document;
use fastrand::Rng;

use super::{DemandChange, FaultKind};
use crate::limits::Limit;

/// The steps of a run, with their seconds.
pub(crate) type Script = Vec<(f64, Step)>;

#[derive(Debug)]
pub(crate) enum Step {
    Fault(Fault),
    /// A step at an end that is known now.
    AtEnd(End, Box<Self>),
    /// A client wants so much of a resource.
    Demand {
        client: usize,
        resource: usize,
        wants: f64,
        priority: i32,
    },
    /// A client releases a resource.
    Release {
        client: usize,
        resource: usize,
    },
    /// A document of a scenario becomes active.
    ChangeDocument(Arc<Document>),
    /// The document has other limits, which are active at once, or read by servers when
    /// they start.
    ChangeLimits {
        limits: Vec<Limit>,
        are_active: bool,
    },
    /// A node has one server instead of several, or several again.
    ChangeServerCount(ServerCount),
    /// A server takes over the newest document.
    Deploy(usize),
    /// Another target takes the requests for a resource.
    ChangeTarget {
        resource: usize,
    },
    /// A client says other things of its requests.
    ChangeClaims {
        client: usize,
    },
}

/// A change between one server of a node and several.
#[derive(Debug)]
pub(crate) struct ServerCount {
    pub(crate) node: usize,
    /// Which of the servers that may start alone, from 0 up to 1.
    pub(crate) choice: f64,
    /// Whether it stops cleanly. Otherwise it crashes.
    pub(crate) is_stopped: bool,
    /// Seconds until it starts again.
    pub(crate) seconds: f64,
    /// The document changes, too.
    pub(crate) limits: Vec<Limit>,
}

/// A fault of known processes. Its kind decides which of them it affects.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) length: Length,
    pub(crate) node: usize,
    /// Of a fault of clients: the only server that they do not reach.
    pub(crate) server: Option<ServerChoice>,
    pub(crate) clients: Vec<usize>,
    /// Seconds by which messages are late.
    pub(crate) late: f64,
    pub(crate) change: Option<DemandChange>,
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Length {
    Seconds(f64),
    /// Until something ends that is valid when the fault begins.
    Until(End),
}

/// The end of a lease, a bound, an election, a learning mode or a hand-over. Only the run knows
/// these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct End {
    /// Which of all ends, from 0 up to 1.
    pub(crate) choice: f64,
    /// Seconds before or after it.
    pub(crate) offset: f64,
}

/// A server of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ServerChoice {
    /// By its number, which counts over all nodes.
    Number(usize),
    /// The running master.
    Master,
    /// The master of the newest reign, which may be paused, or else a server by its number.
    NewestMaster { otherwise: usize },
}

impl Fault {
    /// A fault of a kind that concerns no process yet.
    pub(crate) fn new(kind: FaultKind, length: Length) -> Self {
        Self {
            kind,
            length,
            node: 0,
            server: None,
            clients: Vec::new(),
            late: 0.0,
            change: None,
        }
    }
}

impl End {
    /// Any end, or a moment just before or after it.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let offset = match rng.u8(..4) {
            0 => -0.1 - 1.9 * rng.f64(),
            1 => 0.1 * rng.f64() - 0.05,
            2 => 0.1 + 1.9 * rng.f64(),
            _ => 0.0,
        };
        Self {
            choice: rng.f64(),
            offset,
        }
    }
}
