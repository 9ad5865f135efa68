//! One rule of the list.

use doorman_openapi::{Capacity, Fallback, OnLimit, OnMissingKey, RuleName, Seconds, Unit};

use super::{
    fields::{Fields, value},
    resource,
    rule_value::{
        ACTION, Action, COST, FALLBACK, METHOD, NAME, ON_MISSING_KEY, PATH, PRIORITY, RESOURCE,
        SERVICE,
    },
    value::{LENGTH, LENGTH_OR_ZERO, UNIT, list},
};
use crate::{
    Glob, Rule,
    fault::{FaultList, Place, Reported},
    node::{Node, Value},
};

const NAME_FIELD: &str = "name";

const FIELDS: &[&str] = &[
    NAME_FIELD,
    "service",
    "methods",
    "path",
    "resource",
    "unit",
    "cost",
    "burst",
    "on_limit",
    "on_missing_key",
    "fallback",
    "priority",
];

/// What a request costs, and how long a rate may be saved up, if nothing is said.
const DEFAULT_COST: f64 = 1.0;
const DEFAULT_BURST: f64 = 1.0;

/// A rule as read: it stands by itself, and what spans rules is checked behind it.
#[derive(Debug)]
pub(super) struct Draft<'n> {
    fields: Fields<'n>,
    pub(super) rule: Rule,
}

impl<'n> Draft<'n> {
    pub(super) fn read(
        index: usize,
        node: &'n Node,
        faults: &mut FaultList,
    ) -> Result<Self, Reported> {
        let place = Place::rule(index, written_name(node));
        let fields = Fields::read(node, place, FIELDS, faults)?;
        // Each field stands by itself, so that one fault hides no other.
        let name: Result<RuleName, _> = fields.required(NAME_FIELD, &NAME, faults);
        let services: Result<Glob, _> = fields.required("service", &SERVICE, faults);
        let methods = methods(&fields, faults);
        let path = fields.optional("path", &PATH, faults);
        let on_limit = on_limit(&fields, faults);
        let resource = spent(&fields, on_limit.as_ref().ok().copied(), faults);
        let unit = fields.optional("unit", &UNIT, faults);
        let cost: Result<Option<Capacity>, _> = fields.optional("cost", &COST, faults);
        let burst: Result<Option<Seconds>, _> = fields.optional("burst", &LENGTH_OR_ZERO, faults);
        let on_missing_key: Result<Option<OnMissingKey>, _> =
            fields.optional("on_missing_key", &ON_MISSING_KEY, faults);
        let fallback: Result<Option<Fallback>, _> = fields.optional("fallback", &FALLBACK, faults);
        let priority = fields.optional("priority", &PRIORITY, faults);

        let services = services?;
        let unit = unit?.unwrap_or_default();
        let definition = doorman_openapi::Rule {
            name: name?,
            service: services.as_str().to_owned(),
            methods: methods?,
            path: path?,
            resource: resource?,
            unit,
            cost: cost?.unwrap_or(Capacity::saturating(DEFAULT_COST)),
            burst: burst?.unwrap_or(Seconds::saturating(DEFAULT_BURST)),
            on_limit: on_limit?,
            on_missing_key: on_missing_key?.unwrap_or_default(),
            fallback: fallback?.unwrap_or(match unit {
                Unit::Rate => Fallback::Safe,
                // What is in use cannot be guessed.
                Unit::Gauge => Fallback::Pessimistic,
            }),
            priority: priority?.unwrap_or_default(),
        };
        Ok(Self {
            fields,
            rule: Rule {
                services,
                definition,
            },
        })
    }

    /// A field as it is written, and its place.
    pub(super) fn written(&self, field: &str) -> Option<(&'n Node, Place)> {
        self.fields.get(field)
    }

    /// The name, with where it stands.
    pub(super) fn name(&self) -> Option<(&RuleName, &'n Node, Place)> {
        let (node, place) = self.written(NAME_FIELD)?;
        Some((&self.rule.definition.name, node, place))
    }
}

/// Reads `methods`: at least one, and none twice.
fn methods(fields: &Fields<'_>, faults: &mut FaultList) -> Result<Option<Vec<String>>, Reported> {
    const EXPECTED: &str = "a list of methods, such as [GET, POST]";
    let Some((node, place)) = fields.get("methods") else {
        return Ok(None);
    };
    let entries = list(node, place.clone(), EXPECTED, faults)?;
    if entries.is_empty() {
        let message = format!("must be {EXPECTED}; leave it out for any");
        return Err(faults.add(node.at, place, message));
    }
    let mut methods: Vec<String> = Vec::new();
    let mut reported = None;
    for (index, entry) in entries.iter().enumerate() {
        let place = place.entry(index);
        match value(entry, place.clone(), &METHOD, faults) {
            Ok(method) if methods.contains(&method) => {
                reported = Some(faults.add(entry.at, place, "must stand only once"));
            }
            Ok(method) => methods.push(method),
            Err(fault) => reported = Some(fault),
        }
    }
    match reported {
        Some(reported) => Err(reported),
        None => Ok(Some(methods)),
    }
}

/// Reads `on_limit`.
fn on_limit(fields: &Fields<'_>, faults: &mut FaultList) -> Result<OnLimit, Reported> {
    const MAX_DELAY: &str = "max_delay";
    let Some((node, place)) = fields.get("on_limit") else {
        return Ok(OnLimit::default());
    };
    let fields = Fields::read(node, place, &["action", MAX_DELAY], faults)?;
    let action = fields.required("action", &ACTION, faults);
    let max_delay = fields.optional(MAX_DELAY, &LENGTH, faults);
    match (action?, max_delay?) {
        (Action::Delay, Some(max_delay)) => Ok(OnLimit::Delay { max_delay }),
        (Action::Delay, None) => {
            let expected = format_args!("must be {}, for `delay`", LENGTH.expected);
            Err(fields.missing(MAX_DELAY, expected, faults))
        }
        (Action::Reject, None) => Ok(OnLimit::Reject),
        (Action::Shadow, None) => Ok(OnLimit::Shadow),
        (Action::Exempt, None) => Ok(OnLimit::Exempt),
        (Action::Reject | Action::Shadow | Action::Exempt, Some(_)) => {
            let expected = "must be left out: only `delay` has one";
            Err(fields.wrong(MAX_DELAY, expected, faults))
        }
    }
}

/// Reads `resource`, without which only a rule that exempts can be.
fn spent(
    fields: &Fields<'_>,
    on_limit: Option<OnLimit>,
    faults: &mut FaultList,
) -> Result<Option<String>, Reported> {
    let resource = fields.optional("resource", &RESOURCE, faults)?;
    match (&resource, on_limit) {
        (Some(_), _) | (None, Some(OnLimit::Exempt) | None) => Ok(resource),
        (None, Some(OnLimit::Reject | OnLimit::Delay { .. } | OnLimit::Shadow)) => {
            let expected = format_args!("must be {}", resource::EXPECTED);
            Err(fields.missing("resource", expected, faults))
        }
    }
}

/// By what the faults of a rule name it, good or bad.
fn written_name(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let (_, name) = entries
        .iter()
        .find(|(key, _)| key.value.as_text() == Some(NAME_FIELD))?;
    name.value.as_text()
}
