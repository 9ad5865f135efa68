//! What calls cost, and on whose account they go. Which they are is one table of all routes, as for `access`.

use axum::{
    body::{Body, HttpBody},
    extract::{FromRequestParts, Request},
    http::{Method, request::Parts},
};
use doorman_openapi::{MAX_BODY_BYTES, Moment, ProblemType, ResourceId, paths};

use super::refusal::Refusal;
use crate::{
    http::state::AppState,
    leasing::SharedLedger,
    ledger::{Ledger, ReleaseProgress, RenewalCheck},
    quota::{
        InFlightGuard, LeaseCost, LeaseKind, LimitScope, Operation, QuotaKey, Quotas, RateLimited,
    },
    util::clock,
};

/// What a call costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toll {
    /// Nothing: it is always answered.
    Free,
    /// What its reading takes, and as many decisions as it has resources: those are paid when they have been counted.
    Leases,
    /// What a request costs: it asks for nothing more.
    Request,
    Operation(Operation),
    /// What an answer to anybody costs.
    Open,
}

/// What a call costs; `path` as routes are written, `None` when none matches.
pub(super) fn of(method: &Method, path: Option<&str>) -> Toll {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let Some(path) = path else {
        return Toll::Open;
    };
    match path {
        paths::LIVEZ | paths::READYZ if reads => Toll::Free,
        paths::CAPACITY
        | paths::CAPACITY_RELEASE
        | paths::SERVER_CAPACITY
        | paths::SERVER_CAPACITY_RELEASE => Toll::Leases,
        paths::RULES | paths::DISCOVERY => Toll::Request,
        paths::RESOURCES
        | paths::RESOURCE
        | paths::RESOURCE_LEASES
        | paths::STATUS
        | paths::HISTORY
        | paths::METRICS => Toll::Operation(Operation::View),
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE if reads => {
            Toll::Operation(Operation::View)
        }
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE => Toll::Operation(Operation::Change),
        _ => Toll::Open,
    }
}

impl Toll {
    /// Pays what is to be paid before the call is looked at.
    ///
    /// # Errors
    /// 429 when there is not so much on the account.
    pub(super) fn pay(
        self,
        limits: &Quotas,
        payer: Option<QuotaKey>,
        request: &mut Request,
    ) -> Result<(), Refusal> {
        let now = match payer {
            Some(_) => clock::now(),
            None => return Ok(()),
        };
        match self {
            Self::Free => Ok(()),
            Self::Leases => {
                let work = unread(request.body());
                let extensions = request.extensions_mut();
                extensions.insert(Paying { payer, work });
                limits.charge_reading(payer, work, now)
            }
            Self::Request => limits.charge_request(payer, now),
            Self::Operation(operation) => limits.charge_operation(payer, operation, now),
            Self::Open => limits.charge_open(payer, now),
        }
        .map_err(Refusal::from)
    }
}

/// What a call for leases costs as far as is known before it is read: by the length that it declares. One that declares none is charged as
/// the longest that is read, and so is one that declares more.
fn unread(body: &Body) -> LeaseCost {
    let longest = u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX);
    let said = body.size_hint().exact();
    LeaseCost::unread(said.unwrap_or(longest).min(longest))
}

/// On whose account a call for leases goes: that of its token's subject, or, where no tokens are asked for, that of its address. `access`
/// adds it to a request when its reading has been paid for, and adds nothing where nobody pays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paying {
    payer: Option<QuotaKey>,
    work: LeaseCost,
}

impl Paying {
    const NOBODY: Self = Self {
        payer: None,
        work: LeaseCost::NONE,
    };
}

impl FromRequestParts<AppState> for Paying {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Refusal> {
        let paying = parts.extensions.get().copied();
        Ok(paying.unwrap_or(Self::NOBODY))
    }
}

impl Paying {
    /// Pays for leases on so many resources. When there is not so much on the account for new leases, or the server has too much to do,
    /// the books are asked whether all of them are held already: `renews` looks at the next few from a position on.
    ///
    /// The whole request counts as new when one resource is: else who holds one lease could ask for ten thousand others as if they were
    /// renewals.
    ///
    /// # Errors
    /// 429 when that is not enough, 503 when the books are in doubt.
    ///
    /// # Cancel safety
    /// When it is dropped, what is paid is gone.
    pub(super) async fn leases<'a>(
        self,
        limits: &'a Quotas,
        ledger: &SharedLedger,
        resources: usize,
        renews: impl Fn(&Ledger, usize, Moment) -> RenewalCheck,
    ) -> Result<InFlightGuard<'a>, Refusal> {
        let now = self.now();
        let this = self.about(resources);
        let limited = match this.begin(limits, resources, LeaseKind::New, now) {
            Ok(counted) => return Ok(counted),
            Err(limited) => limited,
        };
        // To look through the books is work, too.
        let counted = limits
            .begin_decisions(resources, LeaseKind::Renewal)
            .map_err(|limited| this.refused(limits, LeaseKind::New, limited, now))?;
        if ledger.renews(renews).await? {
            limits
                .charge_decisions(this.payer, this.work, LeaseKind::Renewal, now)
                .map_err(|limited| this.refused(limits, LeaseKind::Renewal, limited, now))?;
            Ok(counted)
        } else {
            Err(this.refused(limits, LeaseKind::New, limited, now))
        }
    }

    /// Takes leases back, those on `named` resources or all that the holder has, and has them paid for: the named ones before, the others
    /// when the books have told how many they are. `part` takes back the next few from a position on.
    ///
    /// # Errors
    /// 429 when there is not so much even in the reserve, 503 when the books are in doubt.
    ///
    /// # Cancel safety
    /// When it is dropped, some of many leases may not be back; they end by themselves.
    pub(super) async fn release(
        self,
        limits: &Quotas,
        ledger: &SharedLedger,
        named: Option<&[ResourceId]>,
        part: impl FnMut(&mut Ledger, usize, Moment) -> ReleaseProgress,
    ) -> Result<(), Refusal> {
        let now = self.now();
        let number = named.map_or(0, <[_]>::len);
        let this = self.about(number);
        let _counted = this
            .begin(limits, number, LeaseKind::Renewal, now)
            .map_err(|limited| this.refused(limits, LeaseKind::Renewal, limited, now))?;
        let released = ledger.release(part).await?;
        if named.is_none() {
            limits.charge_released(self.payer, released, self.now());
        }
        Ok(())
    }

    fn about(self, resources: usize) -> Self {
        Self {
            work: self.work.about(resources),
            ..self
        }
    }

    fn begin(
        self,
        limits: &Quotas,
        resources: usize,
        asks: LeaseKind,
        now: Moment,
    ) -> Result<InFlightGuard<'_>, RateLimited> {
        let counted = limits.begin_decisions(resources, asks)?;
        limits.charge_decisions(self.payer, self.work, asks, now)?;
        Ok(counted)
    }

    fn refused(
        self,
        limits: &Quotas,
        asks: LeaseKind,
        limited: RateLimited,
        now: Moment,
    ) -> Refusal {
        let limited = limits.reject(self.payer, self.work, asks, limited, now);
        match asks {
            LeaseKind::Renewal => limited.into(),
            LeaseKind::New => {
                let detail = format!(
                    "{}; what is leased is renewed, when nothing new is asked for along with it",
                    whose(limited)
                );
                Refusal::new(ProblemType::TooManyRequests, detail).after(limited.wait)
            }
        }
    }

    /// The clock is read only where there is an account.
    fn now(self) -> Moment {
        self.payer.map_or(Moment::ORIGIN, |_| clock::now())
    }
}

fn whose(limited: RateLimited) -> &'static str {
    match limited.whose {
        LimitScope::Caller => "the caller asks for more than the server does for one",
        LimitScope::Server => "the server has too much to do",
    }
}

impl From<RateLimited> for Refusal {
    fn from(limited: RateLimited) -> Self {
        Self::new(ProblemType::TooManyRequests, whose(limited)).after(limited.wait)
    }
}
