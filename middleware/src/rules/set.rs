//! Compiled rules with their limiters, and the transition from one set to the next.

use std::{collections::HashMap, sync::Arc};

use doorman_openapi::Unit;

use super::compile::RuleLimit;
use crate::{
    admission::CompiledLimit,
    limit::Limit,
    limiter::{LimiterHandle, LimiterSettings, Registry},
    snapshot::NotApplied,
};

#[derive(Debug)]
pub(super) struct RuleSet {
    /// In the order in which they apply.
    pub(super) limits: Vec<Arc<CompiledLimit>>,
    /// By key template, those of each priority in the order of the rules. The limiters share them,
    /// so that a changed rule reaches existing limiters.
    settings: HashMap<Arc<str>, Vec<Arc<LimiterSettings>>>,
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
            let known = previous.and_then(|it| it.settings.get(limit.key.text()));
            let known = known.map_or(&[][..], Vec::as_slice);
            let settings = set.settings.entry(Arc::clone(limit.key.text()));
            let settings = settings_of(settings.or_default(), known, &limit);
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
            let kept = next.settings.get(key);
            let is_kept = |it: &Arc<LimiterSettings>| {
                kept.is_some_and(|kept| kept.iter().any(|next| Arc::ptr_eq(next, it)))
            };
            for removed in settings.iter().filter(|it| !is_kept(it)) {
                removed.withdraw();
            }
        }
    }
}

/// The settings of a rule, of which `earlier` are those of the rules before it on the same
/// resource, and `known` those of the previous set.
fn settings_of(
    earlier: &mut Vec<Arc<LimiterSettings>>,
    known: &[Arc<LimiterSettings>],
    limit: &Limit,
) -> Arc<LimiterSettings> {
    let mut own = limit.settings.clone();
    if let Some(first) = earlier.first() {
        if !first.agrees_with(&own) {
            tracing::warn!(
                rule = &*limit.name,
                "an earlier rule has the same resource; its burst and fallback apply"
            );
        }
        let priority = own.priority.own();
        if let Some(same) = earlier.iter().find(|it| it.priority.own() == priority) {
            return Arc::clone(same);
        }
        own = LimiterSettings {
            priority: priority.into(),
            ..LimiterSettings::clone(first)
        };
    }
    let settings = match known.get(earlier.len()) {
        Some(known) if known.unit == own.unit => {
            known.update(&own);
            Arc::clone(known)
        }
        Some(_) | None => Arc::new(own),
    };
    earlier.push(Arc::clone(&settings));
    settings
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Rate => "rate",
        Unit::Gauge => "gauge",
    }
}
