//! Templates of resource ids: `tenant/{header:x-tenant}/{route}`.

use std::sync::Arc;

use http::HeaderName;

use super::{
    Maker, Part, Value,
    encode::{MAX_ID, MAX_SHORT, is_never_in_a_value, push_text},
};

/// Why a text is not a template of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// A placeholder that does not exist.
    #[error(
        "unknown placeholder {{{0}}}: there are {{header:NAME}}, {{method}}, {{route}} and {{peer}}"
    )]
    UnknownPlaceholder(String),
    /// A name that no header can have.
    #[error("{{header:{0}}} names no header that can be")]
    InvalidHeader(String),
    /// A brace without its other.
    #[error(
        "unbalanced brace at byte {0}: a placeholder is {{header:NAME}}, {{method}}, {{route}} or {{peer}}"
    )]
    UnbalancedBrace(usize),
    /// Two placeholders with nothing between them that no value can contain: a sender could move characters from one value to the
    /// other, and so come by the key of somebody else.
    #[error(
        "nothing separates the placeholder that ends at byte {0} from the next: put something between them that no value contains, such as `/`"
    )]
    Unseparated(usize),
    /// There is nothing in it.
    #[error("a key cannot be empty")]
    Empty,
    /// The constant text leaves too little room for the values.
    #[error(
        "the constant text is too long: with 40 bytes a placeholder it comes to {0} of at most 256 bytes"
    )]
    TooLong(usize),
}

/// A closure, and the placeholder that stands for its value.
type Named = (String, Arc<Maker>);

pub(super) fn parse(template: &str, makers: &[Named]) -> Result<Vec<Part>, InvalidKey> {
    let mut parts = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let at = template.len().saturating_sub(rest.len());
        let (text, tail) = match rest.split_once('{') {
            Some((text, tail)) => (text, Some(tail)),
            None => (rest, None),
        };
        if let Some(brace) = text.find('}') {
            return Err(InvalidKey::UnbalancedBrace(at.saturating_add(brace)));
        }
        if !text.is_empty() {
            let mut clean = String::new();
            push_text(&mut clean, text);
            parts.push(Part::Text(clean.into()));
        }
        let Some(tail) = tail else { break };
        let opening = at.saturating_add(text.len());
        let (name, tail) = tail
            .split_once('}')
            .filter(|(name, _)| !name.contains('{'))
            .ok_or(InvalidKey::UnbalancedBrace(opening))?;
        let separated = match parts.as_slice() {
            [.., Part::Value(_)] => false,
            [.., Part::Value(_), Part::Text(between)] => between.bytes().any(is_never_in_a_value),
            _ => true,
        };
        if !separated {
            return Err(InvalidKey::Unseparated(opening.saturating_sub(text.len())));
        }
        parts.push(Part::Value(placeholder(name, makers)?));
        rest = tail;
    }
    check_length(&parts)?;
    Ok(parts)
}

fn placeholder(name: &str, makers: &[Named]) -> Result<Value, InvalidKey> {
    match name {
        "method" => Ok(Value::Method),
        "route" => Ok(Value::Route),
        "peer" => Ok(Value::Peer),
        _ => match name.strip_prefix("header:") {
            Some(header) => HeaderName::from_bytes(header.as_bytes())
                .map(Value::Header)
                .map_err(|_| InvalidKey::InvalidHeader(header.to_owned())),
            None => makers
                .iter()
                .find(|(named, _)| named == name)
                .map(|(_, make)| Value::Made(Arc::clone(make)))
                .ok_or_else(|| InvalidKey::UnknownPlaceholder(name.to_owned())),
        },
    }
}

/// Whether every id fits whose values are hashed.
pub(super) fn check_length(parts: &[Part]) -> Result<(), InvalidKey> {
    let longest = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Value(_) => MAX_SHORT,
        })
        .sum();
    match longest {
        0 => Err(InvalidKey::Empty),
        1..=MAX_ID => Ok(()),
        _ => Err(InvalidKey::TooLong(longest)),
    }
}
