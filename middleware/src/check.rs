//! Checks of several resources that are named at run time.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use doorman_openapi::ResourceId;
use http::{HeaderMap, Response};

use crate::{
    admission::{Admitted, NamedLimits, NotTaken, RateLimitHeaders},
    key::RequestHead,
    limiter::Registry,
    permit::Permit,
    refusal::Refusal,
    resource_use::ResourceUse,
};

/// Decides on resources that are named at run time, several at once, all or nothing: made by
/// [`Doorman::checks`](crate::Doorman::checks). Cheap to clone.
///
/// The defaults are those of [`Limit::rate`](crate::Limit::rate) and
/// [`Limit::gauge`](crate::Limit::gauge): excess is rejected, without a lease a rate applies its
/// safe capacity and a gauge admits nothing, and the first check of a gauge waits up to a second
/// for its lease. Resources are leased from their first check on, bounded by
/// [`Builder::max_keys`](crate::Builder::max_keys), and forgotten when they are idle.
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

impl Checks {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self(Arc::new(NamedLimits::new(registry)))
    }

    /// Takes of every resource, or of none. Uses of one resource are added up.
    ///
    /// # Errors
    /// [`CheckError`]. Nothing is spent then.
    ///
    /// # Cancel safety
    /// Safe: dropping the future gives back what it took.
    pub async fn check(&self, uses: &[ResourceUse]) -> Result<AdmittedCheck, CheckError> {
        match self.0.admit(uses).await {
            Ok(Admitted {
                headers, permit, ..
            }) => Ok(AdmittedCheck { headers, permit }),
            Err(NotTaken::Refused(refusal, headers)) => {
                Err(CheckError::Refused(RefusedCheck { refusal, headers }))
            }
            Err(NotTaken::OtherUnit(index)) => Err(CheckError::OtherUnit(index)),
        }
    }
}

/// Why a check took nothing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CheckError {
    /// A resource does not admit it.
    Refused(RefusedCheck),
    /// The process uses the resource of the use at this index as of the other unit: that of the
    /// first limit or check, until the resource is idle.
    OtherUnit(usize),
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
