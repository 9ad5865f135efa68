//! `rules`: the list of rules.

use std::collections::HashMap;

use doorman_openapi::{
    Capacity, Fallback, KeyTemplatePart, MAX_RULES, OnLimit, OnMissingKey, ResourceId, RuleName,
    Unit, parse_key_template,
};
use http::{HeaderName, Method};

use super::field::{
    DURATION, DURATION_OR_ZERO, FieldType, Fields, Item, Mismatch, PRIORITY, SERVICE_GLOB, UNIT,
    entries, number, one_of, suggestion, text,
};
use crate::{
    Rule,
    diagnostic::{Diagnostic, ErrorCollector, Quoted, Reported},
    template::Template,
};

pub(crate) const FIELDS: &[&str] = &[
    "name",
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

pub(crate) const ON_LIMIT_FIELDS: &[&str] = &["action", "max_delay"];

/// A valid rule with its fields as written.
#[derive(Debug)]
pub(super) struct Draft<'n> {
    pub(super) fields: Fields<'n>,
    pub(super) rule: Rule,
}

pub(super) fn read<'n>(
    item: &Item<'n>,
    errors: &mut ErrorCollector,
) -> Result<Vec<Draft<'n>>, Reported> {
    let nodes = item.nodes("a list of rules", errors)?;
    if nodes.len() > MAX_RULES {
        let message = format!("must have at most {MAX_RULES} rules, not {}", nodes.len());
        return Err(item.error(message, errors));
    }
    let drafts: Vec<_> = entries("rules", "name", nodes)
        .map(|item| Draft::read(item, errors))
        .collect();
    let mut names: HashMap<&RuleName, usize> = HashMap::new();
    for (index, draft) in drafts.iter().enumerate() {
        let Ok(draft) = draft else { continue };
        let first = *names.entry(&draft.rule.definition.name).or_insert(index);
        if first != index
            && let Some(item) = draft.fields.get("name")
        {
            let message = format!("must be unique; rules[{first}] has the same name");
            item.error(message, errors);
        }
    }
    drafts.into_iter().collect()
}

/// Warns of rules without effect: their resource has no template, so it is not limited, or one of
/// another unit.
pub(super) fn warnings(drafts: &[Draft<'_>], templates: &[Template]) -> Vec<Diagnostic> {
    let warnings = drafts.iter().flat_map(|draft| {
        [
            resource_warning(draft, templates),
            unit_warning(draft, templates),
        ]
    });
    warnings.flatten().collect()
}

fn resource_warning(draft: &Draft<'_>, templates: &[Template]) -> Option<Diagnostic> {
    let resource = draft.rule.definition.resource.as_deref()?;
    let item = draft.fields.get("resource")?;
    let matched = templates.iter().any(|it| may_match(it, resource));
    (!matched).then(|| {
        item.diagnostic("no template matches: unlimited, or blocked with `--unmatched refuse`")
    })
}

fn unit_warning(draft: &Draft<'_>, templates: &[Template]) -> Option<Diagnostic> {
    let rule = &draft.rule.definition;
    let resource = rule.resource.as_deref()?;
    let mut matching = templates.iter().filter(|it| may_match(it, resource));
    let first = matching.next()?;
    // A constant resource has the template of the first match.
    let is_constant = !resource.contains('{');
    if first.unit() == rule.unit || !is_constant && matching.any(|it| it.unit() == rule.unit) {
        return None;
    }
    let unit = match first.unit() {
        Unit::Rate => "rate",
        Unit::Gauge => "gauge",
    };
    let item = draft.fields.get("unit").or(draft.fields.get("resource"))?;
    Some(item.diagnostic(format!(
        "template {:?} limits a {unit}, so this rule gets no lease",
        first.identifier_glob.as_str()
    )))
}

/// Whether a template may match a resource id that the key template `resource` makes.
fn may_match(template: &Template, resource: &str) -> bool {
    let glob = &template.identifier_glob;
    let prefix = resource.split('{').next().unwrap_or_default();
    glob.may_match_prefix(prefix)
        && (prefix.len() < resource.len()
            || glob.as_str() == resource
            || ResourceId::new(resource).is_ok_and(|id| glob.matches(id.as_str())))
}

impl<'n> Draft<'n> {
    fn read(item: Item<'n>, errors: &mut ErrorCollector) -> Result<Self, Reported> {
        let fields = Fields::read(item, FIELDS, errors)?;
        // Every field is parsed, so that no error hides another.
        let name = fields.required("name", &NAME, errors);
        let services = fields.required("service", &SERVICE_GLOB, errors);
        let methods = methods(&fields, errors);
        let path = fields.optional("path", &PATH, errors);
        let on_limit = on_limit(&fields, errors);
        let resource = resource(&fields, on_limit.ok(), errors);
        let unit = fields.optional("unit", &UNIT, errors);
        let cost = fields.optional("cost", &COST, errors);
        let burst = fields.optional("burst", &DURATION_OR_ZERO, errors);
        let on_missing_key = fields.optional("on_missing_key", &ON_MISSING_KEY, errors);
        let fallback = fields.optional("fallback", &FALLBACK, errors);
        let priority = fields.optional("priority", &PRIORITY, errors);

        let services = services?;
        let unit = unit?.unwrap_or_default();
        let definition = doorman_openapi::Rule {
            name: name?,
            service: services.as_str().to_owned(),
            methods: methods?,
            path: path?,
            resource: resource?,
            unit,
            cost: cost?.unwrap_or_else(doorman_openapi::Rule::default_cost),
            burst: burst?.unwrap_or_else(doorman_openapi::Rule::default_burst),
            on_limit: on_limit?,
            on_missing_key: on_missing_key?.unwrap_or_default(),
            fallback: fallback?.unwrap_or(match unit {
                Unit::Rate => Fallback::Safe,
                Unit::Gauge => Fallback::Pessimistic,
            }),
            priority: priority?.unwrap_or_default(),
        };
        let rule = Rule {
            services,
            definition,
        };
        Ok(Self { fields, rule })
    }
}

const NAME: FieldType<RuleName> = FieldType {
    expected: "a name of 1 to 256 bytes of UTF-8 without control characters",
    parse: |value| RuleName::new(text(value)?).map_err(|_| Mismatch::Unexpected),
};

/// The methods of RFC 9110 and RFC 5789.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

const METHOD: FieldType<String> = FieldType {
    expected: "a method in upper case, such as GET",
    parse: |value| {
        let text = text(value)?;
        if METHODS.contains(&text.as_str()) {
            return Ok(text);
        }
        if let Some(meant) = suggestion(&text, &METHODS) {
            return Err(Mismatch::Message(format!(
                "must be a method in upper case, not {}; did you mean {meant}?",
                Quoted(&text)
            )));
        }
        // Extension methods, such as PROPFIND.
        let is_method = Method::from_bytes(text.as_bytes()).is_ok();
        if is_method && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            Ok(text)
        } else {
            Err(Mismatch::Unexpected)
        }
    },
};

fn methods(
    fields: &Fields<'_>,
    errors: &mut ErrorCollector,
) -> Result<Option<Vec<String>>, Reported> {
    const EXPECTED: &str = "a list of methods, such as [GET, POST]";
    let Some(item) = fields.get("methods") else {
        return Ok(None);
    };
    let mut methods: Vec<String> = Vec::new();
    let mut reported = None;
    for element in item.list(EXPECTED, errors)? {
        match element.parse(&METHOD, errors) {
            Ok(method) if methods.contains(&method) => {
                reported = Some(element.error("must appear only once", errors));
            }
            Ok(method) => methods.push(method),
            Err(error) => reported = Some(error),
        }
    }
    match reported {
        Some(reported) => Err(reported),
        None if methods.is_empty() => {
            let message = format!("must be {EXPECTED}; leave it out to match any method");
            Err(item.error(message, errors))
        }
        None => Ok(Some(methods)),
    }
}

const MAX_PATH_BYTES: usize = 1024;

const PATH: FieldType<String> = FieldType {
    expected: "a path as axum writes routes, such as \"/v1/orders/{id}\"",
    parse: |value| {
        let text = text(value)?;
        if !text.starts_with('/') || text.chars().any(char::is_control) {
            return Err(Mismatch::Unexpected);
        }
        let because = if text.len() > MAX_PATH_BYTES {
            return Err(Mismatch::Message(format!(
                "must have at most {MAX_PATH_BYTES} bytes"
            )));
        } else if text.split('/').any(|it| it.starts_with([':', '*'])) {
            // axum rejects the placeholders of its earlier versions, too.
            "must have its placeholders in braces, such as {id} or {*rest}"
        } else if matchit::Router::new().insert(text.as_str(), ()).is_err() {
            "must have placeholders that have a name and end with their segment, and {*rest} at its end"
        } else {
            return Ok(text);
        };
        Err(Mismatch::Message(format!(
            "{because}, not {}",
            Quoted(&text)
        )))
    },
};

const COST: FieldType<Capacity> = FieldType {
    expected: "a number above 0 and at most 1e15",
    parse: |value| {
        let cost = number(value, Capacity::new)?;
        (cost > Capacity::ZERO)
            .then_some(cost)
            .ok_or(Mismatch::Unexpected)
    },
};

const ON_MISSING_KEY: FieldType<OnMissingKey> = FieldType {
    expected: "shared, skip or reject",
    parse: |value| {
        let words = [
            ("shared", OnMissingKey::Shared),
            ("skip", OnMissingKey::Skip),
            ("reject", OnMissingKey::Reject),
        ];
        one_of(value, &words)
    },
};

const FALLBACK: FieldType<Fallback> = FieldType {
    expected: "safe, optimistic or pessimistic",
    parse: |value| {
        let words = [
            ("safe", Fallback::Safe),
            ("optimistic", Fallback::Optimistic),
            ("pessimistic", Fallback::Pessimistic),
        ];
        one_of(value, &words)
    },
};

/// `on_limit.action`; a delay is `None` until its `max_delay` is read.
const ACTION: FieldType<Option<OnLimit>> = FieldType {
    expected: "reject, delay, shadow or exempt",
    parse: |value| {
        let words = [
            ("reject", Some(OnLimit::Reject)),
            ("delay", None),
            ("shadow", Some(OnLimit::Shadow)),
            ("exempt", Some(OnLimit::Exempt)),
        ];
        one_of(value, &words)
    },
};

fn on_limit(fields: &Fields<'_>, errors: &mut ErrorCollector) -> Result<OnLimit, Reported> {
    let Some(item) = fields.get("on_limit") else {
        return Ok(OnLimit::default());
    };
    let fields = Fields::read(item, ON_LIMIT_FIELDS, errors)?;
    let action = fields.required("action", &ACTION, errors);
    let max_delay = fields.optional("max_delay", &DURATION, errors);
    match (action?, max_delay?, fields.get("max_delay")) {
        (None, Some(max_delay), _) => Ok(OnLimit::Delay { max_delay }),
        (None, None, _) => {
            let expected = format_args!("must be {}, for `delay`", DURATION.expected);
            Err(fields.missing("max_delay", expected, errors))
        }
        (Some(_), _, Some(item)) => {
            Err(item.error("must be left out: only `delay` has one", errors))
        }
        (Some(action), _, None) => Ok(action),
    }
}

/// Only a rule that exempts may leave `resource` out.
fn resource(
    fields: &Fields<'_>,
    on_limit: Option<OnLimit>,
    errors: &mut ErrorCollector,
) -> Result<Option<String>, Reported> {
    let resource = fields.optional("resource", &RESOURCE, errors)?;
    match (&resource, on_limit) {
        (Some(_), _) | (None, Some(OnLimit::Exempt) | None) => Ok(resource),
        (None, Some(OnLimit::Reject | OnLimit::Delay { .. } | OnLimit::Shadow)) => {
            let expected = format_args!("must be {}", RESOURCE.expected);
            Err(fields.missing("resource", expected, errors))
        }
    }
}

const RESOURCE: FieldType<String> = FieldType {
    expected: "a resource, such as \"tenant/{jwt:sub}\"",
    parse: |value| {
        let (text, expected) = (text(value)?, RESOURCE.expected);
        let error = |message| Err(Mismatch::Message(message));
        if text.chars().any(char::is_control) {
            return error(format!("must be {expected}, without control characters"));
        }
        let parts = match parse_key_template(&text) {
            Ok(parts) => parts,
            Err(invalid) => return error(format!("must be {expected}; {invalid}")),
        };
        for part in parts {
            if let KeyTemplatePart::Placeholder(name) = part {
                check_placeholder(name).map_err(Mismatch::Message)?;
            }
        }
        Ok(text)
    },
};

fn check_placeholder(name: &str) -> Result<(), String> {
    match name.split_once(':') {
        None if ["client_ip", "method", "route", "host", "api_key"].contains(&name) => Ok(()),
        Some(("header", header)) if HeaderName::from_bytes(header.as_bytes()).is_ok() => Ok(()),
        Some(("header", header)) => Err(format!(
            "must have a valid header name, not {}",
            Quoted(header)
        )),
        Some(("jwt", claim)) if !claim.is_empty() => Ok(()),
        Some(_) | None => Err(format!(
            "must have no other placeholders than {{header:NAME}}, {{jwt:CLAIM}}, {{client_ip}}, {{method}}, {{route}}, \
             {{host}} and {{api_key}}, not {}",
            Quoted(&format!("{{{name}}}"))
        )),
    }
}

#[cfg(test)]
mod tests;
