//! Compilation of rules to limits.

use std::{collections::HashSet, fmt, sync::Arc};

use doorman_openapi::{MAX_RULES, OnLimit as WireOnLimit, Rule, Unit};

use crate::{
    admission::{RequestPattern, RequestScope},
    cost::Cost,
    key::Key,
    limit::{Limit, OnLimit},
};

/// A list of rules with an invalid one. It is invalid as a whole: an invalid rule may change the
/// meaning of the others.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRules(String);

crate::error::debug_as_text!(InvalidRules);

impl InvalidRules {
    fn new(rule: &Rule, reason: impl fmt::Display) -> Self {
        Self(format!("rule `{}` {reason}", rule.name))
    }
}

#[derive(Debug)]
pub(super) struct RuleLimit {
    pub(super) scope: RequestScope,
    pub(super) limit: Limit,
}

pub(super) fn compile(rules: &[Rule]) -> Result<Vec<RuleLimit>, InvalidRules> {
    if rules.len() > MAX_RULES {
        return Err(InvalidRules(format!("more than {MAX_RULES} rules")));
    }
    let mut names = HashSet::new();
    let mut exempt: Vec<Arc<RequestPattern>> = Vec::new();
    let mut compiled = Vec::new();
    for rule in rules {
        if !names.insert(&rule.name) {
            return Err(InvalidRules::new(rule, "has a duplicate name"));
        }
        let pattern = RequestPattern::new(rule.methods.as_deref(), rule.path.as_deref())
            .map_err(|error| InvalidRules::new(rule, error))?;
        let on_limit = match rule.on_limit {
            WireOnLimit::Exempt => {
                exempt.push(Arc::new(pattern));
                continue;
            }
            WireOnLimit::Reject => OnLimit::Reject,
            WireOnLimit::Shadow => OnLimit::Shadow,
            WireOnLimit::Delay { max_delay } => OnLimit::Delay {
                max_delay: max_delay.duration(),
            },
        };
        let limit = compile_limit(rule, on_limit)?;
        compiled.push(RuleLimit {
            scope: RequestScope {
                pattern,
                exempt: exempt.as_slice().into(),
            },
            limit,
        });
    }
    Ok(compiled)
}

fn compile_limit(rule: &Rule, on_limit: OnLimit) -> Result<Limit, InvalidRules> {
    let resource = rule
        .resource
        .as_deref()
        .ok_or_else(|| InvalidRules::new(rule, "has no resource"))?;
    let key = Key::template(resource).map_err(|error| {
        InvalidRules::new(rule, format_args!("has an invalid resource: {error}"))
    })?;
    let cost = Cost::new(rule.cost.get())
        .map_err(|error| InvalidRules::new(rule, format_args!("has an invalid cost: {error}")))?;
    let limit = match rule.unit {
        Unit::Rate => Limit::rate(key),
        Unit::Gauge => Limit::gauge(key),
    };
    let limit = match rule.outcomes {
        Some(outcomes) => limit.headers_from(outcomes.headers),
        None => limit,
    };
    Ok(limit
        .named(rule.name.as_str())
        .cost(cost)
        .burst(rule.burst.duration())
        .on_limit(on_limit)
        .on_missing_key(rule.on_missing_key)
        .fallback(rule.fallback)
        .priority(rule.priority))
}
