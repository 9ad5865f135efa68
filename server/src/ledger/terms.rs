//! The terms on which one resource is leased.

use std::sync::Arc;

use doorman_config::Template;
use doorman_openapi::{Algorithm, AlgorithmKind, Capacity, Moment, SafeCapacity, Seconds, Unit};

use super::{UnmatchedPolicy, algorithm::Rule};

/// What a resource's template says, or what counts when none matched.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    template: Option<Arc<Template>>,
    algorithm: Algorithm,
    rule: Rule,
}

impl Terms {
    pub(super) fn of(template: &Arc<Template>) -> Self {
        let rule = Rule {
            kind: template.algorithm().kind,
            capacity: template.capacity().get(),
            surplus: template.surplus(),
            granularity: template.granularity().get(),
        };
        Self {
            template: Some(Arc::clone(template)),
            algorithm: template.algorithm().clone(),
            rule,
        }
    }

    /// Without a template a request is granted as asked, or refused as if the capacity were 0.
    pub(super) fn unmatched(unmatched: UnmatchedPolicy) -> Self {
        let default = doorman_config::default_algorithm();
        let (kind, capacity) = match unmatched {
            UnmatchedPolicy::Grant => (AlgorithmKind::NoAlgorithm, f64::INFINITY),
            UnmatchedPolicy::Refuse => (AlgorithmKind::Static, 0.0),
        };
        let rule = Rule {
            kind,
            capacity,
            surplus: 0.0,
            granularity: 0.0,
        };
        Self {
            template: None,
            algorithm: Algorithm { kind, ..default },
            rule,
        }
    }

    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// How it is divided.
    pub(super) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Infinite when no template matched and requests are granted as asked.
    pub(super) fn capacity(&self) -> f64 {
        self.rule.capacity
    }

    /// The capacity in tokens a second.
    pub(super) fn rate(&self) -> f64 {
        self.rule.capacity / self.per()
    }

    /// The seconds that a rate is counted over.
    pub(super) fn per(&self) -> f64 {
        self.template.as_ref().map_or(1.0, |it| it.per().get())
    }

    /// Whether an equal share of a rate that is divided among so many comes to less than one request a refresh interval: a holder
    /// can then hardly ever admit the one it is asked for.
    pub(super) fn splits_below_one(&self, clients: f64) -> bool {
        let unit = self.template.as_ref().map(|template| template.unit());
        let is_divided =
            self.rule.divides() && self.rule.capacity > 0.0 && unit == Some(Unit::Rate);
        let interval = self.algorithm.refresh_interval.get();
        is_divided && clients > 1.0 && self.rate() / clients * interval < 1.0
    }

    pub(super) fn template(&self) -> Option<&Arc<Template>> {
        self.template.as_ref()
    }

    pub(super) fn lease_length(&self) -> f64 {
        self.algorithm.lease_length.get()
    }

    /// When a holder should come back; soon when more is to come.
    pub(super) fn refresh_interval(&self, pending: bool) -> Seconds {
        let interval = self.algorithm.refresh_interval.get();
        Seconds::saturating(if pending { interval.min(1.0) } else { interval })
    }

    /// Before this a holder that comes back runs no algorithm.
    pub(super) fn early_until(&self, decided: Moment) -> Moment {
        let interval = self
            .template
            .as_ref()
            .map_or(0.0, |template| template.minimum_refresh_interval().get());
        decided.after_seconds(interval)
    }

    /// Whether nothing can be had of it.
    pub(super) fn is_blocked(&self) -> bool {
        self.rule.capacity == 0.0 && self.rule.kind != AlgorithmKind::NoAlgorithm
    }

    /// The most that one holder can have beside the others: what they leave of a capacity that is divided.
    pub(super) fn room_beside(&self, others: f64) -> f64 {
        match self.rule.kind {
            AlgorithmKind::NoAlgorithm => f64::INFINITY,
            AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => {
                self.rule.capacity
            }
            AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare => {
                (self.rule.capacity - others).max(0.0)
            }
        }
    }

    /// What a holder may use by itself when it has no lease; without a configured number, an equal part of the capacity.
    pub(super) fn safe_capacity(&self, clients: f64) -> SafeCapacity {
        let Some(template) = &self.template else {
            return if self.is_blocked() {
                SafeCapacity::AtMost(Capacity::ZERO)
            } else {
                SafeCapacity::Unlimited
            };
        };
        match template.safe_capacity() {
            doorman_config::SafeCapacityRule::Fixed(safe) => safe,
            doorman_config::SafeCapacityRule::Dynamic => {
                SafeCapacity::AtMost(Capacity::saturating(self.rule.capacity / clients.max(1.0)))
            }
        }
    }

    /// Until when a server that started at `started` learns what a predecessor leased, the last of which ends at `outstanding`.
    pub(super) fn learning_until(&self, started: Moment, outstanding: Moment) -> Moment {
        if !self.rule.divides() {
            // What one holder gets does not depend on the others: there is nothing to learn.
            return started;
        }
        let configured = self
            .template
            .as_ref()
            .and_then(|template| template.learning_mode_duration());
        configured.map_or(outstanding, |configured| {
            started.after_seconds(configured.get())
        })
    }
}
