//! Authorization by the restrictions of a caller: which resources, clients, services, templates and
//! rules its token may name. No decision depends on whether the thing exists.

use doorman_config::{
    Document, DocumentDiff, EntryChange, EntryDiff, MAX_DOCUMENT_BYTES, MaxCapacity, Restrictions,
    Rule, Template,
};
use doorman_openapi::{FieldError, Glob, ResourceId, Scope, Seconds};

use super::error::ApiError;
use crate::auth::Caller;

/// How much of a document the templates and rules of a restricted token may fill.
const MAX_OWNED_BYTES: usize = MAX_DOCUMENT_BYTES / 4;

/// Detail of a field that a restricted token may not have.
pub(super) const FORBIDDEN: &str = "is not allowed by the token";

/// The same for a priority.
pub(super) fn above_max_priority(restrictions: &Restrictions) -> String {
    let max = restrictions.max_priority.unwrap_or(i32::MAX);
    format!("must be at most {max}, the limit of the token")
}

/// # Errors
/// 403.
pub(super) fn resource(id: &ResourceId, restrictions: &Restrictions) -> Result<(), ApiError> {
    check(
        restrictions.allows_resource(id.as_str()),
        "resource",
        id.as_str(),
    )
}

/// # Errors
/// 403.
pub(super) fn client(name: &str, restrictions: &Restrictions) -> Result<(), ApiError> {
    check(restrictions.allows_client(name), "client", name)
}

/// # Errors
/// 403.
pub(super) fn service(name: &str, restrictions: &Restrictions) -> Result<(), ApiError> {
    check(restrictions.allows_service(name), "service", name)
}

/// Checks that a caller may read the rules of all services.
///
/// # Errors
/// 403.
pub(super) fn all_services(caller: &Caller) -> Result<(), ApiError> {
    const SCOPES: &[Scope] = &[Scope::Server, Scope::TemplatesRead];

    if !caller.may(SCOPES) {
        return Err(ApiError::missing_scope(SCOPES)
            .with_hint("with the query parameter `service` the scope `capacity` suffices"));
    }
    match caller.restrictions().services {
        None => Ok(()),
        Some(_) => Err(ApiError::restricted(
            "the token is restricted to some services: pass the query parameter `service`",
        )),
    }
}

/// # Errors
/// 403.
pub(super) fn template(glob: &str, restrictions: &Restrictions) -> Result<(), ApiError> {
    check(owns_template(glob, restrictions), "template", glob)
}

/// Checks that a caller may read a rule: its services follow it, whatever resource that spends.
///
/// # Errors
/// 403, also if there is no such rule.
pub(super) fn rule(
    rule: Option<&Rule>,
    name: &str,
    restrictions: &Restrictions,
) -> Result<(), ApiError> {
    let covered = rule.is_some_and(|rule| restrictions.covers_services_of(rule));
    check(restrictions.is_unrestricted() || covered, "rule", name)
}

/// Checks that a caller may see figures of all resources and clients together.
///
/// # Errors
/// 403.
pub(super) fn all_resources(restrictions: &Restrictions) -> Result<(), ApiError> {
    if restrictions.clients.is_none() && restrictions.resources.is_none() {
        return Ok(());
    }
    Err(ApiError::restricted(
        "the response covers all resources; the token is restricted to some",
    ))
}

/// Checks that a caller may read and replace the whole document, or read a past one.
///
/// # Errors
/// 403 if it is restricted in any way: it can access only individual templates and rules.
pub(super) fn whole_document(restrictions: &Restrictions) -> Result<(), ApiError> {
    if restrictions.is_unrestricted() {
        return Ok(());
    }
    Err(ApiError::restricted(
        "the request covers the whole document; the token is restricted to some templates and rules",
    ))
}

/// Checks that a caller owns every template and rule that an edit changes, before and after.
///
/// # Errors
/// 403 for the first that it does not own; 422 if its templates and rules become too large.
pub(super) fn edit(
    old: &Document,
    new: &Document,
    restrictions: &Restrictions,
) -> Result<(), ApiError> {
    if restrictions.is_unrestricted() {
        return Ok(());
    }
    let DocumentDiff { templates, rules } = DocumentDiff::between(old, new);
    for change in templates {
        template(&change.name, restrictions)?;
        match new.template(&change.name) {
            Some(template) => {
                lease_length(template, old.longest_lease())?;
                max_capacity(template, restrictions)?;
            }
            None => deletion(&change.name, new, restrictions)?,
        }
    }
    for change in rules {
        let owned = |rule: &Rule| forbidden_fields(rule, restrictions).is_empty();
        check(
            old.rule(&change.name).is_none_or(owned),
            "rule",
            &change.name,
        )?;
        if let Some(rule) = new.rule(&change.name) {
            let fields = forbidden_fields(rule, restrictions);
            check(fields.is_empty(), "rule", &change.name)
                .map_err(|error| error.with_errors(fields))?;
        }
    }
    owned_size(old, new, restrictions)
}

/// The changes of templates and rules that a caller may read. Their order among others is left out.
pub(super) fn own_changes(
    old: &Document,
    new: &Document,
    restrictions: &Restrictions,
) -> DocumentDiff {
    let DocumentDiff {
        mut templates,
        mut rules,
    } = DocumentDiff::between(old, new);
    let is_own = |it: &EntryDiff| it.change != EntryChange::Moved;
    templates.retain(|it| is_own(it) && owns_template(&it.name, restrictions));
    rules.retain(|it| {
        let versions = [old, new].map(|document| document.rule(&it.name));
        let mut versions = versions.into_iter().flatten();
        is_own(it) && versions.all(|rule| restrictions.covers_services_of(rule))
    });
    DocumentDiff { templates, rules }
}

/// A restricted token may fill only a part of the document. Larger parts may only shrink.
fn owned_size(old: &Document, new: &Document, restrictions: &Restrictions) -> Result<(), ApiError> {
    let bytes = owned_bytes(new, restrictions);
    if bytes <= MAX_OWNED_BYTES || bytes <= owned_bytes(old, restrictions) {
        return Ok(());
    }
    let detail = format!(
        "makes the templates and rules of this token {bytes} bytes large; the limit is \
         {MAX_OWNED_BYTES}"
    );
    Err(ApiError::invalid_field("", detail))
}

fn owned_bytes(document: &Document, restrictions: &Restrictions) -> usize {
    let templates = document.templates().iter();
    let templates = templates.filter(|it| owns_template(it.identifier_glob(), restrictions));
    let rules = document.rules().iter();
    let rules = rules.filter(|it| forbidden_fields(it, restrictions).is_empty());
    let sizes = templates
        .map(|it| serde_json::to_vec(it.as_ref()))
        .chain(rules.map(serde_json::to_vec));
    sizes.flatten().map(|text| text.len()).sum()
}

fn owns_template(glob: &str, restrictions: &Restrictions) -> bool {
    restrictions.is_unrestricted()
        || Glob::new(glob).is_ok_and(|glob| restrictions.covers_template(&glob))
}

/// The longest lease affects everybody: after a crash the server learns until it has ended.
fn lease_length(template: &Template, longest: Seconds) -> Result<(), ApiError> {
    if template.algorithm().lease_length <= longest {
        return Ok(());
    }
    let error = FieldError::new(
        "/algorithm/lease_length",
        format!("must be at most {longest}, the longest of the document, for a restricted token"),
    );
    let detail = format!("{} {}", error.pointer, error.detail);
    Err(ApiError::restricted(detail).with_errors(vec![error]))
}

fn max_capacity(template: &Template, restrictions: &Restrictions) -> Result<(), ApiError> {
    let fields = restrictions.above_max_capacity(template);
    match fields.first() {
        None => Ok(()),
        Some(first) => {
            let detail = format!("{} {}", first.pointer, first.detail);
            Err(ApiError::restricted(detail).with_errors(fields))
        }
    }
}

/// Names no other template: the token may not see them.
fn deletion(glob: &str, left: &Document, restrictions: &Restrictions) -> Result<(), ApiError> {
    let (Some(MaxCapacity(max)), Ok(deleted)) = (restrictions.max_capacity, Glob::new(glob)) else {
        return Ok(());
    };
    if !restrictions.frees_by_deletion(&deleted, left.templates()) {
        return Ok(());
    }
    Err(ApiError::restricted(format!(
        "without the template its resources could get more than {max}, the `max_capacity` of the \
         token: set its capacity instead"
    )))
}

fn forbidden_fields(rule: &Rule, restrictions: &Restrictions) -> Vec<FieldError> {
    [
        (!restrictions.covers_services_of(rule)).then(|| FieldError::new("/service", FORBIDDEN)),
        (!restrictions.covers_resources_of(rule)).then(|| FieldError::new("/resource", FORBIDDEN)),
        (!restrictions.allows_priority(rule.definition().priority))
            .then(|| FieldError::new("/priority", above_max_priority(restrictions))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn check(allowed: bool, kind: &str, name: &str) -> Result<(), ApiError> {
    if allowed {
        return Ok(());
    }
    let name: String = name.chars().take(256).collect();
    Err(ApiError::restricted(format!(
        "the token does not allow the {kind} `{name}`"
    )))
}
