//! How much of a list one look at the books takes in.

use std::borrow::Cow;

use doorman_openapi::GlobSet;

/// How many places of the books a look passes at most: most of them may be empty, or hold what may not be seen.
const PLACES: usize = 1024;

/// What one look at a list takes in: a bounded number of its elements, and of the places where they are sought, so that nobody waits long
/// for the books.
#[derive(Debug, Clone, Copy)]
pub struct PageQuery<'a> {
    /// The most elements that it finds.
    pub limit: usize,
    /// It passes over what none of these match; `None`: over nothing.
    pub allowed: Option<&'a GlobSet>,
}

impl PageQuery<'_> {
    /// A look at all that is there.
    #[must_use]
    pub const fn unfiltered(limit: usize) -> Self {
        Self {
            limit,
            allowed: None,
        }
    }

    /// The most places that it passes: fewer where each name is compared with many globs.
    pub(super) fn places(&self) -> usize {
        let globs = self.allowed.map_or(1, GlobSet::len);
        PLACES.checked_div(globs).unwrap_or(PLACES).max(1)
    }

    /// In the order of names: the first from this one on that it may find; `None` when it finds no other.
    pub(super) fn seek<'a>(&self, name: &'a str) -> Option<Cow<'a, str>> {
        match self.allowed {
            Some(globs) => globs.seek(name),
            None => Some(name.into()),
        }
    }

    pub(super) fn finds(&self, name: &str) -> bool {
        self.allowed.is_none_or(|globs| globs.matches(name))
    }
}
