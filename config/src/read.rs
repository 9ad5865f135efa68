//! From the tree as written to checked templates and rules, listing every fault on the way.

mod algorithm;
mod fields;
mod grants;
mod parameters;
mod resource;
mod rule;
mod rule_value;
mod rules;
mod template;
mod value;

use std::collections::HashMap;

use doorman_openapi::{CLOCK_DRIFT, Seconds};

use self::{fields::Fields, template::Draft, value::list};
use crate::{
    Grant, MAX_DOCUMENT_BYTES, Rule,
    fault::{Diagnostic, FaultList, Place, Position, Reported, ValidationErrors},
    node::{Node, Value},
    template::Template,
    yaml,
};

#[cfg(test)]
mod tests;

/// What a document says.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) templates: Vec<Template>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) longest_lease: Seconds,
    pub(crate) warnings: Vec<String>,
}

/// Reads a document.
///
/// # Errors
/// Everything that is wrong with it, when anything is.
pub(crate) fn document(text: &str) -> Result<Read, ValidationErrors> {
    tree(&root(text)?)
}

/// Reads a document that is a tree already.
///
/// # Errors
/// Everything that is wrong with it, when anything is.
pub(crate) fn tree(root: &Node) -> Result<Read, ValidationErrors> {
    let mut faults = FaultList::default();
    let read = root_map(root, &mut faults);
    faults.finish(read)
}

/// Reads a list of grants.
///
/// # Errors
/// Everything that is wrong with it, when anything is.
pub(crate) fn grants(text: &str) -> Result<Vec<Grant>, ValidationErrors> {
    let mut faults = FaultList::default();
    let read = grants::root(&root(text)?, &mut faults);
    faults.finish(read)
}

fn root(text: &str) -> Result<Node, ValidationErrors> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!("must be at most {MAX_DOCUMENT_BYTES} bytes");
        return Err(Diagnostic::new(None, Place::document(), message).into());
    }
    yaml::parse(text)
}

fn root_map(root: &Node, faults: &mut FaultList) -> Result<Read, Reported> {
    if let Value::Nothing = root.value {
        let message = "is empty; must have `resources`, a list of templates";
        return Err(faults.add(root.at, Place::document(), message));
    }
    let fields = Fields::read(root, Place::document(), &["resources", "rules"], faults)?;
    let resources = fields.get("resources").ok_or_else(|| {
        let expected = "must be a list of templates";
        fields.missing("resources", expected, faults)
    });
    // Both lists are read before the first failure counts: one fault hides no other.
    let read = resources.and_then(|(node, place)| {
        templates(list(node, place, "a list of templates", faults)?, faults)
    });
    let rules = match fields.get("rules") {
        None => Ok(Vec::new()),
        Some((node, place)) => rules::read(node, place, faults),
    };
    let (mut read, rules) = (read?, rules?);
    read.warnings
        .extend(rules::warnings(&rules, &read.templates));
    read.rules = rules.into_iter().map(|draft| draft.rule).collect();
    Ok(read)
}

fn templates(nodes: &[Node], faults: &mut FaultList) -> Result<Read, Reported> {
    let drafts: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| Draft::read(index, node, faults))
        .collect();
    check_globs(&drafts, faults);
    let catch_all = drafts.iter().flatten().find(|draft| draft.is_catch_all());
    // Every template is finished before the first failure counts: one fault hides no other.
    let templates: Vec<_> = drafts
        .iter()
        .map(|draft| match draft {
            Ok(draft) => draft.finish(catch_all, faults),
            Err(reported) => Err(*reported),
        })
        .collect();
    let templates = templates.into_iter().collect::<Result<Vec<_>, _>>()?;
    let longest_lease = longest_lease(&templates);
    Ok(Read {
        templates,
        rules: Vec::new(),
        longest_lease,
        warnings: warnings(drafts.iter().flatten(), longest_lease),
    })
}

/// The rules on globs that span templates: each stands once, and what matches everything stands
/// last.
fn check_globs(drafts: &[Result<Draft<'_>, Reported>], faults: &mut FaultList) {
    let mut first_uses: HashMap<&str, Position> = HashMap::new();
    let last = drafts.len().saturating_sub(1);
    for (index, draft) in drafts.iter().enumerate() {
        let Some((glob, node, place)) = draft.as_ref().ok().and_then(Draft::identifier_glob) else {
            continue;
        };
        if let Some(first) = first_uses.get(glob.as_str()) {
            let message = format!("must be unique; the same glob stands at {first}");
            faults.add(node.at, place, message);
            continue;
        }
        first_uses.insert(glob.as_str(), node.at);
        if glob.is_catch_all() && index != last {
            let message = "must be the last template, since it matches everything";
            faults.add(node.at, place, message);
        }
    }
}

/// The longest lease under these templates; none without templates. What no template matches does
/// not count: it is granted as asked, so nobody has to know of its leases.
fn longest_lease(templates: &[Template]) -> Seconds {
    let lengths = templates
        .iter()
        .map(|template| template.algorithm().lease_length);
    lengths.fold(Seconds::ZERO, |longest, length| {
        if length > longest { length } else { longest }
    })
}

/// What is allowed, but likely a mistake.
fn warnings<'d>(
    drafts: impl Iterator<Item = &'d Draft<'d>>,
    longest_lease: Seconds,
) -> Vec<String> {
    // To the millisecond: what an operator works out on paper is enough.
    let milliseconds = (longest_lease.get() * CLOCK_DRIFT * 1000.0).round();
    let needed = Seconds::saturating(milliseconds / 1000.0);
    drafts
        .filter_map(|draft| {
            let own = draft.own_terms()?;
            let duration = own.terms.learning_mode_duration?;
            let (node, place) = own.fields.get("learning_mode_duration")?;
            (duration < needed).then(|| {
                let message = format!(
                    "{duration} seconds are shorter than {needed}, the longest lease and what clocks may drift apart meanwhile: \
                     a server that takes over may grant again what is still leased"
                );
                Diagnostic::new(Some(node.at), place, message).to_string()
            })
        })
        .collect()
}
