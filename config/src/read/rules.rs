//! The list of rules, and what spans them: names that are unique, and resources of which there is any.

use std::collections::{HashMap, hash_map::Entry};

use doorman_openapi::{MAX_RULES, ResourceId, RuleName};

use super::{resource, rule::Draft, value::list};
use crate::{
    fault::{Diagnostic, FaultList, Place, Position, Reported},
    node::Node,
    template::Template,
};

pub(super) fn read<'n>(
    node: &'n Node,
    place: Place,
    faults: &mut FaultList,
) -> Result<Vec<Draft<'n>>, Reported> {
    let nodes = list(node, place.clone(), "a list of rules", faults)?;
    if nodes.len() > MAX_RULES {
        let message = format!(
            "must be at most {MAX_RULES} rules, since each request walks through them, not {}",
            nodes.len()
        );
        return Err(faults.add(node.at, place, message));
    }
    let drafts: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| Draft::read(index, node, faults))
        .collect();
    check_names(drafts.iter().flatten(), faults);
    drafts.into_iter().collect()
}

fn check_names<'d, 'n: 'd>(drafts: impl Iterator<Item = &'d Draft<'n>>, faults: &mut FaultList) {
    let mut first_uses: HashMap<&RuleName, Position> = HashMap::new();
    for (name, node, place) in drafts.filter_map(Draft::name) {
        match first_uses.entry(name) {
            Entry::Vacant(first) => drop(first.insert(node.at)),
            Entry::Occupied(first) => {
                let message = format!("must be unique; the same name stands at {}", first.get());
                faults.add(node.at, place, message);
            }
        }
    }
}

/// What is allowed, but likely a mistake: without a template a resource is granted as asked, so that the rule limits nothing, or, where
/// the server is told so, refused, so that it lets nothing pass.
pub(super) fn warnings(drafts: &[Draft<'_>], templates: &[Template]) -> Vec<String> {
    drafts
        .iter()
        .filter_map(|draft| {
            let resource = draft.rule.definition.resource.as_deref()?;
            let (node, place) = draft.written("resource")?;
            let known = templates.iter().any(|it| may_be_for(it, resource));
            (!known).then(|| {
                let message = "no template matches it, so that it is unlimited, or refused, as `--unmatched` says";
                Diagnostic::new(Some(node.at), place, message).to_string()
            })
        })
        .collect()
}

/// Whether a template is for any of the ids that a rule's resource comes to, as far as that can be told.
fn may_be_for(template: &Template, resource: &str) -> bool {
    let glob = &template.identifier_glob;
    let beginning = resource::beginning(resource);
    glob.may_match_prefix(beginning)
        && (beginning.len() < resource.len()
            || glob.as_str() == resource
            || ResourceId::new(resource).is_ok_and(|id| glob.matches(id.as_str())))
}

#[cfg(test)]
mod tests;
