//! What the control plane last told of the resources, by template: a resource never heard of can fall back to what was told for
//! others of its template.

use std::{collections::HashMap, sync::Arc, time::Duration};

use doorman_openapi::{ResourceId, ResourceResponse, Seconds};

use super::Told;

/// Templates are few. Past this many, what is told is kept with the resource alone.
const MOST_TEMPLATES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Templates {
    told: HashMap<Option<String>, Arc<Told>>,
}

impl Templates {
    /// Takes down what an answer says; equal tellings share one copy.
    pub(super) fn learn(&mut self, answer: &ResourceResponse) -> Arc<Told> {
        let told = Told {
            template: answer.template.clone(),
            limit: answer.limit,
            unit: answer.unit.unwrap_or_default(),
            per: answer
                .per
                .filter(|per| *per > Seconds::ZERO)
                .unwrap_or_else(|| Duration::from_secs(1).into()),
            safe: answer.safe_capacity,
            suppressed: answer.admission_probability.is_some(),
        };
        if let Some(known) = self.told.get(&answer.template)
            && **known == told
        {
            return Arc::clone(known);
        }
        let told = Arc::new(told);
        if self.told.len() < MOST_TEMPLATES || self.told.contains_key(&answer.template) {
            self.told.insert(answer.template.clone(), Arc::clone(&told));
        }
        told
    }

    /// What was last told for the template that matches: an exact name, else the longest glob, which is the narrowest of those that
    /// a document can hold in a sensible order.
    pub(super) fn of(&self, resource: &ResourceId) -> Option<Arc<Told>> {
        self.told
            .iter()
            .filter_map(|(template, told)| Some((template.as_deref()?, told)))
            .filter(|(glob, _)| *glob == resource.as_str() || matches(glob, resource.as_str()))
            .max_by_key(|(glob, _)| (*glob == resource.as_str(), glob.len()))
            .map(|(_, told)| Arc::clone(told))
    }
}

/// Whether a glob matches: `*` any run of characters, `?` one, `\` takes the next as it is. A glob with a class (`[…]`) matches
/// nothing here: it is not worth a second reader of its grammar for a fallback.
fn matches(glob: &str, text: &str) -> bool {
    let (mut glob, mut text) = (glob, text);
    // Where to take up again when the rest does not fit: after the last `*`, which then swallows one character more.
    let mut again: Option<(&str, &str)> = None;
    loop {
        let mut pattern = glob.chars();
        let wanted = match pattern.next() {
            Some('*') => {
                glob = pattern.as_str();
                again = Some((glob, text));
                continue;
            }
            Some('[') => return false,
            Some('?') => Wanted::Any,
            Some('\\') => pattern.next().map_or(Wanted::End, Wanted::This),
            Some(literal) => Wanted::This(literal),
            None => Wanted::End,
        };
        let mut rest = text.chars();
        let fits = match (wanted, rest.next()) {
            (Wanted::End, None) => return true,
            (Wanted::Any, Some(_)) => true,
            (Wanted::This(wanted), Some(found)) => wanted == found,
            (Wanted::End, Some(_)) | (Wanted::Any | Wanted::This(_), None) => false,
        };
        if fits {
            glob = pattern.as_str();
            text = rest.as_str();
            continue;
        }
        let Some((after, from)) = again else {
            return false;
        };
        let mut swallowed = from.chars();
        if swallowed.next().is_none() {
            return false;
        }
        again = Some((after, swallowed.as_str()));
        (glob, text) = (after, swallowed.as_str());
    }
}

enum Wanted {
    This(char),
    Any,
    End,
}

#[cfg(test)]
mod tests {
    use doorman_openapi::Capacity;

    use super::*;

    #[test]
    fn matches_as_documents_do() {
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
    fn falls_back_to_the_narrowest_template_heard_of() {
        let mut templates = Templates::default();
        for (template, safe) in [("*", 1.0), ("tenant/*", 2.0), ("tenant/a", 3.0)] {
            templates.learn(&super::super::testing::answer(
                "x",
                Some(template),
                Capacity::new(safe).unwrap(),
            ));
        }
        for (resource, safe) in [("db", 1.0), ("tenant/b", 2.0), ("tenant/a", 3.0)] {
            let resource = ResourceId::new(resource).unwrap();
            assert_eq!(templates.of(&resource).unwrap().safe.get(), safe);
        }
    }

    #[test]
    fn is_bounded() {
        let mut templates = Templates::default();
        for number in 0..1000 {
            templates.learn(&super::super::testing::answer(
                "x",
                Some(&number.to_string()),
                Capacity::ZERO,
            ));
        }
        assert_eq!(templates.told.len(), MOST_TEMPLATES);
    }
}
