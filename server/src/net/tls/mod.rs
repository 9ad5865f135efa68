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
    fmt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use arc_swap::ArcSwap;

use self::certificate::{Certificate, Files, ValidAt};
use crate::util::clock;

pub(super) use self::handshake::accept;
pub(crate) use self::handshake::{HandshakeCounts, HandshakeMetrics};

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
            .filter_map(|file| file.parent())
            .map(|parent| {
                if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                }
            })
            .collect()
    }
}

/// A TLS file that cannot be used. The message is one line with the flag, the file and the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsError {
    flag: &'static str,
    path: String,
    problem: String,
}

impl TlsError {
    fn new(flag: &'static str, path: &Path, problem: impl Into<String>) -> Self {
        Self {
            flag,
            path: path.display().to_string(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flag,
            path,
            problem,
        } = self;
        write!(f, "{flag} {path}: {problem}")
    }
}

impl std::error::Error for TlsError {}

/// The active certificate, and counters of reloads and handshakes.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: TlsSettings,
    active: ArcSwap<Certificate>,
    handshakes: HandshakeMetrics,
    reloads_applied: AtomicU64,
    reloads_rejected: AtomicU64,
    /// The last reload was rejected: the active certificate is not that of the files.
    is_stale: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reloads {
    pub(crate) applied: u64,
    pub(crate) rejected: u64,
    /// Whether the active certificate is that of the files.
    pub(crate) is_current: bool,
}

impl Tls {
    /// Reads the files. Blocks on the file system.
    ///
    /// # Errors
    /// [`TlsError`] when a file cannot be read or used, or certificate and key do not match. An
    /// expired certificate is used, with a warning: there is no better one.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let certificate = Certificate::new(&Files::read(&settings)?, &settings)?;
        let path = settings.certificate.display();
        match certificate.validity.at(clock::unix_seconds()) {
            ValidAt::Valid => {}
            ValidAt::NotYet => {
                tracing::warn!("--tls-cert {path}: not valid yet; clients will reject it");
            }
            ValidAt::Expired => {
                tracing::warn!("--tls-cert {path}: expired; clients will reject it");
            }
        }
        Ok(Self {
            settings,
            active: ArcSwap::from_pointee(certificate),
            handshakes: HandshakeMetrics::default(),
            reloads_applied: AtomicU64::new(0),
            reloads_rejected: AtomicU64::new(0),
            is_stale: AtomicBool::new(false),
        })
    }

    pub(crate) fn handshakes(&self) -> &HandshakeMetrics {
        &self.handshakes
    }

    /// When the active certificate expires, in Unix seconds.
    pub(crate) fn not_after(&self) -> u64 {
        self.active.load().validity.not_after
    }

    pub(crate) fn reloads(&self) -> Reloads {
        Reloads {
            applied: self.reloads_applied.load(Relaxed),
            rejected: self.reloads_rejected.load(Relaxed),
            is_current: !self.is_stale.load(Relaxed),
        }
    }
}
