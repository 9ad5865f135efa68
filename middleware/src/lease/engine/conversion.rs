//! Conversion of a status from the resource's own unit to that of its limiter.

use doorman_holder::{FirstAnswer, LeaseStatus, ResourceTerms};
use doorman_openapi::{Reason, SafeCapacity, Seconds, Unit};

use crate::limiter::{Growth, LeaseState, Policy, SafeRate};

/// The state of a limiter, in tokens per second or units of a gauge.
pub(super) fn lease_state(status: &LeaseStatus, unit: Unit, wants_stated: bool) -> LeaseState {
    if has_other_unit(status, unit) {
        return LeaseState::OtherUnit {
            refresh_at: status.refresh_at,
        };
    }
    // Before the answer they are those of a template that may not be the one that matches.
    let terms = (status.terms.as_deref()).filter(|terms| terms.unit == unit);
    let per = period(terms);
    let safe = terms.map(|terms| match terms.safe {
        SafeCapacity::Unlimited => SafeRate::Unlimited,
        SafeCapacity::AtMost(capacity) => SafeRate::PerSecond(capacity.get() / per),
    });
    let policy = terms.and_then(|terms| terms.limit).map(|limit| Policy {
        limit: limit.get(),
        per,
    });
    match status.lease {
        Some(lease) => LeaseState::Leased {
            rate: (lease.reason != Reason::Blocked).then_some(lease.capacity.get() / per),
            ends: lease.ends,
            safe,
            refresh_at: status.refresh_at,
            policy,
            sharing: lease.sharing,
            growth: match lease.reason {
                // A stated demand does not grow.
                _ if wants_stated => Growth::None,
                _ if policy.is_some_and(|policy| policy.limit <= lease.capacity.get()) => {
                    Growth::None
                }
                Reason::Granted => Growth::OnRequest,
                Reason::Pending => Growth::Pending,
                Reason::Share | Reason::Blocked | Reason::Full => Growth::None,
            },
        },
        None => LeaseState::NoLease {
            safe,
            refresh_at: status.refresh_at,
            policy,
            awaits_answer: status.first_answer == FirstAnswer::Awaited,
        },
    }
}

/// Whether a resource is in another unit than its limiter, by an answer of the control plane.
pub(super) fn has_other_unit(status: &LeaseStatus, unit: Unit) -> bool {
    let terms = status.terms.as_ref();
    status.first_answer == FirstAnswer::Received && terms.is_some_and(|terms| terms.unit != unit)
}

/// The period of the resource's rate, in seconds; 1 for a gauge.
pub(super) fn period(terms: Option<&ResourceTerms>) -> f64 {
    terms
        .filter(|terms| terms.unit == Unit::Rate)
        .map(|terms| terms.per)
        .map(Seconds::get)
        .filter(|per| *per > 0.0)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use doorman_holder::Sharing;
    use doorman_openapi::{Capacity, Moment};

    use super::*;
    use crate::lease::ActiveLease;

    fn status(unit: Unit, safe: SafeCapacity) -> LeaseStatus {
        LeaseStatus {
            lease: Some(ActiveLease {
                capacity: Capacity::saturating(600.0),
                ends: Moment::from_nanos(20),
                reason: Reason::Granted,
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
            first_answer: FirstAnswer::Received,
            requested: Capacity::saturating(600.0),
            refresh_interval: Duration::from_secs(1),
            refresh_at: Moment::from_nanos(10),
            reports_overloads: false,
        }
    }

    #[test]
    fn capacity_per_minute_becomes_rate_per_second() {
        let safe = SafeCapacity::AtMost(Capacity::saturating(60.0));
        let leased = status(Unit::Rate, safe);
        let policy = Some(Policy {
            limit: 6000.0,
            per: 60.0,
        });
        assert_eq!(
            lease_state(&leased, Unit::Rate, false),
            LeaseState::Leased {
                rate: Some(10.0),
                ends: Moment::from_nanos(20),
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                sharing: Sharing::Divided,
                growth: Growth::OnRequest,
            }
        );
        let lapsed = LeaseStatus {
            lease: None,
            ..leased
        };
        assert_eq!(
            lease_state(&lapsed, Unit::Rate, false),
            LeaseState::NoLease {
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy,
                awaits_answer: false,
            }
        );
    }

    #[test]
    fn unknown_terms_are_not_made_up() {
        let unknown = LeaseStatus {
            terms: None,
            ..status(Unit::Rate, SafeCapacity::Unlimited)
        };
        assert!(matches!(
            lease_state(&unknown, Unit::Rate, false),
            LeaseState::Leased { rate, safe: None, policy: None, .. } if rate == Some(600.0)
        ));
    }

    #[test]
    fn other_unit_is_no_lease() {
        for (unit, other) in [(Unit::Gauge, Unit::Rate), (Unit::Rate, Unit::Gauge)] {
            let status = status(unit, SafeCapacity::Unlimited);
            assert!(matches!(
                lease_state(&status, other, false),
                LeaseState::OtherUnit { .. }
            ));
        }
    }

    #[test]
    fn units_of_a_gauge_are_not_converted() {
        let gauge = status(Unit::Gauge, SafeCapacity::AtMost(Capacity::saturating(2.0)));
        assert!(matches!(
            lease_state(&gauge, Unit::Gauge, false),
            LeaseState::Leased { rate, safe, policy, .. }
                if rate == Some(600.0)
                    && safe == Some(SafeRate::PerSecond(2.0))
                    && policy == Some(Policy { limit: 6000.0, per: 1.0 })
        ));
    }
}
