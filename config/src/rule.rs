//! A rule: which requests of which services spend which resource.

use serde::{Serialize, Serializer};

use crate::{Glob, version::Version};

#[cfg(test)]
mod tests;

/// A rule of the document. Checked: it can only come from a [`Document`](crate::Document).
///
/// Serialises to the form of the document, with every default written out; it is the form of the wire, too.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// What `stated.service` says.
    pub(crate) services: Glob,
    pub(crate) stated: doorman_openapi::Rule,
}

impl Rule {
    /// Whether it is for the service of this name.
    #[must_use]
    pub fn is_for(&self, service: &str) -> bool {
        self.services.matches(service)
    }

    /// Identifies what the rule says: 32 hexadecimal digits. Rules that say the same have the same version.
    #[must_use]
    pub fn version(&self) -> String {
        Version::new().with([self]).finish()
    }

    /// What it says, as services are told.
    #[must_use]
    pub fn stated(&self) -> &doorman_openapi::Rule {
        &self.stated
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.stated.serialize(serializer)
    }
}
