//! An unchecked document: a tree of values with their positions.
//!
//! Serde's data model stops at the first error and drops repeated keys. The tree keeps what is
//! needed to list every error.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::diagnostic::{Position, Quoted};

/// The most levels of nesting.
pub(crate) const MAX_DEPTH: usize = 32;

/// The most values: enough for a document of the largest size with the smallest templates.
pub(crate) const MAX_NODES: usize = 1_000_000;

/// The largest float up to which all integers are exact.
const MAX_EXACT: f64 = (1_u64 << 53) as f64;

/// A value and its position, which is known in YAML.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) position: Option<Position>,
    pub(crate) value: Value,
}

/// A value. Maps keep the order of their keys, and repeated keys.
#[derive(Debug)]
pub(crate) enum Value {
    Null,
    /// As written: a description may be the word `true`.
    Bool(String),
    /// With its text: errors quote `1e999`, not `inf`, and the identifier `007` keeps its zeros.
    Number {
        value: f64,
        written: String,
    },
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// A text without a position.
    pub(crate) fn text(text: &str) -> Self {
        Value::Text(text.to_owned()).into()
    }

    /// The first value of a key, if this is a map.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let mut entries = entries.iter();
        let (_, value) = entries.find(|(key, _)| key.value.as_text() == Some(name))?;
        Some(value)
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self {
            position: None,
            value,
        }
    }
}

impl Value {
    /// The value as text. Doorman's own files leave numbers and booleans unquoted where text is
    /// expected.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bool(written) | Self::Number { written, .. } => Some(written),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }
}

/// Names the value in an error, on one line of bounded length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("empty"),
            Self::Bool(written) | Self::Number { written, .. } if is_plain(written) => {
                f.write_str(written)
            }
            Self::Bool(written) | Self::Number { written, .. } => Quoted(written).fmt(f),
            Self::Text(text) => write!(f, "the text {}", Quoted(text)),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a map"),
        }
    }
}

/// YAML accepts `True` and `TRUE`, too.
pub(crate) fn is_true(written: &str) -> bool {
    written.eq_ignore_ascii_case("true")
}

fn is_plain(written: &str) -> bool {
    (1..=40).contains(&written.len()) && written.bytes().all(|byte| byte.is_ascii_graphic())
}

/// For people: whole numbers have no `.0`.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_none(),
            Value::Bool(written) => serializer.serialize_bool(is_true(written)),
            Value::Number { value, .. } if value.fract() == 0.0 && value.abs() < MAX_EXACT => {
                serializer.serialize_i64(*value as i64)
            }
            Value::Number { value, .. } => serializer.serialize_f64(*value),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(entries) => serializer.collect_seq(entries),
            Value::Map(fields) => serializer.collect_map(fields.iter().map(|(key, it)| (key, it))),
        }
    }
}
