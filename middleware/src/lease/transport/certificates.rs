//! The certificates that connections to the control plane go by, in PEM: given once, or in files that are read again.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::TransportError;

/// No file is longer than this, in bytes; what follows is not read.
const LONGEST_FILE: u64 = 4 * 1024 * 1024;

/// Certificates, or certificates and their key.
pub(crate) enum Pem {
    /// They do not change.
    Given(Vec<u8>),
    /// What these files hold together.
    Files(Vec<PathBuf>),
}

/// Whom to trust and what to show. `None`: those of the system, and nothing.
#[derive(Default)]
pub(crate) struct Certificates {
    pub(crate) authority: Option<Pem>,
    /// A certificate with those that lead to its authority, and its key: secret.
    pub(crate) identity: Option<Pem>,
}

/// What they are at one moment.
pub(super) struct Texts {
    pub(super) authority: Option<Vec<u8>>,
    pub(super) identity: Option<Vec<u8>>,
}

/// What tells texts from others, so that a key need not be kept for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Pem {
    fn read(&self) -> Result<Vec<u8>, TransportError> {
        let files = match self {
            Self::Given(text) => return Ok(text.clone()),
            Self::Files(files) => files,
        };
        let mut all = Vec::new();
        for file in files {
            read(file, &mut all)
                .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
            // The last line of a file may lack its end.
            all.push(b'\n');
        }
        Ok(all)
    }

    fn changes(&self) -> bool {
        matches!(self, Self::Files(_))
    }
}

fn read(file: &Path, all: &mut Vec<u8>) -> io::Result<()> {
    File::open(file)?.take(LONGEST_FILE).read_to_end(all)?;
    Ok(())
}

impl Certificates {
    /// Whether there is anything to read again.
    pub(super) fn change(&self) -> bool {
        let Self {
            authority,
            identity,
        } = self;
        [authority, identity]
            .into_iter()
            .flatten()
            .any(Pem::changes)
    }

    /// Reads them. Blocks on the file system.
    pub(super) fn read(&self) -> Result<Texts, TransportError> {
        Ok(Texts {
            authority: self.authority.as_ref().map(Pem::read).transpose()?,
            identity: self.identity.as_ref().map(Pem::read).transpose()?,
        })
    }
}

impl Texts {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let Self {
            authority,
            identity,
        } = self;
        let mut all = Sha256::new();
        for text in [authority, identity] {
            let text = text.as_ref().map(Sha256::digest).unwrap_or_default();
            all.update(text);
        }
        Fingerprint(all.finalize().into())
    }
}
