//! Why there is no TLS by the files that are there.

use std::{fmt, path::Path};

/// The files that TLS goes by cannot be used. One line that names the flag, the file, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    flag: &'static str,
    path: String,
    why: String,
}

impl TlsError {
    pub(super) fn new(flag: &'static str, path: &Path, why: impl Into<String>) -> Self {
        Self {
            flag,
            path: path.display().to_string(),
            why: why.into(),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, path, why } = self;
        write!(f, "{flag} {path}: {why}")
    }
}

impl std::error::Error for TlsError {}
