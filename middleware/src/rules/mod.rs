//! Rules of the control plane, applied by layers beside the limits in code. A response is valid or
//! invalid as a whole ([`mod@compile`]), so that the last valid rules stay in force. Every layer
//! that follows the rules reads their [`RuleSet`] without a lock.

mod compile;
mod set;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use doorman_openapi::RulesResponse;
use tokio::sync::Notify;

pub use self::compile::InvalidRules;
use self::{compile::compile, set::RuleSet};
use crate::{
    admission::DynamicAdmission,
    limiter::Registry,
    snapshot::{NotApplied, RulesSnapshot},
};

/// The rules of a process, shared by the worker and the layers.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    requested: Notify,
    state: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    /// Whether a layer has followed the rules.
    requested: bool,
    active: Option<ActiveRules>,
    /// Why the last fetch failed.
    error: Option<String>,
    layers: Vec<Weak<DynamicAdmission>>,
}

#[derive(Debug)]
struct ActiveRules {
    version: String,
    set: RuleSet,
}

/// A change of the rules, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RulesChange {
    pub(crate) version: String,
    pub(crate) applied: usize,
    pub(crate) not_applied: Vec<NotApplied>,
}

impl Rules {
    /// Hands a layer the active rules and all later ones.
    pub(crate) fn follow(&self, layer: &Arc<DynamicAdmission>) {
        let mut state = self.state();
        if let Some(active) = &state.active {
            layer.set_rules(&active.set.limits);
        }
        // Rules may stay the same for months while layers come and go.
        state.layers.retain(|layer| layer.strong_count() > 0);
        state.layers.push(Arc::downgrade(layer));
        state.requested = true;
        drop(state);
        self.requested.notify_one();
    }

    /// Resolves when the first layer follows the rules. Cancel safe.
    pub(crate) async fn requested(&self) {
        self.requested.notified().await;
    }

    pub(crate) fn are_pending(&self) -> bool {
        let state = self.state();
        state.requested && state.active.is_none()
    }

    /// Applies the rules of a response; `None` when nothing changes. When any rule is invalid, the
    /// active rules stay. Rules that could not be applied are tried again.
    pub(crate) fn apply(
        &self,
        response: RulesResponse,
        registry: &Registry,
    ) -> Result<Option<RulesChange>, InvalidRules> {
        let compiled = compile(&response.rules)?;
        let mut state = self.state();
        let state = &mut *state;
        state.error = None;
        let previous = state.active.as_ref();
        let same = previous.filter(|it| it.version == response.version);
        if same.is_some_and(|it| it.set.not_applied.is_empty()) {
            return Ok(None);
        }
        let is_retry = same.is_some();
        let set = RuleSet::new(compiled, previous.map(|it| &it.set), registry);
        state.layers.retain(|layer| {
            let layer = layer.upgrade();
            layer
                .inspect(|layer| layer.set_rules(&set.limits))
                .is_some()
        });
        if let Some(previous) = previous {
            previous.set.release_all_but(&set, registry);
        }
        let changed = !is_retry
            || previous.is_none_or(|it| it.set.not_applied.len() != set.not_applied.len());
        let change = changed.then(|| RulesChange {
            version: response.version.clone(),
            applied: set.limits.len(),
            not_applied: set.not_applied.clone(),
        });
        state.active = Some(ActiveRules {
            version: response.version,
            set,
        });
        Ok(change)
    }

    /// Whether rules wait until they can be applied.
    pub(crate) fn has_unapplied(&self) -> bool {
        let state = self.state();
        let active = state.active.as_ref();
        active.is_some_and(|it| !it.set.not_applied.is_empty())
    }

    pub(crate) fn clear_error(&self) {
        self.state().error = None;
    }

    pub(crate) fn set_error(&self, reason: String) {
        self.state().error = Some(reason);
    }

    /// A snapshot; `None` when no layer follows the rules.
    pub(crate) fn snapshot(&self) -> Option<RulesSnapshot> {
        let state = self.state();
        let active = state.active.as_ref();
        state.requested.then(|| RulesSnapshot {
            version: active.map(|it| it.version.clone()),
            error: state.error.clone(),
            not_applied: active.map_or_else(Vec::new, |it| it.set.not_applied.clone()),
        })
    }

    fn state(&self) -> MutexGuard<'_, Followed> {
        // Every statement leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
