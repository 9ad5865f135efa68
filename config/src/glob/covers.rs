//! Whether one glob is within another.

use super::{Glob, Token};

impl Glob {
    /// Whether everything that `other` matches is matched by this glob, as far as that can be told by going through both once: it may
    /// deny it where it is so, such as of `[ab]*` and `a*` taken together, but never says it where it is not.
    ///
    /// ```
    /// use doorman_config::Glob;
    ///
    /// let tenant = Glob::new("tenant/acme/*")?;
    /// assert!(tenant.is_superset_of(&Glob::new("tenant/acme/db-?")?));
    /// assert!(!tenant.is_superset_of(&Glob::new("tenant/*")?));
    /// # Ok::<(), doorman_config::InvalidGlob>(())
    /// ```
    #[must_use]
    pub fn is_superset_of(&self, other: &Self) -> bool {
        // Of each beginning of this glob, whether it can take all of `other` that has been gone through.
        let mut reached = vec![false; self.tokens.len().saturating_add(1)];
        if let Some(start) = reached.first_mut() {
            *start = true;
        }
        self.skip_runs(&mut reached);
        for token in &other.tokens {
            let mut next = vec![false; reached.len()];
            for (at, mine) in self.tokens.iter().enumerate() {
                if !reached.get(at).copied().unwrap_or_default() || !mine.takes_all_of(token) {
                    continue;
                }
                // A run takes it, and may take more.
                let to = if *mine == Token::AnyRun { at } else { at + 1 };
                if let Some(next) = next.get_mut(to) {
                    *next = true;
                }
            }
            self.skip_runs(&mut next);
            reached = next;
        }
        reached.last().copied().unwrap_or_default()
    }

    /// A run may take nothing.
    fn skip_runs(&self, reached: &mut [bool]) {
        for (at, token) in self.tokens.iter().enumerate() {
            if *token == Token::AnyRun
                && reached.get(at).copied().unwrap_or_default()
                && let Some(next) = reached.get_mut(at + 1)
            {
                *next = true;
            }
        }
    }
}

impl Token {
    fn takes_all_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AnyRun, _) => true,
            (_, Self::AnyRun) => false,
            (Self::AnyChar, _) => true,
            (_, Self::Char(char)) => self.takes(*char),
            (_, Self::AnyChar) => false,
            (mine, Self::Class { .. }) => mine == other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::new(text).unwrap()
    }

    #[test]
    fn covers_what_is_within() {
        for (outer, inner) in [
            ("*", "*"),
            ("*", "a/*[b]?"),
            ("a*", "a"),
            ("a*", "a*b"),
            ("a*c*", "abc"),
            ("*b*", "a*b?"),
            ("a?", "a?"),
            ("a?", "a[bc]"),
            ("[a-c]*", "b*"),
            ("[a-c]x", "[a-c]x"),
            ("*a", "*aa"),
        ] {
            assert!(glob(outer).is_superset_of(&glob(inner)), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("a", "*"),
            ("a", "?"),
            ("a*", "*"),
            ("a*", "?*"),
            ("tenant/a/*", "tenant/*"),
            ("tenant/a/*", "tenant/a"),
            ("tenant/a/*", "tenant/a*"),
            ("a*b", "a*"),
            ("?", "*"),
            ("??", "a"),
            ("[a-c]", "d"),
            ("[a-c]", "?"),
            ("[!a]", "a"),
            ("\\*", "*"),
        ] {
            assert!(!glob(outer).is_superset_of(&glob(inner)), "{outer} {inner}");
        }
    }

    proptest! {
        #[test]
        fn what_a_covered_glob_matches_the_covering_one_matches(
            outer in "([abc*?]|\\[ab\\]){1,5}", inner in "([abc*?]|\\[ab\\]){1,5}", text in "[abcd]{0,6}"
        ) {
            let (outer, inner) = (glob(&outer), glob(&inner));
            if outer.is_superset_of(&inner) && inner.matches(&text) {
                prop_assert!(outer.matches(&text));
            }
            // What is an identifier and no pattern, is covered when it is matched.
            if !text.is_empty() {
                prop_assert_eq!(outer.is_superset_of(&glob(&text)), outer.matches(&text));
            }
            prop_assert!(outer.is_superset_of(&outer));
        }
    }
}
