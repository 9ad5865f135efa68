//! Limits on resources that are named at run time, and not by the keys of a layer.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Admission, Admitted, CompiledLimit, Decision, HeaderPolicy, Refused,
    check::{LimitCheck, LimitChecks, add_check},
    compiled::CheckTemplate,
};
use crate::{Callers, Key, Limit, ResourceUse, clock, limiter::Registry};

/// The name of these limits in metrics and logs.
const NAME: &str = "check";

#[derive(Debug)]
pub(crate) struct NamedLimits {
    /// Without limits of its own.
    admission: Arc<Admission>,
    rates: CheckTemplate,
    gauges: CheckTemplate,
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
    pub(crate) async fn admit(&self, uses: &[ResourceUse]) -> Result<Admitted, Refused> {
        match self.decide(uses) {
            Decision::Admitted => Ok(Admitted::default()),
            Decision::AdmittedWith(headers) => Ok(Admitted {
                headers,
                ..Admitted::default()
            }),
            Decision::Holding(admitted) => Ok(*admitted),
            Decision::Refused(refusal, headers) => Err((refusal, headers)),
            Decision::Pending(decision) => decision.await,
        }
    }

    fn decide(&self, uses: &[ResourceUse]) -> Decision {
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
        for (it, limit) in uses.iter().zip(&limits) {
            if let Some(limiter) = limit.constant_limiter() {
                let check = LimitCheck::at_cost(limit, limiter.get(), it.taken());
                add_check(&mut checks, check);
            }
        }
        let recent = clock::coarse_now();
        if admission.try_admit_fast(&mut checks, recent) {
            return Decision::AdmittedWith(super::admitted_headers(&checks, recent));
        }
        admission.decide_slow(&checks, HeaderPolicy::Send)
    }
}
