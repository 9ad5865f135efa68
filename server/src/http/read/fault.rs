//! What is wrong with a body, and where.

use std::fmt;

use doorman_openapi::FieldError;

/// The most faults of one body that are listed. A body of 4 MiB has room for millions; the answer should not.
const MAX_LISTED: usize = 10_000;

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

/// The faults of one body.
#[derive(Debug, Default)]
pub(super) struct Faults {
    listed: Vec<FieldError>,
    unlisted: usize,
}

impl Faults {
    pub(super) fn add(&mut self, place: Place<'_>, detail: impl Into<String>) {
        if self.listed.len() < MAX_LISTED {
            self.listed.push(FieldError {
                pointer: place.to_string(),
                detail: detail.into(),
            });
        } else {
            self.unlisted = self.unlisted.saturating_add(1);
        }
    }

    /// All of them, in the order of the body; when they are too many, the last entry tells how many more there are.
    pub(super) fn into_errors(mut self) -> Vec<FieldError> {
        if self.unlisted > 0 {
            self.listed.push(FieldError {
                pointer: String::new(),
                detail: format!("has {} more faults, which are not listed", self.unlisted),
            });
        }
        self.listed
    }
}
