//! Checks of several resources that are named at run time.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use doorman_openapi::{ResourceId, Unit};
use http::{HeaderMap, Response};
use smallvec::SmallVec;
use tokio::time::{sleep, timeout};

use crate::{
    admission::{
        Admission, Admitted, CanWait, CheckTemplate, CompiledLimit, Decision, HeaderPolicy,
        LimitCheck, LimitChecks, RateLimitHeaders, add_check,
    },
    key::{Callers, Key, RequestHead},
    limit::{COUNTED_WAIT, Limit, Traffic},
    limiter::{Acquisition, Registry},
    outcome::OutcomeReport,
    permit::Permit,
    refusal::{Refusal, RefusalReason},
    resource_use::ResourceUse,
};

/// The name of these limits in metrics and logs.
const NAME: &str = "check";
/// How long a check waits to learn whether it or an earlier one has the unit of the resource.
const UNIT_WAIT: Duration = Duration::from_secs(1);
/// The pause before a limiter in the other unit, which requests still use, is forgotten.
const FORGET_PAUSE: Duration = Duration::from_millis(20);

/// Decides on resources that are named at run time, several at once, all or nothing: made by
/// [`Doorman::checks`](crate::Doorman::checks). Cheap to clone.
///
/// The defaults are those of [`Limit::rate`](crate::Limit::rate) and
/// [`Limit::gauge`](crate::Limit::gauge): excess is rejected, and without a lease a rate applies
/// its safe capacity and a gauge admits nothing. But the first check of each resource waits up to
/// a second for its lease, because callers choose the resources. Resources are leased from their
/// first check on, bounded by [`Builder::max_keys`](crate::Builder::max_keys), and
/// forgotten when they are idle.
///
/// ```
/// use tower_doorman::{Doorman, ResourceUse};
///
/// # async fn run() {
/// let checks = Doorman::fixed([("api", 10.0), ("tx", 1.0)]).checks();
/// let uses = [ResourceUse::rate("api"), ResourceUse::gauge("tx")];
/// let first = checks.check(&uses).await;
/// assert!(first.is_ok());
/// assert!(checks.check(&uses).await.is_err(), "the only unit of `tx` is in use");
/// drop(first);
/// assert!(checks.check(&uses).await.is_ok());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Checks(Arc<NamedLimits>);

#[derive(Debug)]
struct NamedLimits {
    registry: Arc<Registry>,
    /// Without limits of its own.
    admission: Arc<Admission>,
    rates: CheckTemplate,
    gauges: CheckTemplate,
}

impl Checks {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let rates = Limit::rate(Key::constant("check/rate/(overflow)")).named(NAME);
        let rates = rates.wait_for_lease(COUNTED_WAIT);
        let gauges = Limit::gauge(Key::constant("check/gauge/(overflow)")).named(NAME);
        Self(Arc::new(NamedLimits {
            rates: CheckTemplate::new(&registry, rates),
            gauges: CheckTemplate::new(&registry, gauges),
            admission: Arc::new(Admission::new(Arc::clone(&registry), Callers::new(), [])),
            registry,
        }))
    }

    /// Takes of every resource, or of none. Uses of one resource are added up.
    ///
    /// # Errors
    /// [`CheckError`]. Nothing is spent then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future gives back what it took.
    pub async fn check(&self, uses: &[ResourceUse]) -> Result<AdmittedCheck, CheckError> {
        self.check_within(uses, Duration::ZERO).await
    }

    /// The same, but a check that exceeds a resource is queued for up to `max_wait`, as by
    /// [`OnLimit::Delay`](crate::OnLimit::Delay).
    ///
    /// # Errors
    /// [`CheckError`]. Nothing is spent then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and gives back what it took.
    pub async fn check_within(
        &self,
        uses: &[ResourceUse],
        max_wait: Duration,
    ) -> Result<AdmittedCheck, CheckError> {
        let Admitted {
            headers, permit, ..
        } = match self.0.decide(uses, max_wait).await? {
            Decision::Admitted(_) => Admitted::default(),
            Decision::AdmittedWith(headers, _) => Admitted {
                headers,
                ..Admitted::default()
            },
            Decision::Holding(admitted) => *admitted,
            Decision::Refused(refusal, headers) => {
                return Err(CheckError::new(refusal, headers, uses));
            }
            Decision::Pending(decision) => {
                let decided = decision.await;
                decided.map_err(|(refusal, headers)| CheckError::new(refusal, headers, uses))?
            }
        };
        Ok(AdmittedCheck { headers, permit })
    }
}

impl Checks {
    /// Counts the outcome of operations that checks of this resource admitted, for the control
    /// plane. Not for those that hold a [`Permit`]: [`Permit::outcome`] counts them. Ignored for a
    /// resource that no limit of this process has, or that was idle and is forgotten.
    pub fn outcome(&self, resource: &ResourceId, report: &OutcomeReport) {
        let registry = &self.0.registry;
        if let Some(limiter) = registry.find(resource) {
            self.0.rates.meter().ended(report.outcome, report.count);
            registry.record_outcomes(limiter, report, registry.now());
        }
    }
}

impl NamedLimits {
    /// All of them admit, or nothing is spent. A check in the unit of the resource replaces the
    /// limiter of an earlier check in the other unit.
    async fn decide(
        &self,
        uses: &[ResourceUse],
        max_wait: Duration,
    ) -> Result<Decision, CheckError> {
        let mut mismatch = match self.try_decide(uses, max_wait) {
            Ok(decision) => return Ok(decision),
            Err(mismatch) => mismatch,
        };
        let decided = timeout(UNIT_WAIT, async {
            loop {
                self.forget_earlier(mismatch.earlier.as_ref()?).await?;
                match self.try_decide(uses, max_wait) {
                    Ok(decision) => return Some(decision),
                    Err(next) => mismatch = next,
                }
            }
        });
        let decided = decided.await.ok().flatten();
        decided.ok_or(CheckError::OtherUnit(mismatch.index))
    }

    /// Lets the limiter of an earlier check be forgotten, once it is known that the limiter has
    /// another unit than its resource. `None` if it has not, or stays for ever.
    async fn forget_earlier(&self, earlier: &Acquisition) -> Option<()> {
        earlier.wait_first_lease(UNIT_WAIT, u32::MAX).await.ok()?;
        let limiter = earlier.limiter();
        if !limiter.has_other_unit() {
            return None;
        }
        if !self.registry.forget_in_other_unit(limiter).await? {
            sleep(FORGET_PAUSE).await;
        }
        Some(())
    }

    fn try_decide(&self, uses: &[ResourceUse], max_wait: Duration) -> Result<Decision, Mismatch> {
        let limit = |it: &ResourceUse| {
            let template = if it.is_gauge() {
                &self.gauges
            } else {
                &self.rates
            };
            Arc::new(template.limit(&self.registry, it.resource()))
        };
        let limits: SmallVec<[Arc<CompiledLimit>; 2]> = uses.iter().map(limit).collect();
        let mut checks = LimitChecks::new();
        for (index, (it, limit)) in uses.iter().zip(&limits).enumerate() {
            if let Some(limiter) = limit.constant_limiter() {
                let limiter = limiter.get();
                let is_of_other_unit = (limiter.unit() == Unit::Gauge) != it.is_gauge();
                if is_of_other_unit || limiter.has_other_unit() {
                    let earlier =
                        is_of_other_unit.then(|| Acquisition::new(limiter.handle(), 0, it.taken()));
                    return Err(Mismatch { index, earlier });
                }
                let check = LimitCheck::new(limit, index, limiter, Traffic::Inbound, it.taken());
                add_check(&mut checks, check.delayed_by(max_wait));
            }
        }
        let mode = CanWait(HeaderPolicy::Send);
        Ok(self.admission.decide_checks(&mut checks, mode))
    }
}

/// A use in another unit than its resource, or than the limiter.
struct Mismatch {
    index: usize,
    /// At the limiter of an earlier check in another unit than this one.
    earlier: Option<Acquisition>,
}

/// Why a check took nothing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CheckError {
    /// A resource does not admit it.
    Refused(RefusedCheck),
    /// The use at this index has another unit than its resource, or than a limit of this process
    /// on the resource. Also one in the right unit, if the control plane has not answered for a
    /// second, or while units are in use from before a gauge became a rate.
    OtherUnit(usize),
}

impl CheckError {
    fn new(refusal: Refusal, headers: RateLimitHeaders, uses: &[ResourceUse]) -> Self {
        let is_refused = |it: &ResourceUse| Some(it.resource()) == refusal.resource();
        let index = uses.iter().position(is_refused);
        match index.filter(|_| refusal.reason() == RefusalReason::OtherUnit) {
            Some(index) => Self::OtherUnit(index),
            None => Self::Refused(RefusedCheck { refusal, headers }),
        }
    }
}

/// A check that took of every resource.
#[must_use = "units of gauges are given back when this is dropped"]
pub struct AdmittedCheck {
    headers: RateLimitHeaders,
    permit: Permit,
}

impl AdmittedCheck {
    /// Appends `RateLimit` and `RateLimit-Policy`, which name the resources.
    pub fn append_headers(&self, headers: &mut HeaderMap) {
        self.headers.clone().append_to(headers);
    }

    /// The units in use, by gauge and in the order of the check: each permit gives back those of
    /// one gauge. Gauges beyond the bound on keys share one.
    pub fn into_permits(self) -> Vec<(ResourceId, Permit)> {
        self.permit.split()
    }
}

/// A check that took nothing.
#[derive(Clone)]
pub struct RefusedCheck {
    refusal: Refusal,
    headers: RateLimitHeaders,
}

impl RefusedCheck {
    /// The refusal. The name of its limit is the resource.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// The response of a layer to such a refusal: [`Refusal::to_response`], with `RateLimit` and
    /// `RateLimit-Policy`.
    #[must_use]
    pub fn to_response(&self, head: &RequestHead<'_>) -> Response<Bytes> {
        let mut response = self.refusal.to_response(head);
        self.headers.clone().append_to(response.headers_mut());
        response
    }
}

impl fmt::Debug for AdmittedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdmittedCheck").field(&self.permit).finish()
    }
}

impl fmt::Debug for RefusedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RefusedCheck").field(&self.refusal).finish()
    }
}

#[cfg(test)]
mod tests;
