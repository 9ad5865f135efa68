//! A rule: the resource that the requests of a service use.

use doorman_openapi::{Glob, GlobSet, KeyTemplatePart, parse_key_template};
use serde::{Serialize, Serializer};

use crate::version::{Version, canonical};

#[cfg(test)]
mod tests;

/// A valid rule of a [`Document`](crate::Document). Serializes with all defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// `definition.service`, parsed.
    pub(crate) services: Glob,
    pub(crate) definition: doorman_openapi::Rule,
}

impl Rule {
    /// Whether the rule applies to the service.
    #[must_use]
    pub fn applies_to(&self, service: &str) -> bool {
        self.services.matches(service)
    }

    /// The version of the rule, 32 hexadecimal digits: equal rules have equal versions.
    #[must_use]
    pub fn version(&self) -> String {
        Version::of([canonical(self)]).text()
    }

    /// The rule as services receive it.
    #[must_use]
    pub fn definition(&self) -> &doorman_openapi::Rule {
        &self.definition
    }

    /// Whether the set covers every resource that the rule may use, whatever its placeholders stand
    /// for.
    pub(crate) fn uses_only(&self, resources: &GlobSet) -> bool {
        let Some(resource) = &self.definition.resource else {
            return true;
        };
        glob_of(resource).is_some_and(|ids| resources.covers(&ids))
    }
}

/// A glob that matches every id that a key template can make.
fn glob_of(key_template: &str) -> Option<Glob> {
    let mut glob = String::with_capacity(key_template.len());
    for part in parse_key_template(key_template).ok()? {
        match part {
            KeyTemplatePart::Text(text) => {
                for char in text.chars() {
                    if matches!(char, '*' | '?' | '[' | '\\') {
                        glob.push('\\');
                    }
                    glob.push(char);
                }
            }
            KeyTemplatePart::Placeholder(_) => glob.push('*'),
        }
    }
    Glob::new(&glob).ok()
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.definition.serialize(serializer)
    }
}
