//! Events that the state machine takes and effects that it returns.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{
    Balance, Bucket, Capacity, CapacityRequest, CapacityResponse, ClientBand, Epoch, HintsResponse,
    MAX_PAUSE, Moment, NodeId, Outcomes, Probability, Reason, ReleaseRequest, ResourceId,
    SafeCapacity, Seconds, Seen, Seq, Unit,
};

/// The process's demand for a resource and its use so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Demand {
    /// The demand, in the resource's own unit.
    pub wants: Capacity,
    /// The units of a gauge that are in use now; 0 for a rate.
    pub outstanding: Capacity,
    /// The running total of cost admitted since the resource was first requested.
    pub used: Capacity,
    /// The priority: higher is more important. The highest of `bands`, if there are some.
    pub priority: i32,
    /// The demand by priority, if there are several.
    pub bands: Option<Arc<DemandBands>>,
    /// The unit of the limiter, if it is not that of the resource.
    pub limited_as: Option<Unit>,
    /// The bucket of a limiter that saves up for long.
    pub bucket: Option<Bucket>,
    /// The outcomes that the next request reports. It is sent once: state it before each request,
    /// for the resources that are [due](super::Holder::due). `None` changes nothing.
    pub feedback: Option<Feedback>,
}

/// The outcomes of the holder's requests to the target of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Feedback {
    /// Running totals since the resource was first requested.
    pub outcomes: Outcomes,
    /// The latest end of the pauses that overloaded responses asked for; the origin: none.
    pub paused_until: Moment,
    /// The target's own limit, if it told it since the last request.
    pub seen: Option<SeenLimit>,
}

impl Feedback {
    /// The rest of the pause, for a request sent now.
    #[must_use]
    pub fn pause(&self, now: Moment) -> Option<Seconds> {
        let rest = self.paused_until.since(now).min(MAX_PAUSE.duration());
        (!rest.is_zero()).then(|| rest.into())
    }

    /// The target's own limit, for a request sent now.
    #[must_use]
    pub fn seen(&self, now: Moment) -> Option<Seen> {
        let SeenLimit {
            remaining,
            whole_at,
        } = self.seen?;
        Seen::new(remaining, whole_at.since(now).into())
    }
}

/// A target's own limit as the target told it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeenLimit {
    /// The amount left, in the unit of the resource.
    pub remaining: Capacity,
    /// When it is whole again.
    pub whole_at: Moment,
}

/// A demand by priority, the highest first. The sum is the whole demand.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandBands(pub Vec<ClientBand>);

/// Input of the state machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The demand for a resource. The first one adds the resource.
    Demand {
        /// The resource.
        resource: ResourceId,
        /// Its demand.
        demand: Demand,
    },
    /// A request to the target of a resource was overloaded. Only the first one since the last
    /// lease request matters, and only while the control plane wants early reports.
    Overloaded {
        /// The resource.
        resource: ResourceId,
    },
    /// Reports a resource before its next refresh: its demand has changed, or its users have
    /// returned capacity. The first report is sent at once, later ones at least 20 ms apart.
    Report {
        /// The resource.
        resource: ResourceId,
    },
    /// The resource is no longer needed: its lease is released.
    Forget {
        /// The resource.
        resource: ResourceId,
    },
    /// A request was answered with leases.
    Answered {
        /// The request.
        seq: Seq,
        /// The response.
        response: CapacityResponse,
    },
    /// A request failed.
    Failed {
        /// The request.
        seq: Seq,
        /// The failure.
        failure: Failure,
    },
    /// A server named leases to refresh now. If a poll brought them, call
    /// [`Holder::end_poll`](super::Holder::end_poll) once before. Hints may be lost, late,
    /// duplicate or wrong.
    Hinted {
        /// The server that was polled: a position in the list of servers.
        endpoint: usize,
        /// Its hints.
        hints: HintsResponse,
    },
    /// The poll for hints failed.
    PollFailed {
        /// The server that was polled.
        endpoint: usize,
        /// The failure.
        failure: Failure,
    },
    /// The polled server does not support polls.
    PollUnsupported,
    /// Time has passed. Only a tick sends, and it sends at most one request: tick again while
    /// [`Holder::wake_at`](super::Holder::wake_at) is not after now.
    Tick,
    /// Release everything and request nothing more. A second stop releases at the next server.
    Stop,
}

/// Why a request brought no leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The server was unreachable, timed out, could not serve or sent an invalid response.
    Unavailable {
        /// The wait that the server asked for.
        retry_after: Option<Duration>,
    },
    /// The server is not the master.
    Redirected {
        /// The position of the server that it named; `None` when it named no configured server.
        to: Option<usize>,
    },
    /// The server rejected resources of the request.
    Rejected {
        /// Their positions in the request; empty when the server named none.
        positions: Vec<usize>,
    },
    /// The request was too large.
    TooLarge,
    /// The server rate limits this caller or all callers. It serves renewals before new leases.
    RateLimited {
        /// The wait that the server asked for.
        retry_after: Option<Duration>,
    },
}

/// Output of the state machine, to be carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this request now.
    Send {
        /// Its sequence number, which names it in [`Event::Answered`] and [`Event::Failed`].
        seq: Seq,
        /// The server to send it to: a position in the list of servers.
        endpoint: usize,
        /// The request.
        request: CapacityRequest,
        /// The timeout. A later response is ignored.
        timeout: Duration,
    },
    /// Send this release now. Only the outcome of a release caused by [`Event::Stop`] matters.
    SendRelease {
        /// Its sequence number.
        seq: Seq,
        /// The server to send it to.
        endpoint: usize,
        /// The release.
        request: ReleaseRequest,
    },
    /// Poll a server for hints. It ends with
    /// [`Holder::end_poll`](super::Holder::end_poll), [`Event::PollFailed`] or
    /// [`Event::PollUnsupported`].
    OpenPoll {
        /// The server to poll.
        endpoint: usize,
        /// The `after` of the poll.
        after: u64,
    },
    /// Close the open poll, whose end is no event then.
    ClosePoll,
    /// The status of a resource has changed: apply it before sending anything else.
    Changed {
        /// The resource.
        resource: ResourceId,
        /// Its status from now on.
        status: LeaseStatus,
    },
    /// Log this.
    Warn(Warning),
}

/// The part of a resource that the holder has.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseStatus {
    /// The lease, if there is one.
    pub lease: Option<ActiveLease>,
    /// The terms last reported for the resource, even without a lease. Until the first response
    /// these are the terms of another resource of the same template; `None` when there are none.
    pub terms: Option<Arc<ResourceTerms>>,
    /// The outcome of the first request.
    pub first_answer: FirstAnswer,
    /// The demand in the newest request.
    pub requested: Capacity,
    /// How often the control plane wants the lease renewed.
    pub refresh_interval: Duration,
    /// When the next request is due.
    pub refresh_at: Moment,
    /// Whether the control plane wants to hear of overloads early.
    pub reports_overloads: bool,
}

/// The outcome of the requests for a new resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAnswer {
    /// No request has been answered or has failed yet.
    Awaited,
    /// Requests have failed, and none was answered. Also for a resource that is wanted while the
    /// requests for others fail.
    Failed,
    /// The control plane has answered, with a lease or without.
    Received,
}

/// A lease as its holder uses it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActiveLease {
    /// How much may be used, in the resource's own unit.
    pub capacity: Capacity,
    /// When the lease ends: its length counted from the moment the request was sent.
    pub ends: Moment,
    /// Why it is this capacity.
    pub reason: Reason,
    /// How holders share the capacity.
    pub sharing: Sharing,
}

/// How the holders of one resource share its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Sharing {
    /// Each holder has its own part.
    #[default]
    Divided,
    /// The same, and the lease is new or has grown: it adds tokens to a bucket that saves up for
    /// long.
    Grown(GrownBucket),
    /// Each holder admits a request with this probability (SUPPRESSION).
    Suppressed(Probability),
    /// All holders spend from one bucket, of which each has a copy (SHARED_BUCKET).
    Bucket(SharedBalance),
}

/// The tokens that a new or larger lease brings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrownBucket {
    /// To add; negative if the bucket has more than is left.
    pub tokens: Balance,
    /// When the response arrived. They are added at this moment only.
    pub received_at: Moment,
}

/// The balance of a shared bucket in one response of the control plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedBalance {
    /// Tokens left.
    pub tokens: Balance,
    /// The usage that the holder had reported in its request. Later usage is not yet subtracted.
    pub used: Capacity,
    /// When the response arrived. The balance is valid at this moment only.
    pub received_at: Moment,
}

/// Terms of a resource, apart from any lease.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceTerms {
    /// The glob of the matching template; `None` when none matched.
    pub template: Option<String>,
    /// The whole capacity.
    pub limit: Option<Capacity>,
    /// The unit of the capacity.
    pub unit: Unit,
    /// The period of a rate, in seconds; greater than 0.
    pub per: Seconds,
    /// The capacity that a holder may use without a lease.
    pub safe: SafeCapacity,
    /// Whether the total demand decides the admission probability (SUPPRESSION).
    pub suppressed: bool,
}

/// A condition to log: at most once a minute, except for [`Rejected`](Self::Rejected).
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// No server grants leases.
    Unreachable,
    /// Servers grant leases again, after [`Unreachable`](Self::Unreachable).
    Recovered,
    /// The control plane rejects this resource. Reported once until it is accepted.
    Rejected {
        /// The resource.
        resource: ResourceId,
    },
    /// A server belongs to another node than the current leases. Two masters would mean twice the
    /// capacity, so its responses are ignored.
    ForeignNode {
        /// The server.
        endpoint: usize,
        /// The node of the current leases.
        known: NodeId,
        /// The node of the server.
        received: NodeId,
    },
    /// A server answered with an epoch that is over. Its responses are ignored.
    StaleEpoch {
        /// The server.
        endpoint: usize,
        /// The current epoch.
        known: Epoch,
        /// The epoch of the server.
        received: Epoch,
    },
}
