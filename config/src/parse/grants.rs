//! `grants`: the list of grants.

use std::sync::Arc;

use doorman_openapi::{GlobSet, Scope, Scopes};

use super::field::{
    BOOL, CAPACITY, CLIENT_COUNT, FieldType, GLOB, Item, PRIORITY, all, misspelt, text,
};
use crate::{Grant, Grants, MaxCapacity, Restrictions, diagnostic::Reported, tree::Value};

const FIELDS: &[&str] = &[
    "iss",
    "sub",
    "scope",
    "client_id",
    "resources",
    "services",
    "max_priority",
    "max_capacity",
    "max_clients",
    "require_client_id",
];

const SCOPE: FieldType<Scope> = FieldType {
    expected: "capacity, server, templates:read, templates:write or status:read",
    parse: |value| {
        let text = text(value)?;
        let names: Vec<_> = Scope::ALL.iter().map(|scope| scope.name()).collect();
        Scope::from_name(&text).ok_or_else(|| misspelt(&text, SCOPE.expected, &names))
    },
};

pub(super) fn read(root: &Item<'_>) -> Result<Vec<Grant>, Reported> {
    const EXPECTED: &str = "a list of grants";
    root.check_fields(&["grants"])?;
    let Some(item) = root.get("grants") else {
        return Err(root.missing("grants", format_args!("must be {EXPECTED}")));
    };
    let grants = item.entries("grants", "sub", EXPECTED)?;
    if grants.len() > Grants::MAX_LEN {
        return Err(item.error(format!("must have at most {} grants", Grants::MAX_LEN)));
    }
    all(grants.iter().map(grant))
}

fn grant(item: &Item<'_>) -> Result<Grant, Reported> {
    item.check_fields(FIELDS)?;
    // Every field is parsed, so that no error hides another.
    let iss = item.required("iss", &GLOB);
    let sub = item.required("sub", &GLOB);
    let scopes = scopes(item);
    let clients = globs(item, "client_id");
    let resources = globs(item, "resources");
    let services = globs(item, "services");
    let max_priority = item.optional("max_priority", &PRIORITY);
    let max_capacity = item.optional("max_capacity", &CAPACITY);
    let max_clients = item.optional("max_clients", &CLIENT_COUNT);
    let requires_client_id = item.optional("require_client_id", &BOOL);
    Ok(Grant {
        iss: iss?,
        sub: sub?,
        scopes: scopes?,
        restrictions: Arc::new(Restrictions {
            clients: clients?,
            resources: resources?,
            services: services?,
            max_priority: max_priority?,
            max_capacity: max_capacity?.map(MaxCapacity),
            max_clients: max_clients?,
        }),
        requires_client_id: requires_client_id?.unwrap_or(false),
    })
}

/// A list, or text with spaces as in a token. An unknown scope is an error here.
fn scopes(grant: &Item<'_>) -> Result<Scopes, Reported> {
    let Some(item) = grant.get("scope") else {
        let expected = "must be a list of scopes, such as [capacity]";
        return Err(grant.missing("scope", expected));
    };
    if let Some(text) = item.node.value.as_text() {
        let words = text.split_ascii_whitespace();
        let scopes: Result<_, _> = words
            .map(|word| (SCOPE.parse)(&Value::Text(word.to_owned())))
            .collect();
        return scopes.map_err(|mismatch| item.mismatch(&SCOPE, mismatch));
    }
    let scopes = item.each(&SCOPE, "a list of scopes")?;
    Ok(scopes.into_iter().collect())
}

/// A glob, or a list of globs.
fn globs(grant: &Item<'_>, name: &str) -> Result<Option<GlobSet>, Reported> {
    let Some(item) = grant.get(name) else {
        return Ok(None);
    };
    let globs = match item.node.value {
        Value::List(_) => item.each(&GLOB, "a list of globs")?,
        _ => vec![item.parse(&GLOB)?],
    };
    let globs = GlobSet::from_globs(globs);
    globs
        .map(Some)
        .map_err(|invalid| item.error(invalid.to_string()))
}
