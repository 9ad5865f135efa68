//! The door for JSON that must be JSON: what comes over HTTP, and what a store keeps.
//!
//! Nearly every JSON text is YAML, but not quite: a character beyond the first plane that is escaped as two surrogates is none. A text
//! that is said to be JSON is therefore read as such, into the same tree with the same restrictions.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::{
    fault::{Diagnostic, Place, Position, ValidationErrors},
    node::{Node, Value},
    quote::one_line,
};

/// As for YAML: far more than a document needs, far less than a stack holds.
const MOST_NESTED: usize = 32;

/// As for YAML: enough for the smallest possible templates to fill a document of the largest size.
const MOST_NODES: usize = 1_000_000;

/// Checks that a text is JSON, whatever it says. Numbers may be larger than any type holds: they are JSON.
///
/// # Errors
/// What is outside the grammar, and where.
pub(crate) fn check(text: &str) -> Result<(), String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(drop)
        .map_err(|error| one_line(&error.to_string()))
}

/// Reads the text into a tree.
///
/// # Errors
/// The first fault of the grammar, or the first breach of the restrictions on depth and size.
pub(crate) fn parse(text: &str) -> Result<Node, ValidationErrors> {
    let whole =
        |message: String| ValidationErrors::from(Diagnostic::new(None, Place::document(), message));
    check(text).map_err(|error| whole(format!("is not JSON: {error}")))?;
    let mut reader = Reader {
        seen: Cursor::new(text),
        nodes: 0,
    };
    reader.node(text, 0).map_err(|Breach(why)| whole(why))
}

/// Why a text that is JSON is no tree.
struct Breach(String);

struct Reader<'t> {
    seen: Cursor<'t>,
    nodes: usize,
}

impl<'t> Reader<'t> {
    /// Reads one value. Each level of nesting is scanned once more for each level above it, so the depth restrictions the work.
    fn node(&mut self, text: &'t str, depth: usize) -> Result<Node, Breach> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        let at = self.seen.advance_to(text);
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MOST_NODES {
            return Err(Breach("has too many values".to_owned()));
        }
        if depth > MOST_NESTED {
            let message = format!("is nested too deeply: at most {MOST_NESTED} levels");
            return Err(Breach(message));
        }
        let below = depth.saturating_add(1);
        let value = match text.as_bytes().first() {
            Some(b'{') => {
                let Entries(entries) = read(text)?;
                let mut map = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let value = self.node(value.get(), below)?;
                    // Where a key stands is told by its value, which is never far.
                    let key = Node {
                        at: value.at,
                        value: Value::Text(key),
                    };
                    map.push((key, value));
                }
                Value::Map(map)
            }
            Some(b'[') => {
                let Elements(elements) = read(text)?;
                let elements = elements.into_iter();
                let list: Result<_, _> = elements
                    .map(|element| self.node(element.get(), below))
                    .collect();
                Value::List(list?)
            }
            Some(b'"') => Value::Text(read(text)?),
            Some(b't' | b'f') => Value::Bool(text.to_owned()),
            Some(b'n') => Value::Nothing,
            _ => Value::Number {
                // Beyond the largest number it is infinite, which no field takes.
                value: text.parse().unwrap_or(f64::INFINITY),
                written: text.to_owned(),
            },
        };
        Ok(Node { at, value })
    }
}

fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Breach> {
    serde_json::from_str(text).map_err(|error| {
        let message = one_line(&error.to_string());
        Breach(format!("is not JSON: {message}"))
    })
}

/// Where we are in the text. It only goes on, so that a text of one long line costs no more than one of many.
struct Cursor<'t> {
    whole: &'t str,
    offset: usize,
    at: Position,
}

impl<'t> Cursor<'t> {
    fn new(whole: &'t str) -> Self {
        Self {
            whole,
            offset: 0,
            at: Position { line: 1, column: 1 },
        }
    }

    /// Goes on to where this part of the text begins.
    fn advance_to(&mut self, part: &'t str) -> Position {
        let target = (part.as_ptr() as usize).saturating_sub(self.whole.as_ptr() as usize);
        if let Some(between) = self.whole.get(self.offset..target) {
            for char in between.chars() {
                if char == '\n' {
                    self.at.line = self.at.line.saturating_add(1);
                    self.at.column = 1;
                } else {
                    self.at.column = self.at.column.saturating_add(1);
                }
            }
            self.offset = target;
        }
        self.at
    }
}

/// The entries of a map in their order, repeated keys and all: those are the reader's to name.
struct Entries<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

struct Elements<'t>(Vec<&'t RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Elements<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    elements.push(element);
                }
                Ok(Elements(elements))
            }
        }

        deserializer.deserialize_seq(Collect)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn faults(text: &str) -> String {
        parse(text).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn reads_what_yaml_takes_for_something_else() {
        let node =
            parse("{\"a\": \"\\ud83d\\ude00\\/\",\n\t\"b\": [1e999, -0, true, null]}").unwrap();
        let Value::Map(entries) = node.value else {
            panic!("not a map");
        };
        assert_eq!(entries[0].1.value.as_text(), Some("😀/"));
        assert_eq!(entries[1].1.at, Position { line: 2, column: 7 });
        let Value::List(list) = &entries[1].1.value else {
            panic!("not a list");
        };
        assert_eq!(list[0].value.as_text(), Some("1e999"));
        assert!(matches!(list[1].value, Value::Number { value, .. } if value == 0.0));
        assert_eq!(list[2].value.as_text(), Some("true"));
        assert!(matches!(list[3].value, Value::Nothing));
        assert_eq!(
            list[3].at,
            Position {
                line: 2,
                column: 25
            }
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}|[ \\n:\\-\\[\\]{}\"\\\\,0-9eu.tfn]{0,200}") {
            let is_json = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            prop_assert!(parse(&text).is_ok() || !is_json, "{}", text);
        }
    }

    #[test]
    fn keeps_keys_that_stand_twice() {
        let node = parse(r#"{"a": 1, "a": 2}"#).unwrap();
        assert!(matches!(node.value, Value::Map(entries) if entries.len() == 2));
    }

    #[test]
    fn refuses_what_is_no_json_or_too_much_of_it() {
        for text in [
            "",
            "a: 1",
            "{'a': 1}",
            "[1,]",
            "{\"a\": 01}",
            "1 2",
            "[\"\u{1}\"]",
        ] {
            assert!(faults(text).contains("is not JSON"), "{text}");
        }
        let deep = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(&deep(32)).is_ok());
        assert!(faults(&deep(34)).contains("32 levels"));
        let many = format!("[{}0]", "0,".repeat(MOST_NODES));
        assert!(faults(&many).contains("too many values"));
    }
}
