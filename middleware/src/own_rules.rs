//! Rules that a process does not fetch from the control plane.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use doorman_openapi::{Rule, RulesResponse};

use crate::{
    key::Callers,
    layer::LimitLayer,
    limiter::Registry,
    rules::{InvalidRules, Rules},
    snapshot::NotApplied,
};

/// Rules of this process, such as those of a file, and not the control plane's: made by
/// [`Doorman::own_rules`](crate::Doorman::own_rules). A rule means the same as in
/// [`Doorman::rules`](crate::Doorman::rules); its `service` is ignored.
///
/// ```
/// use http::Request;
/// use tower_doorman::{Doorman, RequestHead};
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let doorman = Doorman::fixed([("api", 1.0)]);
/// let rules = doorman.own_rules();
/// let layer = rules.layer();
/// let all = r#"[{"name": "all", "service": "*", "resource": "api"}]"#;
/// rules.replace(&serde_json::from_str::<Vec<_>>(all)?)?;
/// let request = Request::new(());
/// assert!(layer.try_admit(&RequestHead::of(&request)).is_ok());
/// assert!(layer.try_admit(&RequestHead::of(&request)).is_err());
/// # Ok(())
/// # }
/// # run().unwrap();
/// ```
#[derive(Debug)]
pub struct OwnRules {
    rules: Arc<Rules>,
    registry: Arc<Registry>,
    callers: Callers,
    replaced: AtomicU64,
}

impl OwnRules {
    pub(crate) fn new(registry: Arc<Registry>, callers: Callers) -> Self {
        Self {
            rules: Arc::default(),
            registry,
            callers,
            replaced: AtomicU64::new(0),
        }
    }

    /// A layer that enforces the present rules, and those that replace them.
    pub fn layer(&self) -> LimitLayer {
        let layer = LimitLayer::new(Arc::clone(&self.registry), self.callers.clone(), []);
        layer.with_rules(Arc::clone(&self.rules)).and_rules()
    }

    /// Replaces all rules, in every layer at once. Tokens that were spent stay spent. Returns the
    /// rules that do not apply, because the process uses their resource as of another unit.
    ///
    /// # Errors
    /// [`InvalidRules`] if any of them is invalid. The present rules stay.
    pub fn replace(&self, rules: &[Rule]) -> Result<Vec<NotApplied>, InvalidRules> {
        let version = self.replaced.fetch_add(1, Relaxed).to_string();
        let rules = rules.to_vec();
        let change = self
            .rules
            .apply(RulesResponse { version, rules }, &self.registry)?;
        Ok(change.map_or_else(Vec::new, |change| change.not_applied))
    }
}
