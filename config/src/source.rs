//! Configuration sources.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{
    Diagnostic, Document, MAX_DOCUMENT_BYTES, Position, Rule, ValidationErrors,
    diagnostic::Location, parse, stored,
};

mod last_good;
#[cfg(test)]
mod tests;

pub use self::last_good::LastGoodFile;

/// A configuration source. `Display` is the text that it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `file:PATH`: a file that others change.
    File(FileSource),
    /// `sqlite:PATH`: a [`Store`](crate::Store), which the server changes.
    Sqlite(PathBuf),
    /// `etcd:PREFIX`: keys in etcd, which all servers of a node change.
    Etcd(String),
}

/// A YAML or JSON file with a document. `Display` is its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    path: PathBuf,
}

/// The text is not the name of a source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSource {
    /// The prefix of keys in etcd is invalid.
    #[error(
        "a prefix of keys in etcd must be 1 to 256 printable ASCII characters, the last one not a \
         slash"
    )]
    Prefix,
    /// Any other text.
    #[error("must be sqlite:PATH, file:PATH or etcd:PREFIX, such as file:limits.yaml")]
    Unknown,
}

impl Source {
    /// Keys in etcd with this prefix and a slash.
    ///
    /// # Errors
    /// [`InvalidSource::Prefix`]
    pub fn etcd(prefix: &str) -> Result<Self, InvalidSource> {
        let is_printable = prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if !(1..=256).contains(&prefix.len()) || prefix.ends_with('/') || !is_printable {
            return Err(InvalidSource::Prefix);
        }
        Ok(Self::Etcd(prefix.to_owned()))
    }
}

impl FileSource {
    /// The file at a path.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads and parses the document. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read, or the document is invalid.
    pub fn load(&self) -> Result<Document, LoadError> {
        self.read()?.document()
    }

    /// Reads and parses only the rules of a document, which may have no `resources`. Blocks on the
    /// file system.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read, has no rules, or one is invalid.
    pub fn rules(&self) -> Result<Vec<Rule>, LoadError> {
        let RawDocument { path, bytes } = self.read()?;
        let rules = utf8(&bytes).and_then(parse::rules);
        rules.map_err(|errors| LoadError::Invalid(path, errors))
    }

    /// Reads the file without parsing it. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] if the file cannot be read.
    pub fn read(&self) -> Result<RawDocument, LoadError> {
        let path = self.path.clone();
        match read_at_most(&self.path, MAX_DOCUMENT_BYTES as u64 + 1) {
            Ok(bytes) => Ok(RawDocument { path, bytes }),
            Err(error) => Err(LoadError::Io(path, error)),
        }
    }

    /// The directory to watch: an edit, a rename and a changed symbolic link all show there.
    #[must_use]
    pub fn directory(&self) -> &Path {
        stored::parent(&self.path)
    }
}

/// The content of a file that was not parsed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawDocument {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl RawDocument {
    /// Parses the document.
    ///
    /// # Errors
    /// [`LoadError`] if it is invalid.
    pub fn document(&self) -> Result<Document, LoadError> {
        let document = utf8(&self.bytes).and_then(Document::parse);
        document.map_err(|errors| LoadError::Invalid(self.path.clone(), errors))
    }
}

fn read_at_most(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

fn utf8(bytes: &[u8]) -> Result<&str, ValidationErrors> {
    str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid);
        let line = valid.rsplit('\n').next().unwrap_or_default();
        let position = Position {
            line: valid.matches('\n').count() as u64 + 1,
            column: line.chars().count() as u64 + 1,
        };
        Diagnostic::new(Some(position), Location::document(), "must be UTF-8").into()
    })
}

/// Parses `sqlite:PATH`, `file:PATH` or `etcd:PREFIX`.
impl FromStr for Source {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Self, InvalidSource> {
        match text.split_once(':') {
            Some(("file" | "sqlite", "")) | None => Err(InvalidSource::Unknown),
            Some(("file", path)) => Ok(Self::File(FileSource::new(path))),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("etcd", prefix)) => Self::etcd(prefix),
            Some(_) => Err(InvalidSource::Unknown),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "file:{file}"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Etcd(prefix) => write!(f, "etcd:{prefix}"),
        }
    }
}

impl fmt::Display for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// A file cannot be read, or its document is invalid.
///
/// `Display` is one line per error, each with the name of the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: cannot be read", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// The document is invalid.
    #[error("{}", .1.in_file(&.0.display().to_string()))]
    Invalid(PathBuf, ValidationErrors),
}

impl LoadError {
    /// The message with that of the I/O error.
    #[must_use]
    pub fn full_message(&self) -> String {
        match self {
            Self::Io(_, error) => format!("{self}: {error}"),
            Self::Invalid(..) => self.to_string(),
        }
    }
}
