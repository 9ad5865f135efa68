//! Terms under which earlier servers granted leases that may still last.
//!
//! A holder that states no unit counts in the unit that it was last told. A server that does not
//! know the holder takes that unit from these terms. They also say how much a predecessor may have
//! granted at most, which proves that some claims are false.

use std::{collections::HashMap, sync::Arc};

use doorman_config::{Document, Template};
use doorman_openapi::{Capacity, Glob, ResourceId, Seconds, Unit};
use serde::{Deserialize, Serialize};

use crate::ledger::{algorithm::divides, terms::unit::AmountUnit};

/// The part of a template that its leases depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlierTemplate {
    /// Its glob.
    pub identifier_glob: String,
    /// The capacity of each matching resource.
    pub capacity: Capacity,
    /// The unit of the capacity.
    pub unit: Unit,
    /// The period of a rate, from a millisecond to a year.
    pub per: Seconds,
    /// Whether all leases together were at most the capacity.
    pub is_divided: bool,
}

impl EarlierTemplate {
    /// The terms of a template.
    #[must_use]
    pub fn of(template: &Template) -> Self {
        Self {
            identifier_glob: template.identifier_glob().to_owned(),
            capacity: template.capacity(),
            unit: template.unit(),
            per: template.per(),
            is_divided: divides(template.algorithm().kind),
        }
    }

    /// The terms of all templates of a document, in order: one generation of [`EarlierTerms`].
    #[must_use]
    pub fn all_of(document: &Document) -> Vec<Self> {
        let templates = document.templates().iter();
        templates.map(|template| Self::of(template)).collect()
    }
}

/// The templates behind all leases of predecessors that may last, one generation per document.
///
/// Cheap to clone. Serializes as a list of generations, each a list of templates in the order of
/// its document. Without generations the terms of the current document count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Vec<EarlierTemplate>>", into = "Vec<Vec<EarlierTemplate>>")]
pub struct EarlierTerms(Arc<[Generation]>);

/// The templates of one document.
#[derive(Debug, Clone)]
struct Generation {
    templates: Vec<EarlierTemplate>,
    /// The patterns, with the positions of their templates. A glob that matches only its own text
    /// is found by that.
    patterns: Vec<(usize, Glob)>,
    /// Positions by the text of the glob, of the first template that has it.
    by_glob: HashMap<String, usize>,
}

/// The earlier terms of one resource.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::ledger) struct EarlierResource {
    /// The unit and the capacity in each generation, without repetitions; the capacity is infinite
    /// if leases of the resource did not divide it.
    terms: Vec<(AmountUnit, f64)>,
}

impl EarlierTerms {
    /// Takes the templates of each document, in the order of the document. Equal generations count
    /// once.
    #[must_use]
    pub fn new(generations: impl IntoIterator<Item = Vec<EarlierTemplate>>) -> Self {
        let mut unique: Vec<Vec<EarlierTemplate>> = Vec::new();
        for generation in generations {
            if !unique.contains(&generation) {
                unique.push(generation);
            }
        }
        Self(unique.into_iter().map(Generation::new).collect())
    }

    /// The templates of each document.
    pub fn generations(&self) -> impl Iterator<Item = &[EarlierTemplate]> {
        self.0.iter().map(|it| &*it.templates)
    }

    /// Whether nothing is known of earlier terms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The units in which leases of a resource may have been granted; none if nothing is known of
    /// earlier terms.
    pub(in crate::ledger) fn units(&self, id: &ResourceId) -> Vec<AmountUnit> {
        let terms = self.lookup(id).map(|it| it.terms).unwrap_or_default();
        terms.into_iter().map(|(unit, _)| unit).collect()
    }

    /// The number of templates that [`lookup`](Self::lookup) may look through.
    pub(in crate::ledger) fn searched(&self) -> usize {
        self.0.iter().map(|it| it.patterns.len()).sum()
    }

    /// The earlier terms of a resource; `None` if nothing is known of them. Takes time in
    /// proportion to the number of templates whose glob is a pattern.
    pub(in crate::ledger) fn lookup(&self, id: &ResourceId) -> Option<EarlierResource> {
        let mut terms: Vec<(AmountUnit, f64)> = Vec::new();
        for generation in &*self.0 {
            // Resources without a template are granted as asked.
            let mut found = (AmountUnit::Unstated, f64::INFINITY);
            if let Some(template) = generation.lookup(id) {
                found.0 = AmountUnit::new(template.unit, template.per);
                if template.is_divided {
                    found.1 = template.capacity.get();
                }
            }
            if !terms.contains(&found) {
                terms.push(found);
            }
        }
        (!terms.is_empty()).then_some(EarlierResource { terms })
    }
}

impl EarlierResource {
    /// The most that all leases together may be, in this unit: 0 if all were of another kind,
    /// infinite if they did not divide the capacity.
    pub(in crate::ledger) fn capacity(&self, unit: AmountUnit) -> f64 {
        let amounts = self.terms.iter().map(|(of, amount)| match amount {
            amount if amount.is_infinite() => f64::INFINITY,
            amount => amount * unit.factor_from(*of),
        });
        amounts.fold(0.0, f64::max)
    }

    /// Whether leases may have been granted in this unit.
    pub(in crate::ledger) fn has_unit(&self, unit: AmountUnit) -> bool {
        self.terms.iter().any(|(of, _)| *of == unit)
    }
}

impl Generation {
    fn new(templates: Vec<EarlierTemplate>) -> Self {
        let mut by_glob = HashMap::new();
        for (position, template) in templates.iter().enumerate() {
            let glob = template.identifier_glob.clone();
            by_glob.entry(glob).or_insert(position);
        }
        Self {
            patterns: (templates.iter().enumerate())
                .filter_map(|(position, template)| pattern(position, template))
                .collect(),
            by_glob,
            templates,
        }
    }

    /// As [`Document::lookup`].
    fn lookup(&self, id: &ResourceId) -> Option<&EarlierTemplate> {
        let exact = self.by_glob.get(id.as_str()).copied();
        let matching = || {
            let mut patterns = self.patterns.iter();
            let (position, _) = patterns.find(|(_, glob)| glob.matches(id.as_str()))?;
            Some(*position)
        };
        self.templates.get(exact.or_else(matching)?)
    }
}

/// The glob of a template at this position, unless it is invalid or matches only its own text.
fn pattern(position: usize, template: &EarlierTemplate) -> Option<(usize, Glob)> {
    let glob = Glob::new(&template.identifier_glob).ok()?;
    let is_plain = glob.is_literal() && !template.identifier_glob.contains('\\');
    (!is_plain).then_some((position, glob))
}

impl PartialEq for Generation {
    fn eq(&self, other: &Self) -> bool {
        self.templates == other.templates
    }
}

impl From<Vec<Vec<EarlierTemplate>>> for EarlierTerms {
    fn from(generations: Vec<Vec<EarlierTemplate>>) -> Self {
        Self::new(generations)
    }
}

impl From<EarlierTerms> for Vec<Vec<EarlierTemplate>> {
    fn from(terms: EarlierTerms) -> Self {
        terms.generations().map(<[_]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document with these templates, which have the same algorithm.
    fn document(templates: &[&str]) -> Vec<EarlierTemplate> {
        let algorithm = "algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}";
        let templates = templates.iter().map(|it| format!("{{{it}, {algorithm}}}"));
        let text = format!("resources: [{}]", templates.collect::<Vec<_>>().join(", "));
        EarlierTemplate::all_of(&Document::parse(&text).unwrap())
    }

    fn per_second() -> Vec<EarlierTemplate> {
        document(&[
            "identifier_glob: 'd*', capacity: 10",
            "identifier_glob: db, capacity: 20",
        ])
    }

    fn per_minute() -> Vec<EarlierTemplate> {
        document(&[
            "identifier_glob: db, capacity: 600, per: 60",
            "identifier_glob: conns, capacity: 5, unit: gauge",
        ])
    }

    fn id(name: &str) -> ResourceId {
        ResourceId::new(name).unwrap()
    }

    #[test]
    fn exact_glob_precedes_first_match() {
        let terms = EarlierTerms::new([per_second()]);
        let unit = AmountUnit::Rate(1.0);
        let capacity = |name| terms.lookup(&id(name)).unwrap().capacity(unit);
        assert_eq!(capacity("db"), 20.0);
        assert_eq!(capacity("dc"), 10.0);
    }

    #[test]
    fn every_generation_counts_once() {
        let terms = EarlierTerms::new([per_second(), per_minute(), per_second()]);
        assert_eq!(terms.generations().count(), 2);
        let db = terms.lookup(&id("db")).unwrap();
        assert_eq!(
            terms.units(&id("db")),
            [AmountUnit::Rate(1.0), AmountUnit::Rate(60.0)]
        );
        assert_eq!(db.capacity(AmountUnit::Rate(60.0)), 1200.0);
    }

    #[test]
    fn unmatched_resource_has_no_capacity_limit() {
        let terms = EarlierTerms::new([per_second(), per_minute()]);
        let conns = terms.lookup(&id("conns")).unwrap();
        assert_eq!(conns.capacity(AmountUnit::Gauge), f64::INFINITY);
    }

    #[test]
    fn nothing_is_known_without_generations() {
        assert!(EarlierTerms::default().lookup(&id("db")).is_none());
    }

    #[test]
    fn terms_survive_serialization() {
        let terms = EarlierTerms::new([per_second(), per_minute()]);
        let text = serde_json::to_string(&terms).unwrap();
        assert_eq!(serde_json::from_str::<EarlierTerms>(&text).unwrap(), terms);
    }
}
