//! The grammar of resource templates, such as `tenant/{header:x-tenant}/{route}`: which resource a request spends, in one line of text.
//!
//! Operators write them in rules and programs in keys, and both must mean the same by them. What a placeholder stands for is for
//! the reader to know; here is only how text and placeholders are told apart, what may stand next to what, and what no reader may
//! write into an id.

/// The most bytes that a value takes up in a resource id, however long it is: from there on its hash stands for it.
pub const MAX_VALUE_BYTES: usize = 40;

/// A piece of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyTemplatePart<'t> {
    /// What stands in every id as it is.
    Text(&'t str),
    /// What stands between braces, such as `header:x-tenant`: a value of the request stands there in the id.
    Placeholder(&'t str),
}

/// Why a text is no template; positions are in bytes, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeyTemplate {
    /// A brace without its other.
    #[error("the brace at byte {0} has no other: a placeholder is like {{method}}")]
    UnbalancedBrace(usize),
    /// Two placeholders with nothing between them that no value can contain: a sender could move characters from one value to the
    /// other, and so come by the key of somebody else.
    #[error(
        "nothing separates the placeholder that ends at byte {0} from the next: put something between them that no value contains, such as `/`"
    )]
    Unseparated(usize),
    /// A header of secrets as it is: ids of resources are shown to whoever may look, and are kept in logs.
    #[error(
        "{{header:{0}}} would put secrets into the ids of resources: {{api_key:NAME}} takes a header by its hash, such as {{api_key:{0}}}"
    )]
    Secret(&'static str),
    /// There is nothing in it.
    #[error("there is nothing in it")]
    Empty,
    /// The constant text leaves too little room for the values.
    #[error(
        "the constant text is too long: with {MAX_VALUE_BYTES} bytes a placeholder it comes to {0} of at most {max} bytes", max = crate::ident::MAX_BYTES
    )]
    TooLong(usize),
}

/// Headers that prove who somebody is: RFC 9110 sections 11.6.2 and 11.7.2, and RFC 6265 section 5.4.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Tells text and placeholders apart.
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
/// [`InvalidKeyTemplate`] when the text is empty, a brace has no other, nothing separates two placeholders, one stands for a header of
/// secrets, or it makes ids that are too long.
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
        if !separated(&parts) {
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

/// The header of secrets that a placeholder stands for. Names of headers have no case.
fn secret(placeholder: &str) -> Option<&'static str> {
    let header = placeholder.strip_prefix("header:")?;
    SECRETS
        .into_iter()
        .find(|secret| header.eq_ignore_ascii_case(secret))
}

/// Whether a placeholder may follow these parts.
fn separated(parts: &[KeyTemplatePart<'_>]) -> bool {
    match parts {
        [.., KeyTemplatePart::Placeholder(_)] => false,
        [
            ..,
            KeyTemplatePart::Placeholder(_),
            KeyTemplatePart::Text(between),
        ] => between.chars().any(is_never_in_a_value),
        _ => true,
    }
}

/// Whether a character stands in no value, however that is written, nor in a word of ours that stands for one. Values consist of the
/// unreserved characters of RFC 3986 and of what is percent-encoded, as control characters are; our own words stand in parentheses.
fn is_never_in_a_value(character: char) -> bool {
    !(character.is_ascii_alphanumeric() || character.is_control() || "-._~%()".contains(character))
}

/// The length of the longest id. A control character stands percent-encoded: three bytes for one.
fn longest(parts: &[KeyTemplatePart<'_>]) -> usize {
    let bytes = |character: char| match character.is_control() {
        true => 3 * character.len_utf8(),
        false => character.len_utf8(),
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
    fn a_constant_is_a_template() {
        assert_eq!(
            parse_key_template("api"),
            Ok(vec![KeyTemplatePart::Text("api")])
        );
    }

    #[test]
    fn every_brace_has_its_other() {
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
    fn no_value_can_reach_into_the_next() {
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
    fn no_id_has_a_secret_in_it() {
        for (template, header) in [
            ("a/{header:authorization}", "authorization"),
            ("{header:Proxy-Authorization}/b", "proxy-authorization"),
            ("{header:COOKIE}", "cookie"),
        ] {
            check(template, InvalidKeyTemplate::Secret(header));
        }
        let why = InvalidKeyTemplate::Secret("cookie").to_string();
        assert!(why.contains("{api_key:NAME}"), "{why}");
        for template in ["{api_key:authorization}", "{header:x-cookie}", "cookie"] {
            assert!(parse_key_template(template).is_ok(), "{template:?}");
        }
    }

    #[test]
    fn every_id_fits() {
        check("", InvalidKeyTemplate::Empty);
        assert!(parse_key_template(&format!("{}{{a}}", "x".repeat(216))).is_ok());
        let long = format!("{}{{a}}", "x".repeat(217));
        check(&long, InvalidKeyTemplate::TooLong(257));
        check(&"\n".repeat(86), InvalidKeyTemplate::TooLong(258));
    }
}
