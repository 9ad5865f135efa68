//! What sets one document apart from another, in words for people.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::Value;

use crate::{Document, quote::Quoted};

#[cfg(test)]
mod tests;

/// What becomes of a document by a change: a list of templates, and one of rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentDiff {
    /// What becomes of templates, by their globs.
    pub templates: Vec<EntryDiff>,
    /// What becomes of rules, by their names.
    pub rules: Vec<EntryDiff>,
}

/// What becomes of one template or rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDiff {
    /// Its glob, or its name.
    pub name: String,
    /// What becomes of it.
    pub change: EntryChange,
}

/// What becomes of a template or rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryChange {
    /// It is new.
    Added,
    /// It goes.
    Removed,
    /// It says something else: a field each, such as `capacity: 100 → 50`.
    Changed(Vec<String>),
    /// It says the same, but stands before or behind others that it did not; which counts, as the first that matches is taken.
    Moved,
}

impl DocumentDiff {
    /// What leads from one document to another. A template that takes its algorithm from the one for everything changes with that, but
    /// is not named for it.
    #[must_use]
    pub fn between(old: &Document, new: &Document) -> Self {
        Self {
            templates: changes(
                old.templates()
                    .iter()
                    .map(|it| (it.identifier_glob(), &**it)),
                new.templates()
                    .iter()
                    .map(|it| (it.identifier_glob(), &**it)),
            ),
            rules: changes(
                old.rules()
                    .iter()
                    .map(|it| (it.definition().name.as_str(), it)),
                new.rules()
                    .iter()
                    .map(|it| (it.definition().name.as_str(), it)),
            ),
        }
    }

    /// Whether both say the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.rules.is_empty()
    }

    /// A line a change: `template "db": capacity: 100 → 50`.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let templates = self.templates.iter().map(|it| ("template", it));
        let rules = self.rules.iter().map(|it| ("rule", it));
        templates
            .chain(rules)
            .map(|(kind, change)| change.in_words(kind))
    }

    /// All of it in one line; of many changes only the first few.
    #[must_use]
    pub fn summary(&self) -> String {
        const MOST: usize = 5;
        let all = self.templates.len().saturating_add(self.rules.len());
        let mut text = self.lines().take(MOST).collect::<Vec<_>>().join("; ");
        if all == 0 {
            text.push_str("nothing");
        } else if all > MOST {
            text += &format!("; and {} more", all.saturating_sub(MOST));
        }
        text
    }
}

impl EntryDiff {
    fn in_words(&self, kind: &str) -> String {
        let name = Quoted(&self.name);
        match &self.change {
            EntryChange::Added => format!("{kind} {name} added"),
            EntryChange::Removed => format!("{kind} {name} removed"),
            EntryChange::Changed(fields) => format!("{kind} {name}: {}", fields.join(", ")),
            EntryChange::Moved => format!("{kind} {name} stands elsewhere"),
        }
    }
}

fn changes<'d, T: Serialize + PartialEq + 'd>(
    old: impl Iterator<Item = (&'d str, &'d T)>,
    new: impl Iterator<Item = (&'d str, &'d T)>,
) -> Vec<EntryDiff> {
    let (old, new): (Vec<_>, Vec<_>) = (old.collect(), new.collect());
    let before: HashMap<_, _> = old.iter().copied().collect();
    let after: HashMap<_, _> = new.iter().copied().collect();
    let moved = moved(
        old.iter()
            .map(|(name, _)| *name)
            .filter(|it| after.contains_key(it)),
        new.iter()
            .map(|(name, _)| *name)
            .filter(|it| before.contains_key(it)),
    );
    let removed = old.iter().filter(|(name, _)| !after.contains_key(name));
    let removed = removed.map(|(name, _)| (*name, EntryChange::Removed));
    let others = new.iter().filter_map(|(name, is)| {
        let Some(was) = before.get(name) else {
            return Some((*name, EntryChange::Added));
        };
        // What is taken from the template for everything may differ without a word here.
        let fields = if was == is {
            Vec::new()
        } else {
            fields(was, is)
        };
        let change = if !fields.is_empty() {
            EntryChange::Changed(fields)
        } else if moved.contains(name) {
            EntryChange::Moved
        } else {
            return None;
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

/// The names that no longer stand in the order of before: those between the first and the last place at which the two orders part.
fn moved<'d>(
    old: impl Iterator<Item = &'d str>,
    new: impl Iterator<Item = &'d str>,
) -> std::collections::HashSet<&'d str> {
    old.zip(new)
        .filter(|(was, is)| was != is)
        .map(|(_, is)| is)
        .collect()
}

/// The fields that two entries of one name differ in. The values are compared, not the words for them, which are cut short.
fn fields<T: Serialize>(was: &T, is: &T) -> Vec<String> {
    let (was, is) = (flat(was), flat(is));
    let names: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    names
        .into_iter()
        .map(|name| (name, was.get(name), is.get(name)))
        .filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| {
            let words = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), in_words);
            let (was, is) = (words(was), words(is));
            if was == is {
                format!("{name}: {was} → one that begins alike")
            } else {
                format!("{name}: {was} → {is}")
            }
        })
        .collect()
}

/// The fields of an entry, those of its sections under their joint name.
fn flat<T: Serialize>(entry: &T) -> BTreeMap<String, Value> {
    let Ok(Value::Object(fields)) = serde_json::to_value(entry) else {
        return BTreeMap::new();
    };
    let mut flat = BTreeMap::new();
    for (name, value) in fields {
        match value {
            Value::Object(section) => flat.extend(
                section
                    .into_iter()
                    .map(|(field, value)| (format!("{name}.{field}"), value)),
            ),
            value => {
                flat.insert(name, value);
            }
        }
    }
    flat
}

fn in_words(value: &Value) -> String {
    match value {
        // As people write it: 100, not 100.0.
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::String(text) => Quoted(text).to_string(),
        Value::Array(_) | Value::Object(_) => Quoted(&value.to_string()).to_string(),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}
