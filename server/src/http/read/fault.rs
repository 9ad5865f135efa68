//! What is wrong with a body, and where.

use std::fmt;

use doorman_openapi::FieldError;

/// Where in a body something stands. Displayed as a JSON Pointer (RFC 6901).
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    Body,
    Member(&'a Self, &'a str),
    Element(&'a Self, usize),
}

impl<'a> Place<'a> {
    pub(super) fn member(&'a self, name: &'a str) -> Self {
        Self::Member(self, name)
    }

    pub(super) fn element(&'a self, index: usize) -> Self {
        Self::Element(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Member(parent, name) => {
                write!(f, "{parent}/{}", name.replace('~', "~0").replace('/', "~1"))
            }
            Self::Element(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The faults of one body. It may have millions; an answer should not.
#[derive(Debug)]
pub(in crate::http) struct Faults {
    most: usize,
    listed: Vec<FieldError>,
    unlisted: usize,
}

impl Faults {
    /// None yet; so many are listed at most.
    pub(in crate::http) fn at_most(most: usize) -> Self {
        Self {
            most,
            listed: Vec::new(),
            unlisted: 0,
        }
    }

    /// `place` is displayed as a JSON Pointer.
    pub(in crate::http) fn add(&mut self, place: impl fmt::Display, detail: impl Into<String>) {
        if self.listed.len() < self.most {
            self.listed.push(FieldError {
                pointer: place.to_string(),
                detail: detail.into(),
            });
        } else {
            self.unlisted = self.unlisted.saturating_add(1);
        }
    }

    /// How many there are, listed or not.
    pub(in crate::http) fn count(&self) -> usize {
        self.listed.len().saturating_add(self.unlisted)
    }

    /// All of them, in the order of the body; when they are too many, the last entry tells how many more there are.
    pub(in crate::http) fn into_errors(mut self) -> Vec<FieldError> {
        if self.unlisted > 0 {
            self.listed.push(FieldError {
                pointer: String::new(),
                detail: format!("has {} more faults, which are not listed", self.unlisted),
            });
        }
        self.listed
    }
}
