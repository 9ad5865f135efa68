//! A rule: which requests of which services spend which resource.

use doorman_openapi::{KeyTemplatePart, parse_key_template};
use serde::{Serialize, Serializer};

use crate::{Glob, GlobSet, version::Version};

#[cfg(test)]
mod tests;

/// A rule of the document. Checked: it can only come from a [`Document`](crate::Document).
///
/// Serialises to the form of the document, with every default written out; it is the form of the wire, too.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What `definition.service` says.
    pub(crate) services: Glob,
    pub(crate) definition: doorman_openapi::Rule,
}

impl Rule {
    /// Whether it is for the service of this name.
    #[must_use]
    pub fn applies_to(&self, service: &str) -> bool {
        self.services.matches(service)
    }

    /// Identifies what the rule says: 32 hexadecimal digits. Rules that say the same have the same version.
    #[must_use]
    pub fn version(&self) -> String {
        Version::of([self]).text()
    }

    /// Whether all resources that requests may spend by it are within, whatever its placeholders stand for. One that spends none is.
    pub(crate) fn spends_within(&self, bound: &GlobSet) -> bool {
        let Some(resource) = &self.definition.resource else {
            return true;
        };
        glob_of(resource).is_some_and(|ids| bound.covers(&ids))
    }

    /// What it says, as services are told.
    #[must_use]
    pub fn definition(&self) -> &doorman_openapi::Rule {
        &self.definition
    }
}

/// A glob that matches every id that a resource with placeholders may become: callers choose what those stand for.
fn glob_of(resource: &str) -> Option<Glob> {
    let mut glob = String::with_capacity(resource.len());
    for part in parse_key_template(resource).ok()? {
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
