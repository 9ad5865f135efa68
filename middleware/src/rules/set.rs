//! Compiled rules with their limiters, and the transition from one set to the next.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use doorman_openapi::Unit;

use super::compile::RuleLimit;
use crate::{
    NotApplied,
    admission::CompiledLimit,
    limiter::{LimiterHandle, LimiterSettings, Registry},
};

#[derive(Debug)]
pub(super) struct RuleSet {
    /// In the order in which they apply.
    pub(super) limits: Vec<Arc<CompiledLimit>>,
    /// By key template. The limiters share them, so that a changed rule reaches existing limiters.
    settings: HashMap<Arc<str>, Arc<LimiterSettings>>,
    /// Limiters that are retained as long as this set is active.
    retained: Vec<LimiterHandle>,
    pub(super) not_applied: Vec<NotApplied>,
}

impl RuleSet {
    pub(super) fn new(
        limits: Vec<RuleLimit>,
        previous: Option<&Self>,
        registry: &Registry,
    ) -> Self {
        let mut set = Self {
            limits: Vec::with_capacity(limits.len()),
            settings: HashMap::new(),
            retained: Vec::new(),
            not_applied: Vec::new(),
        };
        for RuleLimit { scope, limit } in limits {
            let settings = match set.settings.entry(Arc::clone(limit.key.text())) {
                Entry::Occupied(first) => {
                    let first = Arc::clone(first.get());
                    if first.merge(&limit.settings).is_err() {
                        tracing::warn!(
                            rule = &*limit.name,
                            "an earlier rule has the same resource; its burst and fallback apply"
                        );
                    }
                    first
                }
                Entry::Vacant(vacant) => {
                    let known = previous.and_then(|it| it.settings.get(vacant.key()));
                    let settings = match known {
                        Some(known) if known.unit == limit.settings.unit => {
                            known.update(&limit.settings);
                            Arc::clone(known)
                        }
                        Some(_) | None => Arc::new(limit.settings.clone()),
                    };
                    Arc::clone(vacant.insert(settings))
                }
            };
            let rule = Arc::clone(&limit.name);
            let unit = limit.settings.unit;
            let limit = CompiledLimit::for_rule(registry, limit, &settings, scope);
            let limiter = limit.constant_limiter();
            let used = limiter.map_or(settings.unit, |limiter| limiter.get().unit());
            if used != unit {
                if let Some(limiter) = limiter
                    && !set.retained.contains(limiter)
                {
                    // It is forgotten when it is idle. The rule applies then.
                    registry.unpin(limiter.get());
                }
                set.not_applied.push(NotApplied {
                    rule: rule.to_string(),
                    reason: format!(
                        "its unit is {}, but this process already limits its resource as a {}",
                        name(unit),
                        name(used)
                    ),
                });
                continue;
            }
            set.retained.extend(limiter.cloned());
            set.limits.push(Arc::new(limit));
        }
        set
    }

    /// Lets idle limiters be forgotten and withdraws settings, unless the next set has them too.
    pub(super) fn release_all_but(&self, next: &Self, registry: &Registry) {
        for limiter in &self.retained {
            if !next.retained.contains(limiter) {
                registry.unpin(limiter.get());
            }
        }
        for (key, settings) in &self.settings {
            if !next.settings.contains_key(key) {
                settings.withdraw();
            }
        }
    }
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Rate => "rate",
        Unit::Gauge => "gauge",
    }
}
