//! From the tree of a document to checked values. Every error is listed.

mod family;
pub(crate) mod feedback;
mod field;
mod grants;
pub(crate) mod rule;
mod spelling;
pub(crate) mod template;
pub(crate) mod unused;

pub use self::field::suggestion;
use self::field::{Entry, Item};
use crate::{
    Grants, MAX_DOCUMENT_BYTES, Rule,
    diagnostic::{Diagnostic, ErrorCollector, Location, Reported, ValidationErrors},
    template::Template,
    tree::{Node, Value},
    yaml,
};

#[cfg(test)]
mod tests;

/// The content of a valid document.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) templates: Vec<Template>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Parses a document in YAML or JSON.
pub(crate) fn document(text: &str) -> Result<Parsed, ValidationErrors> {
    tree(&root(text)?)
}

/// Parses the rules of a document in YAML or JSON. Its templates are ignored, if it has any.
pub(crate) fn rules(text: &str) -> Result<Vec<Rule>, ValidationErrors> {
    read(&root(text)?, root_rules)
}

/// Parses the tree of a document.
pub(crate) fn tree(root: &Node) -> Result<Parsed, ValidationErrors> {
    read(root, root_map)
}

/// Reads a tree, and returns all of its errors.
fn read<T>(
    root: &Node,
    read: impl FnOnce(&Item<'_>) -> Result<T, Reported>,
) -> Result<T, ValidationErrors> {
    let errors = ErrorCollector::new();
    let parsed = read(&Item::root(root, &errors));
    errors.finish(parsed)
}

impl Grants {
    /// Parses a list of grants in YAML or JSON.
    ///
    /// # Errors
    /// [`ValidationErrors`] with all errors of the list.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        read(&root(text)?, grants::read).map(Self)
    }
}

fn root(text: &str) -> Result<Node, ValidationErrors> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!("must be at most {MAX_DOCUMENT_BYTES} bytes");
        return Err(Diagnostic::new(None, Location::document(), message).into());
    }
    yaml::parse(text)
}

fn root_rules(root: &Item<'_>) -> Result<Vec<Rule>, Reported> {
    root.check_fields(&["resources", "rules"])?;
    match root.get("rules") {
        Some(item) => Ok(values(rule::read(&item)?)),
        None => Err(root.missing("rules", "must be a list of rules")),
    }
}

fn root_map(root: &Item<'_>) -> Result<Parsed, Reported> {
    if let Value::Null = root.node.value {
        return Err(root.error("is empty; must have `resources`, a list of templates"));
    }
    root.check_fields(&["resources", "rules"])?;
    let list = root.get("resources");
    let templates = match &list {
        Some(list) => template::read(list),
        None => Err(root.missing("resources", "must be a list of templates")),
    };
    let rules = root
        .get("rules")
        .map_or(Ok(Vec::new()), |list| rule::read(&list));
    let (templates, rules) = (templates?, rules?);
    let mut warnings = Vec::new();
    warnings.extend(list.and_then(|list| template::catch_all_warning(&list, &templates)));
    warnings.extend(template::warnings(&templates));
    warnings.extend(unused::templates(&templates));
    warnings.extend(spelling::warnings(&templates, &rules));
    warnings.extend(rule::warnings(&rules, &templates));
    warnings.extend(unused::rules(&rules));
    Ok(Parsed {
        templates: values(templates),
        rules: values(rules),
        warnings,
    })
}

fn values<T>(entries: Vec<Entry<'_, T>>) -> Vec<T> {
    entries.into_iter().map(|entry| entry.value).collect()
}
