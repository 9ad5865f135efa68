//! One template of the list, before what it takes from others is known.

use doorman_openapi::{AlgorithmKind, Capacity, SafeCapacity, Seconds, Unit};

use super::{
    algorithm::{self, OwnTerms},
    fields::Fields,
    parameters::kind_name,
    value::{CAPACITY, DESCRIPTION, IDENTIFIER_GLOB, LENGTH, LENGTH_OR_ZERO, SAFE_CAPACITY, UNIT},
};
use crate::{
    Glob,
    fault::{FaultList, Place, Reported},
    node::{Node, Value},
    template::{SafeCapacityRule, Template, Terms},
};

const GLOB_FIELD: &str = "identifier_glob";

const FIELDS: &[&str] = &[
    GLOB_FIELD,
    "capacity",
    "safe_capacity",
    "description",
    "unit",
    "per",
    "minimum_refresh_interval",
    "algorithm",
];

/// A template as read so far. Each field stands by itself, so that one fault hides no other.
#[derive(Debug)]
pub(super) struct Draft<'n> {
    fields: Fields<'n>,
    identifier_glob: Result<Glob, Reported>,
    capacity: Result<Capacity, Reported>,
    safe_capacity: Result<Option<SafeCapacity>, Reported>,
    description: Result<Option<String>, Reported>,
    unit: Result<Option<Unit>, Reported>,
    per: Result<Option<Seconds>, Reported>,
    minimum_refresh_interval: Result<Option<Seconds>, Reported>,
    own_terms: Result<Option<OwnTerms<'n>>, Reported>,
}

impl<'n> Draft<'n> {
    pub(super) fn read(
        index: usize,
        node: &'n Node,
        faults: &mut FaultList,
    ) -> Result<Self, Reported> {
        let place = Place::template(index, written_glob(node));
        let fields = Fields::read(node, place, FIELDS, faults)?;
        let identifier_glob = fields.required(GLOB_FIELD, &IDENTIFIER_GLOB, faults);
        let is_catch_all = identifier_glob.as_ref().is_ok_and(Glob::is_catch_all);
        Ok(Self {
            identifier_glob,
            capacity: fields.required("capacity", &CAPACITY, faults),
            safe_capacity: fields.optional("safe_capacity", &SAFE_CAPACITY, faults),
            description: fields.optional("description", &DESCRIPTION, faults),
            unit: fields.optional("unit", &UNIT, faults),
            per: fields.optional("per", &LENGTH, faults),
            minimum_refresh_interval: fields.optional(
                "minimum_refresh_interval",
                &LENGTH_OR_ZERO,
                faults,
            ),
            own_terms: own_terms(&fields, is_catch_all, faults),
            fields,
        })
    }

    /// The glob, with where it stands, when it is a good one.
    pub(super) fn identifier_glob(&self) -> Option<(&Glob, &'n Node, Place)> {
        let glob = self.identifier_glob.as_ref().ok()?;
        let (node, place) = self.fields.get(GLOB_FIELD)?;
        Some((glob, node, place))
    }

    /// Whether it matches everything.
    pub(super) fn is_catch_all(&self) -> bool {
        self.identifier_glob.as_ref().is_ok_and(Glob::is_catch_all)
    }

    /// Its own `algorithm` section, when it has a good one.
    pub(super) fn own_terms(&self) -> Option<&OwnTerms<'n>> {
        self.own_terms.as_ref().ok()?.as_ref()
    }

    /// Completes it with what it takes from the template that matches everything.
    pub(super) fn finish(
        &self,
        catch_all: Option<&Self>,
        faults: &mut FaultList,
    ) -> Result<Template, Reported> {
        let terms = self.terms(catch_all, faults)?;
        let minimum_refresh_interval = self.minimum_refresh_interval?.unwrap_or(Seconds::ZERO);
        if minimum_refresh_interval > terms.algorithm.refresh_interval
            && let Some((node, place)) = self.fields.get("minimum_refresh_interval")
        {
            let message = format!(
                "must be at most the refresh_interval of {} seconds, or every regular refresh would be too early; not {}",
                terms.algorithm.refresh_interval, node.value
            );
            return Err(faults.add(node.at, place, message));
        }
        self.check_unit(&terms, faults)?;
        Ok(Template {
            identifier_glob: self.identifier_glob.clone()?,
            capacity: self.capacity?,
            safe_capacity: self
                .safe_capacity?
                .map_or(SafeCapacityRule::Dynamic, SafeCapacityRule::Fixed),
            description: self.description.clone()?,
            unit: self.unit?.unwrap_or_default(),
            per: self.per?.unwrap_or(Seconds::saturating(1.0)),
            minimum_refresh_interval,
            terms,
            has_own_terms: self.own_terms().is_some(),
        })
    }

    /// What is spent at a rate can be suppressed in part, or taken from a bucket; what is in use at one time cannot.
    fn check_unit(&self, terms: &Terms, faults: &mut FaultList) -> Result<(), Reported> {
        let kind = terms.algorithm.kind;
        let is_for_rates = matches!(
            kind,
            AlgorithmKind::Suppression | AlgorithmKind::SharedBucket
        );
        let (Ok(Some(Unit::Gauge)), true, Some((node, place))) =
            (self.unit, is_for_rates, self.fields.get("unit"))
        else {
            return Ok(());
        };
        let message = format!("must be rate: {} is for rates only", kind_name(kind));
        Err(faults.add(node.at, place, message))
    }

    fn terms(&self, catch_all: Option<&Self>, faults: &mut FaultList) -> Result<Terms, Reported> {
        if let Some(own) = self.own_terms.as_ref().map_err(|reported| *reported)? {
            return Ok(own.terms.clone());
        }
        match catch_all.map(|catch_all| &catch_all.own_terms) {
            Some(Ok(Some(common))) => Ok(common.terms.clone()),
            Some(Err(reported)) => Err(*reported),
            Some(Ok(None)) | None => {
                let expected = "must be here, or in a template for \"*\" to be taken from";
                Err(self.fields.missing("algorithm", expected, faults))
            }
        }
    }
}

/// Reads the `algorithm` section. The template that matches everything must have one, since the others take it from there.
fn own_terms<'n>(
    fields: &Fields<'n>,
    is_catch_all: bool,
    faults: &mut FaultList,
) -> Result<Option<OwnTerms<'n>>, Reported> {
    match fields.get("algorithm") {
        Some((node, place)) => algorithm::read(node, place, faults).map(Some),
        None if is_catch_all => {
            let expected =
                "must be here: a template that matches everything has none to take it from";
            Err(fields.missing("algorithm", expected, faults))
        }
        None => Ok(None),
    }
}

/// By what the faults of a template name it, good or bad.
fn written_glob(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let (_, glob) = entries
        .iter()
        .find(|(key, _)| key.value.as_text() == Some(GLOB_FIELD))?;
    glob.value.as_text()
}
