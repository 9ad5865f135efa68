//! Descriptions of past changes for restricted tokens, remembered by tenant.
//!
//! A description compares two documents, which have to be read and parsed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use doorman_config::Restrictions;
use doorman_openapi::PastChange;

/// Tenants whose changes are remembered.
const MAX_TENANTS: usize = 64;

/// The words for changes by revision and version; `None` for a change that a tenant must not see.
pub(super) type Described = HashMap<(u64, String), Option<String>>;

#[derive(Debug, Default)]
pub(super) struct DescribedChanges(Mutex<VecDeque<(Restrictions, Described)>>);

impl DescribedChanges {
    /// Those of a tenant so far, as far as they are among these changes.
    pub(super) fn known(&self, restrictions: &Restrictions, changes: &[PastChange]) -> Described {
        let tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, described)) = tenants.iter().find(|(it, _)| it == restrictions) else {
            return Described::default();
        };
        let keys = changes.iter().map(|it| (it.revision, it.version.clone()));
        keys.filter_map(|key| described.get(&key).cloned().map(|words| (key, words)))
            .collect()
    }

    /// Remembers those of a tenant, and forgets the one that has asked least recently.
    pub(super) fn put(&self, restrictions: Restrictions, described: Described) {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.retain(|(it, _)| *it != restrictions);
        tenants.push_back((restrictions, described));
        if tenants.len() > MAX_TENANTS {
            tenants.pop_front();
        }
    }
}
