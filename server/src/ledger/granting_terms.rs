//! The terms under which a ledger grants leases, as the next master must know them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use doorman_config::{Document, Template};
use doorman_openapi::{Capacity, Seconds, Unit};

use super::{
    EarlierTemplate, EarlierTerms, Grant, Ledger, earlier_terms::EarlierResource, units::AmountUnit,
};

/// The most templates of a parent that are told apart, and the most units of these.
const MAX_OF_PARENT: usize = 1000;
const MAX_UNITS_OF_PARENT: usize = 4;

/// The most periods that are told apart where only the units of all resources together are known.
const MAX_PERIODS: usize = 64;

/// The terms of the leases that a ledger grants.
#[derive(Debug, Clone)]
pub enum GrantingTerms {
    /// Those of a document.
    Document(Arc<Document>),
    /// Generations of templates that a parent node has told.
    OfParent(Vec<Vec<EarlierTemplate>>),
}

/// How much of the terms of leases is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnownTerms {
    /// Not even the unit of all of them.
    Nothing,
    /// The units, but of some a smaller capacity.
    Units,
    /// The units and the capacities.
    All,
}

impl GrantingTerms {
    /// The templates of each generation.
    #[must_use]
    pub fn generations(self) -> Vec<Vec<EarlierTemplate>> {
        match self {
            Self::Document(document) => vec![EarlierTemplate::all_of(&document)],
            Self::OfParent(generations) => generations,
        }
    }
}

/// Units of templates, without repetitions.
#[derive(Debug, Default)]
pub struct Units {
    has_gauges: bool,
    /// The bits of the periods: they are positive, so their order is that of the numbers.
    periods: BTreeSet<u64>,
}

impl Units {
    fn add(&mut self, template: &EarlierTemplate) {
        match template.unit {
            Unit::Gauge => self.has_gauges = true,
            Unit::Rate => {
                self.periods.insert(template.per.get().to_bits());
            }
        }
    }

    fn len(&self) -> usize {
        self.periods.len() + usize::from(self.has_gauges)
    }

    fn iter(&self) -> impl Iterator<Item = (Unit, Seconds)> {
        let gauge = self.has_gauges.then_some((Unit::Gauge, 1.0));
        let rates = self
            .periods
            .iter()
            .map(|bits| (Unit::Rate, f64::from_bits(*bits)));
        gauge
            .into_iter()
            .chain(rates)
            .map(|(unit, per)| (unit, Seconds::saturating(per)))
    }

    /// Generations which say that every resource may have each of these units. Of too many periods
    /// the shortest and the longest remain, between which all others are.
    #[must_use]
    pub fn of_every_resource(mut self) -> Vec<Vec<EarlierTemplate>> {
        if self.periods.len() > MAX_PERIODS {
            let ends = [self.periods.first(), self.periods.last()];
            self.periods = ends.into_iter().flatten().copied().collect();
        }
        let generation = |(unit, per)| {
            vec![EarlierTemplate {
                identifier_glob: "*".to_owned(),
                capacity: Capacity::ZERO,
                unit,
                per,
                is_divided: false,
            }]
        };
        self.iter().map(generation).collect()
    }
}

impl<'a> FromIterator<&'a EarlierTemplate> for Units {
    fn from_iter<I: IntoIterator<Item = &'a EarlierTemplate>>(templates: I) -> Self {
        let mut units = Self::default();
        templates.into_iter().for_each(|it| units.add(it));
        units
    }
}

/// The templates that a parent node has told.
#[derive(Debug, Default)]
pub(super) struct TermsOfParent {
    /// By glob; no more are added beyond a bound.
    templates: BTreeMap<String, EarlierTemplate>,
    /// Units of templates that had no place.
    others: Units,
    is_overfull: bool,
    has_changed: bool,
}

impl TermsOfParent {
    pub(super) fn note(&mut self, template: &Template) {
        let mut terms = EarlierTemplate::of(template);
        // The parent leases a part of it, which changes.
        terms.is_divided = false;
        let known = self.templates.get(&terms.identifier_glob);
        if known == Some(&terms) {
            return;
        }
        if known.is_none() && self.templates.len() >= MAX_OF_PARENT {
            let before = self.others.len();
            self.others.add(&terms);
            self.has_changed |= !self.is_overfull || before < self.others.len();
            self.is_overfull = true;
            return;
        }
        self.has_changed = true;
        self.templates.insert(terms.identifier_glob.clone(), terms);
    }

    fn take_changed(&mut self) -> Option<GrantingTerms> {
        std::mem::take(&mut self.has_changed).then(|| GrantingTerms::OfParent(self.generations()))
    }

    /// The order of the parent's document is unknown: a resource may have any of the templates that
    /// match it. So in each generation the templates of another unit come first.
    fn generations(&self) -> Vec<Vec<EarlierTemplate>> {
        let mut units: Units = self.templates.values().collect();
        if self.is_overfull || units.len() > MAX_UNITS_OF_PARENT {
            units.has_gauges |= self.others.has_gauges;
            units.periods.extend(&self.others.periods);
            return units.of_every_resource();
        }
        let generation = |(unit, per)| {
            let is_this =
                |it: &&EarlierTemplate| it.unit == unit && (unit == Unit::Gauge || it.per == per);
            let (mut first, others): (Vec<_>, Vec<_>) = self.templates.values().partition(is_this);
            first.extend(others);
            first.into_iter().cloned().collect()
        };
        units.iter().map(generation).collect()
    }
}

impl Ledger {
    /// The terms of all leases from now on, if they have changed since the last call.
    pub fn take_granting_terms(&mut self) -> Option<GrantingTerms> {
        if let Some(parents) = &mut self.parents {
            return parents.terms.take_changed();
        }
        let is_new = std::mem::take(&mut self.has_new_document);
        is_new.then(|| GrantingTerms::Document(Arc::clone(&self.document)))
    }
}

impl EarlierTerms {
    /// How much of the terms of these leases is part of these terms.
    #[must_use]
    pub fn known(&self, granted: &[Grant]) -> KnownTerms {
        let leases = granted.iter().filter(|it| it.capacity > Capacity::ZERO);
        let known = leases.filter_map(|grant| {
            let template = grant.template.as_ref()?;
            let known = self.lookup(&grant.resource_id);
            Some(known.map_or(KnownTerms::Nothing, |it| it.known(template)))
        });
        known.min().unwrap_or(KnownTerms::All)
    }
}

impl EarlierResource {
    fn known(&self, template: &Template) -> KnownTerms {
        let unit = AmountUnit::new(template.unit(), template.per());
        if !self.has_unit(unit) {
            KnownTerms::Nothing
        } else if self.capacity(unit) < template.capacity().get() {
            KnownTerms::Units
        } else {
            KnownTerms::All
        }
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::ResourceId;

    use super::*;

    fn template(glob: &str, per: f64) -> Template {
        let text = format!(
            "resources: [{{identifier_glob: '{glob}', capacity: 10, per: {per}, \
             algorithm: {{kind: FAIR_SHARE}}}}]"
        );
        let document = Document::parse(&text).unwrap();
        Template::clone(&document.templates()[0])
    }

    /// Whether a resource may have had amounts per second, per minute, and without a template.
    fn units(terms: &EarlierTerms, resource: &str) -> [bool; 3] {
        let found = terms.lookup(&ResourceId::new(resource).unwrap()).unwrap();
        let [second, minute] = [1.0, 60.0].map(AmountUnit::Rate);
        [second, minute, AmountUnit::Unstated].map(|unit| found.has_unit(unit))
    }

    #[test]
    fn templates_of_a_parent_count_in_any_order() {
        let mut parent = TermsOfParent::default();
        assert!(parent.take_changed().is_none());
        for (glob, per) in [("a*", 1.0), ("*b", 60.0), ("c", 60.0)] {
            parent.note(&template(glob, per));
        }
        let terms = EarlierTerms::new(parent.take_changed().unwrap().generations());
        assert_eq!(units(&terms, "ab"), [true, true, false]);
        assert_eq!(units(&terms, "ac"), [true, false, false]);
        assert_eq!(units(&terms, "c"), [false, true, false]);
        assert_eq!(units(&terms, "d"), [false, false, true]);

        parent.note(&template("a*", 1.0));
        assert!(parent.take_changed().is_none());
        parent.note(&template("a*", 60.0));
        let terms = EarlierTerms::new(parent.take_changed().unwrap().generations());
        assert_eq!(units(&terms, "ab"), [false, true, false]);
    }

    #[test]
    fn too_many_templates_of_a_parent_leave_their_units() {
        let mut parent = TermsOfParent::default();
        for index in 0..2 * MAX_OF_PARENT {
            parent.note(&template(&format!("tenant/{index}"), 1.0));
        }
        parent.note(&template("other", 60.0));
        let generations = parent.take_changed().unwrap().generations();
        assert_eq!(generations.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        let terms = EarlierTerms::new(generations);
        assert_eq!(units(&terms, "tenant/1999"), [true, true, false]);
    }
}
