//! The terms on which one resource is leased.

use std::sync::Arc;

use doorman_config::Template;
use doorman_openapi::{Algorithm, AlgorithmKind, Capacity, Moment, SafeCapacity, Seconds, Unit};

use super::{algorithm::ShareRule, settings::UnmatchedPolicy, tuning::Tuning};

/// The settings of the matching template, or those of an unmatched resource.
#[derive(Debug, Clone)]
pub(super) struct ResourceTerms {
    template: Option<Arc<Template>>,
    algorithm: Algorithm,
    rule: ShareRule,
    tuning: &'static Tuning,
}

impl ResourceTerms {
    pub(super) fn of(template: &Arc<Template>) -> Self {
        let rule = ShareRule {
            kind: template.algorithm().kind,
            capacity: template.capacity().get(),
            surplus: template.surplus(),
            surplus_without_polls: template.surplus_without_polls(),
            granularity: template.granularity().get(),
            floor: template.floor(),
        };
        Self {
            template: Some(Arc::clone(template)),
            algorithm: template.algorithm().clone(),
            rule,
            tuning: &Tuning::DEFAULT,
        }
    }

    pub(super) fn unmatched(policy: UnmatchedPolicy) -> Self {
        let (kind, capacity) = match policy {
            UnmatchedPolicy::Grant => (AlgorithmKind::NoAlgorithm, f64::INFINITY),
            UnmatchedPolicy::Refuse => (AlgorithmKind::Static, 0.0),
        };
        Self {
            template: None,
            algorithm: Algorithm {
                kind,
                ..doorman_config::default_algorithm()
            },
            rule: ShareRule {
                kind,
                capacity,
                surplus: 0.0,
                surplus_without_polls: 0.0,
                granularity: 0.0,
                floor: 0.0,
            },
            tuning: &Tuning::DEFAULT,
        }
    }

    pub(super) fn with_tuning(self, tuning: &'static Tuning) -> Self {
        Self { tuning, ..self }
    }

    pub(super) fn tuning(&self) -> &'static Tuning {
        self.tuning
    }

    /// Whether holders should know at once.
    pub(super) fn differ_from(&self, other: &Self) -> bool {
        let fixed = |terms: &Self| terms.template.as_ref().map(|it| it.safe_capacity());
        self.rule != other.rule
            || self.algorithm != other.algorithm
            || self.per() != other.per()
            || fixed(self) != fixed(other)
    }

    pub(super) fn template(&self) -> Option<&Arc<Template>> {
        self.template.as_ref()
    }

    pub(super) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    pub(super) fn rule(&self) -> &ShareRule {
        &self.rule
    }

    /// Infinite for an unmatched resource that is granted as requested.
    pub(super) fn capacity(&self) -> f64 {
        self.rule.capacity
    }

    /// The capacity in tokens per second.
    pub(super) fn rate(&self) -> f64 {
        self.rule.capacity / self.per()
    }

    /// The period of a rate, in seconds.
    pub(super) fn per(&self) -> f64 {
        self.template.as_ref().map_or(1.0, |it| it.per().get())
    }

    /// The seconds that all amounts are per; 1 unless it is a rate.
    pub(super) fn period(&self) -> f64 {
        match self.template.as_ref().map(|it| it.unit()) {
            Some(Unit::Rate) => self.per(),
            Some(Unit::Gauge) | None => 1.0,
        }
    }

    /// The factor that converts amounts on other terms to amounts on these: 1 unless the period of
    /// a rate has changed.
    pub(super) fn scale_from(&self, other: &Self) -> f64 {
        let is_gauge = |terms: &Self| {
            let unit = terms.template.as_ref().map(|it| it.unit());
            unit == Some(Unit::Gauge)
        };
        if is_gauge(self) || is_gauge(other) {
            return 1.0;
        }
        self.per() / other.per()
    }

    pub(super) fn lease_length(&self) -> f64 {
        self.algorithm.lease_length.get()
    }

    pub(super) fn refresh_interval(&self, awaited: bool) -> Seconds {
        let interval = self.algorithm.refresh_interval.get();
        Seconds::saturating(if awaited {
            interval.min(self.tuning.awaited_interval)
        } else {
            interval
        })
    }

    /// Until when a refresh after the last decision is too early for another one.
    pub(super) fn early_until(&self, decided: Moment) -> Moment {
        let interval = self
            .template
            .as_ref()
            .map_or(0.0, |template| template.minimum_refresh_interval().get());
        decided.after_seconds(interval)
    }

    /// Whether the capacity is 0.
    pub(super) fn is_blocked(&self) -> bool {
        self.rule.capacity == 0.0 && self.rule.kind != AlgorithmKind::NoAlgorithm
    }

    /// The most that one holder can have while the others use `others`.
    pub(super) fn available_beside(&self, others: f64) -> f64 {
        match self.rule.kind {
            AlgorithmKind::NoAlgorithm => f64::INFINITY,
            AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => {
                self.rule.capacity
            }
            AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare
            | AlgorithmKind::PriorityShare => (self.rule.capacity - others).max(0.0),
        }
    }

    /// The capacity without a lease: the configured amount, or an equal part.
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

    /// Whether an equal share of a rate is less than one request per refresh interval.
    pub(super) fn shares_are_below_one(&self, clients: f64) -> bool {
        let unit = self.template.as_ref().map(|template| template.unit());
        let is_divided =
            self.rule.divides() && self.rule.capacity > 0.0 && unit == Some(Unit::Rate);
        let interval = self.algorithm.refresh_interval.get();
        is_divided && clients > 1.0 && self.rate() / clients * interval < 1.0
    }

    /// When learning mode ends, for a predecessor whose last lease ends at `outstanding`.
    pub(super) fn learning_until(&self, started: Moment, outstanding: Moment) -> Moment {
        if !self.rule.divides() {
            // The grants do not depend on each other.
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
