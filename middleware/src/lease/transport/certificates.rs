//! PEM certificates of a connection: given once, or read from files.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::lease::TransportError;

/// The most bytes read of one file.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// Certificates in PEM, possibly with their key.
pub enum Pem {
    /// The text.
    Text(Vec<u8>),
    /// The concatenation of these files.
    Files(Vec<PathBuf>),
}

/// The certificate authority to trust, by default that of the system, and the client's identity.
#[derive(Debug, Default)]
pub struct Certificates {
    /// The certificate authorities to trust instead of those of the system.
    pub authority: Option<Pem>,
    /// A certificate chain and its private key.
    pub identity: Option<Pem>,
    /// Danger: any server is accepted, whatever its certificate. Only for a probe of this machine:
    /// requests with credentials fail.
    pub accepts_any_server: bool,
}

impl fmt::Debug for Pem {
    /// There may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").finish_non_exhaustive()
    }
}

/// [`Certificates`] as read at one moment.
pub(super) struct PemTexts {
    pub(super) authority: Option<Vec<u8>>,
    pub(super) identity: Option<Vec<u8>>,
}

/// Hash of [`PemTexts`], so that no private key is retained for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Pem {
    fn read(&self) -> Result<Vec<u8>, TransportError> {
        let files = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::Files(files) => files,
        };
        let mut all = Vec::new();
        for file in files {
            append(file, &mut all)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            // The file may lack its last line end.
            all.push(b'\n');
        }
        Ok(all)
    }
}

fn append(file: &Path, all: &mut Vec<u8>) -> io::Result<()> {
    if File::open(file)?.take(MAX_FILE + 1).read_to_end(all)? as u64 > MAX_FILE {
        return Err(io::Error::other(format!("longer than {MAX_FILE} bytes")));
    }
    Ok(())
}

impl Certificates {
    pub(super) fn are_files(&self) -> bool {
        let is_file = |pem: &Option<Pem>| matches!(pem, Some(Pem::Files(_)));
        is_file(&self.authority) || is_file(&self.identity)
    }

    /// Blocks on the file system.
    pub(super) fn read(&self) -> Result<PemTexts, TransportError> {
        Ok(PemTexts {
            authority: self.authority.as_ref().map(Pem::read).transpose()?,
            identity: self.identity.as_ref().map(Pem::read).transpose()?,
        })
    }
}

impl PemTexts {
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
