//! Errors of calls to etcd.

use std::{error::Error, fmt, path::Path};

/// A call to etcd failed, or its settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdError {
    /// The endpoint, or the flag that is wrong.
    place: String,
    reason: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// etcd refused the call, or the call was not sent.
    Refused,
    TooLarge,
    OutOfSpace,
    /// The endpoint cannot be reached, so the call was not executed.
    Unreachable,
    /// The call was sent; whether it was executed is unknown.
    Unknown,
}

impl EtcdError {
    pub(super) fn new(place: impl fmt::Display, reason: impl fmt::Display, kind: Kind) -> Self {
        Self {
            place: place.to_string(),
            reason: reason.to_string(),
            kind,
        }
    }

    /// A file that a flag names cannot be used.
    pub(super) fn in_file(flag: &str, path: &Path, reason: impl fmt::Display) -> Self {
        Self::new(
            format_args!("{flag} {}", path.display()),
            reason,
            Kind::Refused,
        )
    }

    /// The same error, of a call that an earlier attempt may have executed.
    pub(crate) fn into_ambiguous(self) -> Self {
        let kind = Kind::Unknown;
        Self { kind, ..self }
    }

    /// Whether another endpoint may do better.
    pub(super) fn is_of_endpoint(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::Unknown)
    }

    /// Whether the call may have been executed nevertheless.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// Whether etcd refused the call, and would refuse it again.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.kind, Kind::Refused | Kind::TooLarge | Kind::OutOfSpace)
    }

    /// Whether the call was refused because it is larger than etcd permits.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.kind == Kind::TooLarge
    }
}

impl EtcdError {
    /// Whether the call was refused because etcd has no space for writes.
    pub(super) fn is_out_of_space(&self) -> bool {
        self.kind == Kind::OutOfSpace
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

impl Error for EtcdError {}

/// An error with its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
