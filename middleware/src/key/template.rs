//! Key templates such as `tenant/{header:x-tenant}/{route}`.

use std::{borrow::Cow, sync::Arc};

use doorman_openapi::{InvalidKeyTemplate, KeyTemplatePart, PrefixLengths, parse_key_template};
use http::HeaderName;
use percent_encoding::{CONTROLS, percent_encode};

use super::{Key, RequestHead, claims::ClaimPath};

/// Why a text is not a key template.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The placeholder does not exist.
    #[error(
        "unknown placeholder {{{0}}}; must be {{header:NAME}}, {{api_key}}, {{api_key:NAME}}, \
         {{jwt:CLAIM}}, {{client_ip}}, {{peer}}, {{host}}, {{method}} or {{route}}"
    )]
    UnknownPlaceholder(String),
    /// The header name is invalid.
    #[error("invalid header name {0:?}; must be like x-tenant")]
    InvalidHeader(String),
    /// The template is malformed.
    #[error(transparent)]
    Malformed(#[from] InvalidKeyTemplate),
}

crate::error::debug_as_text!(InvalidKey);

#[derive(Clone)]
pub(super) enum Part {
    Text(Box<str>),
    Value(Placeholder),
}

#[derive(Clone)]
pub(crate) enum Placeholder {
    Header(HeaderName),
    ApiKey(HeaderName),
    Jwt(ClaimPath),
    ClientIp(PrefixLengths),
    Peer(PrefixLengths),
    Host,
    Method,
    Route,
    Closure(Arc<ValueFn>),
}

pub(crate) type ValueFn = dyn for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync;

/// The header of API keys if the template names none.
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

pub(super) fn parse(
    template: &str,
    closures: &[(String, Arc<ValueFn>)],
) -> Result<Key, InvalidKey> {
    let mut canonical = String::with_capacity(template.len());
    let mut parts = Vec::new();
    for part in parse_key_template(template)? {
        parts.push(match part {
            KeyTemplatePart::Text(text) => {
                canonical.push_str(text);
                let mut clean = String::new();
                push_literal(&mut clean, text);
                Part::Text(clean.into())
            }
            KeyTemplatePart::Placeholder(name) => {
                let value = placeholder(name, closures)?;
                match (&value, name.split_once(':')) {
                    // Two spellings of a header name are one template, whose limits share settings.
                    (
                        Placeholder::Header(header) | Placeholder::ApiKey(header),
                        Some((kind, _)),
                    ) => {
                        canonical.push_str(&format!("{{{kind}:{header}}}"));
                    }
                    _ => canonical.push_str(&format!("{{{name}}}")),
                }
                Part::Value(value)
            }
        });
    }
    Ok(Key::new(&canonical, parts))
}

/// Finds literal text that looks like a placeholder: its prefix, or `${` as in shells.
pub(super) fn forgotten_brace(text: &str) -> Option<&'static str> {
    let constant = |text: &str| {
        let begins = |sign: &&str| {
            let mut found = text.match_indices(*sign);
            let is_part = |before: char| before.is_alphanumeric() || matches!(before, '-' | '_');
            found.any(|(at, _)| {
                !text
                    .get(..at)
                    .is_some_and(|before| before.ends_with(is_part))
            })
        };
        let signs = ["header:", "jwt:", "api_key:", "${"];
        signs.into_iter().find(begins)
    };
    let mut depth = 0_u32;
    text.split_inclusive(['{', '}']).find_map(|part| {
        let outside = depth == 0;
        match part.chars().next_back() {
            Some('{') => depth = depth.saturating_add(1),
            Some('}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        outside.then(|| constant(part)).flatten()
    })
}

fn placeholder(name: &str, closures: &[(String, Arc<ValueFn>)]) -> Result<Placeholder, InvalidKey> {
    let built_in = match name.split_once(':') {
        Some(("header", name)) => Some(Placeholder::Header(header_name(name)?)),
        Some(("api_key", name)) => Some(Placeholder::ApiKey(header_name(name)?)),
        Some(("client_ip", lengths)) => Some(Placeholder::ClientIp(PrefixLengths::parse(lengths)?)),
        Some(("peer", lengths)) => Some(Placeholder::Peer(PrefixLengths::parse(lengths)?)),
        Some(("jwt", claim)) => ClaimPath::parse(claim).map(Placeholder::Jwt),
        Some(_) => None,
        None => match name {
            "api_key" => Some(Placeholder::ApiKey(API_KEY)),
            "client_ip" => Some(Placeholder::ClientIp(PrefixLengths::default())),
            "host" => Some(Placeholder::Host),
            "method" => Some(Placeholder::Method),
            "peer" => Some(Placeholder::Peer(PrefixLengths::default())),
            "route" => Some(Placeholder::Route),
            _ => None,
        },
    };
    let custom = || {
        let (_, value) = closures.iter().find(|(custom, _)| custom == name)?;
        Some(Placeholder::Closure(Arc::clone(value)))
    };
    built_in
        .or_else(custom)
        .ok_or_else(|| InvalidKey::UnknownPlaceholder(name.to_owned()))
}

/// Appends constant text, with control characters percent-encoded.
pub(super) fn push_literal(id: &mut String, text: &str) {
    let mut buffer = [0; 4];
    for character in text.chars() {
        if character.is_control() {
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            id.extend(percent_encode(bytes, CONTROLS));
        } else {
            id.push(character);
        }
    }
}

fn header_name(name: &str) -> Result<HeaderName, InvalidKey> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidKey::InvalidHeader(name.to_owned()))
}
