//! What the state machine is told, and what it answers.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, Epoch, Moment, NodeId, ReleaseRequest, ResourceId,
    SafeCapacity, Seconds, Seq, Unit,
};

use crate::limiter::Sharing;

/// What the process wants of a resource, and what it has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// The demand, in the resource's own unit.
    pub wants: Capacity,
    /// The total cost admitted since the resource was first asked for: a running total, never a delta.
    pub used: Capacity,
    /// How important it is: more is more important.
    pub priority: i32,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// So much is wanted of a resource. The first time, it is taken up.
    Demand {
        /// Of which resource.
        resource: ResourceId,
        /// How much.
        demand: Demand,
    },
    /// The resource is no longer wanted: its lease is given back.
    Forget {
        /// Which resource.
        resource: ResourceId,
    },
    /// A request was answered.
    Answered {
        /// Which request.
        seq: Seq,
        /// With what.
        response: CapacityResponse,
    },
    /// A request was not answered with leases.
    Failed {
        /// Which request.
        seq: Seq,
        /// Why.
        failure: Failure,
    },
    /// Time has passed. Only this sends, and it sends one request at most: come back while [`Holder::wake_at`](super::Holder::wake_at)
    /// is not after now.
    Tick,
    /// Everything is given back, and nothing more is asked for. Told again, it gives back again: after a failure, to the next server.
    Stop,
}

/// Why a request was not answered with leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server could not be reached, did not answer in time, was not able to serve, or answered nonsense.
    Unavailable {
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server is not the master.
    Redirected {
        /// The endpoint that it named; `None` when it named none, or none that was configured.
        to: Option<usize>,
    },
    /// The server does not serve the request as it is.
    Refused {
        /// The positions in the request of the resources at fault; empty when the server did not say.
        positions: Vec<usize>,
    },
    /// The request was too large.
    TooLarge,
    /// The server does not do so much for one caller, or for all together. It serves renewals before new leases.
    Limited {
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this request now.
    Send {
        /// Its number, by which to report what became of it.
        seq: Seq,
        /// The endpoint to send it to: a position in the list of servers.
        endpoint: usize,
        /// The request.
        request: CapacityRequest,
        /// How long to wait for an answer. Afterwards the answer is of no use.
        timeout: Duration,
    },
    /// Send this release now. What becomes of it need not be reported, but for the one that [`Event::Stop`] asks for.
    SendRelease {
        /// Its number.
        seq: Seq,
        /// The endpoint to send it to.
        endpoint: usize,
        /// The release.
        request: ReleaseRequest,
    },
    /// What is held of a resource has changed: obey it before anything else is sent.
    Changed {
        /// Which resource.
        resource: ResourceId,
        /// What is held of it from now on.
        holding: Holding,
    },
    /// Somebody should be told.
    Warn(Warning),
}

/// What the holder has of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    /// The lease, if there is one.
    pub lease: Option<Leased>,
    /// What the control plane last told of the resource, whether or not a lease came with it. Until it has, what it told of others of
    /// the same template; `None` when nothing is known.
    pub told: Option<Arc<Told>>,
    /// Whether the control plane has answered for this resource.
    pub answered: bool,
    /// How often the control plane wants the holder to come back.
    pub refresh_interval: Duration,
    /// When it will next ask.
    pub refresh_at: Moment,
}

/// A lease as its holder counts it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leased {
    /// How much may be used, in the resource's own unit.
    pub capacity: Capacity,
    /// Until when: the moment the request was sent, and the length of the lease.
    pub ends: Moment,
    /// The whole capacity is 0. A lease on nothing else is one that wanted nothing.
    pub blocked: bool,
    /// It is on all that was asked for: who asks for more may be granted more.
    pub as_asked: bool,
    /// What all holders were told alike, where the capacity is not divided.
    pub sharing: Sharing,
}

/// What an answer says of the resource itself, apart from the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The glob of the template that matched; `None` when none did.
    pub template: Option<String>,
    /// The whole capacity.
    pub limit: Option<Capacity>,
    /// What it counts.
    pub unit: Unit,
    /// The seconds a rate is counted over; more than 0.
    pub per: Seconds,
    /// What a holder may use by itself when it has no lease.
    pub safe: SafeCapacity,
    /// Whether what all want decides with which probability each request is admitted (SUPPRESSION).
    pub suppressed: bool,
}

/// What somebody should be told, rarely enough to be logged as it comes, but for what is said of each resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// No endpoint gives leases. At most once a minute.
    Unreachable,
    /// Endpoints give leases again, after a warning that none did.
    Reached,
    /// The control plane refuses this resource; it is asked again now and then. Once until it is accepted.
    Refused {
        /// Which resource.
        resource: ResourceId,
    },
    /// An endpoint belongs to another node than the one that leases come from: two masters would be two capacities. Its answers are
    /// refused. At most once a minute.
    ForeignNode {
        /// Which endpoint.
        endpoint: usize,
        /// The node that leases come from.
        known: NodeId,
        /// The node of the endpoint.
        heard: NodeId,
    },
    /// An endpoint answers for a reign that is over. Its answers are dropped. At most once a minute.
    StaleEpoch {
        /// Which endpoint.
        endpoint: usize,
        /// The reign that is known.
        known: Epoch,
        /// The reign of the endpoint.
        heard: Epoch,
    },
}
