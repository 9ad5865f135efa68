//! Merges the terms of many documents so that each resource keeps its own.

use std::collections::{HashMap, HashSet};

use doorman_openapi::Glob;

use crate::ledger::{terms::earlier::EarlierTemplate, terms::unit::AmountUnit};

/// Merges generations of templates: each resource has the units that it has in any of these, with
/// the largest capacity. A resource that some generation names by another glob than the others may
/// get those of more templates, and an unmatched one the unit of none.
///
/// `None` if the generations contradict each other in the order of their globs. Takes time in
/// proportion to the number of templates, and of patterns for each glob that is not in all.
#[must_use]
pub fn merge_generations(generations: &[&[EarlierTemplate]]) -> Option<Vec<Vec<EarlierTemplate>>> {
    let mut merged: Vec<_> = common_order(generations)?
        .into_iter()
        .map(MergedGlob::new)
        .collect();
    let mut has_unmatched = false;
    for generation in generations {
        has_unmatched |= add_generation(&mut merged, generation);
    }
    let count = merged.iter().map(|it| it.terms.len()).max().unwrap_or(0);
    let nth = |index: usize| {
        let terms = merged.iter().map(|it| it.terms.get(index));
        let terms = terms.zip(&merged).map(|(nth, it)| nth.or(it.terms.last()));
        terms.flatten().cloned().collect()
    };
    let mut result: Vec<Vec<_>> = (0..count).map(nth).collect();
    if has_unmatched {
        // Resources without a template in some generation match no glob that is in all of them.
        let common = merged.iter().filter(|it| it.is_in_all);
        result.push(common.filter_map(|it| it.terms.last().cloned()).collect());
    }
    Some(result)
}

/// The terms of all resources of which this is the first glob that matches.
struct MergedGlob<'a> {
    text: &'a str,
    /// `None` if it matches only its own text.
    pattern: Option<Glob>,
    terms: Vec<EarlierTemplate>,
    is_in_all: bool,
}

/// A pattern of a generation that does not have some other glob.
struct Pattern<'a> {
    glob: Glob,
    prefix: String,
    template: &'a EarlierTemplate,
}

impl<'a> MergedGlob<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            pattern: pattern(text),
            terms: Vec::new(),
            is_in_all: true,
        }
    }

    /// Of terms in one unit the largest capacity remains.
    fn add(&mut self, template: &EarlierTemplate) {
        let unit = |it: &EarlierTemplate| AmountUnit::new(it.unit, it.per);
        let mut known = self.terms.iter_mut();
        match known.find(|it| unit(it) == unit(template)) {
            Some(known) => {
                known.is_divided &= template.is_divided;
                if known.capacity < template.capacity {
                    known.capacity = template.capacity;
                }
            }
            None => self.terms.push(EarlierTemplate {
                identifier_glob: self.text.to_owned(),
                ..template.clone()
            }),
        }
    }

    /// Adds the terms of its resources in a generation that does not have this glob. Returns
    /// whether some may have no template there.
    fn add_others(&mut self, patterns: &[Pattern<'_>]) -> bool {
        let prefix = self.pattern.as_ref().map(Glob::prefix);
        for other in patterns {
            let matches_all = match &prefix {
                None if other.glob.matches(self.text) => true,
                // A resource of both begins with both prefixes.
                Some(prefix)
                    if prefix.starts_with(&other.prefix) || other.prefix.starts_with(prefix) =>
                {
                    other.glob.is_catch_all()
                }
                _ => continue,
            };
            self.add(other.template);
            if matches_all {
                return false;
            }
        }
        true
    }
}

/// Adds the terms of a generation to all globs. Returns whether some of their resources may have no
/// template in it.
fn add_generation(merged: &mut [MergedGlob<'_>], generation: &[EarlierTemplate]) -> bool {
    let mut by_glob = HashMap::new();
    for template in generation {
        by_glob
            .entry(&*template.identifier_glob)
            .or_insert(template);
    }
    let patterns = generation.iter().filter_map(|template| {
        let glob = pattern(&template.identifier_glob)?;
        Some(Pattern {
            prefix: glob.prefix(),
            glob,
            template,
        })
    });
    let patterns: Vec<_> = patterns.collect();
    let mut has_unmatched = false;
    for glob in merged {
        match by_glob.get(glob.text) {
            Some(template) => glob.add(template),
            None => {
                glob.is_in_all = false;
                has_unmatched |= glob.add_others(&patterns);
            }
        }
    }
    has_unmatched
}

/// The globs of all generations, in an order that is that of each; `None` if there is none, or it
/// is not found.
fn common_order<'a>(generations: &[&'a [EarlierTemplate]]) -> Option<Vec<&'a str>> {
    let mut order: Vec<&str> = Vec::new();
    for generation in generations {
        let known = order.iter().enumerate();
        let known: HashMap<&str, usize> = known.map(|(at, glob)| (*glob, at)).collect();
        let mut seen = HashSet::new();
        let mut next = 0;
        let mut merged = Vec::new();
        for template in *generation {
            let glob = &*template.identifier_glob;
            // A later template with the same glob never matches.
            if !seen.insert(glob) {
                continue;
            }
            if let Some(at) = known.get(glob) {
                merged.extend(order.get(next..*at)?);
                next = at + 1;
            }
            merged.push(glob);
        }
        merged.extend(order.get(next..)?);
        order = merged;
    }
    Some(order)
}

/// A glob that matches more than its own text.
fn pattern(text: &str) -> Option<Glob> {
    Glob::new(text).ok().filter(|glob| !glob.is_literal())
}

#[cfg(test)]
mod tests {
    use doorman_config::Document;
    use doorman_openapi::ResourceId;

    use super::*;
    use crate::ledger::EarlierTerms;

    fn generation(templates: &[&str]) -> Vec<EarlierTemplate> {
        let templates = templates
            .iter()
            .map(|it| format!("{{{it}, algorithm: {{kind: FAIR_SHARE}}}}"));
        let text = format!("resources: [{}]", templates.collect::<Vec<_>>().join(", "));
        EarlierTemplate::all_of(&Document::parse(&text).unwrap())
    }

    fn merge(generations: &[Vec<EarlierTemplate>]) -> Option<EarlierTerms> {
        let generations: Vec<_> = generations.iter().map(|it| &**it).collect();
        merge_generations(&generations).map(EarlierTerms::new)
    }

    /// The units of a resource, and its capacity per second.
    fn found(terms: &EarlierTerms, resource: &str) -> (Vec<AmountUnit>, f64) {
        let id = ResourceId::new(resource).unwrap();
        let found = terms.lookup(&id).unwrap();
        (terms.units(&id), found.capacity(AmountUnit::Rate(1.0)))
    }

    const CONNS: &str = "identifier_glob: conns, capacity: 5, unit: gauge";
    const REST: &str = "identifier_glob: '*', capacity: 10";

    #[test]
    fn only_edited_templates_have_several_units() {
        let edits = (1..=20).map(|per| {
            let db = format!("identifier_glob: 'db*', capacity: {}, per: {per}", 7 * per);
            generation(&[CONNS, &db, REST])
        });
        let terms = merge(&edits.collect::<Vec<_>>()).unwrap();
        assert_eq!(found(&terms, "other"), (vec![AmountUnit::Rate(1.0)], 10.0));
        assert_eq!(found(&terms, "conns").0, [AmountUnit::Gauge]);
        let (units, capacity) = found(&terms, "db1");
        assert_eq!(units.len(), 20);
        assert!((capacity - 7.0).abs() < 1e-9, "{capacity}");
    }

    #[test]
    fn added_templates_keep_the_terms_that_their_resources_had() {
        let mut templates = vec![REST.to_owned()];
        let mut generations = Vec::new();
        for index in 0..30 {
            let all: Vec<_> = templates.iter().map(|it| &**it).collect();
            generations.push(generation(&all));
            let glob = format!("identifier_glob: 't{index:02}/*', capacity: 60, per: 60");
            templates.insert(0, glob);
            templates.insert(
                0,
                format!("identifier_glob: u{index}, capacity: 3, unit: gauge"),
            );
        }
        let terms = merge(&generations).unwrap();
        assert_eq!(terms.generations().count(), 2);
        let [second, minute] = [1.0, 60.0].map(AmountUnit::Rate);
        assert_eq!(found(&terms, "other").0, [second]);
        assert_eq!(found(&terms, "t03/x"), (vec![second, minute], 10.0));
        assert_eq!(found(&terms, "u3").0, [second, AmountUnit::Gauge]);
    }

    #[test]
    fn resource_without_a_template_in_some_generation_has_no_unit_there() {
        let db = "identifier_glob: 'db*', capacity: 10";
        let a = generation(&["identifier_glob: a, capacity: 10", db]);
        let terms = merge(&[a, generation(&[db])]).unwrap();
        let second = AmountUnit::Rate(1.0);
        assert_eq!(found(&terms, "a").0, [second, AmountUnit::Unstated]);
        assert_eq!(found(&terms, "db1").0, [second]);
        assert_eq!(found(&terms, "c").0, [AmountUnit::Unstated]);
    }

    #[test]
    fn contradicting_orders_are_not_merged() {
        let [a, b] = ["a*", "*b"].map(|it| format!("identifier_glob: '{it}', capacity: 1"));
        let [ab, ba] = [[&a, &b], [&b, &a]].map(|it| generation(&it.map(|it| &**it)));
        assert!(merge(&[ab, ba]).is_none());
    }
}
