//! The document as it was written: values with their places, nothing checked yet.

use std::fmt;

use crate::{fault::Position, quote::Quoted};

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

/// What can be written. Keys keep their order and their repetitions, so that the reader can name every fault.
#[derive(Debug)]
pub(crate) enum Value {
    Nothing,
    /// A truth value, as written. No field takes one, but a description may happen to be the word `true`.
    Bool(String),
    /// A number, and how it was written: faults repeat `1e999`, not `inf`, and an identifier `007` keeps its zeros.
    Number {
        value: f64,
        written: String,
    },
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// The value as text. A plain number or truth value counts as the text it was written as: the original's reader of
    /// documents took it so wherever a text was called for.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bool(written) | Self::Number { written, .. } => Some(written),
            Self::Nothing | Self::List(_) | Self::Map(_) => None,
        }
    }
}

/// Names the value in a fault, on one line and of bounded length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("empty"),
            // Shorter than any written form that could carry something else into the line.
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

fn is_plain(written: &str) -> bool {
    (1..=40).contains(&written.len()) && written.bytes().all(|byte| byte.is_ascii_graphic())
}
