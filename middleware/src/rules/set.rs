//! A set of rules, ready to decide, and how it follows upon the one before.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use super::compile::{Compiled, RuleLimit};
use crate::{
    NotApplied,
    admission::CompiledLimit,
    limiter::{Limiter, LimiterSettings, Registry},
};

#[derive(Debug)]
pub(super) struct RuleSet {
    /// In the order in which they apply.
    pub(super) armed: Vec<Arc<CompiledLimit>>,
    /// By the text of the resource. The limiters live by them, so what a new rule says of the same resource reaches the limiters that
    /// there are.
    settings: HashMap<Arc<str>, Arc<LimiterSettings>>,
    /// The limiters that stay, whoever asks for them, as long as this set does.
    held: Vec<Arc<Limiter>>,
    pub(super) not_applied: Vec<NotApplied>,
}

impl RuleSet {
    pub(super) fn arm(compiled: Compiled, before: Option<&Self>, registry: &Registry) -> Self {
        let Compiled {
            limits,
            not_applied,
        } = compiled;
        let mut set = Self {
            armed: Vec::with_capacity(limits.len()),
            settings: HashMap::new(),
            held: Vec::new(),
            not_applied,
        };
        for RuleLimit { scope, limit } in limits {
            let settings = match set.settings.entry(Arc::clone(limit.key.text())) {
                Entry::Occupied(first) => {
                    let first = Arc::clone(first.get());
                    if first.merge(&limit.settings).is_err() {
                        tracing::warn!(
                            rule = &*limit.name,
                            "a rule before it has the same resource: the burst and fallback of that one count"
                        );
                    }
                    first
                }
                Entry::Vacant(vacant) => {
                    let known = before.and_then(|before| before.settings.get(vacant.key()));
                    let settings = match known {
                        Some(known) => {
                            known.update(&limit.settings);
                            Arc::clone(known)
                        }
                        None => Arc::new(limit.settings.clone()),
                    };
                    Arc::clone(vacant.insert(settings))
                }
            };
            let armed = CompiledLimit::for_rule(registry, limit, &settings, scope);
            set.held.extend(armed.constant_limiter().map(Arc::clone));
            set.armed.push(Arc::new(armed));
        }
        set
    }

    /// Its limiters may be forgotten when nobody uses them, unless those of the next set stay; and what its rules state of resources that
    /// others have, too, counts no more.
    pub(super) fn let_go_all_but(&self, next: &Self, registry: &Registry) {
        for limiter in &self.held {
            if !next.held.iter().any(|held| Arc::ptr_eq(held, limiter)) {
                registry.unpin(limiter);
            }
        }
        for (text, settings) in &self.settings {
            if !next.settings.contains_key(text) {
                settings.withdraw();
            }
        }
    }
}
