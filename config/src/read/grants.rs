//! The list of grants.

use std::sync::Arc;

use doorman_openapi::{Scope, Scopes};

use super::{
    fields::{Fields, value},
    rule_value::PRIORITY,
    value::{Form, IDENTIFIER_GLOB, Refusal, list, text},
};
use crate::{
    Glob, GlobSet, Grant, Grants, Restrictions,
    fault::{FaultList, Place, Reported},
    nearest::nearest,
    node::{Node, Value},
    quote::Quoted,
};

const FIELDS: &[&str] = &[
    "iss",
    "sub",
    "scope",
    "client_id",
    "resources",
    "services",
    "max_priority",
];

const SCOPE_EXPECTED: &str = "capacity, server, templates:read, templates:write or status:read";

const SCOPE: Form<Scope> = Form {
    expected: SCOPE_EXPECTED,
    read: |value| {
        let text = text(value)?;
        Scope::from_name(&text).ok_or_else(|| {
            let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            match nearest(&text, &names) {
                Some(meant) => Refusal::Because(format!(
                    "must be {SCOPE_EXPECTED}, not {}; did you mean {meant}?",
                    Quoted(&text)
                )),
                None => Refusal::NotAsExpected,
            }
        })
    },
};

pub(super) fn root(root: &Node, faults: &mut FaultList) -> Result<Vec<Grant>, Reported> {
    const EXPECTED: &str = "a list of grants";
    let fields = Fields::read(root, Place::document(), &["grants"], faults)?;
    let Some((node, place)) = fields.get("grants") else {
        return Err(fields.missing("grants", format_args!("must be {EXPECTED}"), faults));
    };
    let nodes = list(node, place.clone(), EXPECTED, faults)?;
    if nodes.len() > Grants::MAX_LEN {
        let message = format!("must be at most {} grants", Grants::MAX_LEN);
        return Err(faults.add(node.at, place, message));
    }
    let all: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| grant(index, node, faults))
        .collect();
    all.into_iter().collect()
}

fn grant(index: usize, node: &Node, faults: &mut FaultList) -> Result<Grant, Reported> {
    let place = Place::grant(index, written_sub(node));
    let fields = Fields::read(node, place, FIELDS, faults)?;
    // Each field stands by itself, so that one fault hides no other.
    let iss: Result<Glob, _> = fields.required("iss", &IDENTIFIER_GLOB, faults);
    let sub: Result<Glob, _> = fields.required("sub", &IDENTIFIER_GLOB, faults);
    let scopes = scopes(&fields, faults);
    let clients = globs(&fields, "client_id", faults);
    let resources = globs(&fields, "resources", faults);
    let services = globs(&fields, "services", faults);
    let max_priority = fields.optional("max_priority", &PRIORITY, faults);
    Ok(Grant {
        iss: iss?,
        sub: sub?,
        scopes: scopes?,
        restrictions: Arc::new(Restrictions {
            clients: clients?,
            resources: resources?,
            services: services?,
            max_priority: max_priority?,
        }),
    })
}

/// Reads `scope`: a list, or text as in a token. Other than in a token, a name that is not ours is a mistake.
fn scopes(fields: &Fields<'_>, faults: &mut FaultList) -> Result<Scopes, Reported> {
    let Some((node, place)) = fields.get("scope") else {
        let expected = "must be a list of scopes, such as [capacity]";
        return Err(fields.missing("scope", expected, faults));
    };
    if let Some(text) = node.value.as_text() {
        let read = |name: &str| (SCOPE.read)(&Value::Text(name.to_owned()));
        let all: Result<Scopes, Refusal> = text.split_ascii_whitespace().map(read).collect();
        return all.map_err(|refusal| {
            let message = match refusal {
                Refusal::NotAsExpected => format!("must be {SCOPE_EXPECTED}, not {}", node.value),
                Refusal::Because(message) => message,
            };
            faults.add(node.at, place, message)
        });
    }
    each(node, &place, &SCOPE, "a list of scopes", faults).map(|all| all.into_iter().collect())
}

/// Reads one glob, or a list of them.
fn globs(
    fields: &Fields<'_>,
    name: &str,
    faults: &mut FaultList,
) -> Result<Option<GlobSet>, Reported> {
    let Some((node, place)) = fields.get(name) else {
        return Ok(None);
    };
    let globs = match node.value {
        Value::List(_) => each(node, &place, &IDENTIFIER_GLOB, "a list of globs", faults)?,
        _ => vec![value(node, place.clone(), &IDENTIFIER_GLOB, faults)?],
    };
    match GlobSet::from_globs(globs) {
        Ok(globs) => Ok(Some(globs)),
        Err(invalid) => Err(faults.add(node.at, place, invalid.to_string())),
    }
}

/// Reads every entry of a list.
fn each<T>(
    node: &Node,
    place: &Place,
    form: &Form<T>,
    expected: &str,
    faults: &mut FaultList,
) -> Result<Vec<T>, Reported> {
    let entries = list(node, place.clone(), expected, faults)?;
    let all: Vec<_> = entries
        .iter()
        .enumerate()
        .map(|(index, entry)| value(entry, place.entry(index), form, faults))
        .collect();
    all.into_iter().collect()
}

/// By what the faults of a grant name it, good or bad.
fn written_sub(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let (_, sub) = entries
        .iter()
        .find(|(key, _)| key.value.as_text() == Some("sub"))?;
    sub.value.as_text()
}
