//! The terms on which one resource is leased.

pub(in crate::ledger) mod earlier;
pub(in crate::ledger) mod granting;
pub(in crate::ledger) mod merged;
pub(in crate::ledger) mod tuning;
pub(in crate::ledger) mod unit;

use std::sync::Arc;

use doorman_config::Template;
use doorman_openapi::{
    Algorithm, AlgorithmKind, Capacity, Feedback, FeedbackMode, Moment, SafeCapacity, Seconds,
    ServerResourceResponse, Unit,
};

use crate::ledger::{
    algorithm::{ShareRule, Surplus},
    feedback::terms::{ControlTerms, ControlUnit},
    settings::UnmatchedPolicy,
    terms::tuning::Tuning,
    terms::unit::AmountUnit,
};

/// The purpose of the law for a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Role {
    /// The effective capacity is leased.
    Act,
    /// It is shown.
    Observe,
    /// At a node below the root: it finds the holders that suffer alone.
    Node,
}

/// The settings of the matching template, or those of an unmatched resource.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct ResourceTerms {
    template: Option<Arc<Template>>,
    algorithm: Algorithm,
    rule: ShareRule,
    tuning: &'static Tuning,
    /// Present if a parent node leases the capacity.
    safe_of_parent: Option<SafeCapacity>,
    /// Present if the capacity is the effective one, by the law of feedback: the same beside
    /// pauses and headers.
    level: Option<f64>,
}

impl ResourceTerms {
    pub(in crate::ledger) fn of(template: &Arc<Template>) -> Self {
        let algorithm = template.algorithm().clone();
        let mut terms = Self::divided(algorithm, template.capacity().get());
        terms.rule = ShareRule {
            surplus: match (template.surplus(), template.unit()) {
                (Some(part), _) => Surplus::Part(part),
                (None, Unit::Rate) => Surplus::Recallable,
                (None, Unit::Gauge) => Surplus::Part(0.0),
            },
            granularity: template.granularity().get(),
            floor: template.floor(),
            ..terms.rule
        };
        terms.template = Some(Arc::clone(template));
        terms
    }

    pub(in crate::ledger) fn unmatched(policy: UnmatchedPolicy) -> Self {
        let (kind, capacity) = match policy {
            UnmatchedPolicy::Grant => (AlgorithmKind::NoAlgorithm, f64::INFINITY),
            UnmatchedPolicy::Refuse => (AlgorithmKind::Static, 0.0),
        };
        let algorithm = Algorithm {
            kind,
            ..doorman_config::default_algorithm()
        };
        Self::divided(algorithm, capacity)
    }

    fn divided(algorithm: Algorithm, capacity: f64) -> Self {
        Self {
            template: None,
            rule: ShareRule {
                kind: algorithm.kind,
                capacity,
                surplus: Surplus::Part(0.0),
                granularity: 0.0,
                floor: 0.0,
                equal_share: 0.0,
            },
            algorithm,
            tuning: &Tuning::DEFAULT,
            safe_of_parent: None,
            level: None,
        }
    }

    /// The terms of a resource of which the parent node has not answered yet.
    pub(in crate::ledger) fn unanswered() -> Self {
        let mut terms = Self::unmatched(UnmatchedPolicy::Refuse);
        terms.algorithm.kind = AlgorithmKind::FairShare;
        terms.rule.kind = AlgorithmKind::FairShare;
        terms.safe_of_parent = Some(SafeCapacity::Unlimited);
        terms
    }

    /// Whether a response of the parent node has terms: a parent that waits for its own parent
    /// answers with those of [`Self::unanswered`].
    pub(in crate::ledger) fn are_in(
        template: Option<&Arc<Template>>,
        response: &ServerResourceResponse,
    ) -> bool {
        let kind = response.algorithm.algorithm.kind;
        template.is_some() || matches!(kind, AlgorithmKind::NoAlgorithm | AlgorithmKind::Static)
    }

    /// The terms in a response of the parent node, of which `capacity` is leased now.
    /// `has_surplus`: the parent leases more than the node wants.
    pub(in crate::ledger) fn of_parent(
        template: Option<&Arc<Template>>,
        response: &ServerResourceResponse,
        capacity: f64,
        has_surplus: bool,
    ) -> Self {
        let mut terms = match (template, response.algorithm.algorithm.kind) {
            (Some(template), _) => Self::of(template),
            (None, AlgorithmKind::NoAlgorithm) => Self::unmatched(UnmatchedPolicy::Grant),
            (None, _) => Self::unmatched(UnmatchedPolicy::Refuse),
        };
        terms.safe_of_parent = Some(response.answer.safe_capacity);
        if terms.rule.kind == AlgorithmKind::ProportionalShare {
            let level = response.levels.first();
            terms.rule.equal_share = level.map_or(0.0, |it| it.level.get());
        }
        if !has_surplus {
            // A demand that falls leaves capacity for other nodes, which this one does not know.
            terms.rule.surplus = Surplus::Part(0.0);
        }
        terms.set_leased(capacity);
        terms
    }

    /// Sets the capacity that the parent node leases now, if that is what holders share.
    pub(in crate::ledger) fn set_leased(&mut self, capacity: f64) {
        if self.safe_of_parent.is_some() && self.rule.divides() {
            self.rule.capacity = capacity;
        }
    }

    /// Sets the effective capacity, and that beside pauses and headers. Returns whether it is a new
    /// one.
    pub(in crate::ledger) fn set_effective(&mut self, capacity: f64, level: f64) -> bool {
        self.level = Some(level);
        std::mem::replace(&mut self.rule.capacity, capacity) != capacity
    }

    /// The settings of the law of feedback; only at the root.
    pub(in crate::ledger) fn control(&self) -> Option<(ControlTerms, Role)> {
        let template = self.template.as_ref();
        let template = template.filter(|_| self.safe_of_parent.is_none())?;
        let feedback = template.feedback()?;
        let role = match feedback.mode {
            FeedbackMode::Act => Role::Act,
            FeedbackMode::Observe => Role::Observe,
        };
        Some((self.control_by(template, feedback), role))
    }

    /// The settings by which a node below the root finds holders that suffer alone.
    pub(in crate::ledger) fn control_of_node(&self) -> Option<ControlTerms> {
        let feedback = Feedback::default();
        let template = self.template.as_ref()?;
        Some(self.control_by(template, feedback))
    }

    fn control_by(&self, template: &Template, feedback: Feedback) -> ControlTerms {
        ControlTerms {
            configured: template.capacity().get(),
            floor: feedback.floor.get(),
            tolerate: feedback.tolerate.get(),
            follows_headers: feedback.headers,
            unit: match template.unit() {
                Unit::Rate => ControlUnit::Rate { per: self.per() },
                Unit::Gauge => ControlUnit::Gauge,
            },
            latency: feedback.latency.map(Seconds::get),
            without: self.tuning.feedback_without,
        }
    }

    /// Whether the time of requests moves the capacity.
    fn follows_latency(&self) -> bool {
        let control = self.control();
        control.is_some_and(|(terms, _)| terms.latency.is_some())
    }

    pub(in crate::ledger) fn with_tuning(self, tuning: &'static Tuning) -> Self {
        Self { tuning, ..self }
    }

    pub(in crate::ledger) fn tuning(&self) -> &'static Tuning {
        self.tuning
    }

    /// Whether holders should know at once.
    pub(in crate::ledger) fn differ_from(&self, other: &Self) -> bool {
        let fixed = |terms: &Self| terms.template.as_ref().map(|it| it.safe_capacity());
        self.rule != other.rule
            || self.algorithm != other.algorithm
            || self.unit() != other.unit()
            || fixed(self) != fixed(other)
            || self.safe_of_parent != other.safe_of_parent
    }

    pub(in crate::ledger) fn template(&self) -> Option<&Arc<Template>> {
        self.template.as_ref()
    }

    pub(in crate::ledger) fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    pub(in crate::ledger) fn rule(&self) -> &ShareRule {
        &self.rule
    }

    /// Infinite for an unmatched resource that is granted as requested.
    pub(in crate::ledger) fn capacity(&self) -> f64 {
        self.rule.capacity
    }

    /// The whole capacity of the tree, as holders know it.
    pub(in crate::ledger) fn limit(&self) -> f64 {
        let template = self.template.as_ref();
        template.map_or(self.rule.capacity, |template| template.capacity().get())
    }

    /// The capacity that is promised: an effective one does not change it.
    pub(in crate::ledger) fn promised(&self) -> f64 {
        if self.level.is_some() {
            self.limit()
        } else {
            self.rule.capacity
        }
    }

    /// The promised capacity in tokens per second. Long buckets are of it: they stay as they are
    /// while less is leased.
    pub(in crate::ledger) fn promised_rate(&self) -> f64 {
        self.promised() / self.per()
    }

    /// The capacity in tokens per second.
    pub(in crate::ledger) fn rate(&self) -> f64 {
        self.rule.capacity / self.per()
    }

    /// Whether all amounts are known to be rates.
    pub(in crate::ledger) fn is_rate(&self) -> bool {
        matches!(self.unit(), Some(AmountUnit::Rate(_)))
    }

    /// The period of a rate, in seconds.
    pub(in crate::ledger) fn per(&self) -> f64 {
        self.template.as_ref().map_or(1.0, |it| it.per().get())
    }

    /// The seconds that all amounts are per; 1 unless it is a rate.
    pub(in crate::ledger) fn period(&self) -> f64 {
        match self.template.as_ref().map(|it| it.unit()) {
            Some(Unit::Rate) => self.per(),
            Some(Unit::Gauge) | None => 1.0,
        }
    }

    /// The unit of all amounts; `None` before the parent node has answered.
    pub(in crate::ledger) fn unit(&self) -> Option<AmountUnit> {
        match &self.template {
            Some(template) => Some(AmountUnit::new(template.unit(), template.per())),
            None if self.is_unanswered() => None,
            None => Some(AmountUnit::Unstated),
        }
    }

    fn is_unanswered(&self) -> bool {
        let divides = self.rule.divides();
        self.template.is_none() && self.safe_of_parent.is_some() && divides
    }

    pub(in crate::ledger) fn lease_length(&self) -> f64 {
        self.algorithm.lease_length.get()
    }

    pub(in crate::ledger) fn refresh_interval(&self, awaited: bool) -> Seconds {
        let interval = self.algorithm.refresh_interval.get();
        let longest = if self.follows_latency() {
            self.tuning.followed_interval
        } else if awaited {
            self.tuning.awaited_interval
        } else {
            interval
        };
        Seconds::saturating(interval.min(longest))
    }

    /// The refresh interval of a lease that may be shorter than usual; not for one that ends now.
    pub(in crate::ledger) fn refresh_interval_within(
        &self,
        lease_length: f64,
        pending: bool,
    ) -> Seconds {
        let interval = self.refresh_interval(pending || lease_length == 0.0);
        if lease_length > 0.0 {
            Seconds::saturating(interval.get().min(lease_length / 2.0))
        } else {
            interval
        }
    }

    /// Until when a refresh after the last decision is too early for another one.
    pub(in crate::ledger) fn early_until(&self, decided: Moment) -> Moment {
        let interval = self
            .template
            .as_ref()
            .map_or(0.0, |template| template.minimum_refresh_interval().get());
        decided.after_seconds(interval)
    }

    /// Whether the capacity is 0.
    pub(in crate::ledger) fn is_blocked(&self) -> bool {
        if self.safe_of_parent.is_some() && self.rule.divides() {
            // A lease of 0 says that others have the capacity now.
            let template = self.template.as_ref();
            return template.is_some_and(|template| template.capacity() == Capacity::ZERO);
        }
        self.promised() == 0.0 && self.rule.kind != AlgorithmKind::NoAlgorithm
    }

    /// The most that one holder can have while the others use `others`.
    pub(in crate::ledger) fn available_beside(&self, others: f64) -> f64 {
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
    pub(in crate::ledger) fn safe_capacity(&self, clients: f64) -> SafeCapacity {
        if let Some(safe) = self.safe_of_parent {
            return safe;
        }
        let Some(template) = &self.template else {
            return if self.is_blocked() {
                SafeCapacity::AtMost(Capacity::ZERO)
            } else {
                SafeCapacity::Unlimited
            };
        };
        let capacity = self.level.unwrap_or(self.rule.capacity);
        let equal_part = || Capacity::saturating(capacity / clients.max(1.0));
        let fixed = template.safe_capacity();
        fixed.unwrap_or_else(|| SafeCapacity::AtMost(equal_part()))
    }

    /// Whether an equal share of so many clients is less than one request per refresh interval, or
    /// in the seconds that a bucket saves up, if it is a rate.
    pub(in crate::ledger) fn shares_are_below_one(&self, clients: f64, burst: f64) -> bool {
        let unit = self.template.as_ref().map(|template| template.unit());
        let is_divided =
            self.rule.divides() && self.rule.capacity > 0.0 && unit == Some(Unit::Rate);
        let interval = self.algorithm.refresh_interval.get().max(burst);
        is_divided && clients > 1.0 && self.rate() / clients * interval < 1.0
    }

    /// When learning mode ends, for a predecessor whose last lease ends at `outstanding`.
    pub(in crate::ledger) fn learning_until(&self, started: Moment, outstanding: Moment) -> Moment {
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
