//! Edits of a document: one template or rule is put, patched or removed, and the result is
//! validated.

use std::collections::BTreeMap;

use doorman_openapi::Glob;
use serde_json::Value as Json;

use crate::{
    Diagnostic, Document, ValidationErrors,
    diagnostic::Location,
    diff, json,
    parse::{feedback, rule, template, unused},
    tree::{Node, Value},
};

#[cfg(test)]
pub(crate) mod tests;

/// An edit was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The entry is invalid. The locations are relative to it.
    #[error("{0}")]
    Invalid(ValidationErrors),
    /// The rest of the document would be invalid.
    #[error("{0}")]
    Conflict(ValidationErrors),
}

/// An edited document.
#[derive(Debug, Clone, PartialEq)]
pub struct Edited {
    /// The document.
    pub document: Document,
    /// Effects that the author may not expect.
    pub notes: EditNotes,
}

/// Effects of an edit that its author may not expect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EditNotes {
    /// The glob of the template that a new one was placed before, because it matches everything
    /// that the new one matches. `None` if that is the one for `*`, and for a name without
    /// wildcards, whose template applies wherever it is.
    pub placed_before: Option<String>,
    /// Whether the author wrote the whole document, so that all of its warnings are news.
    pub replaces_all: bool,
    /// The fields of a replaced entry that the new one leaves out, with the values that are lost:
    /// `safe_capacity: 2`.
    pub dropped: Vec<String>,
}

impl From<Document> for Edited {
    fn from(document: Document) -> Self {
        Self {
            document,
            notes: EditNotes::default(),
        }
    }
}

/// The kind of an entry that an edit changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A template, whose name is its glob.
    Template,
    /// A rule.
    Rule,
}

impl EntryKind {
    /// The name of their list.
    fn list(self) -> &'static str {
        match self {
            Self::Template => "resources",
            Self::Rule => "rules",
        }
    }

    /// The field with the name of an entry.
    fn key(self) -> &'static str {
        match self {
            Self::Template => "identifier_glob",
            Self::Rule => "name",
        }
    }

    /// The fields of an entry, or of one of its sections.
    fn fields(self, section: Option<&str>) -> &'static [&'static str] {
        match (self, section) {
            (Self::Template, None) => template::FIELDS,
            (Self::Template, Some("algorithm")) => template::ALGORITHM_FIELDS,
            (Self::Template, Some("feedback")) => feedback::FIELDS,
            (Self::Rule, None) => rule::FIELDS,
            (Self::Rule, Some("on_limit")) => rule::ON_LIMIT_FIELDS,
            (Self::Rule, Some("outcomes")) => rule::OUTCOMES_FIELDS,
            (Self::Template | Self::Rule, Some(_)) => &[],
        }
    }
}

impl Document {
    /// The document with an entry put under a name. A new template is placed before the first that
    /// matches everything that it matches, such as the one for `*`, else last; a new rule last.
    /// `text` is JSON, in which the name is optional.
    ///
    /// # Errors
    /// [`EditError`] with all errors.
    pub fn with(&self, kind: EntryKind, name: &str, text: &str) -> Result<Edited, EditError> {
        let entry = json::parse(text).map_err(EditError::Invalid)?;
        let mut tree = self.tree().map_err(|_| unreadable())?;
        let Some(index) = self.index_of(kind, name) else {
            let index = self.index_of_new(kind, name);
            let entries = entries(&mut tree, kind)?;
            entries.insert(index.min(entries.len()), Value::Null.into());
            let next = self
                .templates()
                .get(index)
                .filter(|_| kind == EntryKind::Template);
            // The template of a name without wildcards applies wherever it is.
            let is_exact = Glob::new(name).is_ok_and(|it| it.is_literal());
            let next = next.filter(|it| !is_exact && !it.identifier_glob.is_catch_all());
            return Ok(Edited {
                document: Self::with_entry(tree, kind, index, name, entry)?,
                notes: EditNotes {
                    placed_before: next.map(|it| it.identifier_glob().to_owned()),
                    ..EditNotes::default()
                },
            });
        };
        let mut before = self.fields_of(kind, index);
        before.retain(|field, _| !mentions(&entry, field));
        let document = Self::with_entry(tree, kind, index, name, entry)?;
        let after = document.fields_of(kind, index);
        let dropped = before.iter();
        let dropped = dropped.filter(|(field, was)| after.get(*field) != Some(was));
        let dropped = dropped.map(|(field, was)| format!("{field}: {}", diff::text(was)));
        let notes = EditNotes {
            dropped: dropped.collect(),
            ..EditNotes::default()
        };
        Ok(Edited { document, notes })
    }

    /// The document with a JSON merge patch (RFC 7396) applied to an entry; `None` if there is none
    /// with this name.
    ///
    /// # Errors
    /// [`EditError`] with all errors.
    #[must_use]
    pub fn with_patched(
        &self,
        kind: EntryKind,
        name: &str,
        text: &str,
    ) -> Option<Result<Self, EditError>> {
        let index = self.index_of(kind, name)?;
        let patched = json::parse(text)
            .map_err(EditError::Invalid)
            .and_then(|patch| {
                let mut tree = self.tree().map_err(|_| unreadable())?;
                let old = entries(&mut tree, kind)?.get_mut(index);
                let old = old.map(|old| std::mem::replace(old, Value::Null.into()));
                let entry = merged(old, patch, kind, None);
                Self::with_entry(tree, kind, index, name, entry)
            });
        Some(patched)
    }

    /// Replaces the entry at an index, and validates the result.
    fn with_entry(
        mut tree: Node,
        kind: EntryKind,
        index: usize,
        name: &str,
        mut entry: Node,
    ) -> Result<Self, EditError> {
        let mismatch = set_name(&mut entry, kind, name);
        if let Some(old) = entries(&mut tree, kind)?.get_mut(index) {
            *old = entry;
        }
        match (Self::from_tree(&tree), mismatch) {
            (Ok(document), None) => Ok(document),
            (Ok(_), Some(mismatch)) => Err(EditError::Invalid(mismatch.into())),
            (Err(errors), mismatch) => {
                let own = errors.list().iter();
                let own = own.filter(|error| error.is_in(kind.list(), index));
                let own = own.map(Diagnostic::relative_to_entry);
                let own = mismatch.into_iter().chain(own).collect();
                match ValidationErrors::new(own, errors.omitted()) {
                    Some(own) => Err(EditError::Invalid(own)),
                    None => Err(EditError::Conflict(errors)),
                }
            }
        }
    }

    /// The fields of an entry; those of a section are named `section.field`.
    fn fields_of(&self, kind: EntryKind, index: usize) -> BTreeMap<String, Json> {
        match kind {
            EntryKind::Template => self.templates().get(index).map(|it| diff::flattened(&**it)),
            EntryKind::Rule => self.rules().get(index).map(diff::flattened),
        }
        .unwrap_or_default()
    }

    /// The document without an entry; `None` if there is none with this name.
    ///
    /// # Errors
    /// [`EditError::Conflict`] if other templates use its algorithm.
    #[must_use]
    pub fn without(&self, kind: EntryKind, name: &str) -> Option<Result<Self, EditError>> {
        let index = self.index_of(kind, name)?;
        let tree = self.tree().map_err(|_| unreadable());
        let edited = tree.and_then(|mut tree| {
            let entries = entries(&mut tree, kind)?;
            if index < entries.len() {
                entries.remove(index);
            }
            Self::from_tree(&tree).map_err(EditError::Conflict)
        });
        Some(edited)
    }

    fn index_of(&self, kind: EntryKind, name: &str) -> Option<usize> {
        match kind {
            EntryKind::Template => {
                let mut templates = self.templates().iter();
                templates.position(|it| it.identifier_glob() == name)
            }
            EntryKind::Rule => {
                let mut rules = self.rules().iter();
                rules.position(|it| it.definition().name.as_str() == name)
            }
        }
    }

    fn index_of_new(&self, kind: EntryKind, name: &str) -> usize {
        match kind {
            EntryKind::Rule => self.rules().len(),
            EntryKind::Template => {
                let templates = self.templates();
                let is_catch_all = |glob: &Glob| glob.is_catch_all();
                let has_catch_all = templates
                    .last()
                    .is_some_and(|template| is_catch_all(&template.identifier_glob));
                // An invalid glob is reported later.
                let new = Glob::new(name).ok();
                if new.as_ref().is_some_and(is_catch_all) {
                    return templates.len();
                }
                let mut steps = unused::MAX_STEPS;
                let covering = new.and_then(|new| {
                    let mut globs = templates.iter().map(|it| &it.identifier_glob);
                    globs.position(|it| it.is_superset_within(&mut steps, &new))
                });
                let last = templates.len().saturating_sub(usize::from(has_catch_all));
                covering.unwrap_or(last).min(last)
            }
        }
    }
}

/// Whether an entry names a field. `on_limit` is named as a whole: its actions have other fields.
fn mentions(entry: &Node, field: &str) -> bool {
    match field.split_once('.') {
        Some((section @ ("algorithm" | "feedback"), field)) => entry
            .get(section)
            .is_some_and(|section| section.get(field).is_some()),
        Some((section, _)) => entry.get(section).is_some(),
        None => entry.get(field).is_some(),
    }
}

/// Applies a JSON merge patch (RFC 7396) to an entry, or to a section of it. Unknown and repeated
/// fields are kept, so that the parser reports them.
fn merged(target: Option<Node>, patch: Node, kind: EntryKind, section: Option<&str>) -> Node {
    let Value::Map(changes) = patch.value else {
        return patch;
    };
    let mut fields = match target.map(|target| target.value) {
        Some(Value::Map(fields)) => fields,
        _ => Vec::new(),
    };
    let mut unseen = kind.fields(section).to_vec();
    for (key, change) in changes {
        let unseen_at = unseen
            .iter()
            .position(|name| key.value.as_text() == Some(*name));
        let Some(name) = unseen_at.map(|at| unseen.swap_remove(at)) else {
            let mut known = kind.fields(section).iter();
            if let Some(name) = known.find(|name| key.value.as_text() == Some(**name)) {
                // The first one may have removed it.
                fields.push((Node::text(name), Value::Null.into()));
            }
            fields.push((key, change));
            continue;
        };
        let at = fields
            .iter()
            .position(|(it, _)| it.value.as_text() == Some(name));
        let old = at.map(|at| fields.remove(at).1);
        if !matches!(change.value, Value::Null) {
            fields.push((key, merged(old, change, kind, Some(name))));
        }
    }
    Value::Map(fields).into()
}

/// Sets the name of an entry to that of the path. Returns an error if the entry has another name.
fn set_name(entry: &mut Node, kind: EntryKind, name: &str) -> Option<Diagnostic> {
    let Value::Map(fields) = &mut entry.value else {
        // The parser reports it.
        return None;
    };
    let mut written = fields.iter_mut();
    let written = written.find(|(key, _)| key.value.as_text() == Some(kind.key()));
    let Some((_, written)) = written else {
        fields.push((Node::text(kind.key()), Node::text(name)));
        return None;
    };
    if matches!(&written.value, Value::Text(text) if text == name) {
        return None;
    }
    let other = std::mem::replace(written, Node::text(name)).value;
    let message = format!(
        "must be that of the path, {}, or absent, not {other}",
        written.value
    );
    let location = Location::document().field(kind.key());
    Some(Diagnostic::new(None, location, message))
}

/// The entries of a kind in the tree of a document.
fn entries(tree: &mut Node, kind: EntryKind) -> Result<&mut Vec<Node>, EditError> {
    let Value::Map(fields) = &mut tree.value else {
        return Err(unreadable());
    };
    let is_this = |(key, _): &(Node, Node)| key.value.as_text() == Some(kind.list());
    if !fields.iter().any(is_this) {
        let empty = Value::List(Vec::new()).into();
        fields.push((Node::text(kind.list()), empty));
    }
    match fields
        .iter_mut()
        .find(|it| is_this(it))
        .map(|it| &mut it.1.value)
    {
        Some(Value::List(entries)) => Ok(entries),
        _ => Err(unreadable()),
    }
}

fn unreadable() -> EditError {
    let message = "cannot be read in its stored form, and is unchanged";
    EditError::Conflict(Diagnostic::new(None, Location::document(), message).into())
}
