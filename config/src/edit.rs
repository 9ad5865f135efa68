//! Editing a document: one template or one rule is put in its place, or taken away, and the whole is checked anew.
//!
//! A document is edited as it is written out, so that what a template takes from the one for everything stays taken from there.

use crate::{
    Diagnostic, Document, ValidationErrors,
    fault::{List, Place, Position},
    json,
    node::{Node, Value},
};

#[cfg(test)]
pub(crate) mod tests;

/// Why an edit does not lead to a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// What was handed in is wrong; each fault names its place in that.
    #[error("{0}")]
    Invalid(ValidationErrors),
    /// The rest of the document would be wrong by it; each fault names its place in the document.
    #[error("{0}")]
    Conflict(ValidationErrors),
}

impl Document {
    /// The document with this template under this glob, in the place of the one that is there, or as a new one: before the one for
    /// everything, else last. `text` is JSON; it may leave the `identifier_glob` out, but not say another.
    ///
    /// # Errors
    /// [`EditError`] with everything that is wrong.
    pub fn with_template(&self, identifier_glob: &str, text: &str) -> Result<Self, EditError> {
        self.with(List::Resources, identifier_glob, text)
    }

    /// The document without the template with this glob; `None` when there is none.
    ///
    /// # Errors
    /// [`EditError::Conflict`] when others take their algorithm from it.
    #[must_use]
    pub fn without_template(&self, identifier_glob: &str) -> Option<Result<Self, EditError>> {
        self.without(List::Resources, identifier_glob)
    }

    /// The document with this rule under this name, in the place of the one that is there, or as a new one behind all others. `text` is
    /// JSON; it may leave the `name` out, but not say another.
    ///
    /// # Errors
    /// [`EditError`] with everything that is wrong.
    pub fn with_rule(&self, name: &str, text: &str) -> Result<Self, EditError> {
        self.with(List::Rules, name, text)
    }

    /// The document without the rule of this name; `None` when there is none.
    ///
    /// # Errors
    /// None that is known: no rule depends on another.
    #[must_use]
    pub fn without_rule(&self, name: &str) -> Option<Result<Self, EditError>> {
        self.without(List::Rules, name)
    }

    fn with(&self, list: List, name: &str, text: &str) -> Result<Self, EditError> {
        let mut entry = json::parse(text).map_err(EditError::Invalid)?;
        let mismatch = give_name(&mut entry, list, name);
        let mut lists = Lists::of(self)?;
        let entries = lists.entries(list);
        let index = match self.index_of(list, name) {
            Some(index) => {
                if let Some(place) = entries.get_mut(index) {
                    *place = entry;
                }
                index
            }
            None => {
                let index = self.place_of_a_new(list, name);
                entries.insert(index.min(entries.len()), entry);
                index
            }
        };
        match (Self::of_tree(&lists.into_tree()), mismatch) {
            (Ok(document), None) => Ok(document),
            (Ok(_), Some(mismatch)) => Err(EditError::Invalid(mismatch.into())),
            (Err(faults), mismatch) => Err(sorted_out(&faults, list, index, mismatch)),
        }
    }

    fn without(&self, list: List, name: &str) -> Option<Result<Self, EditError>> {
        let index = self.index_of(list, name)?;
        Some(self.without_entry(list, index))
    }

    fn without_entry(&self, list: List, index: usize) -> Result<Self, EditError> {
        let mut lists = Lists::of(self)?;
        let entries = lists.entries(list);
        if index < entries.len() {
            entries.remove(index);
        }
        Self::of_tree(&lists.into_tree())
            .map_err(|faults| EditError::Conflict(of_document(&faults)))
    }

    fn index_of(&self, list: List, name: &str) -> Option<usize> {
        match list {
            List::Resources => self
                .templates()
                .iter()
                .position(|template| template.identifier_glob() == name),
            List::Rules => self
                .rules()
                .iter()
                .position(|rule| rule.definition().name.as_str() == name),
        }
    }

    fn place_of_a_new(&self, list: List, name: &str) -> usize {
        match list {
            List::Rules => self.rules().len(),
            List::Resources => {
                let templates = self.templates();
                let last_is_for_all = templates
                    .last()
                    .is_some_and(|template| template.identifier_glob.is_catch_all());
                let is_for_all = name.bytes().all(|byte| byte == b'*');
                let before = usize::from(last_is_for_all && !is_for_all);
                templates.len().saturating_sub(before)
            }
        }
    }
}

fn name_field(list: List) -> &'static str {
    match list {
        List::Resources => "identifier_glob",
        List::Rules => "name",
    }
}

/// Gives an entry the name under which it is put; what is wrong when it says another.
fn give_name(entry: &mut Node, list: List, name: &str) -> Option<Diagnostic> {
    let Value::Map(fields) = &mut entry.value else {
        // The reader says what would be right.
        return None;
    };
    let field = name_field(list);
    let written = fields
        .iter_mut()
        .find(|(key, _)| key.value.as_text() == Some(field));
    let Some((_, written)) = written else {
        let key = nowhere(Value::Text(field.to_owned()));
        fields.push((key, nowhere(Value::Text(name.to_owned()))));
        return None;
    };
    if matches!(&written.value, Value::Text(text) if text == name) {
        return None;
    }
    let message = format!(
        "must be that of the path, {}, or absent, not {}",
        Value::Text(name.to_owned()),
        written.value
    );
    written.value = Value::Text(name.to_owned());
    let place = Place::document().field(field);
    Some(Diagnostic::new(Some(written.at), place, message))
}

/// A document as a tree that can be changed.
#[derive(Default)]
struct Lists {
    resources: Vec<Node>,
    rules: Vec<Node>,
}

impl Lists {
    /// Those of a document.
    fn of(document: &Document) -> Result<Self, EditError> {
        document
            .tree()
            .ok()
            .and_then(Self::of_tree)
            .ok_or_else(unreadable)
    }

    /// Those of a tree that has nothing else; what an edit does not know of, it would lose.
    fn of_tree(tree: Node) -> Option<Self> {
        let Value::Map(fields) = tree.value else {
            return None;
        };
        let mut lists = Self::default();
        for (key, node) in fields {
            let name = key.value.as_text()?;
            let list = [List::Resources, List::Rules]
                .into_iter()
                .find(|list| list.name() == name)?;
            let Value::List(entries) = node.value else {
                return None;
            };
            *lists.entries(list) = entries;
        }
        Some(lists)
    }

    fn entries(&mut self, list: List) -> &mut Vec<Node> {
        match list {
            List::Resources => &mut self.resources,
            List::Rules => &mut self.rules,
        }
    }

    fn into_tree(self) -> Node {
        let field = |list: List, entries| {
            let key = nowhere(Value::Text(list.name().to_owned()));
            (key, nowhere(Value::List(entries)))
        };
        nowhere(Value::Map(vec![
            field(List::Resources, self.resources),
            field(List::Rules, self.rules),
        ]))
    }
}

/// What is written out reads the same, which a property test holds. Should it ever not, nothing is changed.
fn unreadable() -> EditError {
    let message = "as it is written out cannot be read: it is not changed";
    EditError::Conflict(Diagnostic::new(None, Place::document(), message).into())
}

fn nowhere(value: Value) -> Node {
    let at = Position { line: 1, column: 1 };
    Node { at, value }
}

/// Whose faults they are: those of the entry, as long as there are any; else those of the others.
fn sorted_out(
    faults: &ValidationErrors,
    list: List,
    index: usize,
    mismatch: Option<Diagnostic>,
) -> EditError {
    let own = faults.list().iter();
    let own = own.filter_map(|fault| fault.within(list, index));
    let own = mismatch.into_iter().chain(own).collect();
    match ValidationErrors::of(own, faults.omitted()) {
        Some(own) => EditError::Invalid(own),
        None => EditError::Conflict(of_document(faults)),
    }
}

/// ValidationErrors of a document that nobody wrote as it is read here.
fn of_document(faults: &ValidationErrors) -> ValidationErrors {
    let listed = faults
        .list()
        .iter()
        .map(Diagnostic::without_position)
        .collect();
    ValidationErrors::of(listed, faults.omitted()).unwrap_or_else(|| faults.clone())
}
