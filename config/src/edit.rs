//! Edits of a document: one template or rule is put or removed, and the result is validated.

use crate::{
    Diagnostic, Document, ValidationErrors,
    diagnostic::Location,
    json,
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

/// The list that an edit changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Templates,
    Rules,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            Self::Templates => "resources",
            Self::Rules => "rules",
        }
    }

    /// The field with the name of an entry.
    fn key(self) -> &'static str {
        match self {
            Self::Templates => "identifier_glob",
            Self::Rules => "name",
        }
    }
}

impl Document {
    /// The document with a template put under a glob. A new template is placed before the one for
    /// `*`, else last. `text` is JSON, in which `identifier_glob` is optional.
    ///
    /// # Errors
    /// [`EditError`] with all errors.
    pub fn with_template(&self, identifier_glob: &str, text: &str) -> Result<Self, EditError> {
        self.with(List::Templates, identifier_glob, text)
    }

    /// The document without a template; `None` if there is none with this glob.
    ///
    /// # Errors
    /// [`EditError::Conflict`] if others use its algorithm.
    #[must_use]
    pub fn without_template(&self, identifier_glob: &str) -> Option<Result<Self, EditError>> {
        self.without(List::Templates, identifier_glob)
    }

    /// The document with a rule put under a name. A new rule is placed last. `text` is JSON, in
    /// which `name` is optional.
    ///
    /// # Errors
    /// [`EditError`] with all errors.
    pub fn with_rule(&self, name: &str, text: &str) -> Result<Self, EditError> {
        self.with(List::Rules, name, text)
    }

    /// The document without a rule; `None` if there is none with this name.
    ///
    /// # Errors
    /// None is known: no rule depends on another.
    #[must_use]
    pub fn without_rule(&self, name: &str) -> Option<Result<Self, EditError>> {
        self.without(List::Rules, name)
    }

    fn with(&self, list: List, name: &str, text: &str) -> Result<Self, EditError> {
        let mut entry = json::parse(text).map_err(EditError::Invalid)?;
        let mismatch = set_name(&mut entry, list, name);
        let mut lists = Lists::of(self)?;
        let entries = lists.entries(list);
        let index = match self.index_of(list, name) {
            Some(index) => {
                if let Some(old) = entries.get_mut(index) {
                    *old = entry;
                }
                index
            }
            None => {
                let index = self.index_of_new(list, name);
                entries.insert(index.min(entries.len()), entry);
                index
            }
        };
        match (Self::from_tree(&lists.into_tree()), mismatch) {
            (Ok(document), None) => Ok(document),
            (Ok(_), Some(mismatch)) => Err(EditError::Invalid(mismatch.into())),
            (Err(errors), mismatch) => {
                let own = errors.list().iter();
                let own = own.filter(|error| error.is_in(list.name(), index));
                let own = own.map(Diagnostic::relative_to_entry);
                let own = mismatch.into_iter().chain(own).collect();
                match ValidationErrors::new(own, errors.omitted()) {
                    Some(own) => Err(EditError::Invalid(own)),
                    None => Err(EditError::Conflict(errors)),
                }
            }
        }
    }

    fn without(&self, list: List, name: &str) -> Option<Result<Self, EditError>> {
        let index = self.index_of(list, name)?;
        let edited = Lists::of(self).and_then(|mut lists| {
            let entries = lists.entries(list);
            if index < entries.len() {
                entries.remove(index);
            }
            Self::from_tree(&lists.into_tree()).map_err(EditError::Conflict)
        });
        Some(edited)
    }

    fn index_of(&self, list: List, name: &str) -> Option<usize> {
        match list {
            List::Templates => {
                let mut templates = self.templates().iter();
                templates.position(|it| it.identifier_glob() == name)
            }
            List::Rules => {
                let mut rules = self.rules().iter();
                rules.position(|it| it.definition().name.as_str() == name)
            }
        }
    }

    fn index_of_new(&self, list: List, name: &str) -> usize {
        match list {
            List::Rules => self.rules().len(),
            List::Templates => {
                let templates = self.templates();
                let has_catch_all = templates
                    .last()
                    .is_some_and(|template| template.identifier_glob.is_catch_all());
                let is_catch_all = name.bytes().all(|byte| byte == b'*');
                let after = usize::from(has_catch_all && !is_catch_all);
                templates.len().saturating_sub(after)
            }
        }
    }
}

/// Sets the name of an entry to that of the path. Returns an error if the entry has another name.
fn set_name(entry: &mut Node, list: List, name: &str) -> Option<Diagnostic> {
    let Value::Map(fields) = &mut entry.value else {
        // The parser reports it.
        return None;
    };
    let mut written = fields.iter_mut();
    let written = written.find(|(key, _)| key.value.as_text() == Some(list.key()));
    let Some((_, written)) = written else {
        fields.push((Node::text(list.key()), Node::text(name)));
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
    let location = Location::document().field(list.key());
    Some(Diagnostic::new(None, location, message))
}

/// The lists of a document as trees.
#[derive(Default)]
struct Lists {
    templates: Vec<Node>,
    rules: Vec<Node>,
}

impl Lists {
    fn of(document: &Document) -> Result<Self, EditError> {
        let lists = document.tree().ok().and_then(Self::of_tree);
        lists.ok_or_else(|| {
            let message = "cannot be read in its stored form, and is unchanged";
            EditError::Conflict(Diagnostic::new(None, Location::document(), message).into())
        })
    }

    /// `None` if there are other fields, which an edit would drop.
    fn of_tree(tree: Node) -> Option<Self> {
        let Value::Map(fields) = tree.value else {
            return None;
        };
        let mut lists = Self::default();
        for (key, node) in fields {
            let name = key.value.as_text()?;
            let mut known = [List::Templates, List::Rules].into_iter();
            let list = known.find(|list| list.name() == name)?;
            let Value::List(entries) = node.value else {
                return None;
            };
            *lists.entries(list) = entries;
        }
        Some(lists)
    }

    fn entries(&mut self, list: List) -> &mut Vec<Node> {
        match list {
            List::Templates => &mut self.templates,
            List::Rules => &mut self.rules,
        }
    }

    fn into_tree(self) -> Node {
        let field = |list: List, entries| (Node::text(list.name()), Value::List(entries).into());
        Value::Map(vec![
            field(List::Templates, self.templates),
            field(List::Rules, self.rules),
        ])
        .into()
    }
}
