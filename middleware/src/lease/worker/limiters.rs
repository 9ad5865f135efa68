//! The limiters that the worker leases for: their measured demand, and leases in their units.

use std::{sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Moment, ResourceId, SafeCapacity, Seconds, Unit};

use crate::{
    Fallback,
    demand::{ReportedDemand, Window, fading_demand, in_unit, window_length},
    lease::{
        ActiveLease, Demand, Holding, ResourceTerms, Sharing,
        index::{HasResource, IndexedMap, TimerHeap},
    },
    limiter::{LeaseState, Limiter, Policy, SafeRate, Shortage},
    meter::LeasePhase,
};

/// The refresh interval, in seconds, before the first response.
const DEFAULT_INTERVAL: f64 = 1.0;
/// How soon a limiter that begins to reject is sampled again, in seconds. The time doubles while it
/// goes on, so that a permanent excess costs no more samples than usual.
const FIRST_SAMPLE_WHILE_DENIED: f32 = 0.1;
/// A demand that was watched this long before its lease was requested counts as measured.
const MEASURED_AFTER: Duration = Duration::from_secs(1);
/// The only lane of the sampling timers.
const SAMPLES: u8 = 0;

/// The basis of the demand in the last lease request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DemandBasis {
    /// The demand had just begun, or not yet.
    Guess,
    Measurement,
    /// The program states the demand.
    Stated,
}

#[derive(Debug)]
pub(super) struct TrackedLimiter {
    pub(super) limiter: Arc<Limiter>,
    window: Window,
    window_length: f32,
    /// The period of the resource's rate, in seconds.
    period: f64,
    /// Boxed, because few resources use SUPPRESSION.
    suppression: Option<Box<SuppressionReports>>,
    basis: DemandBasis,
    requested_at: Moment,
    first_attempt: Option<Moment>,
    last_attempt: Moment,
    sample_while_denied: f32,
    /// Whether it rejected or delayed since its demand signal was last cleared.
    denied: bool,
    pub(super) answered: bool,
    pub(super) unit_mismatch_logged: bool,
    pub(super) lease_phase: LeasePhase,
}

#[derive(Debug)]
struct SuppressionReports {
    demand: ReportedDemand,
    /// The seconds that a report covers; `None` once the resource no longer uses SUPPRESSION.
    interval: Option<f64>,
}

impl HasResource for TrackedLimiter {
    fn resource(&self) -> &ResourceId {
        self.limiter.resource()
    }
}

impl TrackedLimiter {
    fn new(limiter: Arc<Limiter>, now: Moment) -> Self {
        Self {
            limiter,
            window: Window::new(now),
            window_length: window_length(DEFAULT_INTERVAL) as f32,
            period: 1.0,
            suppression: None,
            basis: DemandBasis::Guess,
            requested_at: now,
            first_attempt: None,
            last_attempt: now,
            sample_while_denied: FIRST_SAMPLE_WHILE_DENIED,
            denied: false,
            answered: false,
            unit_mismatch_logged: false,
            lease_phase: LeasePhase::default(),
        }
    }

    fn sample(&mut self, now: Moment) -> Demand {
        let total = self.limiter.attempted();
        if self.window.record(total, self.window_length.into(), now) {
            self.first_attempt.get_or_insert(now);
            self.last_attempt = now;
        }
        let wants = self.limiter.settings().wants;
        let wants = wants.unwrap_or_else(|| in_unit(self.measured(total, now), self.period));
        self.limiter.record_wants(wants.get());
        Demand {
            wants,
            used: Capacity::saturating(self.limiter.tally().admitted),
            priority: self.limiter.priority(),
        }
    }

    /// The demand in attempts per second.
    fn measured(&self, total: f64, now: Moment) -> f64 {
        if let Some(reports) = &self.suppression
            && let Some(interval) = reports.interval
        {
            return reports.demand.per_second(total, interval, now);
        }
        let measured = self.window.per_second();
        if total > 0.0 && measured == 0.0 {
            return fading_demand(now.seconds_since(self.last_attempt));
        }
        measured
    }

    /// Updates and returns what the demand is based on. Once measured it stays measured.
    pub(super) fn update_basis(&mut self, now: Moment) -> DemandBasis {
        let measured = self.first_attempt.is_some_and(|first| {
            first.after(MEASURED_AFTER) <= self.requested_at
                || first.after_seconds(self.window_length.into()) <= now
        });
        if self.limiter.settings().wants.is_some() {
            self.basis = DemandBasis::Stated;
        } else if measured {
            self.basis = DemandBasis::Measurement;
        }
        self.basis
    }

    fn next_sample(&self, now: Moment) -> Moment {
        now.after_seconds(self.window.next_sample(self.window_length.into()))
    }

    fn next_sample_after(&mut self, shortage: Shortage, now: Moment) -> Moment {
        let usual = self.next_sample(now);
        if shortage < Shortage::Denied {
            return usual;
        }
        self.denied = true;
        let soon = now.after_seconds(self.sample_while_denied.into());
        self.sample_while_denied = (2.0 * self.sample_while_denied).min(self.window_length);
        soon.min(usual)
    }

    fn clear_demand_signal(&mut self) {
        if !std::mem::take(&mut self.denied) {
            self.sample_while_denied = FIRST_SAMPLE_WHILE_DENIED;
        }
        self.limiter.clear_demand_signal();
    }

    pub(super) fn apply_terms(
        &mut self,
        refresh_interval: Duration,
        terms: Option<&ResourceTerms>,
    ) {
        let interval = refresh_interval.as_secs_f64();
        self.window_length = window_length(interval) as f32;
        self.period = period(terms);
        let interval = terms.is_some_and(|it| it.suppressed).then_some(interval);
        if let Some(reports) = &mut self.suppression {
            reports.interval = interval;
        } else if interval.is_some() {
            self.suppression = Some(Box::new(SuppressionReports {
                // Nothing was reported before.
                demand: ReportedDemand::reported(0.0, self.limiter.created_at()),
                interval,
            }));
        }
    }
}

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) id: ResourceId,
    pub(super) demand: Demand,
    /// Unused for long and with a full bucket, so that forgetting it gives nothing away.
    pub(super) idle: bool,
    pub(super) basis_changed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Limiters {
    tracked: IndexedMap<TrackedLimiter>,
    samples: TimerHeap<1>,
}

impl Limiters {
    /// Adds a limiter, in place of a forgotten one of the same resource.
    pub(super) fn insert(&mut self, limiter: Arc<Limiter>, now: Moment) {
        if let Some(index) = self.tracked.insert(TrackedLimiter::new(limiter, now)) {
            self.samples.set(index, Some((SAMPLES, now)));
        }
    }

    pub(super) fn get_mut(&mut self, id: &ResourceId) -> Option<&mut TrackedLimiter> {
        self.tracked.get_mut(self.tracked.index_of(id)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedLimiter> {
        self.tracked.iter()
    }

    pub(super) fn next_sample_at(&self) -> Moment {
        let first = self.samples.first(SAMPLES);
        first.map_or(Moment::NEVER, |(at, _)| at)
    }

    pub(super) fn report(&mut self, id: &ResourceId, now: Moment) -> Option<Demand> {
        let tracked = self.get_mut(id)?;
        let demand = tracked.sample(now);
        tracked.requested_at = now;
        if let Some(reports) = &mut tracked.suppression
            && reports.interval.is_some()
        {
            let total = tracked.limiter.attempted();
            reports.demand = ReportedDemand::reported(total, now);
        }
        Some(demand)
    }

    /// Samples a limiter that signals a shortage, and again soon, when it may signal anew.
    pub(super) fn on_shortage(
        &mut self,
        id: &ResourceId,
        shortage: Shortage,
        now: Moment,
    ) -> Option<Demand> {
        let index = self.tracked.index_of(id)?;
        let tracked = self.tracked.get_mut(index)?;
        let demand = tracked.sample(now);
        let soon = tracked.next_sample_after(shortage, now);
        let next = match self.samples.get(index) {
            Some((_, scheduled)) => scheduled.min(soon),
            None => soon,
        };
        self.samples.set(index, Some((SAMPLES, next)));
        Some(demand)
    }

    /// Samples the next limiter that is due and clears its demand signal.
    pub(super) fn sample_next(&mut self, idle_after: Duration, now: Moment) -> Option<Sample> {
        let (_, index) = self.samples.first(SAMPLES).filter(|(at, _)| *at <= now)?;
        let tracked = self.tracked.get_mut(index)?;
        let demand = tracked.sample(now);
        let before = tracked.basis;
        let basis_changed = tracked.update_basis(now) != before;
        tracked.clear_demand_signal();
        let next = tracked.next_sample(now);
        self.samples.set(index, Some((SAMPLES, next)));
        Some(Sample {
            id: tracked.limiter.resource().clone(),
            demand,
            idle: tracked.last_attempt.after(idle_after) <= now && tracked.limiter.is_full(now),
            basis_changed,
        })
    }

    pub(super) fn remove(&mut self, id: &ResourceId) {
        if let Some(index) = self.tracked.index_of(id) {
            self.samples.set(index, None);
            self.tracked.remove(index);
        }
    }
}

/// Converts from the resource's own unit to tokens per second. A gauge has no lease. A lease
/// requested on a guess does not count while the safe capacity is larger: otherwise a new process
/// would reject for a second what nobody else needs.
pub(super) fn lease_state(holding: &Holding, basis: DemandBasis, fallback: Fallback) -> LeaseState {
    let terms = holding.terms.as_deref();
    let per = period(terms);
    let rate_terms = terms.filter(|terms| terms.unit == Unit::Rate);
    let safe = rate_terms.map(|terms| match terms.safe {
        SafeCapacity::Unlimited => SafeRate::Unlimited,
        SafeCapacity::AtMost(capacity) => SafeRate::PerSecond(capacity.get() / per),
    });
    let policy = rate_terms
        .and_then(|terms| terms.limit)
        .map(|limit| Policy {
            limit: limit.get(),
            per,
        });
    let is_below_safe = |lease: &ActiveLease| {
        let leased = lease.capacity.get() / per;
        basis == DemandBasis::Guess
            && fallback == Fallback::Safe
            && lease.sharing == Sharing::Divided
            && !lease.blocked
            && matches!(safe, Some(SafeRate::PerSecond(safe)) if safe > leased)
    };
    match holding.lease {
        Some(lease) if !is_gauge(terms) && !is_below_safe(&lease) => LeaseState::Leased {
            rate: (!lease.blocked).then_some(lease.capacity.get() / per),
            ends: lease.ends,
            safe,
            refresh_at: holding.refresh_at,
            policy,
            sharing: lease.sharing,
            // A stated demand does not grow.
            may_grow: lease.granted_in_full
                && basis != DemandBasis::Stated
                && policy.is_none_or(|policy| lease.capacity.get() < policy.limit),
        },
        Some(_) | None => LeaseState::NoLease {
            safe,
            refresh_at: holding.refresh_at,
            policy,
            answered: holding.lease.is_some(),
        },
    }
}

pub(super) fn is_gauge(terms: Option<&ResourceTerms>) -> bool {
    terms.is_some_and(|terms| terms.unit == Unit::Gauge)
}

/// The period of the resource's rate, in seconds.
pub(super) fn period(terms: Option<&ResourceTerms>) -> f64 {
    terms
        .map(|terms| terms.per)
        .map(Seconds::get)
        .filter(|per| *per > 0.0)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(unit: Unit, safe: SafeCapacity) -> Holding {
        Holding {
            lease: Some(ActiveLease {
                capacity: Capacity::saturating(600.0),
                ends: Moment::from_nanos(20),
                blocked: false,
                granted_in_full: true,
                sharing: Sharing::Divided,
            }),
            terms: Some(Arc::new(ResourceTerms {
                template: None,
                limit: Some(Capacity::saturating(6000.0)),
                unit,
                per: Seconds::from(Duration::from_secs(60)),
                safe,
                suppressed: false,
            })),
            answered: true,
            refresh_interval: Duration::from_secs(1),
            refresh_at: Moment::from_nanos(10),
        }
    }

    #[test]
    fn capacity_per_minute_becomes_rate_per_second() {
        let safe = SafeCapacity::AtMost(Capacity::saturating(60.0));
        let leased = holding(Unit::Rate, safe);
        let policy = Some(Policy {
            limit: 6000.0,
            per: 60.0,
        });
        assert_eq!(
            lease_state(&leased, DemandBasis::Measurement, Fallback::Safe),
            LeaseState::Leased {
                rate: Some(10.0),
                ends: Moment::from_nanos(20),
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                sharing: Sharing::Divided,
                may_grow: true,
            }
        );
        let lapsed = Holding {
            lease: None,
            ..leased
        };
        assert_eq!(
            lease_state(&lapsed, DemandBasis::Measurement, Fallback::Safe),
            LeaseState::NoLease {
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                answered: false,
            }
        );
    }

    #[test]
    fn unknown_terms_are_not_made_up() {
        let unknown = Holding {
            terms: None,
            ..holding(Unit::Rate, SafeCapacity::Unlimited)
        };
        assert!(matches!(
            lease_state(&unknown, DemandBasis::Guess, Fallback::Safe),
            LeaseState::Leased { rate, safe: None, policy: None, .. } if rate == Some(600.0)
        ));
    }

    #[test]
    fn guessed_lease_below_safe_capacity_does_not_count() {
        let is_leased = |safe, basis, fallback| {
            let safe = SafeCapacity::AtMost(Capacity::saturating(safe));
            let state = lease_state(&holding(Unit::Rate, safe), basis, fallback);
            matches!(state, LeaseState::Leased { rate, .. } if rate == Some(10.0))
        };
        assert!(!is_leased(6_000.0, DemandBasis::Guess, Fallback::Safe));
        assert!(is_leased(60.0, DemandBasis::Guess, Fallback::Safe));
        assert!(is_leased(6_000.0, DemandBasis::Measurement, Fallback::Safe));
        for strict in [Fallback::Optimistic, Fallback::Pessimistic] {
            assert!(is_leased(6_000.0, DemandBasis::Guess, strict));
        }
    }

    #[test]
    fn gauge_gives_no_lease() {
        let gauge = holding(Unit::Gauge, SafeCapacity::Unlimited);
        assert!(matches!(
            lease_state(&gauge, DemandBasis::Guess, Fallback::Safe),
            LeaseState::NoLease { safe: None, .. }
        ));
    }
}
