//! Typed access to the fields of a tree, with errors.

use std::{collections::HashMap, fmt, num::NonZeroU32};

use doorman_openapi::{Capacity, Glob, Seconds, Unit};
use serde::de::DeserializeOwned;

use crate::{
    diagnostic::{Diagnostic, ErrorCollector, Location, Quoted, Reported},
    tree::{Node, Value, is_true},
    words::value_of,
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

/// A value with its location, and the collector of its errors.
#[derive(Debug, Clone)]
pub(super) struct Item<'n> {
    pub(super) node: &'n Node,
    location: Location,
    errors: &'n ErrorCollector,
}

/// A valid entry of a list, as written and as parsed.
#[derive(Debug)]
pub(super) struct Entry<'n, T> {
    pub(super) item: Item<'n>,
    pub(super) value: T,
}

impl<'n> Item<'n> {
    /// The whole document.
    pub(super) fn root(node: &'n Node, errors: &'n ErrorCollector) -> Self {
        Self {
            node,
            location: Location::document(),
            errors,
        }
    }

    fn at(&self, node: &'n Node, location: Location) -> Self {
        let errors = self.errors;
        Self {
            node,
            location,
            errors,
        }
    }

    pub(super) fn diagnostic(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.node.position, self.location.clone(), message)
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Reported {
        self.errors.add(self.diagnostic(message))
    }

    /// Parses the value.
    pub(super) fn parse<T>(&self, of: &FieldType<T>) -> Result<T, Reported> {
        (of.parse)(&self.node.value).map_err(|mismatch| self.mismatch(of, mismatch))
    }

    pub(super) fn mismatch<T>(&self, of: &FieldType<T>, mismatch: Mismatch) -> Reported {
        self.error(match mismatch {
            Mismatch::Unexpected => format!("must be {}, not {}", of.expected, self.node.value),
            Mismatch::Message(message) => message,
        })
    }

    /// A field of a map; of a repeated one the first.
    pub(super) fn get(&self, name: &str) -> Option<Self> {
        let node = self.node.get(name)?;
        Some(self.at(node, self.location.field(name)))
    }

    pub(super) fn optional<T>(&self, name: &str, of: &FieldType<T>) -> Result<Option<T>, Reported> {
        self.get(name).map(|item| item.parse(of)).transpose()
    }

    pub(super) fn required<T>(&self, name: &str, of: &FieldType<T>) -> Result<T, Reported> {
        self.optional(name, of)?
            .ok_or_else(|| self.missing(name, format_args!("must be {}", of.expected)))
    }

    /// Reports a missing field at the position of the map.
    pub(super) fn missing(&self, name: &str, expected: impl fmt::Display) -> Reported {
        let location = self.location.field(name);
        self.at(self.node, location)
            .error(format!("is missing; {expected}"))
    }

    /// Checks that this is a map. Reports unknown, repeated and non-text keys.
    pub(super) fn check_fields(&self, known: &[&str]) -> Result<(), Reported> {
        let Value::Map(written) = &self.node.value else {
            let (known, value) = (known.join(", "), &self.node.value);
            return Err(self.error(format!(
                "must be a map with the fields {known}, not {value}"
            )));
        };
        let mut seen: Vec<&str> = Vec::with_capacity(known.len());
        for (key, _) in written {
            let Some(name) = key.value.as_text() else {
                let message = format!("must have text for every key, not {}", key.value);
                self.at(key, self.location.clone()).error(message);
                continue;
            };
            let message = if !known.contains(&name) {
                unknown_field(name, known)
            } else if seen.contains(&name) {
                "must appear only once".to_owned()
            } else {
                seen.push(name);
                continue;
            };
            self.at(key, self.location.field(name)).error(message);
        }
        Ok(())
    }

    fn nodes(&self, expected: &str) -> Result<&'n [Node], Reported> {
        match &self.node.value {
            Value::List(nodes) => Ok(nodes),
            other => Err(self.error(format!("must be {expected}, not {other}"))),
        }
    }

    /// The elements of a list.
    pub(super) fn list(&self, expected: &str) -> Result<impl Iterator<Item = Self>, Reported> {
        let nodes = self.nodes(expected)?.iter().enumerate();
        Ok(nodes.map(|(index, node)| self.at(node, self.location.element(index))))
    }

    /// Parses every element of a list.
    pub(super) fn each<T>(&self, of: &FieldType<T>, expected: &str) -> Result<Vec<T>, Reported> {
        all(self.list(expected)?.map(|item| item.parse(of)))
    }

    /// The entries of a list at the top level of the document; `key` is the field with the name of
    /// an entry.
    pub(super) fn entries(
        &self,
        list: &'static str,
        key: &str,
        expected: &str,
    ) -> Result<Vec<Self>, Reported> {
        let nodes = self.nodes(expected)?.iter().enumerate();
        let entries = nodes.map(|(index, node)| {
            let name = node.get(key).and_then(|name| name.value.as_text());
            self.at(node, Location::entry(list, index, name))
        });
        Ok(entries.collect())
    }
}

/// All values, if all are valid. Every result is computed, so that no error hides another.
pub(super) fn all<T>(
    results: impl Iterator<Item = Result<T, Reported>>,
) -> Result<Vec<T>, Reported> {
    let results: Vec<_> = results.collect();
    results.into_iter().collect()
}

/// Reports entries whose field `key` is that of an earlier one. `name` is the name of the field for
/// people.
pub(super) fn check_unique(items: &[Item<'_>], list: &str, key: &str, name: &str) {
    let mut seen = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let Some(field) = item.get(key) else { continue };
        let Some(text) = field.node.value.as_text() else {
            continue;
        };
        let first = *seen.entry(text).or_insert(index);
        if first != index {
            field.error(format!(
                "must be unique; {list}[{first}] has the same {name}"
            ));
        }
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

/// The error for a text that is none of the known words, but may mean one of them.
pub(super) fn misspelt(text: &str, expected: &str, known: &[&str]) -> Mismatch {
    match suggestion(text, known) {
        Some(meant) => Mismatch::Message(format!(
            "must be {expected}, not {}; did you mean {meant}?",
            Quoted(text)
        )),
        None => Mismatch::Unexpected,
    }
}

/// A word that stands for a value.
pub(super) fn word<T: DeserializeOwned>(value: &Value) -> Result<T, Mismatch> {
    let known = value.as_text().and_then(value_of);
    known.ok_or(Mismatch::Unexpected)
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

/// The most that a bucket may hold, in seconds of its rate.
const MAX_BURST: f64 = 86_400.0;

pub(super) const BURST: FieldType<Seconds> = FieldType {
    expected: "a number of seconds from 0 to 86400 (a day)",
    parse: |value| {
        let is_short = |burst: &Seconds| burst.get() <= MAX_BURST;
        number(value, Seconds::new).and_then(|it| {
            let burst = Some(it).filter(is_short);
            burst.ok_or(Mismatch::Unexpected)
        })
    },
};

pub(super) const UNIT: FieldType<Unit> = FieldType {
    expected: "rate or gauge",
    parse: word,
};

pub(super) const CAPACITY: FieldType<Capacity> = FieldType {
    expected: "a number from 0 to 1e15",
    parse: |value| number(value, Capacity::new),
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

pub(super) const BOOL: FieldType<bool> = FieldType {
    expected: "true or false",
    parse: |value| match value {
        Value::Bool(written) => Ok(is_true(written)),
        Value::Null | Value::Number { .. } | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            Err(Mismatch::Unexpected)
        }
    },
};

pub(super) const CLIENT_COUNT: FieldType<NonZeroU32> = FieldType {
    expected: "a whole number from 1 to 4294967295",
    parse: |value| {
        number(value, |number| {
            let is_count = number <= f64::from(u32::MAX) && number.fract() == 0.0;
            let count = is_count.then_some(number as u32);
            count.and_then(NonZeroU32::new).ok_or(())
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
