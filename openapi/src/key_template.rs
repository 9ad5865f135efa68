//! Key templates, such as `tenant/{header:x-tenant}/{route}`: the resource id of a request.
//!
//! Shared by rules and layer keys. This module knows the grammar, not the placeholders.

/// The most bytes of a value in a resource id: longer values are hashed.
pub const MAX_VALUE_BYTES: usize = 40;

/// A part of a key template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTemplatePart<'t> {
    /// Constant text.
    Text(&'t str),
    /// A placeholder without its braces, such as `header:x-tenant`.
    Placeholder(&'t str),
}

/// The text is not a key template. Offsets are in bytes, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeyTemplate {
    /// An unbalanced brace.
    #[error("unbalanced brace at byte {0}; a placeholder is like {{method}}")]
    UnbalancedBrace(usize),
    /// Two placeholders without a separator that no value contains. A caller could move characters
    /// from one value to the other, and so use the key of another caller.
    #[error(
        "missing separator after the placeholder that ends at byte {0}; use a character that no value contains, such as `/`"
    )]
    Unseparated(usize),
    /// A header with a secret: resource ids are visible in views and logs.
    #[error(
        "{{header:{0}}} would expose secrets in resource ids; use {{api_key:{0}}}, which hashes the header"
    )]
    Secret(&'static str),
    /// Empty text.
    #[error("empty key template")]
    Empty,
    /// The longest possible id is too long.
    #[error(
        "too long: with {MAX_VALUE_BYTES} bytes per placeholder ids have {0} bytes, more than {max}", max = crate::ident::MAX_BYTES
    )]
    TooLong(usize),
    /// Invalid prefix lengths of addresses.
    #[error(
        "prefix lengths must be like {{client_ip:v4=24,v6=56}}, with v4 from 1 to 32 and v6 from 1 to 128"
    )]
    PrefixLengths,
}

/// The prefix lengths by which addresses are one value: `v4=24,v6=56` in
/// `{client_ip:v4=24,v6=56}`. The default is the whole IPv4 address and the IPv6 /64 network, of
/// which one host often has all addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixLengths {
    /// Of IPv4, from 1 to 32.
    pub v4: u8,
    /// Of IPv6, from 1 to 128.
    pub v6: u8,
}

impl Default for PrefixLengths {
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

impl PrefixLengths {
    /// Parses one or both lengths, separated by a comma.
    ///
    /// ```
    /// use doorman_openapi::PrefixLengths;
    ///
    /// assert_eq!(PrefixLengths::parse("v6=56")?, PrefixLengths { v4: 32, v6: 56 });
    /// # Ok::<(), doorman_openapi::InvalidKeyTemplate>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidKeyTemplate::PrefixLengths`]
    pub fn parse(text: &str) -> Result<Self, InvalidKeyTemplate> {
        let (mut v4, mut v6) = (None, None);
        for part in text.split(',') {
            let (length, digits, max) = match part.split_once('=') {
                Some(("v4", digits)) => (&mut v4, digits, 32),
                Some(("v6", digits)) => (&mut v6, digits, 128),
                Some(_) | None => return Err(InvalidKeyTemplate::PrefixLengths),
            };
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = digits.parse().ok().filter(|it| (1..=max).contains(it));
            if !is_number || parsed.is_none() || length.is_some() {
                return Err(InvalidKeyTemplate::PrefixLengths);
            }
            *length = parsed;
        }
        let default = Self::default();
        Ok(Self {
            v4: v4.unwrap_or(default.v4),
            v6: v6.unwrap_or(default.v6),
        })
    }
}

/// Headers with credentials: RFC 9110 sections 11.6.2 and 11.7.2, RFC 6265 section 5.4.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Parses a key template.
///
/// ```
/// use doorman_openapi::{InvalidKeyTemplate, KeyTemplatePart, parse_key_template};
///
/// let parts = parse_key_template("tenant/{header:x-tenant}")?;
/// assert_eq!(parts, [KeyTemplatePart::Text("tenant/"), KeyTemplatePart::Placeholder("header:x-tenant")]);
/// assert_eq!(parse_key_template("{method}-{route}"), Err(InvalidKeyTemplate::Unseparated(8)));
/// # Ok::<(), InvalidKeyTemplate>(())
/// ```
///
/// # Errors
/// [`InvalidKeyTemplate`]
pub fn parse_key_template(template: &str) -> Result<Vec<KeyTemplatePart<'_>>, InvalidKeyTemplate> {
    let mut parts = Vec::new();
    let mut rest = template;
    while !rest.is_empty() {
        let at = template.len().saturating_sub(rest.len());
        let (text, tail) = match rest.split_once('{') {
            Some((text, tail)) => (text, Some(tail)),
            None => (rest, None),
        };
        if let Some(brace) = text.find('}') {
            return Err(InvalidKeyTemplate::UnbalancedBrace(
                at.saturating_add(brace),
            ));
        }
        if !text.is_empty() {
            parts.push(KeyTemplatePart::Text(text));
        }
        let Some(tail) = tail else { break };
        let opening = at.saturating_add(text.len());
        let (name, tail) = tail
            .split_once('}')
            .filter(|(name, _)| !name.contains('{'))
            .ok_or(InvalidKeyTemplate::UnbalancedBrace(opening))?;
        if !may_follow(&parts) {
            let end = opening.saturating_sub(text.len());
            return Err(InvalidKeyTemplate::Unseparated(end));
        }
        if let Some(secret) = secret(name) {
            return Err(InvalidKeyTemplate::Secret(secret));
        }
        parts.push(KeyTemplatePart::Placeholder(name));
        rest = tail;
    }
    match longest(&parts) {
        0 => Err(InvalidKeyTemplate::Empty),
        1..=crate::ident::MAX_BYTES => Ok(parts),
        longest => Err(InvalidKeyTemplate::TooLong(longest)),
    }
}

fn secret(placeholder: &str) -> Option<&'static str> {
    let header = placeholder.strip_prefix("header:")?;
    SECRETS
        .into_iter()
        .find(|secret| header.eq_ignore_ascii_case(secret))
}

fn may_follow(parts: &[KeyTemplatePart<'_>]) -> bool {
    match parts {
        [.., KeyTemplatePart::Placeholder(_)] => false,
        [
            ..,
            KeyTemplatePart::Placeholder(_),
            KeyTemplatePart::Text(between),
        ] => between.chars().any(is_separator),
        _ => true,
    }
}

/// Whether no value contains the character. Values consist of the unreserved characters of RFC 3986
/// and percent-encoding; substitutes for absent values are in parentheses.
fn is_separator(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || character.is_control() || "-._~%()".contains(character))
}

/// The length of the longest id. Control characters are percent-encoded.
fn longest(parts: &[KeyTemplatePart<'_>]) -> usize {
    let bytes = |character: char| {
        if character.is_control() {
            3 * character.len_utf8()
        } else {
            character.len_utf8()
        }
    };
    parts
        .iter()
        .map(|part| match part {
            KeyTemplatePart::Text(text) => text.chars().map(bytes).sum(),
            KeyTemplatePart::Placeholder(_) => MAX_VALUE_BYTES,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, error: InvalidKeyTemplate) {
        assert_eq!(parse_key_template(template), Err(error), "{template:?}");
    }

    #[test]
    fn constant_text_is_a_template() {
        assert_eq!(
            parse_key_template("api"),
            Ok(vec![KeyTemplatePart::Text("api")])
        );
    }

    #[test]
    fn unbalanced_braces_are_rejected() {
        for (template, at) in [
            ("a{", 1),
            ("a}", 1),
            ("{a{b}}", 0),
            ("{method}}", 8),
            ("é{", 2),
        ] {
            check(template, InvalidKeyTemplate::UnbalancedBrace(at));
        }
    }

    #[test]
    fn placeholders_need_a_separator() {
        for (template, end) in [
            ("{a}{b}", 3),
            ("{a}-{b}", 3),
            ("x/{a}%20{b}", 5),
            ("{a}\u{1}{b}", 3),
            ("{a}/{b}_{c}", 7),
        ] {
            check(template, InvalidKeyTemplate::Unseparated(end));
        }
        for template in ["{a}/{b}", "{a}-ü-{b}", "{a}:{b}"] {
            assert!(parse_key_template(template).is_ok(), "{template:?}");
        }
    }

    #[test]
    fn secret_headers_are_rejected() {
        for (template, header) in [
            ("a/{header:authorization}", "authorization"),
            ("{header:Proxy-Authorization}/b", "proxy-authorization"),
            ("{header:COOKIE}", "cookie"),
        ] {
            check(template, InvalidKeyTemplate::Secret(header));
        }
        let why = InvalidKeyTemplate::Secret("cookie").to_string();
        assert!(why.contains("{api_key:cookie}"), "{why}");
        for template in ["{api_key:authorization}", "{header:x-cookie}", "cookie"] {
            assert!(parse_key_template(template).is_ok(), "{template:?}");
        }
    }

    #[test]
    fn prefix_lengths_are_in_range_and_once() {
        let parse = PrefixLengths::parse;
        let of = |v4, v6| Ok(PrefixLengths { v4, v6 });
        assert_eq!(parse("v4=24,v6=56"), of(24, 56));
        assert_eq!(parse("v6=128,v4=1"), of(1, 128));
        assert_eq!(parse("v4=16"), of(16, 64));
        for text in [
            "",
            "24",
            "v4=0",
            "v4=33",
            "v6=129",
            "v4=",
            "v4=+8",
            "v4=24,",
            "v5=1",
            "v4=8,v4=8",
            "v4=24, v6=56",
            "V4=24",
            "v4=256",
        ] {
            let invalid = Err(InvalidKeyTemplate::PrefixLengths);
            assert_eq!(parse(text), invalid, "{text:?}");
        }
    }

    #[test]
    fn too_long_ids_are_rejected() {
        check("", InvalidKeyTemplate::Empty);
        assert!(parse_key_template(&format!("{}{{a}}", "x".repeat(216))).is_ok());
        let long = format!("{}{{a}}", "x".repeat(217));
        check(&long, InvalidKeyTemplate::TooLong(257));
        check(&"\n".repeat(86), InvalidKeyTemplate::TooLong(258));
    }
}
