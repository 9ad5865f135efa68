//! What the core answers for one resource.

use std::sync::Arc;

use doorman_config::Template;
use doorman_openapi::{
    Algorithm, CLOCK_DRIFT, Capacity, Lease, Moment, Reason, ResourceId, ResourceResponse,
    SafeCapacity, Seconds,
};

use super::Feedback;

/// What a holder is told of one resource: all of an answer but the time of day.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Of which resource.
    pub resource_id: ResourceId,
    /// How much it may use.
    pub capacity: Capacity,
    /// For how long, from the sending of its request; 0: no lease.
    pub lease_length: Seconds,
    /// When it should come back.
    pub refresh_interval: Seconds,
    /// Why so much.
    pub reason: Reason,
    /// The template that matched.
    pub template: Option<Arc<Template>>,
    /// What it may use by itself when it has no lease.
    pub safe_capacity: SafeCapacity,
    /// How the resource is divided.
    pub algorithm: Algorithm,
    /// What it is told beside the lease.
    pub feedback: Feedback,
    /// Until when the books keep it. Before the holder may be told of it, this must be covered by what a successor will know.
    pub booked_until: Moment,
}

impl Grant {
    /// The most of it that may be told when a successor will believe that all leases have ended at `bound`: shorter, or nothing
    /// when too little is left. The books keep what was decided, which is the more.
    #[must_use]
    pub fn capped_at(self, bound: Moment, handled: Moment) -> Self {
        if self.booked_until <= bound || self.capacity == Capacity::ZERO {
            return self;
        }
        let left = Seconds::saturating(bound.seconds_since(handled) / CLOCK_DRIFT);
        let soon = Seconds::saturating(self.refresh_interval.get().min(left.get() / 2.0));
        if left == Seconds::ZERO {
            Self {
                capacity: Capacity::ZERO,
                lease_length: Seconds::ZERO,
                refresh_interval: Seconds::saturating(self.refresh_interval.get().min(1.0)),
                reason: Reason::Pending,
                ..self
            }
        } else {
            Self {
                lease_length: left,
                refresh_interval: soon,
                ..self
            }
        }
    }

    /// When the lease ends by the wall clock, of which `unix_now` is the time now, both in Unix seconds.
    #[must_use]
    pub fn expiry_time(&self, unix_now: u64) -> u64 {
        unix_now.saturating_add(self.lease_length.get() as u64)
    }

    /// The answer as it goes over the wire. `unix_now` is the wall clock in Unix seconds: the end it gives is for people only.
    #[must_use]
    pub fn into_answer(self, unix_now: u64) -> ResourceResponse {
        ResourceResponse {
            gets: Lease {
                capacity: self.capacity,
                lease_length: self.lease_length,
                refresh_interval: self.refresh_interval,
                expiry_time: self.expiry_time(unix_now),
            },
            reason: self.reason,
            template: self
                .template
                .as_ref()
                .map(|template| template.identifier_glob().to_owned()),
            limit: self.template.as_ref().map(|template| template.capacity()),
            unit: self.template.as_ref().map(|template| template.unit()),
            per: self.template.as_ref().map(|template| template.per()),
            safe_capacity: self.safe_capacity,
            admission_probability: self.feedback.admission_probability(),
            balance: self.feedback.balance(),
            resource_id: self.resource_id,
        }
    }
}
