//! Templates of resource ids: `tenant/{header:x-tenant}/{route}`.

use std::sync::Arc;

use doorman_openapi::{InvalidTemplate, TemplatePart, template_parts};
use http::HeaderName;

use super::{Maker, Part, Value, encode::push_text};

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
    /// It is not made as a template is.
    #[error(transparent)]
    Malformed(#[from] InvalidTemplate),
}

/// A closure, and the placeholder that stands for its value.
type Named = (String, Arc<Maker>);

pub(super) fn parse(template: &str, makers: &[Named]) -> Result<Vec<Part>, InvalidKey> {
    template_parts(template)?
        .into_iter()
        .map(|part| match part {
            TemplatePart::Text(text) => {
                let mut clean = String::new();
                push_text(&mut clean, text);
                Ok(Part::Text(clean.into()))
            }
            TemplatePart::Placeholder(name) => placeholder(name, makers).map(Part::Value),
        })
        .collect()
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
