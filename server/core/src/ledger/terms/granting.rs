//! The terms under which a ledger grants leases, as the next master must know them.

use std::collections::{BTreeMap, BTreeSet};

use doorman_config::Template;
use doorman_openapi::{Capacity, Glob, Moment, ResourceId, Seconds, Unit};

use crate::ledger::{
    resource::decision::Grant,
    terms::earlier::{EarlierTemplate, EarlierTerms},
    terms::unit::AmountUnit,
};

/// The most templates of a parent that are told apart, and the most units of these.
const MAX_OF_PARENT: usize = 1000;
const MAX_UNITS_OF_PARENT: usize = 4;

/// The most units that are told apart where only the units of all resources together are known.
const MAX_UNITS: usize = 64;

/// The terms of the leases that a ledger grants: those of a document, or what a parent node told.
#[derive(Debug, Clone)]
pub struct GrantingTerms {
    /// The templates of each generation.
    pub generations: Vec<Vec<EarlierTemplate>>,
    /// Until when leases may be granted under the terms before these: resources that the parent has
    /// not answered anew.
    pub terms_before_until: Moment,
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

/// Units of templates, without repetitions: the gauge, and the bits of the periods of rates. These
/// are positive, so their order is that of the numbers.
#[derive(Debug, Clone, Default)]
pub struct Units(BTreeSet<Option<u64>>);

impl Units {
    fn add(&mut self, template: &EarlierTemplate) {
        self.0.insert(match template.unit {
            Unit::Gauge => None,
            Unit::Rate => Some(template.per.get().to_bits()),
        });
    }

    fn iter(&self) -> impl Iterator<Item = (Unit, Seconds)> {
        self.0.iter().map(|per| match per {
            None => (Unit::Gauge, Seconds::from_whole(1)),
            Some(bits) => (Unit::Rate, Seconds::saturating(f64::from_bits(*bits))),
        })
    }

    /// Generations which say that every resource may have each of these units. Of too many periods
    /// the shortest and the longest remain, between which all others are.
    #[must_use]
    pub fn of_every_resource(mut self) -> Vec<Vec<EarlierTemplate>> {
        if self.0.len() > MAX_UNITS {
            let shortest = self.0.iter().copied().find(Option::is_some);
            let longest = self.0.last().copied();
            self.0
                .retain(|it| it.is_none() || Some(*it) == shortest || Some(*it) == longest);
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
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct TermsOfParent {
    /// By glob; no more are added beyond a bound.
    templates: BTreeMap<String, ToldTemplate>,
    /// Units of templates that had no place.
    others: Units,
    is_overfull: bool,
    has_changed: bool,
    leased_until: Moment,
}

#[derive(Debug, Clone)]
struct ToldTemplate {
    terms: EarlierTemplate,
    glob: Option<Glob>,
    /// Whether the parent has told another template, which it looks up later, for a resource that
    /// this one matches: it was removed, or is new.
    is_in_doubt: bool,
}

impl ToldTemplate {
    fn is_catch_all(&self) -> bool {
        self.glob.as_ref().is_some_and(Glob::is_catch_all)
    }
}

impl TermsOfParent {
    /// Takes the template that the parent has told for a resource now.
    pub(in crate::ledger) fn note(&mut self, template: &Template, id: &ResourceId, now: Moment) {
        let lease_ends = now.after_seconds(template.algorithm().lease_length.get());
        self.leased_until = self.leased_until.max(lease_ends);
        let mut terms = EarlierTemplate::of(template);
        // The parent leases a part of it, which changes.
        terms.is_divided = false;
        let glob = Glob::new(&terms.identifier_glob).ok();
        self.doubt_others(&terms, glob.as_ref(), id);
        let known = self.templates.get_mut(&terms.identifier_glob);
        if known.as_ref().is_some_and(|it| it.terms == terms) {
            return;
        }
        if let Some(known) = known {
            known.terms = terms;
            self.has_changed = true;
            return;
        }
        if self.templates.len() >= MAX_OF_PARENT {
            let before = self.others.0.len();
            self.others.add(&terms);
            self.has_changed |= !self.is_overfull || before < self.others.0.len();
            self.is_overfull = true;
            return;
        }
        self.has_changed = true;
        let told = ToldTemplate {
            glob,
            is_in_doubt: false,
            terms,
        };
        let glob = told.terms.identifier_glob.clone();
        self.templates.insert(glob, told);
    }

    /// Finds templates that the parent would have told instead if its document had them now.
    fn doubt_others(&mut self, told: &EarlierTemplate, glob: Option<&Glob>, id: &ResourceId) {
        let id = id.as_str();
        if told.identifier_glob != id
            && let Some(exact) = self.templates.get_mut(id)
        {
            self.has_changed |= !std::mem::replace(&mut exact.is_in_doubt, true);
        }
        if !glob.is_some_and(Glob::is_catch_all) {
            return;
        }
        for other in self.templates.values_mut() {
            let matches = |glob: &Glob| glob.matches(id) && !glob.is_catch_all();
            if !other.is_in_doubt && other.glob.as_ref().is_some_and(matches) {
                other.is_in_doubt = true;
                self.has_changed = true;
            }
        }
    }

    pub(in crate::ledger) fn take_changed(&mut self) -> Option<GrantingTerms> {
        std::mem::take(&mut self.has_changed).then(|| GrantingTerms {
            generations: self.generations(),
            terms_before_until: self.leased_until,
        })
    }

    /// The order of the parent's document is unknown: a resource may have any of the templates that
    /// match it. So in each generation the templates of another unit come first. A template that
    /// matches everything is always last, because templates after it would never be told.
    fn generations(&self) -> Vec<Vec<EarlierTemplate>> {
        let mut units: Units = self.templates.values().map(|it| &it.terms).collect();
        if self.is_overfull || units.0.len() > MAX_UNITS_OF_PARENT {
            units.0.extend(&self.others.0);
            return units.of_every_resource();
        }
        let generation = |(unit, per)| {
            let is_this =
                |it: &EarlierTemplate| it.unit == unit && (unit == Unit::Gauge || it.per == per);
            let templates = self.templates.values();
            let mut templates: Vec<_> = templates
                .filter(|it| !it.is_in_doubt || is_this(&it.terms))
                .collect();
            templates.sort_by_key(|it| (it.is_catch_all(), !is_this(&it.terms)));
            templates.into_iter().map(|it| it.terms.clone()).collect()
        };
        units.iter().map(generation).collect()
    }
}

impl EarlierTerms {
    /// How much of the terms of these leases is part of these terms.
    #[must_use]
    pub fn known(&self, granted: &[Grant]) -> KnownTerms {
        let leases = granted.iter().filter(|it| it.capacity > Capacity::ZERO);
        let known = leases.filter_map(|grant| {
            let template = grant.template.as_ref()?;
            let unit = AmountUnit::new(template.unit(), template.per());
            let known = self.lookup(&grant.resource_id);
            Some(match known.filter(|it| it.has_unit(unit)) {
                None => KnownTerms::Nothing,
                Some(known) if known.capacity(unit) < template.capacity().get() => {
                    KnownTerms::Units
                }
                Some(_) => KnownTerms::All,
            })
        });
        known.min().unwrap_or(KnownTerms::All)
    }
}

#[cfg(test)]
mod tests {
    use doorman_config::Document;

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

    const NOW: Moment = Moment::from_nanos(1_000_000_000);

    /// The parent tells a template for a resource.
    fn tell(parent: &mut TermsOfParent, resource: &str, glob: &str, per: f64) {
        let resource = ResourceId::new(resource).unwrap();
        parent.note(&template(glob, per), &resource, NOW);
    }

    #[test]
    fn catch_all_of_a_parent_counts_last() {
        let mut parent = TermsOfParent::default();
        tell(&mut parent, "other", "*", 60.0);
        tell(&mut parent, "tenant/x", "tenant/*", 1.0);
        let terms = EarlierTerms::new(parent.take_changed().unwrap().generations);
        assert_eq!(units(&terms, "tenant/y"), [true, false, false]);
        assert_eq!(units(&terms, "other"), [false, true, false]);
    }

    #[test]
    fn template_that_a_parent_has_removed_hides_no_other() {
        let mut parent = TermsOfParent::default();
        for (resource, glob) in [("tenant/x", "tenant/*"), ("db", "db")] {
            tell(&mut parent, resource, glob, 1.0);
        }
        for resource in ["tenant/x", "db"] {
            tell(&mut parent, resource, "*", 60.0);
        }
        let told = parent.take_changed().unwrap();
        assert!(told.terms_before_until > NOW);
        let terms = EarlierTerms::new(told.generations);
        assert_eq!(units(&terms, "tenant/y"), [true, true, false]);
        assert_eq!(units(&terms, "db"), [true, true, false]);
        assert_eq!(units(&terms, "other"), [false, true, false]);
    }

    #[test]
    fn templates_of_a_parent_count_in_any_order() {
        let mut parent = TermsOfParent::default();
        assert!(parent.take_changed().is_none());
        for (resource, glob, per) in [("a", "a*", 1.0), ("b", "*b", 60.0), ("c", "c", 60.0)] {
            tell(&mut parent, resource, glob, per);
        }
        let terms = EarlierTerms::new(parent.take_changed().unwrap().generations);
        assert_eq!(units(&terms, "ab"), [true, true, false]);
        assert_eq!(units(&terms, "ac"), [true, false, false]);
        assert_eq!(units(&terms, "c"), [false, true, false]);
        assert_eq!(units(&terms, "d"), [false, false, true]);

        tell(&mut parent, "a", "a*", 1.0);
        assert!(parent.take_changed().is_none());
        tell(&mut parent, "a", "a*", 60.0);
        let terms = EarlierTerms::new(parent.take_changed().unwrap().generations);
        assert_eq!(units(&terms, "ab"), [false, true, false]);
    }

    #[test]
    fn too_many_templates_of_a_parent_leave_their_units() {
        let mut parent = TermsOfParent::default();
        for index in 0..2 * MAX_OF_PARENT {
            let name = format!("tenant/{index}");
            tell(&mut parent, &name, &name, 1.0);
        }
        tell(&mut parent, "other", "other", 60.0);
        let generations = parent.take_changed().unwrap().generations;
        assert_eq!(generations.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        let terms = EarlierTerms::new(generations);
        assert_eq!(units(&terms, "tenant/1999"), [true, true, false]);
    }
}
