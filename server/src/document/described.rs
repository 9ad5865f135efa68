//! Past changes as restricted tokens see them, so that a change is compared once per tenant: for it
//! two documents have to be read and parsed.

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
    pub(super) fn take(&self, restrictions: &Restrictions, changes: &[PastChange]) -> Described {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tenants.iter().position(|(it, _)| it == restrictions);
        let found = found.and_then(|position| tenants.remove(position));
        let mut described = found.map_or_else(Described::default, |(_, described)| described);
        let keys = changes.iter().map(|it| (it.revision, it.version.clone()));
        keys.filter_map(|key| described.remove_entry(&key))
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
