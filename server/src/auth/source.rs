//! Where keys and grants come from: files, and one address. What was good last stays until there is something better.

use std::path::PathBuf;

/// What a source is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Secret,
    Key,
    Jwks,
    Grants,
}

impl Purpose {
    /// The flag that names sources of this kind.
    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Secret => "--auth-secret-file",
            Self::Key => "--auth-key-file",
            Self::Jwks => "--auth-jwks",
            Self::Grants => "--auth-grants",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    /// What is there comes from elsewhere, when it comes.
    Remote(String),
}

/// A source with what it last had that was good. Its contents may be secret and do not show in debug output.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) purpose: Purpose,
    pub(super) place: Place,
    /// `None` until it has come.
    pub(super) good: Option<Vec<u8>>,
    /// Whether there was something good before that.
    pub(super) is_successor: bool,
    /// What it has now, if that is not good: it is complained of once.
    pub(super) refused: Option<Vec<u8>>,
}

impl Source {
    pub(super) fn new(purpose: Purpose, place: Place) -> Self {
        Self {
            purpose,
            place,
            good: None,
            is_successor: false,
            refused: None,
        }
    }

    /// Has this instead of what it had.
    pub(super) fn take(&mut self, bytes: Vec<u8>) {
        self.is_successor = self.good.replace(bytes).is_some();
        self.refused = None;
    }

    /// Whether an issuer may say by it that none of its former keys counts any more. At the start that would be a mistake; in a file it
    /// would be, too: who means it leaves the flag out.
    pub(super) fn may_take_back(&self) -> bool {
        self.is_successor && matches!(self.place, Place::Remote(_))
    }

    /// Whether these are what it had last, good or not.
    pub(super) fn has_had(&self, bytes: &[u8]) -> bool {
        self.good.as_deref() == Some(bytes) || self.refused.as_deref() == Some(bytes)
    }

    /// The name of it, for people.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::File(path) => path.display().to_string(),
            Place::Remote(url) => url.clone(),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("purpose", &self.purpose)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}
