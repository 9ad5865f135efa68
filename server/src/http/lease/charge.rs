//! Quota of lease calls: charges decisions per resource, and prefers renewals to new leases.

use axum::{extract::FromRequestParts, http::request::Parts};
use doorman_openapi::{Moment, ResourceId};

use crate::{
    http::error::ApiError, http::state::AppState, leasing::SharedLedger, quota::InFlightGuard,
    quota::LeaseCost, quota::LeaseKind, quota::QuotaKey, quota::Quotas, quota::RateLimited,
    util::clock,
};
use doorman_core::{ledger::LeaseCall, ledger::ReleaseCall};

/// The account of a lease call, and its cost so far. Absent without a quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuotaCharge {
    key: Option<QuotaKey>,
    cost: LeaseCost,
}

impl FromRequestParts<AppState> for QuotaCharge {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let charge = parts.extensions.get().copied();
        Ok(charge.unwrap_or(Self::new(None, LeaseCost::NONE)))
    }
}

impl QuotaCharge {
    pub(crate) fn new(key: Option<QuotaKey>, cost: LeaseCost) -> Self {
        Self { key, cost }
    }

    /// Charges for the leases of a call. If the quota for new leases is spent or the server is
    /// overloaded, the call passes if it only renews. One new resource makes the whole call new:
    /// otherwise a holder of one lease could pass ten thousand others off as renewals.
    ///
    /// # Errors
    /// 429, or 503 if the ledger is poisoned.
    ///
    /// # Cancel safety
    /// A charge is not refunded.
    pub(super) async fn leases<'a>(
        self,
        quotas: &'a Quotas,
        ledger: &SharedLedger,
        call: &LeaseCall,
    ) -> Result<InFlightGuard<'a>, ApiError> {
        let now = self.now();
        let resources = call.len();
        let charge = self.with_resources(resources);
        let limited = match charge.begin(quotas, resources, LeaseKind::New, now) {
            Ok(decisions) => return Ok(decisions),
            Err(limited) => limited,
        };
        // The check is work, too.
        let decisions = quotas
            .begin_decisions(resources, LeaseKind::Renewal)
            .map_err(|limited| charge.rejected(quotas, LeaseKind::New, limited, now))?;
        if ledger.renews(call).await? {
            quotas
                .charge_decisions(charge.key, charge.cost, LeaseKind::Renewal, now)
                .map_err(|limited| charge.rejected(quotas, LeaseKind::Renewal, limited, now))?;
            Ok(decisions)
        } else {
            Err(charge.rejected(quotas, LeaseKind::New, limited, now))
        }
    }

    /// Releases leases, returns how many, and charges for them. Named resources are charged before,
    /// all further ones with each part. Resources that are not `allowed` stay.
    ///
    /// # Errors
    /// 429 if even the reserve for renewals is spent, or 503 if the ledger is poisoned.
    ///
    /// # Cancel safety
    /// Some leases may remain; they expire.
    pub(super) async fn release(
        self,
        quotas: &Quotas,
        ledger: &SharedLedger,
        call: &ReleaseCall,
        allowed: &(dyn Fn(&ResourceId) -> bool + Sync),
    ) -> Result<usize, ApiError> {
        let now = self.now();
        let named = call.resource_ids();
        let resources = named.map_or(0, <[_]>::len);
        let charge = self.with_resources(resources);
        let _decisions = charge
            .begin(quotas, resources, LeaseKind::Renewal, now)
            .map_err(|limited| charge.rejected(quotas, LeaseKind::Renewal, limited, now))?;
        let mut paid = resources;
        let charge_part = |scanned: usize| {
            let more = scanned.saturating_sub(paid);
            paid = paid.saturating_sub(scanned);
            if more > 0 {
                quotas.charge_released(self.key, more, self.now());
            }
        };
        Ok(ledger.release(call, allowed, charge_part).await?)
    }

    fn with_resources(self, resources: usize) -> Self {
        Self {
            cost: self.cost.with_resources(resources),
            ..self
        }
    }

    fn begin(
        self,
        quotas: &Quotas,
        resources: usize,
        kind: LeaseKind,
        now: Moment,
    ) -> Result<InFlightGuard<'_>, RateLimited> {
        let decisions = quotas.begin_decisions(resources, kind)?;
        quotas.charge_decisions(self.key, self.cost, kind, now)?;
        Ok(decisions)
    }

    fn rejected(
        self,
        quotas: &Quotas,
        kind: LeaseKind,
        limited: RateLimited,
        now: Moment,
    ) -> ApiError {
        let limited = quotas.reject(self.key, self.cost, kind, limited, now);
        let error = ApiError::from(limited);
        match kind {
            LeaseKind::Renewal => error,
            LeaseKind::New => error.with_hint("requests that only renew leases still pass"),
        }
    }

    /// Reads the clock only where there is an account.
    fn now(self) -> Moment {
        self.key.map_or(Moment::ORIGIN, |_| clock::now())
    }
}
