//! The signal that all holders of a resource receive alike (SHARED_BUCKET and SUPPRESSION).

use doorman_openapi::{AlgorithmKind, Balance, Moment, Probability};

use crate::ledger::{
    algorithm::{BucketTerms, RecentDemand, SharedBucket},
    demands::DemandTree,
    terms::ResourceTerms,
};

/// The part of a response beside the lease.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Signal {
    /// Nothing.
    #[default]
    None,
    /// The probability of admitting each request.
    AdmissionProbability(Probability),
    /// The balance of the shared bucket.
    Balance(Balance),
}

impl Signal {
    /// The probability of admitting each request, for SUPPRESSION.
    #[must_use]
    pub fn admission_probability(self) -> Option<Probability> {
        match self {
            Self::AdmissionProbability(probability) => Some(probability),
            Self::None | Self::Balance(_) => None,
        }
    }

    /// The balance of the shared bucket, for SHARED_BUCKET.
    #[must_use]
    pub fn balance(self) -> Option<Balance> {
        match self {
            Self::Balance(balance) => Some(balance),
            Self::None | Self::AdmissionProbability(_) => None,
        }
    }
}

/// A previous server that left no snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct LostPredecessor {
    /// When this server started.
    pub(in crate::ledger) replaced_at: Moment,
    /// When the last of its leases has ended.
    pub(in crate::ledger) leases_end: Moment,
    /// The most that its leases were together, infinite if that is not known, unless the earlier
    /// terms tell it.
    pub(in crate::ledger) assumed: f64,
    /// The same by the earlier terms, or as assumed; `None` until it is looked up.
    pub(in crate::ledger) capacity: Option<f64>,
}

impl LostPredecessor {
    /// Converts the capacity to another unit; by 0 if that is of another kind.
    pub(in crate::ledger) fn change_unit(&mut self, factor: f64) {
        if factor > 0.0 {
            self.assumed *= factor;
            self.capacity = self.capacity.map(|it| it * factor);
        } else {
            self.assumed = f64::INFINITY;
            self.capacity = Some(f64::INFINITY);
        }
    }

    /// The most that its leases were together. `look_up` asks the earlier terms. That takes time in
    /// proportion to their number, so it is called once at most.
    pub(in crate::ledger) fn capacity(&mut self, look_up: impl FnOnce() -> Option<f64>) -> f64 {
        let assumed = self.assumed;
        *(self.capacity).get_or_insert_with(|| look_up().unwrap_or(assumed))
    }
}

/// The state behind [`Signal`], per algorithm.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::ledger) enum SharedSignal {
    None,
    /// SUPPRESSION. Boxed because most resources have none.
    Demand(Box<RecentDemand>),
    /// SHARED_BUCKET.
    Bucket(SharedBucket),
    /// SUPPRESSION, by the parent node.
    FromParent(Probability),
}

impl SharedSignal {
    pub(in crate::ledger) fn new(
        terms: &ResourceTerms,
        predecessor: Option<LostPredecessor>,
        now: Moment,
    ) -> Self {
        match terms.rule().kind {
            AlgorithmKind::Suppression => Self::Demand(Box::new(RecentDemand::new(now))),
            AlgorithmKind::SharedBucket => Self::Bucket(match predecessor {
                // The predecessor's holders may have used everything.
                Some(lost) => SharedBucket::with_balance(0.0, terms.rate(), lost.replaced_at),
                None => SharedBucket::full(terms.rate(), now),
            }),
            AlgorithmKind::NoAlgorithm
            | AlgorithmKind::Static
            | AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare
            | AlgorithmKind::PriorityShare => Self::None,
        }
    }

    /// The signal of a parent node, beside which holders have used `unreported` already.
    pub(in crate::ledger) fn from_parent(
        signal: Signal,
        unreported: f64,
        terms: &ResourceTerms,
        now: Moment,
    ) -> Self {
        match signal {
            Signal::None => Self::None,
            Signal::AdmissionProbability(probability) => Self::FromParent(probability),
            Signal::Balance(balance) => {
                let balance = balance.get() - unreported;
                Self::Bucket(SharedBucket::with_balance(balance, terms.rate(), now))
            }
        }
    }

    /// `factor` converts amounts on the old terms.
    pub(in crate::ledger) fn set_terms(
        &mut self,
        old: &ResourceTerms,
        new: &ResourceTerms,
        factor: f64,
        now: Moment,
    ) {
        match (&mut *self, new.rule().kind) {
            (Self::Bucket(bucket), AlgorithmKind::SharedBucket) => {
                let balance = bucket.balance(old.rate(), now);
                *bucket = SharedBucket::with_balance(balance, new.rate(), now);
            }
            (Self::Demand(demand), AlgorithmKind::Suppression) => {
                demand.scale(factor, now);
            }
            _ => *self = Self::new(new, None, now),
        }
    }

    /// Sets the demand of all holders from now on.
    pub(in crate::ledger) fn set_demand(
        &mut self,
        demands: &DemandTree,
        terms: &ResourceTerms,
        now: Moment,
    ) {
        let wants = demands.total().wants;
        match self {
            Self::None | Self::FromParent(_) => {}
            Self::Demand(demand) => demand.observe(wants, now),
            Self::Bucket(bucket) => {
                bucket.set_demand(wants / terms.per(), bucket_terms(terms), now);
            }
        }
    }

    /// The same for a holder of a snapshot: its demand was known before.
    pub(in crate::ledger) fn restore_demand(
        &mut self,
        demands: &DemandTree,
        terms: &ResourceTerms,
        now: Moment,
    ) {
        if let Self::Bucket(bucket) = self {
            bucket.restore_demand(demands.total().wants / terms.per());
        } else {
            self.set_demand(demands, terms, now);
        }
    }

    /// Charges what a holder has used since its last report.
    pub(in crate::ledger) fn charge(&mut self, used: f64, terms: &ResourceTerms, now: Moment) {
        if let Self::Bucket(bucket) = self {
            bucket.charge(used, bucket_terms(terms), now);
        }
    }

    pub(in crate::ledger) fn current(&self, terms: &ResourceTerms, now: Moment) -> Signal {
        match self {
            Self::None => Signal::None,
            Self::Demand(demand) => {
                let probability = demand.admission_probability(terms.capacity(), now);
                Signal::AdmissionProbability(Probability::saturating(probability))
            }
            Self::FromParent(probability) => Signal::AdmissionProbability(*probability),
            Self::Bucket(bucket) => {
                Signal::Balance(Balance::saturating(bucket.balance(terms.rate(), now)))
            }
        }
    }

    /// From when on a new state would be the same as this one, so that it can be dropped.
    pub(in crate::ledger) fn droppable_from(&self, terms: &ResourceTerms) -> Moment {
        match self {
            Self::None | Self::Demand(_) | Self::FromParent(_) => Moment::ORIGIN,
            Self::Bucket(bucket) => bucket.full_at(terms.rate()),
        }
    }
}

pub(in crate::ledger) fn bucket_terms(terms: &ResourceTerms) -> BucketTerms {
    BucketTerms {
        rate: terms.rate(),
        interval: terms.refresh_interval(false).get(),
    }
}
