//! `grants`: the list of grants.

use std::sync::Arc;

use doorman_openapi::{GlobSet, Scope, Scopes};

use super::field::{FieldType, Fields, GLOB, Item, Mismatch, PRIORITY, entries, suggestion, text};
use crate::{
    Grant, Grants, Restrictions,
    diagnostic::{ErrorCollector, Location, Quoted, Reported},
    tree::{Node, Value},
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

const SCOPE: FieldType<Scope> = FieldType {
    expected: "capacity, server, templates:read, templates:write or status:read",
    parse: |value| {
        let text = text(value)?;
        Scope::from_name(&text).ok_or_else(|| {
            let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
            match suggestion(&text, &names) {
                Some(meant) => Mismatch::Message(format!(
                    "must be {}, not {}; did you mean {meant}?",
                    SCOPE.expected,
                    Quoted(&text)
                )),
                None => Mismatch::Unexpected,
            }
        })
    },
};

pub(super) fn read(node: &Node, errors: &mut ErrorCollector) -> Result<Vec<Grant>, Reported> {
    const EXPECTED: &str = "a list of grants";
    let root = Item {
        node,
        location: Location::document(),
    };
    let fields = Fields::read(root, &["grants"], errors)?;
    let Some(item) = fields.get("grants") else {
        return Err(fields.missing("grants", format_args!("must be {EXPECTED}"), errors));
    };
    let nodes = item.nodes(EXPECTED, errors)?;
    if nodes.len() > Grants::MAX_LEN {
        let message = format!("must have at most {} grants", Grants::MAX_LEN);
        return Err(item.error(message, errors));
    }
    let grants: Vec<_> = entries("grants", "sub", nodes)
        .map(|item| grant(item, errors))
        .collect();
    grants.into_iter().collect()
}

fn grant(item: Item<'_>, errors: &mut ErrorCollector) -> Result<Grant, Reported> {
    let fields = Fields::read(item, FIELDS, errors)?;
    // Every field is parsed, so that no error hides another.
    let iss = fields.required("iss", &GLOB, errors);
    let sub = fields.required("sub", &GLOB, errors);
    let scopes = scopes(&fields, errors);
    let clients = globs(&fields, "client_id", errors);
    let resources = globs(&fields, "resources", errors);
    let services = globs(&fields, "services", errors);
    let max_priority = fields.optional("max_priority", &PRIORITY, errors);
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

/// A list, or text with spaces as in a token. An unknown scope is an error here.
fn scopes(fields: &Fields<'_>, errors: &mut ErrorCollector) -> Result<Scopes, Reported> {
    let Some(item) = fields.get("scope") else {
        let expected = "must be a list of scopes, such as [capacity]";
        return Err(fields.missing("scope", expected, errors));
    };
    if let Some(text) = item.node.value.as_text() {
        let words = text.split_ascii_whitespace();
        let scopes: Result<_, _> = words
            .map(|word| (SCOPE.parse)(&Value::Text(word.to_owned())))
            .collect();
        return scopes.map_err(|mismatch| item.mismatch(&SCOPE, mismatch, errors));
    }
    let scopes = item.each(&SCOPE, "a list of scopes", errors)?;
    Ok(scopes.into_iter().collect())
}

/// A glob, or a list of globs.
fn globs(
    fields: &Fields<'_>,
    name: &str,
    errors: &mut ErrorCollector,
) -> Result<Option<GlobSet>, Reported> {
    let Some(item) = fields.get(name) else {
        return Ok(None);
    };
    let globs = match item.node.value {
        Value::List(_) => item.each(&GLOB, "a list of globs", errors)?,
        _ => vec![item.parse(&GLOB, errors)?],
    };
    let globs = GlobSet::from_globs(globs);
    globs
        .map(Some)
        .map_err(|invalid| item.error(invalid.to_string(), errors))
}
