//! The document: all templates and rules, and lookups in them.

use std::{collections::HashMap, sync::Arc};

use doorman_openapi::{
    ResourceId, Rule as RuleDefinition, RulesResponse, Seconds, escape_hidden_in_lines, is_hidden,
};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    Diagnostic, MAX_DOCUMENT_BYTES, Rule, Template, ValidationErrors,
    diagnostic::Location,
    json,
    parse::{self, Parsed},
    template::longest_lease,
    tree::Node,
    version::{Version, canonical},
};

#[cfg(test)]
mod tests;

/// A valid document.
///
/// Serializes to the form that [`parse`](Self::parse) reads, with all defaults. A template without
/// an `algorithm` stays without.
#[derive(Debug, Clone)]
pub struct Document {
    templates: Vec<Arc<Template>>,
    by_glob: HashMap<String, Arc<Template>>,
    rules: Vec<Rule>,
    /// In the order of `rules`; cached, since every service polls its version.
    rule_versions: Vec<Version>,
    longest_lease: Seconds,
    warnings: Vec<Diagnostic>,
    version: String,
}

impl Document {
    /// The document of a server that has none, as YAML with comments: a start for one's own.
    pub const BUILT_IN: &'static str = include_str!("built_in.yaml");

    /// Parses a document in YAML or JSON.
    ///
    /// # Errors
    /// [`ValidationErrors`] with all errors of the document.
    pub fn parse(text: &str) -> Result<Self, ValidationErrors> {
        parse::document(text).map(Self::new)
    }

    /// Parses a document in JSON, such as [`to_json`](Self::to_json) returns.
    ///
    /// # Errors
    /// [`ValidationErrors`] with all errors of the document.
    pub fn parse_json(text: &str) -> Result<Self, ValidationErrors> {
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        Self::from_tree(&json::parse(text)?)
    }

    pub(crate) fn from_tree(root: &Node) -> Result<Self, ValidationErrors> {
        let document = Self::new(parse::tree(root)?);
        // With its defaults a document may be several times as long, and then could not be put
        // back.
        if document.to_json().len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        Ok(document)
    }

    fn new(parsed: Parsed) -> Self {
        let templates: Vec<_> = parsed.templates.into_iter().map(Arc::new).collect();
        let by_glob = templates
            .iter()
            .map(|template| (template.identifier_glob().to_owned(), Arc::clone(template)))
            .collect();
        let rules = parsed.rules.iter().map(canonical);
        let entries = templates.iter().map(|it| canonical(&**it));
        let entries = entries.chain(rules.clone());
        Self {
            longest_lease: longest_lease(templates.iter().map(AsRef::as_ref)),
            version: Version::of(entries).text(),
            templates,
            by_glob,
            rule_versions: rules.map(|rule| Version::of([rule])).collect(),
            rules: parsed.rules,
            warnings: parsed.warnings,
        }
    }

    /// The document with the rules of another one, which has the templates that they refer to.
    ///
    /// # Errors
    /// [`ValidationErrors`] with all errors of the rules.
    pub fn with_rules(&self, rules: &[RuleDefinition]) -> Result<Self, ValidationErrors> {
        let templates: Vec<&Template> = self.templates.iter().map(AsRef::as_ref).collect();
        let text = serde_json::json!({"resources": templates, "rules": rules}).to_string();
        let document = Self::parse_json(&text)?;
        Ok(Self {
            warnings: Vec::new(),
            ..document
        })
    }

    /// The document as JSON with all defaults, as a store contains it.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The document of [`BUILT_IN`](Self::BUILT_IN).
    ///
    /// # Panics
    /// Never: a test parses the text.
    #[must_use]
    pub fn built_in() -> Self {
        Self::parse(Self::BUILT_IN).expect("the built-in document is valid")
    }

    /// The document as YAML for people, with all defaults and without comments.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let text = match self.tree() {
            Ok(tree) => serde_saphyr::to_string(&tree),
            Err(_) => serde_saphyr::to_string(self),
        };
        let text = text.unwrap_or_default();
        if text.contains(is_hidden) {
            // An escape needs quotes, and YAML contains JSON.
            return escape_hidden_in_lines(&self.to_pretty_json()).into_owned();
        }
        text
    }

    /// The document as indented JSON for people, with all defaults.
    #[must_use]
    pub fn to_pretty_json(&self) -> String {
        let text = match self.tree() {
            Ok(tree) => serde_json::to_string_pretty(&tree),
            Err(_) => serde_json::to_string_pretty(self),
        };
        text.unwrap_or_default()
    }

    pub(crate) fn tree(&self) -> Result<Node, ValidationErrors> {
        json::parse(&self.to_json())
    }

    /// The templates in order.
    #[must_use]
    pub fn templates(&self) -> &[Arc<Template>] {
        &self.templates
    }

    /// The template with exactly this glob.
    #[must_use]
    pub fn template(&self, identifier_glob: &str) -> Option<&Arc<Template>> {
        self.by_glob.get(identifier_glob)
    }

    /// The rule with this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.definition.name.as_str() == name)
    }

    /// The template of a resource: the one whose glob equals the identifier, else the first that
    /// matches.
    #[must_use]
    pub fn lookup(&self, id: &ResourceId) -> Option<&Arc<Template>> {
        self.by_glob.get(id.as_str()).or_else(|| {
            self.templates
                .iter()
                .find(|template| template.identifier_glob.matches(id.as_str()))
        })
    }

    /// The rules in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that apply to a service, in order; all without one.
    #[must_use]
    pub fn rules_for(&self, service: Option<&str>) -> RulesResponse {
        let rules = self.versioned_rules(service);
        RulesResponse {
            version: self.rules_version_for(service),
            rules: rules.map(|(rule, _)| rule.definition().clone()).collect(),
        }
    }

    /// The version of [`rules_for`](Self::rules_for), without copying the rules.
    #[must_use]
    pub fn rules_version_for(&self, service: Option<&str>) -> String {
        let rules = self.versioned_rules(service);
        Version::of(rules.map(|(_, version)| version)).text()
    }

    fn versioned_rules(&self, service: Option<&str>) -> impl Iterator<Item = (&Rule, &Version)> {
        let rules = self.rules.iter().zip(&self.rule_versions);
        rules.filter(move |(rule, _)| service.is_none_or(|service| rule.applies_to(service)))
    }

    /// The longest lease of any template; zero without templates.
    #[must_use]
    pub fn longest_lease(&self) -> Seconds {
        self.longest_lease
    }

    /// The shortest lease of any template; zero without templates. Looks at each of them.
    #[must_use]
    pub fn shortest_lease(&self) -> Seconds {
        let templates = self.templates().iter();
        let lengths = templates.map(|template| template.algorithm().lease_length);
        lengths
            .reduce(|a, b| if b < a { b } else { a })
            .unwrap_or(Seconds::ZERO)
    }

    /// Valid content that is probably a mistake or a risk.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The version, 32 hexadecimal digits: documents with the same meaning have equal versions, on
    /// every machine.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn too_large() -> ValidationErrors {
    let message = format!("must be at most {MAX_DOCUMENT_BYTES} bytes, with all defaults");
    Diagnostic::new(None, Location::document(), message).into()
}

/// Documents are equal if they have the same meaning.
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
        if !self.rules.is_empty() {
            fields.serialize_field("rules", &self.rules)?;
        }
        fields.end()
    }
}
