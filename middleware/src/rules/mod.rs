//! The rules that a process follows: fetched by the worker, kept in memory, and worn by layers beside the limits in code.
//!
//! An answer is understood whole or refused whole ([`compile`]), so that the last good rules stay. What is understood becomes a set of
//! limits ([`set`]), each with the requests that it is for; every layer that follows the rules is handed the new set, and the
//! requests that it decides from then on find it without a lock.

mod compile;
mod set;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use doorman_openapi::RulesResponse;
use tokio::sync::Notify;

pub(crate) use self::compile::Malformed;
use self::{compile::compile, set::RuleSet};
use crate::{NotApplied, RulesSnapshot, admission::DynamicAdmission, limiter::Registry};

/// The rules of a process, shared by the worker, which brings them, and the layers, which follow them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    wanted: Notify,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether there is, or was, a layer that follows them.
    wanted: bool,
    followed: Option<Followed>,
    /// Why the last attempt to learn of them came to nothing.
    error: Option<String>,
    layers: Vec<Weak<DynamicAdmission>>,
}

#[derive(Debug)]
struct Followed {
    version: String,
    set: RuleSet,
}

/// What has changed, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) version: String,
    pub(crate) applied: usize,
    pub(crate) not_applied: Vec<NotApplied>,
}

impl Rules {
    /// Hands a layer the rules that there are, and from now on those that there will be.
    pub(crate) fn follow(&self, layer: &Arc<DynamicAdmission>) {
        let mut state = self.state();
        if let Some(followed) = &state.followed {
            layer.set_rules(&followed.set.armed);
        }
        // Rules may stay the same for months, and layers come and go.
        state.layers.retain(|layer| layer.strong_count() > 0);
        state.layers.push(Arc::downgrade(layer));
        state.wanted = true;
        drop(state);
        self.wanted.notify_one();
    }

    /// Resolves when the first layer follows the rules.
    ///
    /// # Cancel safety
    /// Safe: it can be asked again.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether somebody waits for the first rules.
    pub(crate) fn are_awaited(&self) -> bool {
        let state = self.state();
        state.wanted && state.followed.is_none()
    }

    /// Takes up the rules of an answer, in place of those before; `None` when they are the same.
    ///
    /// # Errors
    /// [`Malformed`] when the answer is not understood whole. The rules of before stay.
    pub(crate) fn take_up(
        &self,
        told: RulesResponse,
        registry: &Registry,
    ) -> Result<Option<Change>, Malformed> {
        let compiled = compile(&told.rules)?;
        let mut state = self.state();
        let state = &mut *state;
        state.error = None;
        let before = state.followed.as_ref();
        if before.is_some_and(|before| before.version == told.version) {
            return Ok(None);
        }
        let set = RuleSet::arm(compiled, before.map(|it| &it.set), registry);
        state.layers.retain(|layer| {
            let layer = layer.upgrade();
            layer.inspect(|layer| layer.set_rules(&set.armed)).is_some()
        });
        if let Some(before) = before {
            before.set.let_go_all_but(&set, registry);
        }
        let change = Change {
            version: told.version.clone(),
            applied: set.armed.len(),
            not_applied: set.not_applied.clone(),
        };
        state.followed = Some(Followed {
            version: told.version,
            set,
        });
        Ok(Some(change))
    }

    /// The rules that are followed are those of the control plane.
    pub(crate) fn are_current(&self) {
        self.state().error = None;
    }

    /// The rules of the control plane are not known, or not understood.
    pub(crate) fn are_missed(&self, reason: String) {
        self.state().error = Some(reason);
    }

    /// What is followed; `None` when no layer wants any.
    pub(crate) fn snapshot(&self) -> Option<RulesSnapshot> {
        let state = self.state();
        let followed = state.followed.as_ref();
        state.wanted.then(|| RulesSnapshot {
            version: followed.map(|it| it.version.clone()),
            error: state.error.clone(),
            not_applied: followed.map_or_else(Vec::new, |it| it.set.not_applied.clone()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
