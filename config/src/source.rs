//! Where a document comes from.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{Diagnostic, Document, MAX_DOCUMENT_BYTES, Position, ValidationErrors, fault::Place};

mod last_good;
#[cfg(test)]
mod tests;

pub use self::last_good::LastGoodFile;

/// Where a document comes from, such as `file:limits.yaml`. `Display` is that text again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `file:PATH`: a file, YAML or JSON, which others change.
    File(FileSource),
    /// `sqlite:PATH`: a database, which the server changes as it is told; see [`Store`](crate::Store).
    Sqlite(PathBuf),
}

/// A file with a document, YAML or JSON. `Display` is its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    path: PathBuf,
}

/// Why a text names no source; says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSource {
    /// A kind of source that is planned, but not there.
    #[error("sources of the kind `{0}:` are not yet supported; use sqlite:PATH or file:PATH")]
    NotYetSupported(&'static str),
    /// Anything else.
    #[error("must be sqlite:PATH or file:PATH, such as file:limits.yaml")]
    Unknown,
}

impl Source {
    /// Reads the name of a source.
    ///
    /// # Errors
    /// [`InvalidSource`] unless it is `sqlite:` or `file:`, and a path.
    pub fn parse(text: &str) -> Result<Self, InvalidSource> {
        match text.split_once(':') {
            Some(("file" | "sqlite", "")) | None => Err(InvalidSource::Unknown),
            Some(("file", path)) => Ok(Self::File(FileSource::new(path))),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("etcd", _)) => Err(InvalidSource::NotYetSupported("etcd")),
            Some(_) => Err(InvalidSource::Unknown),
        }
    }
}

impl FileSource {
    /// A file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads the document that is there now. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] when it cannot be read, or is wrong.
    pub fn load(&self) -> Result<Document, LoadError> {
        self.read()?.document()
    }

    /// Reads what is there now, whether it is a document or not. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] when it cannot be read.
    pub fn read(&self) -> Result<RawDocument, LoadError> {
        match read_bounded(&self.path) {
            Ok(bytes) => Ok(RawDocument {
                path: self.path.clone(),
                bytes,
            }),
            Err(error) => Err(LoadError {
                path: self.path.clone(),
                cause: Cause::Io(error),
            }),
        }
    }

    /// The directory in which a change of the document shows, however it comes about: by an edit of the file, by another file that
    /// takes its name, or by a symbolic link that is turned to another directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        }
    }
}

/// What a source held at one time; two of them are equal when they are so byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawDocument {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl RawDocument {
    /// Makes a document of it.
    ///
    /// # Errors
    /// [`LoadError`] when it is wrong.
    pub fn document(&self) -> Result<Document, LoadError> {
        text(&self.bytes)
            .and_then(Document::parse)
            .map_err(|faults| LoadError {
                path: self.path.clone(),
                cause: Cause::ValidationErrors(faults),
            })
    }
}

/// Reads one byte more than a document may have, at most: enough to see that it has too many, even where the file has no end.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_DOCUMENT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Result<&str, ValidationErrors> {
    str::from_utf8(bytes).map_err(|error| {
        let right = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let right = String::from_utf8_lossy(right);
        let line = right.rsplit('\n').next().unwrap_or_default();
        let position = Position {
            line: right.matches('\n').count() as u64 + 1,
            column: line.chars().count() as u64 + 1,
        };
        Diagnostic::new(Some(position), Place::document(), "must be UTF-8").into()
    })
}

impl FromStr for Source {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Self, InvalidSource> {
        Self::parse(text)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "file:{file}"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

impl fmt::Display for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Why no document came from a source.
///
/// `Display` is one line a fault when the document is wrong, else one line; each is led by the name of the file. Why a file cannot
/// be read is in [`source`](std::error::Error::source).
#[derive(Debug)]
pub struct LoadError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    ValidationErrors(ValidationErrors),
}

impl LoadError {
    /// What is wrong with the document; `None` when it could not even be read.
    #[must_use]
    pub fn faults(&self) -> Option<&ValidationErrors> {
        match &self.cause {
            Cause::ValidationErrors(faults) => Some(faults),
            Cause::Io(_) => None,
        }
    }

    /// The whole of it: a fault a line, or why the file cannot be read.
    #[must_use]
    pub fn full_message(&self) -> String {
        match &self.cause {
            Cause::Io(error) => format!("{self}: {error}"),
            Cause::ValidationErrors(_) => self.to_string(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.display();
        match &self.cause {
            Cause::Io(_) => write!(f, "{name}: cannot be read"),
            Cause::ValidationErrors(faults) => faults.in_file(&name.to_string()).fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            // The faults are the message, and a message does not repeat its source.
            Cause::ValidationErrors(_) => None,
        }
    }
}
