//! The limits of a layer that follows the rules: those in code, and behind them those of the rules as they are now.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{Admission, CompiledLimit, Telling, Verdict};
use crate::{Refusal, RequestHead};

/// The decision changes with the rules; a request is decided by one set from its beginning to its end.
#[derive(Debug)]
pub(crate) struct DynamicAdmission {
    in_code: Arc<Admission>,
    current: ArcSwap<Admission>,
}

impl DynamicAdmission {
    /// Follows no rules yet.
    pub(crate) fn new(in_code: Arc<Admission>) -> Arc<Self> {
        Arc::new(Self {
            current: ArcSwap::new(Arc::clone(&in_code)),
            in_code,
        })
    }

    /// Follows these rules from now on.
    pub(crate) fn set_rules(&self, rules: &[Arc<CompiledLimit>]) {
        if !self.in_code.callers.verify_tokens() {
            for rule in rules.iter().filter_map(|rule| rule.by_claims()) {
                tracing::warn!(
                    rule,
                    "a rule is by claims of tokens, and none are verified here: unless a layer further out does, every request lacks its key"
                );
            }
        }
        self.current.store(Arc::new(self.in_code.with(rules)));
    }

    pub(crate) fn decide(&self, head: &RequestHead<'_>, telling: Telling) -> Verdict {
        self.current.load().decide(head, telling)
    }

    pub(crate) fn decide_now(&self, head: &RequestHead<'_>) -> Result<(), Refusal> {
        self.current.load().decide_now(head)
    }
}
