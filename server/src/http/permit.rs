//! Whether a caller may ask for what it asks for: pure decisions on its bounds and the checked request.
//!
//! A request is refused whole, with each place of the body that is out of bounds, so that a layer can go on without those resources.

use std::fmt::Display;

use doorman_config::{Bounds, Difference, Document, Glob, Rule, Template};
use doorman_openapi::{
    CapacityRequest, FieldError, ReleaseRequest, ResourceId, Seconds, ServerCapacityRequest,
    ServerReleaseRequest,
};

use super::{challenge, refusal::Refusal};

/// A request that names whose and what.
pub(super) trait Bounded {
    /// The places that are out of bounds.
    fn faults(&self, bounds: &Bounds) -> Vec<FieldError>;
}

/// Checks a request against the bounds of its caller.
///
/// # Errors
/// 403 that names every place that is out of bounds.
pub(super) fn check(request: &impl Bounded, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.are_none() {
        return Ok(());
    }
    let errors = request.faults(bounds);
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let mut detail = format!("{} {}", first.pointer, first.detail);
    if errors.len() > 1 {
        detail += &format!(", and {} more", errors.len().saturating_sub(1));
    }
    Err(challenge::bounds(detail, errors))
}

/// Checks one resource against the bounds of a caller.
///
/// # Errors
/// 403 that names it. Nothing depends on whether there is such a resource.
pub(super) fn resource(id: &ResourceId, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.allow_resource(id.as_str()) {
        return Ok(());
    }
    let detail = format!("the token does not allow the resource `{id}`");
    Err(challenge::bounds(detail, Vec::new()))
}

/// Checks one service against the bounds of a caller.
///
/// # Errors
/// 403 that names it.
pub(super) fn service(name: &str, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.allow_service(name) {
        return Ok(());
    }
    let detail = format!("the token does not allow the service `{name}`");
    Err(challenge::bounds(detail, Vec::new()))
}

/// Checks that a caller may see what speaks of all resources alike.
///
/// # Errors
/// 403 when it is bound to some of them.
pub(super) fn everything(bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.clients.is_none() && bounds.resources.is_none() {
        return Ok(());
    }
    let detail = "the call tells of all resources, and the token is bound to some";
    Err(challenge::bounds(detail, Vec::new()))
}

/// Checks that a caller may see and replace the document as a whole, or its history.
///
/// # Errors
/// 403 when it is bound in any respect: what it may touch are single templates and rules.
pub(super) fn whole_document(bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.are_none() {
        return Ok(());
    }
    let detail =
        "the call is about the whole document, and the token is bound to some templates and rules";
    Err(challenge::bounds(detail, Vec::new()))
}

/// Checks the template of a glob against the bounds of a caller.
///
/// # Errors
/// 403 that names it. Nothing depends on whether there is such a template.
pub(super) fn template(identifier_glob: &str, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.are_none() || Glob::new(identifier_glob).is_ok_and(|glob| bounds.own_template(&glob))
    {
        return Ok(());
    }
    Err(not_owned("template", identifier_glob))
}

/// Checks that a caller may see a rule, or that there is none of this name. What its services are told of is no secret to them: what it
/// spends makes no difference.
///
/// # Errors
/// 403 that names it, whether there is such a rule or not.
pub(super) fn rule(rule: Option<&Rule>, name: &str, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.are_none() || rule.is_some_and(|rule| bounds.own_services(rule)) {
        return Ok(());
    }
    Err(not_owned("rule", name))
}

/// Checks that a caller owns all that an edit changes: every template that is added, removed, moved or says something else, and every
/// rule, as it was and as it becomes.
///
/// # Errors
/// 403 that names the first of the others; of what is put, the places that are out of bounds.
pub(super) fn edit(old: &Document, new: &Document, bounds: &Bounds) -> Result<(), Refusal> {
    if bounds.are_none() {
        return Ok(());
    }
    let Difference { templates, rules } = Difference::between(old, new);
    for change in templates {
        template(&change.name, bounds)?;
        if let Some(template) = new.template(&change.name) {
            lease_length(template, old.longest_lease())?;
        }
    }
    for change in rules {
        let was = old.rule(&change.name);
        if was.is_some_and(|rule| !rule_faults(rule, bounds).is_empty()) {
            return Err(not_owned("rule", &change.name));
        }
        let is = new.rule(&change.name);
        let faults = is.map_or_else(Vec::new, |rule| rule_faults(rule, bounds));
        if !faults.is_empty() {
            return Err(not_owned("rule", &change.name).with_errors(faults));
        }
    }
    Ok(())
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
    Err(challenge::bounds(detail, vec![fault]))
}

/// What of a rule is not its writer's to say.
fn rule_faults(rule: &Rule, bounds: &Bounds) -> Vec<FieldError> {
    [
        (!bounds.own_services(rule)).then(|| fault("/service", OTHERS)),
        (!bounds.allow_spending(rule)).then(|| fault("/resource", OTHERS)),
        (!bounds.allow_priority(rule.stated().priority))
            .then(|| fault("/priority", &above(bounds.max_priority))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn not_owned(kind: &str, name: &str) -> Refusal {
    let name: String = name.chars().take(256).collect();
    let detail = format!("the token does not allow the {kind} `{name}`");
    challenge::bounds(detail, Vec::new())
}

fn fault(pointer: impl Display, detail: &str) -> FieldError {
    FieldError {
        pointer: pointer.to_string(),
        detail: detail.to_owned(),
    }
}

const OTHERS: &str = "must be one that the token is bound to";

fn holder(pointer: &str, name: &str, bounds: &Bounds) -> Option<FieldError> {
    (!bounds.allow_client(name)).then(|| fault(pointer, OTHERS))
}

fn resources<'a>(
    ids: impl Iterator<Item = (String, &'a ResourceId)>,
    bounds: &Bounds,
) -> impl Iterator<Item = FieldError> {
    ids.filter(|(_, id)| !bounds.allow_resource(id.as_str()))
        .map(|(pointer, _)| fault(pointer, OTHERS))
}

fn above(most: Option<i32>) -> String {
    format!(
        "must be {} at most: the token allows no higher one",
        most.unwrap_or(i32::MAX)
    )
}

impl Bounded for CapacityRequest {
    fn faults(&self, bounds: &Bounds) -> Vec<FieldError> {
        let mut faults: Vec<_> = holder("/client_id", self.client_id.as_str(), bounds)
            .into_iter()
            .collect();
        for (index, asked) in self.resources.iter().enumerate() {
            let id = (
                format!("/resources/{index}/resource_id"),
                &asked.resource_id,
            );
            faults.extend(resources([id].into_iter(), bounds));
            if !bounds.allow_priority(asked.priority) {
                let pointer = format!("/resources/{index}/priority");
                faults.push(fault(pointer, &above(bounds.max_priority)));
            }
        }
        faults
    }
}

impl Bounded for ServerCapacityRequest {
    fn faults(&self, bounds: &Bounds) -> Vec<FieldError> {
        let mut faults: Vec<_> = holder("/node_id", self.node_id.as_str(), bounds)
            .into_iter()
            .collect();
        for (index, asked) in self.resources.iter().enumerate() {
            let id = (
                format!("/resources/{index}/resource_id"),
                &asked.resource_id,
            );
            faults.extend(resources([id].into_iter(), bounds));
            for (band, wants) in asked.wants.iter().enumerate() {
                if !bounds.allow_priority(wants.priority) {
                    let pointer = format!("/resources/{index}/wants/{band}/priority");
                    faults.push(fault(pointer, &above(bounds.max_priority)));
                }
            }
        }
        faults
    }
}

impl Bounded for ReleaseRequest {
    fn faults(&self, bounds: &Bounds) -> Vec<FieldError> {
        release(
            ("/client_id", self.client_id.as_str()),
            self.resource_ids.as_deref(),
            bounds,
        )
    }
}

impl Bounded for ServerReleaseRequest {
    fn faults(&self, bounds: &Bounds) -> Vec<FieldError> {
        release(
            ("/node_id", self.node_id.as_str()),
            self.resource_ids.as_deref(),
            bounds,
        )
    }
}

/// Of a release of all leases, those within the bounds are meant.
fn release(
    (pointer, name): (&str, &str),
    ids: Option<&[ResourceId]>,
    bounds: &Bounds,
) -> Vec<FieldError> {
    let ids = ids.unwrap_or_default().iter().enumerate();
    let ids = ids.map(|(index, id)| (format!("/resource_ids/{index}"), id));
    holder(pointer, name, bounds)
        .into_iter()
        .chain(resources(ids, bounds))
        .collect()
}
