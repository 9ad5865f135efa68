//! Settings of the law for one resource.

use crate::ledger::feedback::rules::FeedbackRule;

/// Requests that a verdict takes. Fewer are refused by chance.
const ENOUGH: f64 = 20.0;
/// The least level, as a part of the capacity: growth by parts does not leave zero.
const LEAST_PART: f64 = 0.002;
/// The least level of a gauge, and the least step of one.
pub(super) const ONE_UNIT: f64 = 1.0;
/// The shortest period, in seconds.
const MIN_PERIOD: f64 = 0.001;

/// Larger amounts count as this one, so that no sum or product overflows.
const MAX_AMOUNT: f64 = 1e15;

/// The settings of one resource. Amounts are in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct ControlTerms {
    /// The capacity by the document, which the level never exceeds.
    pub(in crate::ledger) configured: f64,
    /// The least level, as a part of the capacity. A pause and the target's headers go below.
    pub(in crate::ledger) floor: f64,
    /// The share of overloaded outcomes that is no reason to cut.
    pub(in crate::ledger) tolerate: f64,
    /// Whether the level follows what the target says of its own limit.
    pub(in crate::ledger) follows_headers: bool,
    pub(in crate::ledger) unit: ControlUnit,
    /// Of gauges: the mean time of a request, in seconds, above which the target is overloaded.
    pub(in crate::ledger) latency: Option<f64>,
    /// The rule that a simulation leaves out.
    pub(in crate::ledger) without: Option<FeedbackRule>,
}

/// The unit of the amounts of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum ControlUnit {
    /// Per so many seconds.
    Rate { per: f64 },
    /// In use at any one time.
    Gauge,
}

impl ControlUnit {
    /// The seconds that amounts are per.
    pub(super) fn period(self) -> f64 {
        match self {
            Self::Rate { per } => bounded(per).max(MIN_PERIOD),
            Self::Gauge => 1.0,
        }
    }

    pub(in crate::ledger) fn is_gauge(self) -> bool {
        self == Self::Gauge
    }

    /// The factor that converts amounts in another unit to this one, if they are of one kind.
    pub(super) fn factor_from(self, other: Self) -> Option<f64> {
        (self.is_gauge() == other.is_gauge()).then(|| self.period() / other.period())
    }
}

impl ControlTerms {
    /// The same with numbers that the law can calculate with.
    pub(super) fn bounded(self) -> Self {
        Self {
            configured: bounded(self.configured),
            floor: part(self.floor),
            tolerate: part(self.tolerate),
            latency: self.latency.map(bounded).filter(|it| *it > 0.0),
            ..self
        }
    }

    pub(super) fn has(&self, rule: FeedbackRule) -> bool {
        self.without != Some(rule)
    }

    /// Whether the level follows the target's own limit. What is left of it for a time says
    /// nothing of the units in use at any one time.
    pub(super) fn follows_pace(&self) -> bool {
        self.follows_headers && !self.unit.is_gauge() && self.has(FeedbackRule::Seen)
    }

    /// The requests that a verdict takes.
    pub(super) fn enough(&self) -> f64 {
        if self.has(FeedbackRule::EnoughRequests) {
            ENOUGH
        } else {
            1.0
        }
    }

    /// The nearest level that is allowed.
    pub(super) fn allowed(&self, level: f64) -> f64 {
        let units = if self.unit.is_gauge() { ONE_UNIT } else { 0.0 };
        let floor = if self.has(FeedbackRule::Floor) {
            self.floor
        } else {
            0.0
        };
        let least = (floor.max(LEAST_PART) * self.configured).max(units);
        let most = if self.has(FeedbackRule::Ceiling) {
            self.configured
        } else {
            f64::INFINITY
        };
        level.max(least).min(most)
    }

    /// The least that a holder which suffers alone may want: the least level, and a rate of at
    /// least `requests` a second that cost `cost` each.
    pub(super) fn least_demand(&self, requests: f64, cost: f64) -> f64 {
        let units = match self.unit {
            ControlUnit::Rate { .. } => requests * cost * self.unit.period(),
            ControlUnit::Gauge => ONE_UNIT,
        };
        (LEAST_PART * self.configured).max(units)
    }
}

/// A number from outside as a finite amount.
pub(super) fn bounded(number: f64) -> f64 {
    if number.is_nan() {
        0.0
    } else {
        number.clamp(0.0, MAX_AMOUNT)
    }
}

/// The same of a part of something.
pub(super) fn part(number: f64) -> f64 {
    bounded(number).min(1.0)
}
