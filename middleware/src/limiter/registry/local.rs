//! Registries of limits of this process only. No worker removes their idle keys: new keys do.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use doorman_openapi::Moment;

use super::{Limiter, LimiterHandle, Registry, Source};
use crate::quota::Quota;

/// Keys checked for each new key. More than one, so that idle keys get fewer.
const CHECKS: usize = 2;

/// The registries of all local limits, for snapshots.
#[derive(Debug, Default)]
pub(super) struct LocalRegistries(Mutex<Vec<Weak<Registry>>>);

/// The keys of a local limit, least recently checked first, with the attempts seen then.
#[derive(Debug, Default)]
pub(crate) struct IdleScan(Mutex<VecDeque<(LimiterHandle, f64)>>);

impl LocalRegistries {
    pub(super) fn all(&self) -> Vec<Arc<Registry>> {
        let mut locals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locals.retain(|local| local.strong_count() > 0);
        locals.iter().filter_map(Weak::upgrade).collect()
    }

    fn add(&self, local: &Arc<Registry>) {
        let mut locals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locals.retain(|local| local.strong_count() > 0);
        locals.push(Arc::downgrade(local));
    }
}

impl IdleScan {
    pub(super) fn add(&self, limiter: Limiter<'_>) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Never equal to the attempts, so that the first check keeps the key.
        keys.push_back((limiter.handle(), -1.0));
    }
}

impl Registry {
    /// A registry for one more local limit, with the same bound on keys.
    pub(crate) fn local(&self, quota: Quota) -> Arc<Self> {
        let source = Source::Local {
            quota,
            idle: IdleScan::default(),
        };
        let local = Self::with_clock(self.slots.limit(), source, self.store.clock);
        self.locals.add(&local);
        local
    }

    /// Checks a few keys and removes those that are idle, before a new key is added.
    pub(super) fn forget_idle(&self, now: Moment) {
        let Source::Local { idle, .. } = &self.source else {
            return;
        };
        let mut keys = idle.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..CHECKS.min(keys.len()) {
            let Some((handle, before)) = keys.pop_front() else {
                return;
            };
            let limiter = handle.get();
            let attempted = limiter.attempted();
            let is_idle = attempted == before && limiter.is_full(now);
            if !(is_idle && self.forget(limiter)) {
                keys.push_back((handle, attempted));
            }
        }
    }
}
