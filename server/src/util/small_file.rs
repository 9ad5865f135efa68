//! Reading of small files that an operator provides: keys, certificates, grants.

use std::path::Path;

pub(crate) use doorman_jwt::read_file as read;

/// A file that a flag names cannot be used. The message is one line with the flag, the file and the
/// problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct FileError {
    /// The flag and the file.
    pub(crate) place: String,
    pub(crate) problem: String,
}

impl FileError {
    pub(crate) fn new(flag: &str, path: &Path, problem: impl Into<String>) -> Self {
        Self {
            place: format!("{flag} {}", path.display()),
            problem: problem.into(),
        }
    }
}
