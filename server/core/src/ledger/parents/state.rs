//! The state of a node below its parent, beside the leases of each resource.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use doorman_config::Template;
use doorman_openapi::{Moment, ResourceId, ServerResourceResponse};

use crate::ledger::{keys::ResourceKey, terms::granting::TermsOfParent};

/// Templates beyond this many are built anew for each response.
const MAX_TEMPLATES: usize = 64;

/// State of a node below another one.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Parents {
    pub(super) changed: BTreeSet<ResourceKey>,
    pub(super) gone: Vec<ResourceId>,
    templates: HashMap<String, Arc<Template>>,
    pub(in crate::ledger) terms: TermsOfParent,
    /// Until then holders may have leases of an earlier master without a known lease of the node.
    pub(super) uncovered_until: Moment,
}

impl Parents {
    pub(in crate::ledger) fn forget(&mut self, key: ResourceKey, id: &ResourceId) {
        self.changed.remove(&key);
        self.gone.push(id.clone());
    }

    /// The template of a response, shared with other resources as long as it is the same.
    pub(super) fn template(
        &mut self,
        response: &ServerResourceResponse,
        now: Moment,
    ) -> Option<Arc<Template>> {
        let template = Template::of_parent(response)?;
        (self.terms).note(&template, &response.answer.resource_id, now);
        let known = self.templates.get(template.identifier_glob());
        if let Some(known) = known.filter(|known| ***known == template) {
            return Some(Arc::clone(known));
        }
        let template = Arc::new(template);
        let glob = template.identifier_glob();
        if known.is_some() || self.templates.len() < MAX_TEMPLATES {
            self.templates
                .insert(glob.to_owned(), Arc::clone(&template));
        }
        Some(template)
    }
}
