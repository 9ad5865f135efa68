//! The document: all templates together, and which of them a resource falls under; all rules, and which of them are for a service.

use std::{collections::HashMap, sync::Arc};

use doorman_openapi::{ResourceId, RulesResponse, Seconds};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    MAX_DOCUMENT_BYTES, Rule, Template, ValidationErrors,
    fault::{Diagnostic, Place},
    json,
    node::Node,
    plain::Plain,
    read::{self, Read},
    version::{Hashing, Version},
    yaml,
};

#[cfg(test)]
mod tests;

/// A checked document: it cannot be invalid.
///
/// Serialises to the form that [`parse`](Self::parse) reads, with every default written out; a template that takes its algorithm from the
/// one for everything still does.
#[derive(Debug, Clone)]
pub struct Document {
    templates: Vec<Arc<Template>>,
    by_glob: HashMap<String, Arc<Template>>,
    rules: Vec<Rule>,
    /// Of each rule, in their order: services ask for their rules all the time.
    rule_versions: Vec<Version>,
    longest_lease: Seconds,
    warnings: Vec<String>,
    version: String,
}

impl Document {
    /// The document that is in force when an operator gives none, as YAML with comments; a start for one's own.
    pub const BUILT_IN: &'static str = include_str!("built_in.yaml");

    /// Reads a document, in YAML or in JSON.
    ///
    /// # Errors
    /// [`ValidationErrors`]: everything that is wrong with it, not only the first thing. A wrong document is refused whole.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        read::document(text).map(Self::of)
    }

    /// Reads a document that must be JSON, such as [`to_json`](Self::to_json) writes.
    ///
    /// # Errors
    /// [`ValidationErrors`]: everything that is wrong with it, not only the first thing.
    pub fn parse_json(text: &str) -> Result<Self, ValidationErrors> {
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        Self::of_tree(&json::parse(text)?)
    }

    /// Reads a document that is a tree already.
    pub(crate) fn of_tree(root: &Node) -> Result<Self, ValidationErrors> {
        let document = Self::of(read::tree(root)?);
        // With all defaults written out it may be several times as long, and no longer what anybody could hand in.
        if document.to_json().len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        Ok(document)
    }

    fn of(read: Read) -> Self {
        let templates: Vec<_> = read.templates.into_iter().map(Arc::new).collect();
        let by_glob = templates
            .iter()
            .map(|template| (template.identifier_glob().to_owned(), Arc::clone(template)))
            .collect();
        Self {
            version: Hashing::default()
                .with(templates.iter().map(AsRef::as_ref))
                .with(&read.rules)
                .finish()
                .text(),
            templates,
            by_glob,
            rule_versions: read.rules.iter().map(|rule| Version::of([rule])).collect(),
            rules: read.rules,
            longest_lease: read.longest_lease,
            warnings: read.warnings,
        }
    }

    /// The document as JSON, with every default written out: what `PUT` takes and a store keeps.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Text, numbers that are finite, and names: nothing that could fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The document of [`BUILT_IN`](Self::BUILT_IN).
    ///
    /// # Panics
    /// Never: the text is part of the program, and a test reads it.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(Self::BUILT_IN).expect("the built-in document is valid")
    }

    /// The document as YAML for people, with every default written out. Comments of what it was read from are not kept.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // What is written out can be read, which a property test holds.
        self.tree()
            .map_or_else(|_| yaml::write(self), |tree| yaml::write(&Plain(&tree)))
    }

    /// The same as JSON.
    #[must_use]
    pub fn to_pretty_json(&self) -> String {
        let text = match self.tree() {
            Ok(tree) => serde_json::to_string_pretty(&Plain(&tree)),
            Err(_) => serde_json::to_string_pretty(self),
        };
        text.unwrap_or_default()
    }

    /// The document as if it had been read from what it is written out as.
    pub(crate) fn tree(&self) -> Result<Node, ValidationErrors> {
        json::parse(&self.to_json())
    }

    /// The templates, in the order of the document.
    #[must_use]
    pub fn templates(&self) -> &[Arc<Template>] {
        &self.templates
    }

    /// The template with this glob, to the letter.
    #[must_use]
    pub fn template(&self, identifier_glob: &str) -> Option<&Arc<Template>> {
        self.by_glob.get(identifier_glob)
    }

    /// The rule with this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| rule.definition.name.as_str() == name)
    }

    /// The template that a resource falls under: the one whose glob is, to the letter, the resource's identifier, else the first
    /// in order that matches.
    #[must_use]
    pub fn lookup(&self, id: &ResourceId) -> Option<&Arc<Template>> {
        self.by_glob.get(id.as_str()).or_else(|| {
            self.templates
                .iter()
                .find(|template| template.identifier_glob.matches(id.as_str()))
        })
    }

    /// The rules, in the order of the document.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What the service of this name is told of rules: those that are for it, in the order of the document.
    #[must_use]
    pub fn rules_for(&self, service: &str) -> RulesResponse {
        let rules = self.rules.iter().filter(|rule| rule.applies_to(service));
        RulesResponse {
            version: self.rules_version_for(service),
            rules: rules.map(|rule| rule.definition().clone()).collect(),
        }
    }

    /// The version of [`rules_for`](Self::rules_for) alone. It costs a look at each rule, however much they say.
    #[must_use]
    pub fn rules_version_for(&self, service: &str) -> String {
        let rules = self.rules.iter().zip(&self.rule_versions);
        let told = rules.filter(|(rule, _)| rule.applies_to(service));
        Version::of_versions(told.map(|(_, version)| version)).text()
    }

    /// The longest lease of any template; zero without templates. Resources that no template matches do not count: they are not
    /// divided, so nobody has to know of their leases.
    #[must_use]
    pub fn longest_lease(&self) -> Seconds {
        self.longest_lease
    }

    /// What is allowed, but likely a mistake: one line each, led by its place like a fault.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Identifies what the document says: 32 hexadecimal digits. Documents that mean the same have the same version, however
    /// they are written and on whatever machine they are read.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn too_large() -> ValidationErrors {
    let message =
        format!("must be at most {MAX_DOCUMENT_BYTES} bytes, with every default written out");
    Diagnostic::new(None, Place::document(), message).into()
}

/// Documents are equal when they mean the same, however they are written.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.templates == other.templates && self.rules == other.rules
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let templates: Vec<&Template> = self.templates.iter().map(AsRef::as_ref).collect();
        let mut fields = serializer.serialize_struct("Document", 2)?;
        fields.serialize_field("resources", &templates)?;
        if self.rules.is_empty() {
            fields.skip_field("rules")?;
        } else {
            fields.serialize_field("rules", &self.rules)?;
        }
        fields.end()
    }
}
