//! TLS: the active certificate, its reload, and handshakes.

mod certificate;
mod handshake;
mod reload;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use arc_swap::ArcSwap;

use self::{
    certificate::{Certificate, Files},
    handshake::{ABANDONED, COMPLETED, FAILED},
};
use crate::{
    observe::metrics::Outcomes,
    util::{clock, small_file::FileError},
};

pub(super) use self::handshake::accept;

/// The files that TLS uses. All are PEM and are reloaded when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The server's certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate's private key, not encrypted: PKCS #8, SEC1 or PKCS #1.
    pub key: PathBuf,
    /// Authorities of client certificates. When set, every client must show a certificate that one
    /// of them issued, on every route, probes included.
    pub client_authority: Option<PathBuf>,
}

impl TlsSettings {
    fn directories(&self) -> BTreeSet<&Path> {
        let files = [&self.certificate, &self.key];
        files
            .into_iter()
            .chain(&self.client_authority)
            .map(|file| match file.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            })
            .collect()
    }
}

/// The active certificate, and counters of reloads and handshakes.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: TlsSettings,
    active: ArcSwap<Certificate>,
    pub(crate) handshakes: Outcomes,
    pub(crate) reloads: Outcomes,
    /// The last reload was rejected: the active certificate is not that of the files.
    is_stale: AtomicBool,
}

impl Tls {
    /// Reads the files. Blocks on the file system.
    ///
    /// # Errors
    /// [`FileError`] when a file cannot be read or used, or certificate and key do not match. An
    /// expired certificate is used, with a warning: there is no better one.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, FileError> {
        let certificate = Certificate::new(&Files::read(&settings)?, &settings)?;
        if let Some(problem) = certificate.validity.problem(clock::unix_seconds()) {
            let path = settings.certificate.display();
            tracing::warn!("--tls-cert {path}: {problem}; clients will reject it");
        }
        Ok(Self {
            settings,
            active: ArcSwap::from_pointee(certificate),
            handshakes: Outcomes::new([COMPLETED, FAILED, ABANDONED]),
            reloads: Outcomes::new(["applied", "refused"]),
            is_stale: AtomicBool::new(false),
        })
    }

    /// Whether the active certificate is that of the files.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_stale.load(Relaxed)
    }

    /// When the active certificate expires, in Unix seconds.
    pub(crate) fn not_after(&self) -> u64 {
        self.active.load().validity.not_after
    }
}
