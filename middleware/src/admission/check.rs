//! The limits that apply to one request, borrowed for the fast path.

use std::sync::Arc;

use doorman_openapi::Moment;
use smallvec::SmallVec;

use super::compiled::{CompiledLimit, TokenRequest};
use crate::limiter::Limiter;

pub(super) type LimitChecks<'f> = SmallVec<[LimitCheck<'f>; 2]>;

/// One limit that applies to a request, and its limiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitCheck<'f> {
    pub(super) limit: &'f Arc<CompiledLimit>,
    pub(super) limiter: &'f Arc<Limiter>,
    /// `None` when another check of the request takes the tokens from the same limiter.
    pub(super) request: Option<TokenRequest>,
}

impl LimitCheck<'_> {
    pub(super) fn count_admitted(&self, recent: Moment) {
        let Self { limit, limiter, .. } = self;
        limit.meter.admitted(false, || limiter.fallback_at(recent));
    }
}

/// Adds a check, and merges the tokens of limits that share a limiter into the first of them: one
/// by one, a bucket of one token would never admit at the second. A shadow limit takes nothing when
/// an enforcing limit shares its limiter.
#[inline]
pub(super) fn add_check<'f>(checks: &mut LimitChecks<'f>, mut check: LimitCheck<'f>) {
    for earlier in checks.iter_mut() {
        if !Arc::ptr_eq(earlier.limiter, check.limiter) {
            continue;
        }
        match (earlier.limit.is_shadow(), check.limit.is_shadow()) {
            (true, false) => earlier.request = None,
            (false, true) => check.request = None,
            (true, true) | (false, false) => {
                if let Some(request) = &mut earlier.request
                    && let Some(more) = check.request.take()
                {
                    *request = request.and(more);
                }
            }
        }
    }
    checks.push(check);
}

pub(super) fn with_tokens<'a, 'f>(
    checks: &'a LimitChecks<'f>,
) -> impl Iterator<Item = (&'a LimitCheck<'f>, &'a TokenRequest)> {
    let taking = |check: &'a LimitCheck<'f>| check.request.as_ref().map(|request| (check, request));
    checks.iter().filter_map(taking)
}
