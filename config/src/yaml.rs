//! The one door to the YAML library: untrusted text in, a bounded tree with positions out; and what is written for people.
//!
//! JSON comes through the same door, since YAML 1.2 contains it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Error, Location, MessageFormatter,
    NonFiniteFloatPolicy, Options, Spanned, budget::BudgetBreach,
};

use crate::{
    fault::{Diagnostic, Place, Position, ValidationErrors},
    node::{Node, Value},
    quote::one_line,
};

/// Far more than a document needs, far less than a stack holds.
const MOST_NESTED: usize = 32;

/// Enough for the smallest possible templates to fill a document of the largest size. What aliases repeat counts too.
const MOST_NODES: usize = 1_000_000;

/// The most that aliases may repeat: a section shared by some ten thousand templates, and no way to grow a few lines into
/// hundreds of megabytes.
const MOST_REPEATED: usize = 200_000;

/// The most text, aliases written out.
const MOST_TEXT: usize = 2 * crate::MAX_DOCUMENT_BYTES;

/// Reads the text into a tree.
///
/// # Errors
/// The first fault of the grammar, or the first breach of the restrictions on depth and size. The parser finds no further ones.
pub(crate) fn parse(text: &str) -> Result<Node, ValidationErrors> {
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options()) {
        Ok(root) => Ok(node(root, text)),
        Err(error) => Err(fault(&error, text).into()),
    }
}

/// Writes what is read again as the same.
pub(crate) fn write<T: serde::Serialize>(value: &T) -> String {
    // Text, numbers that are finite, and names: nothing that could fail to be written.
    serde_saphyr::to_string(value).unwrap_or_default()
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MOST_NESTED,
            max_documents: 1,
            max_nodes: MOST_NODES,
            max_events: 3 * MOST_NODES,
            max_total_scalar_bytes: MOST_TEXT,
            max_recorded_anchor_bytes: MOST_TEXT,
            // What aliases repeat is bounded below; how often they do is not suspicious: hundreds of templates share one section.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MOST_REPEATED,
        },
        // The only policy that lets every entry through: repeated keys are the reader's to name.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // So are numbers that are too large.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn fault(error: &Error, text: &str) -> Diagnostic {
    let position = error.location().map(position);
    let message = match cause(error) {
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Documents { .. } => {
                "must be a single YAML document, without a further `---`".to_owned()
            }
            BudgetBreach::Depth { .. } => {
                format!("is nested too deeply: at most {MOST_NESTED} levels")
            }
            _ => too_much(),
        },
        Error::AliasReplayLimitExceeded { .. } => too_much(),
        other => not_yaml(other, position, text),
    };
    Diagnostic::new(position, Place::document(), message)
}

fn too_much() -> String {
    "has too many values or too much text, with what its aliases repeat".to_owned()
}

fn not_yaml(error: &Error, position: Option<Position>, text: &str) -> String {
    let message = one_line(&DefaultMessageFormatter.format_message(error));
    // An unquoted `*` is the mistake to make in a file full of globs, and YAML takes it for something else entirely.
    let is_alias = position.and_then(|position| char_at(text, position)) == Some('*');
    let hint = if is_alias {
        "; a text that starts with `*` needs quotes: \"*\""
    } else {
        ""
    };
    format!("is not YAML: {message}{hint}")
}

fn char_at(text: &str, position: Position) -> Option<char> {
    let line = usize::try_from(position.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(position.column.checked_sub(1)?).ok()?;
    text.lines().nth(line)?.chars().nth(column)
}

/// The error itself, without the layers that say through which aliases it was met.
fn cause(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } =
        error
    {
        error = inner;
    }
    error
}

fn position(location: Location) -> Position {
    Position {
        line: location.line(),
        column: location.column(),
    }
}

/// What the parser hands over, before the written form of numbers is looked up in the text.
enum Raw {
    Nothing,
    Bool,
    Number(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<Self>, Spanned<Self>)>),
}

/// Recursion is bounded by the parser's own bound on nesting.
fn node(raw: Spanned<Raw>, text: &str) -> Node {
    let written = || written(raw.defined, text);
    let value = match raw.value {
        Raw::Nothing => Value::Nothing,
        Raw::Bool => Value::Bool(written()),
        Raw::Number(value) => Value::Number {
            value,
            written: written(),
        },
        Raw::Text(text) => Value::Text(text),
        Raw::List(entries) => {
            Value::List(entries.into_iter().map(|entry| node(entry, text)).collect())
        }
        Raw::Map(entries) => {
            let entries = entries.into_iter();
            Value::Map(
                entries
                    .map(|(key, value)| (node(key, text), node(value, text)))
                    .collect(),
            )
        }
    };
    Node {
        at: position(raw.referenced),
        value,
    }
}

fn written(location: Location, text: &str) -> String {
    let span = location.span();
    let written = || {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        text.get(start..start.checked_add(length)?)
    };
    // Around a number there are quotes only beside a tag that makes it one: `!!int "7"`.
    let written = written().unwrap_or_default().trim_matches(['"', '\'']);
    written.to_owned()
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Bool)
    }

    // Above 2^53 a float rounds, far beyond every range of the document.
    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Number(number as f64))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Raw, E> {
        Ok(Raw::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Raw::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
