//! The decision for one holder, and the response that carries it.

use std::sync::Arc;

use doorman_config::Template;
use doorman_openapi::{
    Algorithm, AlgorithmKind, Balance, CLOCK_DRIFT, Capacity, FillLevel, Lease, Moment, Reason,
    ResourceId, ResourceResponse, SafeCapacity, Seconds, ServerAlgorithm, ServerResourceResponse,
};

use crate::ledger::{resource::signal::Signal, store::sum_tree::SumTree, terms::ResourceTerms};

/// Relative tolerance for comparing sums.
pub(in crate::ledger) const TOLERANCE: f64 = 1e-9;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct Decision {
    pub(in crate::ledger) capacity: Capacity,
    pub(in crate::ledger) lease_length: Seconds,
    pub(in crate::ledger) refresh_interval: Seconds,
    pub(in crate::ledger) reason: Reason,
    pub(in crate::ledger) booked_until: Moment,
    pub(in crate::ledger) anomalies: Anomalies,
    /// The part of its share that a pending holder lacks; `None` for a stale request.
    pub(in crate::ledger) lacks: Option<f64>,
}

impl Decision {
    /// No lease, and no change.
    pub(in crate::ledger) fn none(terms: &ResourceTerms) -> Self {
        Self {
            capacity: Capacity::ZERO,
            lease_length: Seconds::ZERO,
            refresh_interval: terms.refresh_interval(true),
            reason: Reason::Pending,
            booked_until: Moment::ORIGIN,
            anomalies: Anomalies::default(),
            lacks: None,
        }
    }

    /// Takes back a lease of 0 in learning mode, unless the resource is blocked: others may have
    /// the holder's share unheard, so its fallback is to apply, also to a demand that begins later.
    /// At other times a lease of 0 says that others have the capacity, or that none was wanted.
    pub(in crate::ledger) fn withhold_zero(&mut self) {
        if self.reason != Reason::Blocked && self.capacity == Capacity::ZERO {
            self.lease_length = Seconds::ZERO;
        }
    }
}

/// Conditions under which holders may together use more than the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
pub(in crate::ledger) struct Anomalies {
    /// The holder claimed more than it can have. The excess was ignored.
    pub(in crate::ledger) excess_claim: bool,
    /// The first confirmed claims are together more than a predecessor can have granted.
    pub(in crate::ledger) claims_exceed: bool,
    /// The holder uses more than is booked for it.
    pub(in crate::ledger) overused: bool,
    /// More than the capacity is booked, after an operator lowered it.
    pub(in crate::ledger) over_capacity: bool,
    /// The holder reports outcomes that move no capacity, for the first time.
    pub(in crate::ledger) ignored_outcomes: bool,
}

pub(in crate::ledger) fn reaches(amount: f64, goal: f64) -> bool {
    amount >= goal * (1.0 - TOLERANCE)
}

pub(in crate::ledger) fn is_over_capacity(terms: &ResourceTerms, booked: &SumTree) -> bool {
    terms.rule().divides() && booked.total() > terms.promised() * (1.0 + TOLERANCE)
}

/// The answer to a holder that reports outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reporting {
    /// Whether it reports overloads early.
    pub is_early: bool,
    /// Whether this was its first report, which moves no capacity because the caller may not.
    pub is_ignored: bool,
    /// The effective capacity, for a successor.
    pub effective: Option<Capacity>,
}

/// The response for one resource, without the time of day.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The resource.
    pub resource_id: ResourceId,
    /// The leased capacity.
    pub capacity: Capacity,
    /// The length of the lease from the sending of the request; 0 if there is none.
    pub lease_length: Seconds,
    /// When the holder should refresh.
    pub refresh_interval: Seconds,
    /// Why it is this capacity.
    pub reason: Reason,
    /// The template that matched.
    pub template: Option<Arc<Template>>,
    /// The capacity without a lease.
    pub safe_capacity: SafeCapacity,
    /// The algorithm of the resource.
    pub algorithm: Algorithm,
    /// The signal beside the lease.
    pub signal: Signal,
    /// The tokens that a new or larger lease adds to a bucket that saves up for long.
    pub tokens: Option<Balance>,
    /// For a node: where it splits the demand of its clients.
    pub levels: Vec<FillLevel>,
    /// The state of feedback, for a holder that reports outcomes.
    pub reporting: Reporting,
    /// Until when the lease is booked. A successor must know of it before the holder does.
    pub booked_until: Moment,
}

impl Grant {
    pub(in crate::ledger) fn new(
        resource_id: ResourceId,
        terms: &ResourceTerms,
        clients: f64,
        decision: &Decision,
        signal: Signal,
        levels: Vec<FillLevel>,
    ) -> Self {
        Self {
            resource_id,
            capacity: decision.capacity,
            lease_length: decision.lease_length,
            refresh_interval: decision.refresh_interval,
            reason: decision.reason,
            template: terms.template().cloned(),
            safe_capacity: terms.safe_capacity(clients),
            algorithm: terms.algorithm().clone(),
            signal,
            tokens: None,
            levels,
            reporting: Reporting::default(),
            booked_until: decision.booked_until,
        }
    }

    /// Whether no template matches. A node whose parent has not answered cannot know that.
    pub(in crate::ledger) fn is_unmatched(&self) -> bool {
        let kind = self.algorithm.kind;
        self.template.is_none()
            && matches!(kind, AlgorithmKind::NoAlgorithm | AlgorithmKind::Static)
    }

    /// For how long the lease is booked at most, in nanoseconds.
    #[must_use]
    pub fn booking_nanos(&self) -> u64 {
        Moment::ORIGIN
            .after_seconds(self.lease_length.get() * CLOCK_DRIFT)
            .as_nanos()
    }

    /// Shortens the lease, or withholds it, so that it ends by `bound`: a successor takes all
    /// leases as ended then. The booking stays as decided.
    #[must_use]
    pub fn capped_at(self, bound: Moment, handled: Moment) -> Self {
        if self.booked_until <= bound || self.capacity == Capacity::ZERO {
            return self;
        }
        self.shortened(bound.seconds_since(handled))
    }

    /// Shortens the lease so that it is booked for `longest` nanoseconds at most: a successor may
    /// know of no longer one.
    #[must_use]
    pub fn capped_to(self, longest: u64) -> Self {
        if self.booking_nanos() <= longest || self.capacity == Capacity::ZERO {
            return self;
        }
        self.shortened(Moment::from_nanos(longest).seconds_since(Moment::ORIGIN))
    }

    /// The lease for a booking of so many seconds.
    fn shortened(self, booking: f64) -> Self {
        let left = Seconds::saturating(booking / CLOCK_DRIFT);
        let refresh = self.refresh_interval.get();
        if left == Seconds::ZERO {
            Self {
                capacity: Capacity::ZERO,
                lease_length: Seconds::ZERO,
                refresh_interval: Seconds::saturating(refresh.min(1.0)),
                reason: Reason::Pending,
                ..self
            }
        } else {
            Self {
                lease_length: left,
                refresh_interval: Seconds::saturating(refresh.min(left.get() / 2.0)),
                ..self
            }
        }
    }

    /// When the lease ends, in Unix seconds.
    #[must_use]
    pub fn expiry_time(&self, unix_now: u64) -> u64 {
        unix_now.saturating_add(self.lease_length.get() as u64)
    }

    /// The response to a node. `unix_now` is for display only.
    #[must_use]
    pub fn into_server_response(self, unix_now: u64) -> ServerResourceResponse {
        ServerResourceResponse {
            algorithm: ServerAlgorithm {
                algorithm: self.algorithm.clone(),
                parameters: self
                    .template
                    .as_ref()
                    .map_or_else(Vec::new, |it| it.parameters()),
            },
            levels: self.levels.clone(),
            answer: self.into_response(unix_now),
        }
    }

    /// The response to a client. `unix_now` is for display only.
    #[must_use]
    pub fn into_response(self, unix_now: u64) -> ResourceResponse {
        let template = self.template.as_deref();
        ResourceResponse {
            gets: Lease {
                capacity: self.capacity,
                lease_length: self.lease_length,
                refresh_interval: self.refresh_interval,
                expiry_time: self.expiry_time(unix_now),
                effective: self.reporting.effective,
            },
            reason: self.reason,
            template: template.map(|it| it.identifier_glob().to_owned()),
            limit: template.map(Template::capacity),
            unit: template.map(Template::unit),
            per: template.map(Template::per),
            safe_capacity: self.safe_capacity,
            admission_probability: self.signal.admission_probability(),
            balance: self.signal.balance(),
            tokens: self.tokens,
            resource_id: self.resource_id,
            report: self.reporting.is_early,
        }
    }
}
