//! Warnings of templates that no rule uses as they are spelled: the values in keys are
//! percent-encoded, and hosts are in lower case without their port.

use std::collections::BTreeSet;

use doorman_openapi::{Glob, KeyTemplatePart, PrefixLengths, parse_key_template};

use super::{field::Entry, unused::MAX_STEPS};
use crate::{
    Rule, Template,
    diagnostic::{Diagnostic, Quoted},
};

/// The ids that a key template makes.
struct Key<'r> {
    /// The text before its first value.
    prefix: &'r str,
    /// Characters of its text behind that.
    separators: String,
    /// The first value, if nothing is behind it.
    last: Option<Value>,
}

/// A value whose spelling is known better than that of others.
#[derive(Clone, Copy)]
enum Value {
    Host,
    Address(PrefixLengths),
}

/// The relation of a template to the ids of a key.
enum Relation {
    /// It matches none, however it is spelled.
    None,
    /// It may match some.
    May,
    /// It matches none, but would in this spelling.
    Spelled(String),
}

pub(super) fn warnings(
    templates: &[Entry<'_, Template>],
    rules: &[Entry<'_, Rule>],
) -> Vec<Diagnostic> {
    let resources = rules.iter();
    let resources = resources.filter_map(|it| it.value.definition.resource.as_deref());
    let resources: BTreeSet<_> = resources.collect();
    let (values, constants): (Vec<_>, Vec<_>) =
        resources.into_iter().partition(|it| it.contains('{'));
    let keys: Vec<_> = values.into_iter().filter_map(Key::of).collect();
    let mut steps = MAX_STEPS;
    let warnings = templates.iter().filter_map(|Entry { item, value }| {
        let glob = &value.identifier_glob;
        steps = steps.checked_sub(keys.len())?;
        let spelling = spelling(glob, &keys)?;
        // Few templates are left.
        if constants.iter().any(|it| glob.matches(it)) {
            return None;
        }
        Some(item.get("identifier_glob")?.diagnostic(format!(
            "matches no key of a rule: values in keys are percent-encoded, and hosts are in lower \
             case without a port; write {}",
            Quoted(&spelling)
        )))
    });
    warnings.collect()
}

/// Whether a template may match an id of a key template.
pub(super) fn may_match(glob: &Glob, key_template: &str) -> bool {
    let relation = Key::of(key_template).map(|key| key.relation(glob));
    matches!(relation, Some(Relation::May))
}

/// The first spelling in which a template would match an id; `None` if it may match as it is, or
/// in no spelling.
fn spelling(glob: &Glob, keys: &[Key<'_>]) -> Option<String> {
    let mut found = None;
    for key in keys {
        match key.relation(glob) {
            Relation::May => return None,
            Relation::Spelled(spelling) => found = found.or(Some(spelling)),
            Relation::None => {}
        }
    }
    found
}

impl<'r> Key<'r> {
    /// `None` for a constant.
    fn of(key_template: &'r str) -> Option<Self> {
        let parts = parse_key_template(key_template).ok()?;
        let (prefix, values) = match parts.split_first()? {
            (KeyTemplatePart::Text(text), values) => (*text, values),
            (KeyTemplatePart::Placeholder(_), _) => ("", &parts[..]),
        };
        let text = |part: &KeyTemplatePart<'r>| match part {
            KeyTemplatePart::Text(text) => *text,
            KeyTemplatePart::Placeholder(_) => "",
        };
        (!values.is_empty()).then(|| Self {
            prefix,
            separators: values.iter().map(text).collect(),
            last: match values {
                [KeyTemplatePart::Placeholder(name)] => Value::of(name),
                _ => None,
            },
        })
    }

    fn relation(&self, glob: &Glob) -> Relation {
        if !glob.may_match_prefix(self.prefix) {
            return Relation::None;
        }
        let Some(value) = glob.as_str().strip_prefix(self.prefix) else {
            return Relation::May;
        };
        if let Some(Value::Address(lengths)) = self.last
            && let Some((address, length)) = network(value, lengths)
        {
            let address = self.encoded(address);
            return Relation::Spelled(format!("{}{address}%2F{length}", self.prefix));
        }
        // Keys of code may have more parts, behind a slash or this prefix. Classes and escapes have
        // spellings of their own.
        let is_separated = self.prefix.ends_with(|char| !is_plain(char) && char != '%');
        let has_more = value.contains('/') && !self.separators.contains('/');
        if !is_separated || has_more || value.contains(['[', '\\']) {
            return Relation::May;
        }
        let mut spelled = self.encoded(value);
        if let Some(Value::Host) = self.last {
            spelled = host(&spelled);
        }
        if spelled == value {
            Relation::May
        } else {
            Relation::Spelled(format!("{}{spelled}", self.prefix))
        }
    }

    /// The text of a glob with its values encoded as in keys.
    fn encoded(&self, glob: &str) -> String {
        let mut encoded = String::with_capacity(glob.len());
        let mut rest = glob.chars();
        while let Some(char) = rest.next() {
            let digits: String = rest.as_str().chars().take(2).collect();
            let is_encoded = char == '%'
                && digits.len() == 2
                && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            if is_encoded && let Ok(byte) = u8::from_str_radix(&digits, 16) {
                rest = rest.as_str().get(2..).unwrap_or_default().chars();
                push(&mut encoded, byte);
            } else if char == '%' && digits.contains(['*', '?'])
                || is_plain(char)
                || self.separators.contains(char)
            {
                encoded.push(char);
            } else {
                let mut bytes = [0; 4];
                let bytes = char.encode_utf8(&mut bytes).bytes();
                bytes.for_each(|byte| push(&mut encoded, byte));
            }
        }
        encoded
    }
}

impl Value {
    fn of(placeholder: &str) -> Option<Self> {
        match placeholder.split_once(':') {
            None if placeholder == "host" => Some(Self::Host),
            None if placeholder == "client_ip" => Some(Self::Address(PrefixLengths::default())),
            Some(("client_ip", lengths)) => PrefixLengths::parse(lengths).ok().map(Self::Address),
            _ => None,
        }
    }
}

/// The address of a network, maybe with wildcards, and its prefix length, if values have such ones.
/// A whole IPv4 address has none.
fn network(text: &str, lengths: PrefixLengths) -> Option<(&str, u8)> {
    let (address, length) = text.rsplit_once('/')?;
    let length: u8 = length.parse().ok()?;
    let is_v6 = address.contains(':');
    let is_v4 = address.contains('.') && !is_v6;
    let is_address = |char: char| char.is_ascii_hexdigit() || ".:*?".contains(char);
    let has_length = is_v4 && length == lengths.v4 && length < 32 || is_v6 && length == lengths.v6;
    (has_length && address.chars().all(is_address)).then_some((address, length))
}

/// A byte of a value: as it is if it is unreserved (RFC 3986, section 2.3), else encoded.
fn push(encoded: &mut String, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        encoded.push(char::from(byte));
    } else {
        encoded.push_str(&format!("%{byte:02X}"));
    }
}

/// Whether a character of a glob is a wildcard, or may be in an encoded value. Substitutes of
/// missing values are in parentheses.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "-._~*?()".contains(char)
}

/// A host in lower case, without port and trailing dot.
fn host(encoded: &str) -> String {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match encoded.split_once("%3A") {
        Some((name, port)) if is_port(port) => name,
        _ => encoded,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    // Not the digits of encoded characters, which are in upper case.
    let mut lower = String::with_capacity(name.len());
    let mut digits = 0_u8;
    for char in name.chars() {
        lower.push(if digits > 0 {
            char
        } else {
            char.to_ascii_lowercase()
        });
        digits = if char == '%' {
            2
        } else {
            digits.saturating_sub(1)
        };
    }
    lower
}

#[cfg(test)]
mod tests {
    use crate::Document;

    /// The warnings of a template of this glob, beside rules with these resources.
    #[track_caller]
    fn check(glob: &str, resources: &[&str], spelling: Option<&str>) {
        let rules = resources.iter().enumerate().map(|(index, resource)| {
            format!("- {{name: r{index}, service: s, resource: '{resource}'}}\n")
        });
        let mut text = format!(
            "resources:\n- {{identifier_glob: '{glob}', capacity: 1}}\n\
             - {{identifier_glob: '*', capacity: 1, algorithm: {{kind: FAIR_SHARE}}}}\n"
        );
        if !resources.is_empty() {
            text += "rules:\n";
            text.extend(rules);
        }
        let document = Document::parse(&text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
        let warnings = document.warnings().iter().map(ToString::to_string);
        let expected = spelling.map(|spelling| {
            format!(
                "2:21: resources[0] {glob:?}: identifier_glob: matches no key of a rule: values in \
                 keys are percent-encoded, and hosts are in lower case without a port; write \
                 {spelling:?}"
            )
        });
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(warnings.collect::<Vec<_>>(), expected, "{glob}");
    }

    #[test]
    fn template_that_no_key_is_spelled_like_has_a_warning() {
        let user = &["user/{header:x-user}"][..];
        for (glob, spelling) in [
            ("user/bob@example.org", "user/bob%40example.org"),
            ("user/*@example.org", "user/*%40example.org"),
            ("user/a b", "user/a%20b"),
            ("user/caf\u{e9}", "user/caf%C3%A9"),
            ("user/a%2fb", "user/a%2Fb"),
            ("user/%6Fo", "user/oo"),
            ("user/50%", "user/50%25"),
        ] {
            check(glob, user, Some(spelling));
        }
        let host = &["host/{host}"][..];
        check("host/Example.org", host, Some("host/example.org"));
        check("host/example.org:8443", host, Some("host/example.org"));
        check("host/example.org.", host, Some("host/example.org"));
        check("host/[::1]", host, None);
        let networks = &["ip/{client_ip:v4=24}"][..];
        check("ip/198.51.100.0/24", networks, Some("ip/198.51.100.0%2F24"));
        check("ip/198.51.*/24", networks, Some("ip/198.51.*%2F24"));
        check(
            "ip/2001:db8::/64",
            &["ip/{client_ip}"],
            Some("ip/2001%3Adb8%3A%3A%2F64"),
        );
        check("ip/198.51.100.0%2F24", networks, None);
        let several = &["t/{header:x-tenant}/{route}"][..];
        check("t/a/%2Fv1/x", several, None);
        check("t/a@b/*", several, Some("t/a%40b/*"));
    }

    #[test]
    fn template_that_some_key_is_spelled_like_has_no_warning() {
        let user = &["user/{header:x-user}"][..];
        for glob in [
            "user/198.51.100.0/24",
            "user/a/b@c",
            "user/bob%40example.org",
            "user/*",
            "user/%4*",
            "user/(missing)",
            "user/b?b",
            "db@x",
        ] {
            check(glob, user, None);
        }
        check(
            "user/bob@example.org",
            &["user/{jwt:sub}", "user/bob@example.org"],
            None,
        );
        check(
            "user/a/b",
            &["user/{jwt:sub}", "user/{jwt:sub}/{method}"],
            None,
        );
        check("user@x", &["us{header:x-user}"], None);
        // Keys of code may be constant.
        check("user/bob@example.org", &[], None);
    }
}
