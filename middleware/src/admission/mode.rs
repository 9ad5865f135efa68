//! The two ways to take a decision: with a wait, as a service does, or at once.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{
    Admission, Admitted, AdmittedBy, HeaderPolicy, RateLimitHeaders, check::LimitCheck,
    pending::PendingChecks,
};
use crate::{permit::Permit, refusal::Refusal};

/// How the caller takes a decision.
pub(crate) trait Mode: Copy {
    type Decision;

    /// `by` are the limits that admitted it; `None` if none applied. `headers` are those of the
    /// response; `None` if no limit is to be named.
    fn admitted(
        self,
        by: impl FnOnce() -> Option<AdmittedBy>,
        headers: impl FnOnce() -> Option<RateLimitHeaders>,
    ) -> Self::Decision;

    fn refused(self, refusal: Refusal) -> Self::Decision;

    /// Decides on a request that the fast path did not admit.
    fn decide_slow(self, admission: &Arc<Admission>, checks: &[LimitCheck<'_>]) -> Self::Decision;
}

/// The request may wait, and its response has headers or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CanWait(pub(crate) HeaderPolicy);

/// The present state decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CannotWait;

pub(crate) enum Decision {
    Admitted(Option<AdmittedBy>),
    /// With headers that the response must have, under [`HeaderPolicy::Send`].
    AdmittedWith(RateLimitHeaders, Option<AdmittedBy>),
    /// With units of gauges, which are in use until the response ends, or with costs that may be
    /// corrected.
    Holding(Box<Admitted>),
    Refused(Refusal, RateLimitHeaders),
    /// The request waits. Dropping the future returns what it has taken.
    Pending(PendingDecision),
}

pub(crate) type PendingDecision = Pin<Box<dyn Future<Output = Result<Admitted, Refused>> + Send>>;

/// A refusal and the headers of its response.
pub(crate) type Refused = (Refusal, RateLimitHeaders);

impl Mode for CanWait {
    type Decision = Decision;

    #[inline]
    fn admitted(
        self,
        by: impl FnOnce() -> Option<AdmittedBy>,
        headers: impl FnOnce() -> Option<RateLimitHeaders>,
    ) -> Decision {
        let headers = match self.0 {
            HeaderPolicy::Send => headers(),
            HeaderPolicy::Omit => None,
        };
        match headers {
            Some(headers) => Decision::AdmittedWith(headers, by()),
            None => Decision::Admitted(by()),
        }
    }

    fn refused(self, refusal: Refusal) -> Decision {
        Decision::Refused(refusal, RateLimitHeaders::default())
    }

    #[inline(never)]
    fn decide_slow(self, admission: &Arc<Admission>, checks: &[LimitCheck<'_>]) -> Decision {
        let mut pending = PendingChecks::new(checks);
        let now = admission.registry.now();
        let awaits_lease = pending.awaits_first_lease(&admission.registry, now);
        if !awaits_lease {
            let reserved = pending.reserve(&admission.registry, Some(now), now);
            if let Err((refusal, headers)) = reserved {
                return Decision::Refused(refusal, headers);
            }
            if !pending.is_delayed() {
                let admitted = admission.with_charge(pending.commit(admission, now));
                if admitted.is_plain() {
                    let Admitted { headers, by, .. } = admitted;
                    return self.admitted(|| by, || Some(headers));
                }
                return Decision::Holding(Box::new(admitted));
            }
        }
        let admission = Arc::clone(admission);
        Decision::Pending(Box::pin(async move {
            let mut since = now;
            if awaits_lease {
                pending.wait_first_leases().await?;
                since = admission.registry.now();
                pending.reserve(&admission.registry, Some(since), since)?;
            }
            let admitted = pending.wait_turns(&admission, since).await?;
            Ok(admission.with_charge(admitted))
        }))
    }
}

impl Mode for CannotWait {
    type Decision = Result<Permit, Refusal>;

    #[inline]
    fn admitted(
        self,
        _: impl FnOnce() -> Option<AdmittedBy>,
        _: impl FnOnce() -> Option<RateLimitHeaders>,
    ) -> Self::Decision {
        Ok(Permit::default())
    }

    fn refused(self, refusal: Refusal) -> Self::Decision {
        Err(refusal)
    }

    #[inline(never)]
    fn decide_slow(self, admission: &Arc<Admission>, checks: &[LimitCheck<'_>]) -> Self::Decision {
        let mut pending = PendingChecks::new(checks);
        let now = admission.registry.now();
        let reserved = pending.reserve(&admission.registry, None, now);
        reserved.map_err(|(refusal, _)| refusal)?;
        Ok(pending.commit(admission, now).permit)
    }
}
