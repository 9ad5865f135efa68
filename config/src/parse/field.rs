//! Typed access to the fields of a tree, with errors.

use std::fmt;

use doorman_openapi::{Glob, Seconds, Unit};

use crate::{
    diagnostic::{Diagnostic, ErrorCollector, Location, Quoted, Reported},
    tree::{Node, Value},
};

/// The type of a field.
#[derive(Debug)]
pub(super) struct FieldType<T> {
    /// In words that follow "must be".
    pub(super) expected: &'static str,
    pub(super) parse: fn(&Value) -> Result<T, Mismatch>,
}

/// The value is not of the type.
#[derive(Debug)]
pub(super) enum Mismatch {
    /// The error is "must be … (expected), not … (the value)".
    Unexpected,
    Message(String),
}

/// A value with its location.
#[derive(Debug, Clone)]
pub(super) struct Item<'n> {
    pub(super) node: &'n Node,
    pub(super) location: Location,
}

impl<'n> Item<'n> {
    pub(super) fn diagnostic(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.node.position, self.location.clone(), message)
    }

    pub(super) fn error(
        &self,
        message: impl Into<String>,
        errors: &mut ErrorCollector,
    ) -> Reported {
        errors.add(self.diagnostic(message))
    }

    /// Parses the value.
    pub(super) fn parse<T>(
        &self,
        of: &FieldType<T>,
        errors: &mut ErrorCollector,
    ) -> Result<T, Reported> {
        (of.parse)(&self.node.value).map_err(|mismatch| self.mismatch(of, mismatch, errors))
    }

    pub(super) fn mismatch<T>(
        &self,
        of: &FieldType<T>,
        mismatch: Mismatch,
        errors: &mut ErrorCollector,
    ) -> Reported {
        let message = match mismatch {
            Mismatch::Unexpected => format!("must be {}, not {}", of.expected, self.node.value),
            Mismatch::Message(message) => message,
        };
        self.error(message, errors)
    }

    /// A field of a map.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        Some(Self {
            node: self.node.get(name)?,
            location: self.location.field(name),
        })
    }

    /// The nodes of a list.
    pub(super) fn nodes(
        &self,
        expected: &str,
        errors: &mut ErrorCollector,
    ) -> Result<&'n [Node], Reported> {
        match &self.node.value {
            Value::List(nodes) => Ok(nodes),
            other => Err(self.error(format!("must be {expected}, not {other}"), errors)),
        }
    }

    /// The elements of a list.
    pub(super) fn list(
        &self,
        expected: &str,
        errors: &mut ErrorCollector,
    ) -> Result<impl Iterator<Item = Self> + use<'n>, Reported> {
        let nodes = self.nodes(expected, errors)?.iter().enumerate();
        let location = self.location.clone();
        Ok(nodes.map(move |(index, node)| Self {
            node,
            location: location.element(index),
        }))
    }

    /// Parses every element of a list.
    pub(super) fn each<T>(
        &self,
        of: &FieldType<T>,
        expected: &str,
        errors: &mut ErrorCollector,
    ) -> Result<Vec<T>, Reported> {
        let items = self.list(expected, errors)?;
        let all: Vec<_> = items.map(|item| item.parse(of, errors)).collect();
        all.into_iter().collect()
    }
}

/// The entries of a list at the top level of the document; `name` is the field with the name of an
/// entry.
pub(super) fn entries<'n>(
    list: &'static str,
    name: &str,
    nodes: &'n [Node],
) -> impl Iterator<Item = Item<'n>> {
    nodes.iter().enumerate().map(move |(index, node)| {
        let name = node.get(name).and_then(|name| name.value.as_text());
        Item {
            node,
            location: Location::entry(list, index, name),
        }
    })
}

/// A map with known fields.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    item: Item<'n>,
    /// Of a repeated field, the first value.
    entries: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Reads a map. Reports unknown, repeated and non-text keys.
    pub(super) fn read(
        item: Item<'n>,
        known: &[&str],
        errors: &mut ErrorCollector,
    ) -> Result<Self, Reported> {
        let Value::Map(written) = &item.node.value else {
            let known = known.join(", ");
            let message = format!(
                "must be a map with the fields {known}, not {}",
                item.node.value
            );
            return Err(item.error(message, errors));
        };
        let mut entries: Vec<(&str, &Node)> = Vec::with_capacity(known.len());
        for (key, value) in written {
            let mut report = |location, message| {
                errors.add(Diagnostic::new(key.position, location, message));
            };
            let Some(name) = key.value.as_text() else {
                let message = format!("must have text for every key, not {}", key.value);
                report(item.location.clone(), message);
                continue;
            };
            if !known.contains(&name) {
                report(item.location.field(name), unknown_field(name, known));
            } else if entries.iter().any(|(earlier, _)| *earlier == name) {
                let message = "must appear only once".to_owned();
                report(item.location.field(name), message);
            } else {
                entries.push((name, value));
            }
        }
        Ok(Self { item, entries })
    }

    /// The map itself.
    pub(super) fn item(&self) -> &Item<'n> {
        &self.item
    }

    pub(super) fn get(&self, name: &str) -> Option<Item<'n>> {
        let (_, node) = self.entries.iter().find(|(known, _)| *known == name)?;
        Some(Item {
            node,
            location: self.item.location.field(name),
        })
    }

    pub(super) fn optional<T>(
        &self,
        name: &str,
        of: &FieldType<T>,
        errors: &mut ErrorCollector,
    ) -> Result<Option<T>, Reported> {
        let item = self.get(name);
        item.map(|item| item.parse(of, errors)).transpose()
    }

    pub(super) fn required<T>(
        &self,
        name: &str,
        of: &FieldType<T>,
        errors: &mut ErrorCollector,
    ) -> Result<T, Reported> {
        self.optional(name, of, errors)?
            .ok_or_else(|| self.missing(name, format_args!("must be {}", of.expected), errors))
    }

    /// Reports a missing field at the position of the map.
    pub(super) fn missing(
        &self,
        name: &str,
        expected: impl fmt::Display,
        errors: &mut ErrorCollector,
    ) -> Reported {
        let location = self.item.location.field(name);
        let message = format!("is missing; {expected}");
        errors.add(Diagnostic::new(self.item.node.position, location, message))
    }
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    match suggestion(name, known) {
        Some(meant) => format!("is not a known field; did you mean {}?", Quoted(meant)),
        None => format!("is not a known field; known are {}", known.join(", ")),
    }
}

/// The known word that a misspelt word most likely means: equal but for case, `-` and `_`, or at
/// most a third of it wrong.
#[must_use]
pub fn suggestion<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // The cost is the product of the lengths.
    const MAX_LEN: usize = 64;
    if word.len() > MAX_LEN {
        return None;
    }
    let folded = |word: &str| word.replace(['_', '-', ' '], "").to_lowercase();
    let word = folded(word);
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(&word, &folded(candidate)), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A word from a fixed list.
pub(super) fn one_of<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, Mismatch> {
    let text = value.as_text();
    let word = words.iter().find(|(word, _)| Some(*word) == text);
    word.map(|(_, meaning)| *meaning)
        .ok_or(Mismatch::Unexpected)
}

pub(super) fn text(value: &Value) -> Result<String, Mismatch> {
    let text = value.as_text().map(str::to_owned);
    text.ok_or(Mismatch::Unexpected)
}

pub(super) fn number<T, E>(value: &Value, new: fn(f64) -> Result<T, E>) -> Result<T, Mismatch> {
    match value {
        Value::Number { value, .. } => new(*value).map_err(|_| Mismatch::Unexpected),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Err(Mismatch::Unexpected)
        }
    }
}

fn glob(value: &Value) -> Result<Glob, Mismatch> {
    let text = text(value)?;
    Glob::new(&text)
        .map_err(|invalid| Mismatch::Message(format!("{invalid}, not {}", Quoted(&text))))
}

pub(super) const GLOB: FieldType<Glob> = FieldType {
    expected: "a glob over identifiers, such as \"tenant/*\"",
    parse: glob,
};

pub(super) const SERVICE_GLOB: FieldType<Glob> = FieldType {
    expected: "a glob over the names of services, such as \"orders*\"",
    parse: glob,
};

/// The shortest duration that is not zero: divisions by it stay finite.
const MIN_DURATION: f64 = 0.001;

pub(super) const DURATION: FieldType<Seconds> = FieldType {
    expected: "a number of seconds from 0.001 to 31536000 (a year)",
    parse: |value| {
        let duration = number(value, Seconds::new)?;
        (duration.get() >= MIN_DURATION)
            .then_some(duration)
            .ok_or(Mismatch::Unexpected)
    },
};

pub(super) const DURATION_OR_ZERO: FieldType<Seconds> = FieldType {
    expected: "a number of seconds from 0 to 31536000 (a year)",
    parse: |value| number(value, Seconds::new),
};

pub(super) const UNIT: FieldType<Unit> = FieldType {
    expected: "rate or gauge",
    parse: |value| one_of(value, &[("rate", Unit::Rate), ("gauge", Unit::Gauge)]),
};

pub(super) const PRIORITY: FieldType<i32> = FieldType {
    expected: "a whole number from -2147483648 to 2147483647",
    parse: |value| {
        number(value, |number| {
            let in_range = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
            (in_range && number.fract() == 0.0)
                .then_some(number as i32)
                .ok_or(())
        })
    },
};

#[cfg(test)]
mod tests {
    use super::suggestion;

    const KNOWN: &[&str] = &[
        "identifier_glob",
        "capacity",
        "safe_capacity",
        "per",
        "unit",
    ];

    #[test]
    fn misspelt_words_have_a_suggestion() {
        for (word, meant) in [
            ("capcity", "capacity"),
            ("capactiy", "capacity"),
            ("Capacity", "capacity"),
            ("safeCapacity", "safe_capacity"),
            ("safe-capacity", "safe_capacity"),
            ("identifierGlob", "identifier_glob"),
            ("indentifier_glob", "identifier_glob"),
            ("pre", "per"),
            ("units", "unit"),
        ] {
            assert_eq!(suggestion(word, KNOWN), Some(meant), "{word}");
        }
    }

    #[test]
    fn distant_words_have_no_suggestion() {
        for word in ["", "x", "limit", "burst", &"capacity".repeat(1_000)] {
            assert_eq!(suggestion(word, KNOWN), None, "{word}");
        }
    }
}
