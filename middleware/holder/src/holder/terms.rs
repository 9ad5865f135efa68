//! Terms of resources by template, so that a new resource can begin with those of its template.

use std::{collections::HashMap, sync::Arc, time::Duration};

use doorman_openapi::{Glob, ResourceId, ResourceResponse, Seconds};

use crate::event::ResourceTerms;

/// Beyond this many templates, terms are stored with their resource only.
const MAX_TEMPLATES: usize = 64;

/// The terms of resources, known by the templates of the control plane.
#[derive(Debug, Clone, Default)]
pub struct TemplateTerms {
    by_template: HashMap<Option<String>, Template>,
}

#[derive(Debug, Clone)]
struct Template {
    /// `None` without a template, or when the server's glob is invalid.
    glob: Option<Glob>,
    terms: Arc<ResourceTerms>,
}

impl TemplateTerms {
    /// Records the terms of a response. Equal terms share one allocation. Copies the shared map
    /// only when terms are new.
    pub(super) fn record(self: &mut Arc<Self>, response: &ResourceResponse) -> Arc<ResourceTerms> {
        let terms = ResourceTerms {
            template: response.template.clone(),
            limit: response.limit,
            unit: response.unit.unwrap_or_default(),
            per: response
                .per
                .filter(|per| *per > Seconds::ZERO)
                .unwrap_or_else(|| Duration::from_secs(1).into()),
            safe: response.safe_capacity,
            suppressed: response.admission_probability.is_some(),
        };
        let known = self.by_template.get(&response.template);
        if let Some(known) = known.filter(|known| *known.terms == terms) {
            return Arc::clone(&known.terms);
        }
        let terms = Arc::new(terms);
        if known.is_some() || self.by_template.len() < MAX_TEMPLATES {
            let glob = response.template.as_deref();
            let template = Template {
                glob: glob.and_then(|glob| Glob::new(glob).ok()),
                terms: Arc::clone(&terms),
            };
            let by_template = &mut Arc::make_mut(self).by_template;
            by_template.insert(response.template.clone(), template);
        }
        terms
    }

    /// The terms of the template that matches a resource: by an exact name, else the longest glob,
    /// the narrowest in any sensible document.
    #[must_use]
    pub fn find(&self, resource: &ResourceId) -> Option<Arc<ResourceTerms>> {
        let resource = resource.as_str();
        self.by_template
            .values()
            .filter_map(|template| Some((template.glob.as_ref()?, &template.terms)))
            .filter(|(glob, _)| glob.as_str() == resource || glob.matches(resource))
            .max_by_key(|(glob, _)| (glob.as_str() == resource, glob.as_str().len()))
            .map(|(_, terms)| Arc::clone(terms))
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::Capacity;

    use super::*;
    use crate::testing::answer;

    #[test]
    fn narrowest_known_template_wins() {
        let mut templates = Arc::new(TemplateTerms::default());
        for (template, safe) in [
            ("*", 1.0),
            ("tenant/*", 2.0),
            ("tenant/a", 3.0),
            ("db[0-9]", 4.0),
        ] {
            let safe = Capacity::new(safe).unwrap();
            templates.record(&answer("x", Some(template), safe));
        }
        for (resource, safe) in [
            ("db", 1.0),
            ("tenant/b", 2.0),
            ("tenant/a", 3.0),
            ("db7", 4.0),
        ] {
            let resource = ResourceId::new(resource).unwrap();
            assert_eq!(templates.find(&resource).unwrap().safe.get(), safe);
        }
    }

    #[test]
    fn number_of_templates_is_bounded() {
        let mut templates = Arc::new(TemplateTerms::default());
        for number in 0..1000 {
            templates.record(&answer("x", Some(&number.to_string()), Capacity::ZERO));
        }
        assert_eq!(templates.by_template.len(), MAX_TEMPLATES);
    }
}
