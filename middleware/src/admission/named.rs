//! Limits on resources that are named at run time, and not by the keys of a layer.

use std::sync::Arc;

use doorman_openapi::Unit;
use smallvec::SmallVec;

use super::{
    Admission, Admitted, CompiledLimit, Decision, HeaderPolicy, RateLimitHeaders, Refused,
    check::{LimitCheck, LimitChecks, add_check},
    compiled::CheckTemplate,
};
use crate::{
    clock,
    key::{Callers, Key},
    limit::Limit,
    limiter::Registry,
    refusal::Refusal,
    resource_use::ResourceUse,
};

/// The name of these limits in metrics and logs.
const NAME: &str = "check";

#[derive(Debug)]
pub(crate) struct NamedLimits {
    /// Without limits of its own.
    admission: Arc<Admission>,
    rates: CheckTemplate,
    gauges: CheckTemplate,
}

/// Why nothing was taken.
pub(crate) enum NotTaken {
    Refused(Refusal, RateLimitHeaders),
    /// The resource of the use at this index has the other unit in this process.
    OtherUnit(usize),
}

impl From<Refused> for NotTaken {
    fn from((refusal, headers): Refused) -> Self {
        Self::Refused(refusal, headers)
    }
}

impl NamedLimits {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let rates = Limit::rate(Key::constant("check/rate/(overflow)")).named(NAME);
        let gauges = Limit::gauge(Key::constant("check/gauge/(overflow)")).named(NAME);
        Self {
            rates: CheckTemplate::new(&registry, rates),
            gauges: CheckTemplate::new(&registry, gauges),
            admission: Arc::new(Admission::new(registry, Callers::new(), [])),
        }
    }

    /// All of them admit, or nothing is spent.
    pub(crate) async fn admit(&self, uses: &[ResourceUse]) -> Result<Admitted, NotTaken> {
        match self.decide(uses)? {
            Decision::Admitted => Ok(Admitted::default()),
            Decision::AdmittedWith(headers) => Ok(Admitted {
                headers,
                ..Admitted::default()
            }),
            Decision::Holding(admitted) => Ok(*admitted),
            Decision::Refused(refusal, headers) => Err(NotTaken::Refused(refusal, headers)),
            Decision::Pending(decision) => Ok(decision.await?),
        }
    }

    fn decide(&self, uses: &[ResourceUse]) -> Result<Decision, NotTaken> {
        let admission = &self.admission;
        let limit = |it: &ResourceUse| {
            let template = if it.is_gauge() {
                &self.gauges
            } else {
                &self.rates
            };
            Arc::new(template.limit(&admission.registry, it.resource()))
        };
        let limits: SmallVec<[Arc<CompiledLimit>; 2]> = uses.iter().map(limit).collect();
        let mut checks = LimitChecks::new();
        for (index, (it, limit)) in uses.iter().zip(&limits).enumerate() {
            if let Some(limiter) = limit.constant_limiter() {
                if (limiter.get().unit() == Unit::Gauge) != it.is_gauge() {
                    return Err(NotTaken::OtherUnit(index));
                }
                let check = LimitCheck::at_cost(limit, limiter.get(), it.taken());
                add_check(&mut checks, check);
            }
        }
        let recent = clock::coarse_now();
        if admission.try_admit_fast(&mut checks, recent) {
            let headers = super::admitted_headers(&checks, recent);
            return Ok(Decision::AdmittedWith(headers));
        }
        Ok(admission.decide_slow(&checks, HeaderPolicy::Send))
    }
}
