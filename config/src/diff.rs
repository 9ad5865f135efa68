//! The difference between two documents, in words for people.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use crate::{Document, diagnostic::Quoted};

#[cfg(test)]
mod tests;

/// The difference between two documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentDiff {
    /// The changes of templates.
    pub templates: Vec<EntryDiff>,
    /// The changes of rules.
    pub rules: Vec<EntryDiff>,
}

/// The change of one template or rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDiff {
    /// The glob of the template, or the name of the rule.
    pub name: String,
    /// The change.
    pub change: EntryChange,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryChange {
    /// The entry is new.
    Added,
    /// The entry was removed.
    Removed,
    /// Fields of the entry changed, such as `capacity: 100 → 50`.
    Changed(Vec<String>),
    /// The entry is equal, but its order relative to others changed.
    Moved,
}

impl DocumentDiff {
    /// Compares two documents. A template that takes the algorithm of the one for `*` is not listed
    /// when that changes.
    #[must_use]
    pub fn between(old: &Document, new: &Document) -> Self {
        fn templates(of: &Document) -> Vec<(&str, &crate::Template)> {
            let templates = of.templates().iter();
            templates.map(|it| (it.identifier_glob(), &**it)).collect()
        }
        fn rules(of: &Document) -> Vec<(&str, &crate::Rule)> {
            let rules = of.rules().iter();
            rules
                .map(|it| (it.definition().name.as_str(), it))
                .collect()
        }
        Self {
            templates: changes(&templates(old), &templates(new)),
            rules: changes(&rules(old), &rules(new)),
        }
    }

    /// Whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.rules.is_empty()
    }

    /// One line per change: `template "db": capacity: 100 → 50`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let templates = self.templates.iter().map(|it| it.line("template"));
        templates.chain(self.rules.iter().map(|it| it.line("rule")))
    }

    /// The first few changes in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        const MAX_LISTED: usize = 5;
        if self.is_empty() {
            return "nothing".to_owned();
        }
        let all = self.templates.len().saturating_add(self.rules.len());
        let mut text = self.lines().take(MAX_LISTED).collect::<Vec<_>>().join("; ");
        if all > MAX_LISTED {
            text += &format!("; and {} more", all.saturating_sub(MAX_LISTED));
        }
        text
    }
}

impl EntryDiff {
    fn line(&self, kind: &str) -> String {
        let name = Quoted(&self.name);
        match &self.change {
            EntryChange::Added => format!("{kind} {name} added"),
            EntryChange::Removed => format!("{kind} {name} removed"),
            EntryChange::Changed(fields) => format!("{kind} {name}: {}", fields.join(", ")),
            EntryChange::Moved => format!("{kind} {name} moved"),
        }
    }
}

fn changes<T: Serialize + PartialEq>(old: &[(&str, &T)], new: &[(&str, &T)]) -> Vec<EntryDiff> {
    let before: HashMap<_, _> = old.iter().copied().collect();
    let after: HashMap<_, _> = new.iter().copied().collect();
    let kept_old = old.iter().filter(|(name, _)| after.contains_key(name));
    let kept_new = new.iter().filter(|(name, _)| before.contains_key(name));
    let moved: HashSet<_> = kept_old
        .zip(kept_new)
        .filter(|((was, _), (is, _))| was != is)
        .map(|(_, (is, _))| *is)
        .collect();
    let removed = old.iter().filter(|(name, _)| !after.contains_key(name));
    let removed = removed.map(|(name, _)| (*name, EntryChange::Removed));
    let others = new.iter().filter_map(|(name, is)| {
        let change = match before.get(name) {
            None => EntryChange::Added,
            Some(was) => match changed_fields(*was, *is) {
                fields if !fields.is_empty() => EntryChange::Changed(fields),
                _ if moved.contains(name) => EntryChange::Moved,
                _ => return None,
            },
        };
        Some((*name, change))
    });
    removed
        .chain(others)
        .map(|(name, change)| EntryDiff {
            name: name.to_owned(),
            change,
        })
        .collect()
}

/// The fields that differ between two entries of one name, such as `capacity: 100 → 50`.
#[must_use]
pub fn changed_fields<T: Serialize + PartialEq>(was: &T, is: &T) -> Vec<String> {
    if was == is {
        return Vec::new();
    }
    let (was, is) = (flattened(was), flattened(is));
    let names: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    names
        .into_iter()
        .map(|name| (name, was.get(name), is.get(name)))
        .filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| {
            let text = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), text);
            match (text(was), text(is)) {
                // Both are shortened.
                (was, is) if was == is => {
                    format!("{name}: {was} → another value that starts alike")
                }
                (was, is) => format!("{name}: {was} → {is}"),
            }
        })
        .collect()
}

/// The fields of an entry; those of a section are named `section.field`.
pub(crate) fn flattened<T: Serialize>(entry: &T) -> BTreeMap<String, Value> {
    let Ok(Value::Object(fields)) = serde_json::to_value(entry) else {
        return BTreeMap::new();
    };
    let mut flat = BTreeMap::new();
    for (name, value) in fields {
        match value {
            Value::Object(section) => {
                let section = section.into_iter();
                flat.extend(section.map(|(field, value)| (format!("{name}.{field}"), value)));
            }
            value => {
                flat.insert(name, value);
            }
        }
    }
    flat
}

/// A value in words for people.
pub(crate) fn text(value: &Value) -> String {
    match value {
        // 100, not 100.0.
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::String(text) => Quoted(text).to_string(),
        Value::Array(_) | Value::Object(_) => Quoted(&value.to_string()).to_string(),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}
