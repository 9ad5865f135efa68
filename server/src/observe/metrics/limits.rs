//! Requests that were refused because their callers, or all together, asked for too much.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::quota::{CallKind, LimitScope, Quotas};

type Labels = [(&'static str, &'static str); 2];

pub(super) fn register(registry: &mut Registry, limits: &Quotas) {
    let refused = Family::<Labels, Counter>::default();
    for kind in CallKind::ALL {
        for whose in LimitScope::ALL {
            let count = limits.rejections(kind, whose);
            // Only lease calls are refused for what all callers ask for together.
            if whose == LimitScope::Caller || matches!(kind, CallKind::New | CallKind::Renewal) {
                let labels = [("kind", kind.name()), ("limit", whose.name())];
                refused.get_or_create(&labels).inc_by(count);
            }
        }
    }
    registry.register(
        "requests_limited",
        "Requests that were refused with 429, by what they asked for (new leases, renewals, unread: of either, operator, unverified: \
         without a token that is known to count), and by whose limit: that of their caller, or of the server, which has too much to do",
        refused,
    );
}
