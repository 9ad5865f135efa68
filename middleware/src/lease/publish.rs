//! From the resource's own unit, as it is leased, to tokens a second, as it is spent.

use doorman_openapi::{Capacity, SafeCapacity, Seconds, Unit};

use super::{Holding, Told};
use crate::limiter::{Policy, SafeRate, Standing};

/// What a limiter is told of what is held. A capacity that counts what is in use at one time is no rate: for a limiter of rates
/// there is then no lease.
pub(super) fn standing(holding: &Holding) -> Standing {
    let told = holding.told.as_deref();
    let per = per(told);
    let safe = told
        .filter(|told| told.unit == Unit::Rate)
        .map(|told| match told.safe {
            SafeCapacity::Unlimited => SafeRate::Unlimited,
            SafeCapacity::AtMost(capacity) => SafeRate::PerSecond(capacity.get() / per),
        });
    match holding.lease {
        Some(lease) if !counts_in_use(told) => Standing::Leased {
            rate: lease.capacity.get() / per,
            ends: lease.ends,
            safe,
            refresh_at: holding.refresh_at,
            policy: told
                .and_then(|told| told.limit)
                .map(Capacity::get)
                .map(|limit| Policy { limit, per }),
        },
        Some(_) | None => Standing::NoLease {
            safe,
            refresh_at: holding.refresh_at,
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
