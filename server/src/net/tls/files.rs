//! The files that TLS goes by, as they are at one moment.

use std::{fmt, path::Path};

use sha2::{Digest as _, Sha256};

use super::{TlsError, TlsSettings};
use crate::util::small_file;

pub(super) const CERTIFICATE: &str = "--tls-cert";
pub(super) const KEY: &str = "--tls-key";
pub(super) const CLIENT_AUTHORITY: &str = "--tls-client-ca";

/// What is in the files. One of them is secret, so that they do not show in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_authority: Option<Vec<u8>>,
}

/// What tells files from others, so that a key need not be kept for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Files {
    /// Reads them. Blocks on the file system.
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        let TlsSettings {
            certificate,
            key,
            client_authority,
        } = settings;
        let client_authority = client_authority.as_deref();
        Ok(Self {
            certificate: read(CERTIFICATE, certificate)?,
            key: read(KEY, key)?,
            client_authority: client_authority
                .map(|path| read(CLIENT_AUTHORITY, path))
                .transpose()?,
        })
    }

    pub(super) fn digest(&self) -> Digest {
        let Self {
            certificate,
            key,
            client_authority,
        } = self;
        let all = [certificate, key].into_iter().chain(client_authority);
        let digest = all.fold(Sha256::new(), |digest, file| {
            digest.chain_update(Sha256::digest(file))
        });
        Digest(digest.finalize().into())
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    small_file::read(path)
        .map_err(|error| TlsError::new(flag, path, format!("cannot be read: {error}")))
}
