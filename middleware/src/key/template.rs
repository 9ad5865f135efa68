//! Templates of resource ids: `tenant/{header:x-tenant}/{route}`.

use std::sync::Arc;

use doorman_openapi::{InvalidKeyTemplate, KeyTemplatePart, parse_key_template};
use http::HeaderName;

use super::{
    Key, Part,
    claims::Claim,
    encode::push_text,
    value::{Maker, Value},
};

/// Why a text is not a template of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// A placeholder that does not exist.
    #[error(
        "unknown placeholder {{{0}}}: there are {{header:NAME}}, {{api_key}}, {{api_key:NAME}}, {{jwt:CLAIM}}, {{client_ip}}, {{peer}}, {{host}}, \
         {{method}} and {{route}}"
    )]
    UnknownPlaceholder(String),
    /// A name that no header can have.
    #[error("{0:?} names no header that can be")]
    InvalidHeader(String),
    /// It is not made as a template is.
    #[error(transparent)]
    Malformed(#[from] InvalidKeyTemplate),
}

/// A closure, and the placeholder that stands for its value.
type Named = (String, Arc<Maker>);

pub(super) fn parse(template: &str, makers: &[Named]) -> Result<Key, InvalidKey> {
    let mut written = String::with_capacity(template.len());
    let mut parts = Vec::new();
    for part in parse_key_template(template)? {
        parts.push(match part {
            KeyTemplatePart::Text(text) => {
                written.push_str(text);
                let mut clean = String::new();
                push_text(&mut clean, text);
                Part::Text(clean.into())
            }
            KeyTemplatePart::Placeholder(name) => {
                let value = placeholder(name, makers)?;
                match (&value, name.split_once(':')) {
                    // Names of headers have no case: two spellings are one template, whose limits share their settings.
                    (Value::Header(header) | Value::ApiKey(header), Some((kind, _))) => {
                        written.push_str(&format!("{{{kind}:{header}}}"));
                    }
                    _ => written.push_str(&format!("{{{name}}}")),
                }
                Part::Value(value)
            }
        });
    }
    Ok(Key {
        text: written.into(),
        parts: parts.into(),
    })
}

/// Where an API key is, if nothing else is said.
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

fn placeholder(name: &str, makers: &[Named]) -> Result<Value, InvalidKey> {
    let known = match name.split_once(':') {
        Some(("header", name)) => Some(Value::Header(header(name)?)),
        Some(("jwt", claim)) => Claim::parse(claim).map(Value::Jwt),
        Some(("api_key", name)) => Some(Value::ApiKey(header(name)?)),
        Some(_) => None,
        None => match name {
            "api_key" => Some(Value::ApiKey(API_KEY)),
            "client_ip" => Some(Value::ClientIp),
            "host" => Some(Value::Host),
            "method" => Some(Value::Method),
            "peer" => Some(Value::Peer),
            "route" => Some(Value::Route),
            _ => None,
        },
    };
    let made = || {
        let (_, make) = makers.iter().find(|(named, _)| named == name)?;
        Some(Value::Made(Arc::clone(make)))
    };
    known
        .or_else(made)
        .ok_or_else(|| InvalidKey::UnknownPlaceholder(name.to_owned()))
}

fn header(name: &str) -> Result<HeaderName, InvalidKey> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidKey::InvalidHeader(name.to_owned()))
}
