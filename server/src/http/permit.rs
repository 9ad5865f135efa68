//! Whether a caller may ask for what it asks for: pure decisions on its restrictions and the checked request.
//!
//! A request is refused whole, with the places of the body that are out of restrictions, so that a layer can go on without those resources.

use std::fmt::Display;

use doorman_config::{Document, DocumentDiff, MAX_DOCUMENT_BYTES, Restrictions, Rule, Template};
use doorman_openapi::{
    CapacityRequest, FieldError, Glob, ReleaseRequest, ResourceId, Seconds, ServerCapacityRequest,
    ServerReleaseRequest,
};

use super::{challenge, read::Faults, refusal::Refusal};

/// The most places of one request that are listed: who asks for many things of others is not worth an answer as long as the request.
const MAX_LISTED: usize = 100;

/// How much of a document a bounded token's templates and rules may fill: a quarter.
const MOST_OWNED_BYTES: usize = MAX_DOCUMENT_BYTES / 4;

/// A request that names whose and what.
pub(super) trait Bounded {
    /// Adds the places that are out of restrictions.
    fn find_faults(&self, restrictions: &Restrictions, faults: &mut Faults);
}

/// Checks a request against the restrictions of its caller.
///
/// # Errors
/// 403 that names the places that are out of restrictions; of very many only the first, and how many more there are.
pub(super) fn check(request: &impl Bounded, restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.is_unrestricted() {
        return Ok(());
    }
    let mut faults = Faults::at_most(MAX_LISTED);
    request.find_faults(restrictions, &mut faults);
    let count = faults.count();
    let errors = faults.into_errors();
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let mut detail = format!("{} {}", first.pointer, first.detail);
    if count > 1 {
        detail += &format!(", and {} more", count.saturating_sub(1));
    }
    Err(challenge::restrictions(detail, errors))
}

/// Checks one resource against the restrictions of a caller.
///
/// # Errors
/// 403 that names it. Nothing depends on whether there is such a resource.
pub(super) fn resource(id: &ResourceId, restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.allows_resource(id.as_str()) {
        return Ok(());
    }
    let detail = format!("the token does not allow the resource `{id}`");
    Err(challenge::restrictions(detail, Vec::new()))
}

/// Checks one client, or node, against the restrictions of a caller.
///
/// # Errors
/// 403 that names it. Nothing depends on whether there is such a client.
pub(super) fn client(name: &str, restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.allows_client(name) {
        return Ok(());
    }
    let detail = format!("the token does not allow the client `{name}`");
    Err(challenge::restrictions(detail, Vec::new()))
}

/// Checks one service against the restrictions of a caller.
///
/// # Errors
/// 403 that names it.
pub(super) fn service(name: &str, restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.allows_service(name) {
        return Ok(());
    }
    let detail = format!("the token does not allow the service `{name}`");
    Err(challenge::restrictions(detail, Vec::new()))
}

/// Checks that a caller may see what speaks of all resources alike.
///
/// # Errors
/// 403 when it is bound to some of them.
pub(super) fn everything(restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.clients.is_none() && restrictions.resources.is_none() {
        return Ok(());
    }
    let detail = "the call tells of all resources, and the token is bound to some";
    Err(challenge::restrictions(detail, Vec::new()))
}

/// Checks that a caller may see and replace the document as a whole, or its history.
///
/// # Errors
/// 403 when it is bound in any respect: what it may touch are single templates and rules.
pub(super) fn whole_document(restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.is_unrestricted() {
        return Ok(());
    }
    let detail =
        "the call is about the whole document, and the token is bound to some templates and rules";
    Err(challenge::restrictions(detail, Vec::new()))
}

/// Checks the template of a glob against the restrictions of a caller.
///
/// # Errors
/// 403 that names it. Nothing depends on whether there is such a template.
pub(super) fn template(identifier_glob: &str, restrictions: &Restrictions) -> Result<(), Refusal> {
    if restrictions.is_unrestricted()
        || Glob::new(identifier_glob).is_ok_and(|glob| restrictions.covers_template(&glob))
    {
        return Ok(());
    }
    Err(not_owned("template", identifier_glob))
}

/// Checks that a caller may see a rule, or that there is none of this name. What its services are told of is no secret to them: what it
/// spends makes no diff.
///
/// # Errors
/// 403 that names it, whether there is such a rule or not.
pub(super) fn rule(
    rule: Option<&Rule>,
    name: &str,
    restrictions: &Restrictions,
) -> Result<(), Refusal> {
    if restrictions.is_unrestricted()
        || rule.is_some_and(|rule| restrictions.covers_services_of(rule))
    {
        return Ok(());
    }
    Err(not_owned("rule", name))
}

/// Checks that a caller owns all that an edit changes: every template that is added, removed, moved or says something else, and every
/// rule, as it was and as it becomes.
///
/// # Errors
/// 403 that names the first of the others; of what is put, the places that are out of restrictions.
pub(super) fn edit(
    old: &Document,
    new: &Document,
    restrictions: &Restrictions,
) -> Result<(), Refusal> {
    if restrictions.is_unrestricted() {
        return Ok(());
    }
    let DocumentDiff { templates, rules } = DocumentDiff::between(old, new);
    for change in templates {
        template(&change.name, restrictions)?;
        if let Some(template) = new.template(&change.name) {
            lease_length(template, old.longest_lease())?;
        }
    }
    for change in rules {
        let was = old.rule(&change.name);
        if was.is_some_and(|rule| !rule_faults(rule, restrictions).is_empty()) {
            return Err(not_owned("rule", &change.name));
        }
        let is = new.rule(&change.name);
        let faults = is.map_or_else(Vec::new, |rule| rule_faults(rule, restrictions));
        if !faults.is_empty() {
            return Err(not_owned("rule", &change.name).with_errors(faults));
        }
    }
    share(old, new, restrictions)
}

/// A document has an end, and is everybody's: who owns a part of it fills no more than a share. What is larger already may only shrink.
fn share(old: &Document, new: &Document, restrictions: &Restrictions) -> Result<(), Refusal> {
    let would = owned_bytes(new, restrictions);
    if would <= MOST_OWNED_BYTES || would <= owned_bytes(old, restrictions) {
        return Ok(());
    }
    let detail = format!(
        "would bring the templates and rules that the token is bound to to {would} bytes, as the document has them; \
         {MOST_OWNED_BYTES} together is the most"
    );
    Err(Refusal::of_faults(vec![fault("", &detail)]))
}

fn owned_bytes(document: &Document, restrictions: &Restrictions) -> usize {
    let templates = document.templates().iter();
    let templates = templates.filter(|it| template(it.identifier_glob(), restrictions).is_ok());
    let rules = document.rules().iter();
    let rules = rules.filter(|it| rule_faults(it, restrictions).is_empty());
    let sizes = templates
        .map(|it| serde_json::to_vec(it.as_ref()))
        .chain(rules.map(serde_json::to_vec));
    sizes.flatten().map(|text| text.len()).sum()
}

/// The longest lease is everybody's: until it has ended, a server that takes over after a crash learns, whatever resource it is of.
fn lease_length(template: &Template, longest: Seconds) -> Result<(), Refusal> {
    if template.algorithm().lease_length <= longest {
        return Ok(());
    }
    let fault = fault(
        "/algorithm/lease_length",
        &format!("must be {longest} at most, the longest of the document: the token is bound"),
    );
    let detail = format!("{} {}", fault.pointer, fault.detail);
    Err(challenge::restrictions(detail, vec![fault]))
}

/// What of a rule is not its writer's to say.
fn rule_faults(rule: &Rule, restrictions: &Restrictions) -> Vec<FieldError> {
    [
        (!restrictions.covers_services_of(rule)).then(|| fault("/service", OTHERS)),
        (!restrictions.covers_resources_of(rule)).then(|| fault("/resource", OTHERS)),
        (!restrictions.allows_priority(rule.definition().priority))
            .then(|| fault("/priority", &above(restrictions.max_priority))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn not_owned(kind: &str, name: &str) -> Refusal {
    let name: String = name.chars().take(256).collect();
    let detail = format!("the token does not allow the {kind} `{name}`");
    challenge::restrictions(detail, Vec::new())
}

fn fault(pointer: impl Display, detail: &str) -> FieldError {
    FieldError {
        pointer: pointer.to_string(),
        detail: detail.to_owned(),
    }
}

const OTHERS: &str = "must be one that the token is bound to";

fn holder(pointer: &str, name: &str, restrictions: &Restrictions, faults: &mut Faults) {
    if !restrictions.allows_client(name) {
        faults.add(pointer, OTHERS);
    }
}

fn above(most: Option<i32>) -> String {
    format!(
        "must be {} at most: the token allows no higher one",
        most.unwrap_or(i32::MAX)
    )
}

impl Bounded for CapacityRequest {
    fn find_faults(&self, restrictions: &Restrictions, faults: &mut Faults) {
        holder("/client_id", self.client_id.as_str(), restrictions, faults);
        let above = above(restrictions.max_priority);
        for (index, asked) in self.resources.iter().enumerate() {
            if !restrictions.allows_resource(asked.resource_id.as_str()) {
                faults.add(format_args!("/resources/{index}/resource_id"), OTHERS);
            }
            if !restrictions.allows_priority(asked.priority) {
                faults.add(format_args!("/resources/{index}/priority"), &*above);
            }
        }
    }
}

impl Bounded for ServerCapacityRequest {
    fn find_faults(&self, restrictions: &Restrictions, faults: &mut Faults) {
        holder("/node_id", self.node_id.as_str(), restrictions, faults);
        let above = above(restrictions.max_priority);
        for (index, asked) in self.resources.iter().enumerate() {
            if !restrictions.allows_resource(asked.resource_id.as_str()) {
                faults.add(format_args!("/resources/{index}/resource_id"), OTHERS);
            }
            for (band, wants) in asked.wants.iter().enumerate() {
                if !restrictions.allows_priority(wants.priority) {
                    let place = format_args!("/resources/{index}/wants/{band}/priority");
                    faults.add(place, &*above);
                }
            }
        }
    }
}

impl Bounded for ReleaseRequest {
    fn find_faults(&self, restrictions: &Restrictions, faults: &mut Faults) {
        holder("/client_id", self.client_id.as_str(), restrictions, faults);
        released(self.resource_ids.as_deref(), restrictions, faults);
    }
}

impl Bounded for ServerReleaseRequest {
    fn find_faults(&self, restrictions: &Restrictions, faults: &mut Faults) {
        holder("/node_id", self.node_id.as_str(), restrictions, faults);
        released(self.resource_ids.as_deref(), restrictions, faults);
    }
}

/// Of a release of all leases, those within the restrictions are meant.
fn released(ids: Option<&[ResourceId]>, restrictions: &Restrictions, faults: &mut Faults) {
    for (index, id) in ids.unwrap_or_default().iter().enumerate() {
        if !restrictions.allows_resource(id.as_str()) {
            faults.add(format_args!("/resource_ids/{index}"), OTHERS);
        }
    }
}
