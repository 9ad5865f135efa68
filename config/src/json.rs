//! JSON to a [tree](crate::tree): bodies of HTTP requests, and stored documents.
//!
//! Such text cannot go through the YAML parser: YAML rejects a character escaped as a surrogate
//! pair.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::{
    diagnostic::{Diagnostic, Location, ValidationErrors, one_line},
    tree::{MAX_DEPTH, MAX_NODES, Node, Value},
};

/// Parses JSON. Numbers may be larger than any type holds.
///
/// # Errors
/// The first syntax error, or an exceeded limit on depth or size.
pub(crate) fn parse(text: &str) -> Result<Node, ValidationErrors> {
    let root = syntax::<IgnoredAny>(text).and_then(|_| Reader { nodes: 0 }.node(text, 0));
    root.map_err(|message| Diagnostic::new(None, Location::document(), message).into())
}

fn syntax<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("is not JSON: {}", one_line(&error.to_string())))
}

struct Reader {
    nodes: usize,
}

impl Reader {
    /// Each level scans the text of all levels below it, so the depth limit bounds the work.
    fn node(&mut self, text: &str, depth: usize) -> Result<Node, String> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            return Err("has too many values".to_owned());
        }
        if depth > MAX_DEPTH {
            return Err(format!("is nested too deeply: at most {MAX_DEPTH} levels"));
        }
        let below = depth.saturating_add(1);
        let value = match text.as_bytes().first() {
            Some(b'{') => {
                let Entries(entries) = syntax(text)?;
                let entries = entries.into_iter().map(|(key, value)| {
                    Ok((Value::Text(key).into(), self.node(value.get(), below)?))
                });
                Value::Map(entries.collect::<Result<_, String>>()?)
            }
            Some(b'[') => {
                let elements: Vec<&RawValue> = syntax(text)?;
                let elements = elements.into_iter().map(|it| self.node(it.get(), below));
                Value::List(elements.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Value::Text(syntax(text)?),
            Some(b't' | b'f') => Value::Bool(text.to_owned()),
            Some(b'n') => Value::Null,
            _ => Value::Number {
                value: text.parse().unwrap_or(f64::INFINITY),
                written: text.to_owned(),
            },
        };
        Ok(value.into())
    }
}

/// The entries of a map in order, with repeated keys.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        parse(text).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn json_that_yaml_reads_otherwise() {
        let node = parse("{\"a\": \"\\ud83d\\ude00\\/\",\n\t\"b\": [1e999, -0, true, null]}");
        let node = node.unwrap();
        assert_eq!(node.get("a").unwrap().value.as_text(), Some("😀/"));
        let Value::List(list) = &node.get("b").unwrap().value else {
            panic!("not a list");
        };
        assert_eq!(list[0].value.as_text(), Some("1e999"));
        assert!(matches!(list[1].value, Value::Number { value, .. } if value == 0.0));
        assert_eq!(list[2].value.as_text(), Some("true"));
        assert!(matches!(list[3].value, Value::Null));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}|[ \\n:\\-\\[\\]{}\"\\\\,0-9eu.tfn]{0,200}") {
            let is_json = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            prop_assert!(parse(&text).is_ok() || !is_json, "{}", text);
        }
    }

    #[test]
    fn repeated_keys_are_kept() {
        let node = parse(r#"{"a": 1, "a": 2}"#).unwrap();
        assert!(matches!(node.value, Value::Map(entries) if entries.len() == 2));
    }

    #[test]
    fn invalid_deep_or_large_json_is_rejected() {
        for text in [
            "",
            "a: 1",
            "{'a': 1}",
            "[1,]",
            "{\"a\": 01}",
            "1 2",
            "[\"\u{1}\"]",
        ] {
            assert!(error(text).contains("is not JSON"), "{text}");
        }
        let deep = |levels| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(&deep(32)).is_ok());
        assert!(error(&deep(34)).contains("32 levels"));
        let many = format!("[{}0]", "0,".repeat(MAX_NODES));
        assert!(error(&many).contains("too many values"));
    }
}
