//! From rules as they are told to limits.

use std::{collections::HashSet, fmt, sync::Arc};

use doorman_openapi::{
    Fallback as ToldFallback, MAX_RULES, OnLimit as ToldOnLimit, OnMissingKey, Rule, Unit,
};

use crate::{
    Cost, Fallback, Key, Limit, MissingKey, NotApplied, OnLimit,
    admission::{RequestPattern, RequestScope},
};

/// Why an answer as a whole is refused: what is not understood may change the meaning of what is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Malformed(String);

impl Malformed {
    pub(super) fn new(rule: &Rule, why: impl fmt::Display) -> Self {
        Self(format!("the rule `{}` {why}", rule.name))
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Rules that are understood.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(super) limits: Vec<RuleLimit>,
    /// What this process cannot follow.
    pub(super) not_applied: Vec<NotApplied>,
}

/// A limit, and which requests it is for.
#[derive(Debug)]
pub(super) struct RuleLimit {
    pub(super) scope: RequestScope,
    pub(super) limit: Limit,
}

/// Reads rules.
///
/// # Errors
/// [`Malformed`] when any of them makes no sense, or says what is not understood.
pub(crate) fn compile(rules: &[Rule]) -> Result<Compiled, Malformed> {
    if rules.len() > MAX_RULES {
        return Err(Malformed(format!("there are more than {MAX_RULES} rules")));
    }
    let mut names = HashSet::new();
    let mut exempt: Vec<Arc<RequestPattern>> = Vec::new();
    let mut compiled = Compiled::default();
    for rule in rules {
        if !names.insert(&rule.name) {
            return Err(Malformed::new(rule, "is there twice"));
        }
        let pattern = RequestPattern::new(rule.methods.as_deref(), rule.path.as_deref())
            .map_err(|why| Malformed::new(rule, why))?;
        let on_limit = match rule.on_limit {
            ToldOnLimit::Exempt => {
                exempt.push(Arc::new(pattern));
                continue;
            }
            ToldOnLimit::Reject => OnLimit::Reject,
            ToldOnLimit::Shadow => OnLimit::Shadow,
            ToldOnLimit::Delay { max_delay } => OnLimit::Delay {
                at_most: max_delay.duration(),
            },
        };
        match limit(rule, on_limit)? {
            Ok(limit) => compiled.limits.push(RuleLimit {
                scope: RequestScope {
                    pattern,
                    exempt: exempt.as_slice().into(),
                },
                limit,
            }),
            Err(reason) => compiled.not_applied.push(NotApplied {
                rule: rule.name.to_string(),
                reason,
            }),
        }
    }
    Ok(compiled)
}

/// The limit of a rule, or why this process cannot follow it.
fn limit(rule: &Rule, on_limit: OnLimit) -> Result<Result<Limit, String>, Malformed> {
    let resource = rule
        .resource
        .as_deref()
        .ok_or_else(|| Malformed::new(rule, "has no resource"))?;
    let key = Key::template(resource)
        .map_err(|why| Malformed::new(rule, format!("has a resource that is none: {why}")))?;
    let cost = Cost::new(rule.cost.get()).map_err(|why| Malformed::new(rule, why))?;
    match rule.unit {
        Unit::Rate => {}
        Unit::Gauge => return Ok(Err("the layer limits no gauges, only rates".to_owned())),
    }
    Ok(Ok(Limit::rate(key)
        .named(rule.name.as_str())
        .cost(cost)
        .burst(rule.burst.duration())
        .on_limit(on_limit)
        .on_missing_key(match rule.on_missing_key {
            OnMissingKey::Shared => MissingKey::Shared,
            OnMissingKey::Skip => MissingKey::Skip,
            OnMissingKey::Reject => MissingKey::Reject,
        })
        .fallback(match rule.fallback {
            ToldFallback::Safe => Fallback::Safe,
            ToldFallback::Optimistic => Fallback::Optimistic,
            ToldFallback::Pessimistic => Fallback::Pessimistic,
        })
        .priority(rule.priority)))
}
