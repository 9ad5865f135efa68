//! Limiters of limits that are this process's alone. Each such limit has a registry of its own, so that its keys meet nobody else's;
//! and as no worker looks after them, new keys do.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use doorman_openapi::Moment;

use super::{Limiter, Registry, Source};
use crate::Quota;

/// How many known keys are looked at for each new one: more than one, so that those that are idle become fewer.
const LOOKS: usize = 2;

/// The registries of the local limits, for whoever wants to see every limiter.
#[derive(Debug, Default)]
pub(super) struct Locals(Mutex<Vec<Weak<Registry>>>);

/// The keys of a local limit, that not looked at for longest first, each with what had been attempted of it then.
#[derive(Debug, Default)]
pub(crate) struct Ages(Mutex<VecDeque<(Arc<Limiter>, f64)>>);

impl Locals {
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

impl Registry {
    /// The registry of one more local limit, with as much room for keys as this one.
    pub(crate) fn local(&self, quota: Quota) -> Arc<Self> {
        let source = Source::Local {
            quota,
            ages: Ages::default(),
        };
        let local = Self::new(self.room.most(), source);
        self.locals.add(&local);
        local
    }

    /// Before there is a new key: forgets a few of the others that are of no more use. So as long as keys come, those that are idle
    /// go, and nobody waits for all of them to be looked at.
    pub(super) fn forget_idle(&self, now: Moment) {
        let Source::Local { ages, .. } = &self.source else {
            return;
        };
        let mut ages = ages.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..LOOKS.min(ages.len()) {
            let Some((limiter, before)) = ages.pop_front() else {
                return;
            };
            let attempted = limiter.attempted();
            // One that was used since may be in somebody's hands; one that is not full knows of something that it must not forget.
            let idle = attempted == before && limiter.is_full(now);
            if !(idle && self.forget(&limiter)) {
                ages.push_back((limiter, attempted));
            }
        }
    }

    /// There is a new key.
    pub(super) fn remember(&self, limiter: &Arc<Limiter>) {
        if let Source::Local { ages, .. } = &self.source {
            let mut ages = ages.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Not 0: the first look is never the one that forgets.
            ages.push_back((Arc::clone(limiter), -1.0));
        }
    }
}
