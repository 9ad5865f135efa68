//! `rules`: the list of rules.

use doorman_openapi::{
    Capacity, Fallback, KeyTemplatePart, MAX_RULES, OnLimit, OnMissingKey, PrefixLengths,
    ResourceId, RuleName, RuleOutcomes, TargetHeaders, Unit, canonical_path, parse_key_template,
};
use http::{HeaderName, Method};

use super::{
    field::{
        BURST, DURATION, Entry, FieldType, Item, Mismatch, PRIORITY, SERVICE_GLOB, UNIT, all,
        check_unique, misspelt, number, text, word,
    },
    spelling,
};
use crate::{
    Rule, Template,
    diagnostic::{Diagnostic, Quoted, Reported},
    words::word_for,
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
    "outcomes",
];

pub(crate) const ON_LIMIT_FIELDS: &[&str] = &["action", "max_delay"];

pub(crate) const OUTCOMES_FIELDS: &[&str] = &["headers"];

pub(super) fn read<'n>(list: &Item<'n>) -> Result<Vec<Entry<'n, Rule>>, Reported> {
    let rules = list.entries("rules", "name", "a list of rules")?;
    if rules.len() > MAX_RULES {
        let message = format!("must have at most {MAX_RULES} rules, not {}", rules.len());
        return Err(list.error(message));
    }
    check_unique(&rules, "rules", "name", "name");
    all(rules.into_iter().map(|item| {
        let value = rule(&item)?;
        Ok(Entry { item, value })
    }))
}

/// Warns of rules without effect, whose resource has no template, so that it is not limited, or one
/// of another unit; and of quotas that no lease keeps.
pub(super) fn warnings(
    rules: &[Entry<'_, Rule>],
    templates: &[Entry<'_, Template>],
) -> Vec<Diagnostic> {
    let warnings = rules.iter();
    let warnings = warnings.flat_map(|Entry { item, value }| {
        let burst = burst_warning(item, value, templates);
        [warning(item, value, templates), burst]
    });
    let warnings = warnings.flatten();
    warnings.collect()
}

fn warning(
    item: &Item<'_>,
    Rule { definition, .. }: &Rule,
    templates: &[Entry<'_, Template>],
) -> Option<Diagnostic> {
    let resource = definition.resource.as_deref()?;
    let templates = templates.iter().map(|it| &it.value);
    let mut matching = templates.filter(|it| may_match(it, resource));
    let Some(first) = matching.next() else {
        return Some(
            item.get("resource")?
                .diagnostic("no template matches: unlimited, or blocked with `--unmatched refuse`"),
        );
    };
    // A constant resource has the template of the first match.
    let is_constant = !resource.contains('{');
    let is_limited = |it: &Template| it.unit() == definition.unit;
    if is_limited(first) || !is_constant && matching.any(is_limited) {
        return None;
    }
    let item = item.get("unit").or(item.get("resource"))?;
    Some(item.diagnostic(format!(
        "template {:?} limits a {}, so this rule gets no lease",
        first.identifier_glob.as_str(),
        word_for(&first.unit()),
    )))
}

/// Warns of a bucket that takes longer to fill than a lease lasts. The control plane passes on what
/// is spent of it only as far as holders report that.
fn burst_warning(
    item: &Item<'_>,
    Rule { definition, .. }: &Rule,
    templates: &[Entry<'_, Template>],
) -> Option<Diagnostic> {
    let resource = definition.resource.as_deref()?;
    let templates = templates.iter().map(|it| &it.value);
    let mut matching = templates.filter(|it| it.unit() == Unit::Rate && may_match(it, resource));
    let template = matching.next()?;
    let lease_length = template.algorithm().lease_length;
    if definition.unit == Unit::Gauge || definition.burst <= lease_length {
        return None;
    }
    let glob = template.identifier_glob.as_str();
    Some(item.get("burst")?.diagnostic(format!(
        "{} seconds are longer than a lease of template {glob:?} ({lease_length} seconds), so this \
         is no exact quota: after a crash, or a fail-over of the control plane, a part may be spent \
         twice",
        definition.burst,
    )))
}

/// Whether a template may match a resource id that the key template `resource` makes.
fn may_match(template: &Template, resource: &str) -> bool {
    let glob = &template.identifier_glob;
    if resource.contains('{') {
        return spelling::may_match(glob, resource);
    }
    glob.as_str() == resource || ResourceId::new(resource).is_ok_and(|id| glob.matches(id.as_str()))
}

fn rule(item: &Item<'_>) -> Result<Rule, Reported> {
    item.check_fields(FIELDS)?;
    // Every field is parsed, so that no error hides another.
    let name = item.required("name", &NAME);
    let services = item.required("service", &SERVICE_GLOB);
    let methods = methods(item);
    let path = item.optional("path", &PATH);
    let on_limit = on_limit(item);
    // Only a rule that exempts may leave it out.
    let resource = match on_limit {
        Ok(OnLimit::Exempt) | Err(_) => item.optional("resource", &RESOURCE),
        Ok(OnLimit::Reject | OnLimit::Delay { .. } | OnLimit::Shadow) => {
            item.required("resource", &RESOURCE).map(Some)
        }
    };
    let unit = item.optional("unit", &UNIT);
    let cost = item.optional("cost", &COST);
    let burst = item.optional("burst", &BURST);
    let on_missing_key = item.optional("on_missing_key", &ON_MISSING_KEY);
    let fallback = item.optional("fallback", &FALLBACK);
    let priority = item.optional("priority", &PRIORITY);
    let outcomes = outcomes(item);

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
        outcomes: outcomes?,
    };
    Ok(Rule {
        services,
        definition,
    })
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
        let misspelt = misspelt(&text, "a method in upper case", &METHODS);
        if let Mismatch::Message(_) = misspelt {
            return Err(misspelt);
        }
        if ["ANY", "ALL", "*"].contains(&text.to_ascii_uppercase().as_str()) {
            let any = "must be a list of methods; leave it out to match any method";
            return Err(Mismatch::Message(any.to_owned()));
        }
        // Extension methods, such as PROPFIND.
        let is_method = Method::from_bytes(text.as_bytes()).is_ok();
        if is_method && !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
            Ok(text)
        } else {
            Err(misspelt)
        }
    },
};

fn methods(rule: &Item<'_>) -> Result<Option<Vec<String>>, Reported> {
    const EXPECTED: &str = "a list of methods, such as [GET, POST]";
    let Some(item) = rule.get("methods") else {
        return Ok(None);
    };
    let mut methods: Vec<String> = Vec::new();
    let mut reported = None;
    for element in item.list(EXPECTED)? {
        match element.parse(&METHOD) {
            Ok(method) if methods.contains(&method) => {
                reported = Some(element.error("must appear only once"));
            }
            Ok(method) => methods.push(method),
            Err(error) => reported = Some(error),
        }
    }
    match reported {
        Some(reported) => Err(reported),
        None if methods.is_empty() => {
            let message = format!("must be {EXPECTED}; leave it out to match any method");
            Err(item.error(message))
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
        } else if let Some((path, _)) = text.split_once(['?', '#']) {
            return Err(Mismatch::Message(format!(
                "must be {}, without a query or fragment: only the path is matched, not {}",
                Quoted(&canonical_path(path)),
                Quoted(&text)
            )));
        } else if let canonical = canonical_path(&text)
            && canonical != text
        {
            // No request matches it, as paths are matched in this spelling.
            return Err(Mismatch::Message(format!(
                "must be {}, the canonical spelling, not {}",
                Quoted(&canonical),
                Quoted(&text)
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
    parse: word,
};

const FALLBACK: FieldType<Fallback> = FieldType {
    expected: "safe, optimistic or pessimistic",
    parse: word,
};

/// `on_limit.action`; a delay is `None` until its `max_delay` is read.
const ACTION: FieldType<Option<OnLimit>> = FieldType {
    expected: "reject, delay, shadow or exempt",
    parse: |value| match value.as_text() {
        Some("reject") => Ok(Some(OnLimit::Reject)),
        Some("delay") => Ok(None),
        Some("shadow") => Ok(Some(OnLimit::Shadow)),
        Some("exempt") => Ok(Some(OnLimit::Exempt)),
        _ => Err(Mismatch::Unexpected),
    },
};

fn on_limit(rule: &Item<'_>) -> Result<OnLimit, Reported> {
    let Some(item) = rule.get("on_limit") else {
        return Ok(OnLimit::default());
    };
    item.check_fields(ON_LIMIT_FIELDS)?;
    let action = item.required("action", &ACTION);
    let max_delay = item.optional("max_delay", &DURATION);
    match (action?, max_delay?, item.get("max_delay")) {
        (None, Some(max_delay), _) => Ok(OnLimit::Delay { max_delay }),
        (None, None, _) => {
            let expected = format_args!("must be {}, for `delay`", DURATION.expected);
            Err(item.missing("max_delay", expected))
        }
        (Some(_), _, Some(item)) => Err(item.error("must be left out: only `delay` has one")),
        (Some(action), _, None) => Ok(action),
    }
}

const TARGET_HEADERS: FieldType<TargetHeaders> = FieldType {
    expected: "standard, openai-requests, openai-tokens, anthropic-requests, \
               anthropic-input-tokens, anthropic-output-tokens or anthropic-tokens",
    parse: |value| {
        let names = TargetHeaders::ALL.map(TargetHeaders::as_str);
        word(value).map_err(|_| match value.as_text() {
            Some(text) => misspelt(text, TARGET_HEADERS.expected, &names),
            None => Mismatch::Unexpected,
        })
    },
};

fn outcomes(rule: &Item<'_>) -> Result<Option<RuleOutcomes>, Reported> {
    let Some(item) = rule.get("outcomes") else {
        return Ok(None);
    };
    item.check_fields(OUTCOMES_FIELDS)?;
    let headers = item.required("headers", &TARGET_HEADERS)?;
    Ok(Some(RuleOutcomes { headers }))
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
            match part {
                KeyTemplatePart::Placeholder(name) => check_placeholder(name),
                KeyTemplatePart::Text(part) => check_literal(part, &text),
            }
            .map_err(Mismatch::Message)?;
        }
        Ok(text)
    },
};

/// Rejects wildcards: the resource would have them in its name.
fn check_literal(part: &str, text: &str) -> Result<(), String> {
    let Some(at) = part.find(['*', '?']) else {
        return Ok(());
    };
    let before = text.find(part).unwrap_or_default();
    let literal = text.get(..before.saturating_add(at));
    let template = format!("{}{{jwt:sub}}", literal.unwrap_or_default());
    Err(format!(
        "must be the name of a resource, or have a placeholder for each value, such as {}: it is no \
         glob, as {} is (a literal * is written %2A, and ? is written %3F)",
        Quoted(&template),
        Quoted(text)
    ))
}

fn check_placeholder(name: &str) -> Result<(), String> {
    match name.split_once(':') {
        None if ["client_ip", "method", "route", "host", "api_key"].contains(&name) => Ok(()),
        Some(("header", header)) if header.starts_with(':') => Err(format!(
            "must have {{host}}, {{method}} or {{route}}, not {}: pseudo-headers are no headers",
            Quoted(&format!("{{{name}}}"))
        )),
        Some(("header", header)) if HeaderName::from_bytes(header.as_bytes()).is_ok() => Ok(()),
        Some(("header", header)) => Err(format!(
            "must have a valid header name, not {}",
            Quoted(header)
        )),
        Some(("jwt", claim)) if !claim.is_empty() => Ok(()),
        Some(("client_ip", lengths)) => match PrefixLengths::parse(lengths) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "must have prefix lengths such as {{client_ip:v4=24,v6=56}}, with v4 from 1 to 32 \
                 and v6 from 1 to 128, not {}",
                Quoted(&format!("{{{name}}}"))
            )),
        },
        Some(_) | None => Err(format!(
            "must have no other placeholders than {{header:NAME}}, {{jwt:CLAIM}}, {{client_ip}}, {{method}}, {{route}}, \
             {{host}} and {{api_key}}, not {}",
            Quoted(&format!("{{{name}}}"))
        )),
    }
}

#[cfg(test)]
mod tests;
