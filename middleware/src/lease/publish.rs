//! From the resource's own unit, as it is leased, to tokens a second, as it is spent.

use doorman_openapi::{Capacity, SafeCapacity, Seconds, Unit};

use super::{Holding, Leased, Sharing, Told, tracked::Knowledge};
use crate::{
    Fallback,
    limiter::{LeaseState, Policy, SafeRate},
};

/// What a limiter is told of what is held. A capacity that counts what is in use at one time is no rate: for a limiter of rates
/// there is then no lease.
///
/// A lease that was asked for before the demand was known is none yet, where the safe capacity, which counts without any lease, is
/// more. Else who comes new, or is the first to be asked, would turn away for a second what nobody else needs.
pub(super) fn standing(holding: &Holding, demand: Knowledge, fallback: Fallback) -> LeaseState {
    let told = holding.told.as_deref();
    let per = per(told);
    let safe = told
        .filter(|told| told.unit == Unit::Rate)
        .map(|told| match told.safe {
            SafeCapacity::Unlimited => SafeRate::Unlimited,
            SafeCapacity::AtMost(capacity) => SafeRate::PerSecond(capacity.get() / per),
        });
    let policy = told
        .filter(|told| told.unit == Unit::Rate)
        .and_then(|told| told.limit)
        .map(Capacity::get)
        .map(|limit| Policy { limit, per });
    let is_less_than_none = |lease: &Leased| {
        let leased = lease.capacity.get() / per;
        demand == Knowledge::Guessed
            && fallback == Fallback::Safe
            && lease.sharing == Sharing::Divided
            && !lease.blocked
            && matches!(safe, Some(SafeRate::PerSecond(safe)) if safe > leased)
    };
    match holding.lease {
        Some(lease) if !counts_in_use(told) && !is_less_than_none(&lease) => LeaseState::Leased {
            rate: (!lease.blocked).then_some(lease.capacity.get() / per),
            ends: lease.ends,
            safe,
            refresh_at: holding.refresh_at,
            policy,
            sharing: lease.sharing,
            // No more will ever be asked for than what is stated.
            may_grow: lease.as_asked
                && demand != Knowledge::Stated
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

/// Whether the resource is a gauge.
pub(super) fn counts_in_use(told: Option<&Told>) -> bool {
    told.is_some_and(|told| told.unit == Unit::Gauge)
}

/// The seconds that the resource's rate is counted over.
pub(super) fn per(told: Option<&Told>) -> f64 {
    told.map(|told| told.per)
        .map(Seconds::get)
        .filter(|per| *per > 0.0)
        .unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use doorman_openapi::Moment;

    use super::*;

    fn holding(unit: Unit, safe: SafeCapacity) -> Holding {
        Holding {
            lease: Some(Leased {
                capacity: Capacity::saturating(600.0),
                ends: Moment::from_nanos(20),
                blocked: false,
                as_asked: true,
                sharing: Sharing::Divided,
            }),
            told: Some(Arc::new(Told {
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
    fn a_capacity_over_a_minute_is_a_sixtieth_a_second() {
        let safe = SafeCapacity::AtMost(Capacity::saturating(60.0));
        let leased = holding(Unit::Rate, safe);
        assert_eq!(
            standing(&leased, Knowledge::Measured, Fallback::Safe),
            LeaseState::Leased {
                rate: Some(10.0),
                ends: Moment::from_nanos(20),
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy: Some(Policy {
                    limit: 6000.0,
                    per: 60.0
                }),
                sharing: Sharing::Divided,
                may_grow: true,
            }
        );
        let lapsed = Holding {
            lease: None,
            ..leased
        };
        assert_eq!(
            standing(&lapsed, Knowledge::Measured, Fallback::Safe),
            LeaseState::NoLease {
                safe: Some(SafeRate::PerSecond(1.0)),
                refresh_at: Moment::from_nanos(10),
                policy: Some(Policy {
                    limit: 6000.0,
                    per: 60.0
                }),
                answered: false,
            }
        );
    }

    #[test]
    fn what_is_not_told_is_not_made_up() {
        let silent = Holding {
            told: None,
            ..holding(Unit::Rate, SafeCapacity::Unlimited)
        };
        assert!(matches!(
            standing(&silent, Knowledge::Guessed, Fallback::Safe),
            LeaseState::Leased { rate, safe: None, policy: None, .. } if rate == Some(600.0)
        ));
    }

    #[test]
    fn a_lease_on_a_guess_is_none_where_less_would_be_allowed_than_without() {
        let is_leased = |safe, demand, fallback| {
            let safe = SafeCapacity::AtMost(Capacity::saturating(safe));
            let standing = standing(&holding(Unit::Rate, safe), demand, fallback);
            matches!(standing, LeaseState::Leased { rate, .. } if rate == Some(10.0))
        };
        assert!(!is_leased(6_000.0, Knowledge::Guessed, Fallback::Safe));
        assert!(is_leased(60.0, Knowledge::Guessed, Fallback::Safe));
        assert!(is_leased(6_000.0, Knowledge::Measured, Fallback::Safe));
        for strict in [Fallback::Optimistic, Fallback::Pessimistic] {
            assert!(is_leased(6_000.0, Knowledge::Guessed, strict));
        }
    }

    #[test]
    fn a_gauge_is_no_rate() {
        assert!(matches!(
            standing(
                &holding(Unit::Gauge, SafeCapacity::Unlimited),
                Knowledge::Guessed,
                Fallback::Safe
            ),
            LeaseState::NoLease { safe: None, .. }
        ));
    }
}
