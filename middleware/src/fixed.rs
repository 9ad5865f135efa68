//! Fixed limits by resource, for handles without a control plane.

use std::collections::HashMap;

use doorman_openapi::{Capacity, Glob, ResourceId};

use crate::{key::to_resource_id, limiter::LeaseState};

/// Fixed limits by resource or glob. A resource has the first limit that equals it, else the first
/// whose glob matches it, as with the templates of a document.
#[derive(Debug, Default)]
pub(crate) struct FixedLimits {
    by_resource: HashMap<ResourceId, LeaseState>,
    by_glob: Vec<(Glob, LeaseState)>,
}

impl FixedLimits {
    pub(crate) fn new(limits: impl IntoIterator<Item = (impl AsRef<str>, f64)>) -> Self {
        let mut fixed = Self::default();
        for (text, rate) in limits {
            fixed.add(text.as_ref(), rate);
        }
        fixed
    }

    fn add(&mut self, text: &str, rate: f64) {
        let state = if rate == f64::INFINITY {
            LeaseState::Unlimited
        } else {
            let rate = Capacity::saturating(rate).get();
            LeaseState::Fixed { rate }
        };
        self.by_resource
            .entry(to_resource_id(text))
            .or_insert(state);
        match Glob::new(text) {
            Ok(glob) if glob.is_literal() => {}
            Ok(glob) => self.by_glob.push((glob, state)),
            Err(error) => tracing::warn!(
                resource = text,
                %error,
                "invalid glob of a fixed limit; it applies only to the resource of this name"
            ),
        }
    }

    /// The state of a resource; blocked if no limit is for it.
    pub(crate) fn state(&self, resource: &ResourceId) -> LeaseState {
        let matching = || {
            let mut by_glob = self.by_glob.iter();
            let (_, state) = by_glob.find(|(glob, _)| glob.matches(resource.as_str()))?;
            Some(state)
        };
        let state = self.by_resource.get(resource).or_else(matching);
        state.copied().unwrap_or(LeaseState::Fixed { rate: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Logged;

    #[test]
    fn invalid_glob_is_logged_with_its_fault() {
        let (logged, _guard) = Logged::at(tracing::Level::WARN);
        let fixed = FixedLimits::new([("tenant/[a", 5.0), ("db", 1.0)]);
        let lines = logged.lines();
        let [line] = &*lines else {
            panic!("{lines:?}");
        };
        assert!(line.contains("tenant/[a"), "{line}");
        assert!(line.contains("a glob whose every `[` is closed"), "{line}");
        assert_eq!(
            fixed.state(&to_resource_id("tenant/[a")),
            LeaseState::Fixed { rate: 5.0 }
        );
    }
}
