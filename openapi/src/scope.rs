//! Scopes of tokens.

use std::fmt;

macro_rules! scopes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// A scope of a token.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scope {
            $($(#[$doc])* $variant,)+
        }

        impl Scope {
            /// All scopes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in tokens and documents.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

scopes! {
    /// Lease and release capacity as a client, and read the rules of services.
    Capacity = "capacity";
    /// Lease and release capacity as a node of the server tree.
    Server = "server";
    /// Let the outcomes that a client reports move capacities, by `feedback` of templates.
    Feedback = "feedback";
    /// Read templates and rules.
    TemplatesRead = "templates:read";
    /// Change templates and rules.
    TemplatesWrite = "templates:write";
    /// Read live resources, their holders, the status and the metrics.
    StatusRead = "status:read";
}

impl Scope {
    /// The scope with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of scopes. `Display` is the form of the claim: names separated by spaces (RFC 8693,
/// section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// No scope at all.
    pub const NONE: Self = Self(0);

    /// Parses a claim. Unknown scopes are ignored.
    #[must_use]
    pub fn from_claim(text: &str) -> Self {
        text.split_ascii_whitespace()
            .filter_map(Scope::from_name)
            .collect()
    }

    /// Whether the set contains the scope.
    #[must_use]
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The scopes of the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .iter()
            .copied()
            .filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_scopes_of_a_claim_are_ignored() {
        let scopes = Scopes::from_claim(" openid capacity\ttemplates:read capacity CAPACITY ");
        assert_eq!(scopes.to_string(), "capacity templates:read");
        assert_eq!(Scopes::from_claim(""), Scopes::NONE);
        for scope in Scope::ALL {
            let alone = Scopes::from_claim(scope.name());
            assert_eq!(alone.iter().collect::<Vec<_>>(), [*scope]);
        }
    }
}
