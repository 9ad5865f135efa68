//! What is kept of a resource that is not divided, and told alike to all its holders.

use doorman_openapi::{AlgorithmKind, Balance, Moment, Probability};

use super::{
    handover::FeedbackRecord, recent_demand::RecentDemand, shared_bucket::SharedBucket,
    terms::Terms,
};

/// The time of a predecessor that has left nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reign {
    /// When this server took its place.
    pub(super) ended: Moment,
    /// Until when its leases may be outstanding.
    pub(super) outstanding_until: Moment,
}

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
    /// That of a resource whose holders are not known yet.
    pub(super) fn new(terms: &Terms, predecessor: Option<Reign>, now: Moment) -> Self {
        match terms.rule().kind {
            AlgorithmKind::Suppression => Self::Demand(Box::new(RecentDemand::new(now))),
            AlgorithmKind::SharedBucket => Self::Bucket(match predecessor {
                // What its holders had left of it then is not known.
                Some(reign) => SharedBucket::with(0.0, terms.rate(), reign.ended),
                None => SharedBucket::full(terms.rate(), now),
            }),
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
                *bucket = SharedBucket::with(bucket.left(old.rate(), now), new.rate(), now);
            }
            (Self::Demand(demand), AlgorithmKind::Suppression) => {
                demand.count_in(new.per() / old.per(), now);
            }
            _ => *self = Self::new(new, None, now),
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

    /// What the next server needs to go on.
    pub(super) fn hand_over(&self, terms: &Terms, now: Moment) -> Option<FeedbackRecord> {
        match self {
            Self::No => None,
            Self::Demand(demand) => {
                let (asked, began_ago) = demand.clone().hand_over(now);
                Some(FeedbackRecord::Demand { asked, began_ago })
            }
            Self::Bucket(bucket) => Some(FeedbackRecord::Bucket {
                balance: Balance::saturating(bucket.left(terms.rate(), now)),
            }),
        }
    }

    /// Goes on where a predecessor stopped; what it kept for another algorithm is of no use.
    pub(super) fn take_over(&mut self, record: &FeedbackRecord, terms: &Terms, stopped: Moment) {
        match (self, record) {
            (Self::Bucket(bucket), FeedbackRecord::Bucket { balance }) => {
                *bucket = SharedBucket::with(balance.get(), terms.rate(), stopped);
            }
            (Self::Demand(demand), FeedbackRecord::Demand { asked, began_ago }) => {
                **demand = RecentDemand::taken_over(asked, *began_ago, stopped);
            }
            (Self::No | Self::Bucket(_) | Self::Demand(_), _) => {}
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
