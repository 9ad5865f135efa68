//! YAML to a [tree](crate::tree), with positions. JSON files are read here, too: YAML 1.2 contains
//! JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Error, Location as Span, MessageFormatter,
    NonFiniteFloatPolicy, Options, Spanned, budget::BudgetBreach,
};

use crate::{
    diagnostic::{Diagnostic, Location, Position, ValidationErrors, one_line},
    tree::{MAX_DEPTH, MAX_NODES, Node, Value},
};

/// The most parser events that aliases may repeat: thousands of templates can share a section, and
/// a few lines cannot expand to hundreds of megabytes.
const MAX_REPEATED: usize = 200_000;

/// The most bytes of text with aliases expanded.
const MAX_TEXT: usize = 2 * crate::MAX_DOCUMENT_BYTES;

/// Parses YAML.
///
/// # Errors
/// The first syntax error, or an exceeded limit on depth or size.
pub(crate) fn parse(text: &str) -> Result<Node, ValidationErrors> {
    match serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options()) {
        Ok(root) => Ok(node(root, text)),
        Err(error) => Err(diagnostic(&error, text).into()),
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_total_scalar_bytes: MAX_TEXT,
            max_recorded_anchor_bytes: MAX_TEXT,
            // Hundreds of templates may share one section.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPEATED,
        },
        // The only policy that keeps repeated keys.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn diagnostic(error: &Error, text: &str) -> Diagnostic {
    let position = error.location().map(position);
    let message = match root_cause(error) {
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Documents { .. } => {
                "must be a single YAML document, without a further `---`".to_owned()
            }
            BudgetBreach::Depth { .. } => {
                format!("is nested too deeply: at most {MAX_DEPTH} levels")
            }
            _ => too_large(),
        },
        Error::AliasReplayLimitExceeded { .. } => too_large(),
        other => syntax_error(other, position, text),
    };
    Diagnostic::new(position, Location::document(), message)
}

fn too_large() -> String {
    "has too many values or too much text, with aliases expanded".to_owned()
}

fn syntax_error(error: &Error, position: Option<Position>, text: &str) -> String {
    let message = one_line(&DefaultMessageFormatter.format_message(error));
    // YAML reads an unquoted glob that starts with `*` as an alias.
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

/// The error without the wrappers that name the aliases on the way.
fn root_cause(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } =
        error
    {
        error = inner;
    }
    error
}

fn position(span: Span) -> Position {
    Position {
        line: span.line(),
        column: span.column(),
    }
}

/// A value before its text is looked up by its span.
enum Raw {
    Null,
    Bool,
    Number(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<Self>, Spanned<Self>)>),
}

/// Recursion is bounded by [`MAX_DEPTH`].
fn node(raw: Spanned<Raw>, text: &str) -> Node {
    let written = || written(raw.defined, text);
    let value = match raw.value {
        Raw::Null => Value::Null,
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
        position: Some(position(raw.referenced)),
        value,
    }
}

fn written(location: Span, text: &str) -> String {
    let span = location.span();
    let written = || {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        text.get(start..start.checked_add(length)?)
    };
    // A tag makes a number of a quoted text: `!!int "7"`.
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
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Bool)
    }

    // Floats round above 2^53, which is beyond every range of the document.
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
