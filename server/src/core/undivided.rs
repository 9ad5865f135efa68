//! What is kept of a resource that is not divided, and told alike to all its holders.

use doorman_openapi::{AlgorithmKind, Balance, Moment, Probability};

use super::{recent_demand::RecentDemand, shared_bucket::SharedBucket, terms::Terms};

/// What a holder is told beside its lease.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Feedback {
    /// Nothing: the lease says it all.
    #[default]
    None,
    /// With which probability to admit each request.
    AdmissionProbability(Probability),
    /// What is left in the bucket that all share.
    Balance(Balance),
}

impl Feedback {
    /// With which probability each request may be admitted, where that is told.
    #[must_use]
    pub fn admission_probability(self) -> Option<Probability> {
        match self {
            Self::AdmissionProbability(probability) => Some(probability),
            Self::None | Self::Balance(_) => None,
        }
    }

    /// What is left in the bucket that all share, where there is one.
    #[must_use]
    pub fn balance(self) -> Option<Balance> {
        match self {
            Self::Balance(balance) => Some(balance),
            Self::None | Self::AdmissionProbability(_) => None,
        }
    }
}

/// What is kept, by algorithm.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Undivided {
    /// Nothing.
    No,
    /// For SUPPRESSION. Boxed, because most resources have none.
    Demand(Box<RecentDemand>),
    /// For SHARED_BUCKET.
    Bucket(SharedBucket),
}

impl Undivided {
    /// That of a resource whose holders are not known yet. `predecessor_until`: until when leases of a predecessor may be outstanding.
    pub(super) fn new(terms: &Terms, predecessor_until: Moment, now: Moment) -> Self {
        match terms.rule().kind {
            AlgorithmKind::Suppression => Self::Demand(Box::new(RecentDemand::new(now))),
            // What a predecessor's holders have left of it is not known.
            AlgorithmKind::SharedBucket if now < predecessor_until => {
                Self::Bucket(SharedBucket::with(0.0, now))
            }
            AlgorithmKind::SharedBucket => Self::Bucket(SharedBucket::full(terms.rate(), now)),
            AlgorithmKind::NoAlgorithm
            | AlgorithmKind::Static
            | AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare => Self::No,
        }
    }

    /// New terms are in force.
    pub(super) fn adopt(&mut self, old: &Terms, new: &Terms, now: Moment) {
        match (&mut *self, new.rule().kind) {
            (Self::Bucket(bucket), AlgorithmKind::SharedBucket) => {
                *bucket = SharedBucket::with(bucket.left(old.rate(), now), now);
            }
            (Self::Demand(_), AlgorithmKind::Suppression) => {}
            _ => *self = Self::new(new, Moment::ORIGIN, now),
        }
    }

    /// So much is wanted from now on, by all holders together.
    pub(super) fn wanted(&mut self, wants: f64, now: Moment) {
        if let Self::Demand(demand) = self {
            demand.observe(wants, now);
        }
    }

    /// So much was used since it was last said.
    pub(super) fn used(&mut self, used: f64, terms: &Terms, now: Moment) {
        if let Self::Bucket(bucket) = self
            && used > 0.0
        {
            bucket.charge(used, terms.rate(), now);
        }
    }

    /// So much was left in a predecessor's bucket.
    pub(super) fn take_over_balance(&mut self, balance: Balance, stopped: Moment) {
        if let Self::Bucket(bucket) = self {
            *bucket = SharedBucket::with(balance.get(), stopped);
        }
    }

    /// What holders are told.
    pub(super) fn feedback(&self, terms: &Terms, now: Moment) -> Feedback {
        match self {
            Self::No => Feedback::None,
            Self::Demand(demand) => {
                let probability = demand.admission_probability(terms.capacity(), now);
                Feedback::AdmissionProbability(Probability::saturating(probability))
            }
            Self::Bucket(bucket) => {
                Feedback::Balance(Balance::saturating(bucket.left(terms.rate(), now)))
            }
        }
    }

    /// From when on nothing is lost by forgetting it and beginning anew.
    pub(super) fn is_spent_until(&self, terms: &Terms) -> Moment {
        match self {
            Self::No | Self::Demand(_) => Moment::ORIGIN,
            Self::Bucket(bucket) => bucket.full_at(terms.rate()),
        }
    }
}
