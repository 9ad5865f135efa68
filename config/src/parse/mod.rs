//! From the tree of a document to checked values. Every error is listed.

mod field;
mod grants;
pub(crate) mod rule;
pub(crate) mod template;
pub(crate) mod unused;

use doorman_openapi::Seconds;

pub use self::field::suggestion;
use self::field::{Fields, Item};
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
    pub(crate) longest_lease: Seconds,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Parses a document in YAML or JSON.
///
/// # Errors
/// All errors of the document.
pub(crate) fn document(text: &str) -> Result<Parsed, ValidationErrors> {
    tree(&root(text)?)
}

/// Parses the rules of a document in YAML or JSON. Its templates are ignored, if it has any.
///
/// # Errors
/// All errors of the rules.
pub(crate) fn rules(text: &str) -> Result<Vec<Rule>, ValidationErrors> {
    let root = root(text)?;
    let mut errors = ErrorCollector::default();
    let parsed = root_rules(&root, &mut errors);
    errors.finish(parsed)
}

/// Parses the tree of a document.
///
/// # Errors
/// All errors of the document.
pub(crate) fn tree(root: &Node) -> Result<Parsed, ValidationErrors> {
    let mut errors = ErrorCollector::default();
    let parsed = root_map(root, &mut errors);
    errors.finish(parsed)
}

impl Grants {
    /// Parses a list of grants in YAML or JSON.
    ///
    /// # Errors
    /// [`ValidationErrors`] with all errors of the list.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        let mut errors = ErrorCollector::default();
        let parsed = grants::read(&root(text)?, &mut errors);
        errors.finish(parsed).map(Self)
    }
}

fn root(text: &str) -> Result<Node, ValidationErrors> {
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!("must be at most {MAX_DOCUMENT_BYTES} bytes");
        return Err(Diagnostic::new(None, Location::document(), message).into());
    }
    yaml::parse(text)
}

fn root_rules(node: &Node, errors: &mut ErrorCollector) -> Result<Vec<Rule>, Reported> {
    let root = Item {
        node,
        location: Location::document(),
    };
    let fields = Fields::read(root, &["resources", "rules"], errors)?;
    match fields.get("rules") {
        Some(item) => {
            let drafts = rule::read(&item, errors)?;
            Ok(drafts.into_iter().map(|draft| draft.rule).collect())
        }
        None => Err(fields.missing("rules", "must be a list of rules", errors)),
    }
}

fn root_map(node: &Node, errors: &mut ErrorCollector) -> Result<Parsed, Reported> {
    let root = Item {
        node,
        location: Location::document(),
    };
    if let Value::Null = node.value {
        let message = "is empty; must have `resources`, a list of templates";
        return Err(root.error(message, errors));
    }
    let fields = Fields::read(root, &["resources", "rules"], errors)?;
    let templates = match fields.get("resources") {
        Some(item) => template::read(&item, errors),
        None => Err(fields.missing("resources", "must be a list of templates", errors)),
    };
    let rules = match fields.get("rules") {
        Some(item) => rule::read(&item, errors),
        None => Ok(Vec::new()),
    };
    let (templates, rules) = (templates?, rules?);
    let longest_lease = template::longest_lease(&templates);
    let mut warnings = Vec::new();
    if let Some(list) = fields.get("resources") {
        warnings.extend(template::catch_all_warning(&list, &templates));
    }
    warnings.extend(template::warnings(&templates, longest_lease));
    warnings.extend(unused::templates(&templates));
    let templates: Vec<_> = templates.into_iter().map(|it| it.template).collect();
    warnings.extend(rule::warnings(&rules, &templates));
    warnings.extend(unused::rules(&rules));
    Ok(Parsed {
        templates,
        rules: rules.into_iter().map(|draft| draft.rule).collect(),
        longest_lease,
        warnings,
    })
}
