//! Terms of resources by template, so that a new resource can fall back to those of its template.

use std::{collections::HashMap, sync::Arc, time::Duration};

use doorman_openapi::{ResourceId, ResourceResponse, Seconds};

use crate::lease::ResourceTerms;

/// Beyond this many templates, terms are stored with their resource only.
const MAX_TEMPLATES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct TemplateTerms {
    by_template: HashMap<Option<String>, Arc<ResourceTerms>>,
}

impl TemplateTerms {
    /// Records the terms of a response. Equal terms share one allocation.
    pub(super) fn record(&mut self, response: &ResourceResponse) -> Arc<ResourceTerms> {
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
        if let Some(known) = known.filter(|known| ***known == terms) {
            return Arc::clone(known);
        }
        let is_known = known.is_some();
        let terms = Arc::new(terms);
        if is_known || self.by_template.len() < MAX_TEMPLATES {
            self.by_template
                .insert(response.template.clone(), Arc::clone(&terms));
        }
        terms
    }

    /// The terms of the template that matches a resource: an exact name, else the longest glob,
    /// which is the narrowest in any sensible document.
    pub(super) fn find(&self, resource: &ResourceId) -> Option<Arc<ResourceTerms>> {
        let resource = resource.as_str();
        self.by_template
            .iter()
            .filter_map(|(template, terms)| Some((template.as_deref()?, terms)))
            .filter(|(glob, _)| *glob == resource || matches(glob, resource))
            .max_by_key(|(glob, _)| (*glob == resource, glob.len()))
            .map(|(_, terms)| Arc::clone(terms))
    }
}

/// Whether a glob matches: `*` is any run of characters, `?` any character, `\` escapes the next.
/// A glob with a class (`[…]`) never matches here: a fallback does not justify a second parser.
fn matches(glob: &str, text: &str) -> bool {
    let (mut glob, mut text) = (glob, text);
    // The glob after the last `*` and the text it was tried on: on a mismatch the `*` takes one
    // more character.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let mut pattern = glob.chars();
        let wanted = match pattern.next() {
            Some('*') => {
                glob = pattern.as_str();
                retry = Some((glob, text));
                continue;
            }
            Some('[') => return false,
            Some('?') => Wanted::Any,
            Some('\\') => pattern.next().map_or(Wanted::End, Wanted::Char),
            Some(literal) => Wanted::Char(literal),
            None => Wanted::End,
        };
        let mut rest = text.chars();
        let fits = match (wanted, rest.next()) {
            (Wanted::End, None) => return true,
            (Wanted::Any, Some(_)) => true,
            (Wanted::Char(wanted), Some(found)) => wanted == found,
            (Wanted::End, Some(_)) | (Wanted::Any | Wanted::Char(_), None) => false,
        };
        if fits {
            glob = pattern.as_str();
            text = rest.as_str();
            continue;
        }
        let Some((after, from)) = retry else {
            return false;
        };
        let mut skipped = from.chars();
        if skipped.next().is_none() {
            return false;
        }
        retry = Some((after, skipped.as_str()));
        (glob, text) = (after, skipped.as_str());
    }
}

enum Wanted {
    Char(char),
    Any,
    End,
}

#[cfg(test)]
mod tests {
    use doorman_openapi::Capacity;

    use super::*;
    use crate::lease::testing::answer;

    #[test]
    fn globs_match_as_in_documents() {
        for (glob, text, expected) in [
            ("db", "db", true),
            ("db", "db2", false),
            ("*", "a/b", true),
            ("*", "", true),
            ("tenant/*", "tenant/a/b", true),
            ("tenant/*", "tenant", false),
            ("*/b", "a/b/b", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?", "ü", true),
            ("??", "ü", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("[ab]", "a", false),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn narrowest_known_template_wins() {
        let mut templates = TemplateTerms::default();
        for (template, safe) in [("*", 1.0), ("tenant/*", 2.0), ("tenant/a", 3.0)] {
            let safe = Capacity::new(safe).unwrap();
            templates.record(&answer("x", Some(template), safe));
        }
        for (resource, safe) in [("db", 1.0), ("tenant/b", 2.0), ("tenant/a", 3.0)] {
            let resource = ResourceId::new(resource).unwrap();
            assert_eq!(templates.find(&resource).unwrap().safe.get(), safe);
        }
    }

    #[test]
    fn number_of_templates_is_bounded() {
        let mut templates = TemplateTerms::default();
        for number in 0..1000 {
            templates.record(&answer("x", Some(&number.to_string()), Capacity::ZERO));
        }
        assert_eq!(templates.by_template.len(), MAX_TEMPLATES);
    }
}
