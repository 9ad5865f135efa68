//! Reading of small files that an operator provides: keys, certificates, grants.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

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

/// Size limit of such a file. A key set has a few thousand bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// Reads a file of at most [`MAX_BYTES`]. Blocks on the file system.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::other("file is larger than 1 MiB"));
    }
    Ok(bytes)
}
