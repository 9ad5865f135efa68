//! TLS: which certificate handshakes go by, made of files that are followed as they change.
//!
//! `files` become a `certificate`, or an error that says what would be right; `follow` does it again when they have changed.
//! `handshakes` counts what became of them. Where in the life of a connection they have their place, [`crate::net`] says.

mod certificate;
mod error;
mod files;
mod follow;
mod handshakes;
mod settings;
mod validity;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use arc_swap::ArcSwap;
use rustls::ServerConfig;

use self::{certificate::Certificate, files::Files, validity::Within};
use crate::util::clock;

pub(crate) use self::handshakes::{Handshakes, Outcomes};
pub use self::{error::TlsError, settings::TlsSettings};

/// Which certificate handshakes go by, and what became of its files' changes.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: TlsSettings,
    certificate: ArcSwap<Certificate>,
    handshakes: Handshakes,
    applied: AtomicU64,
    refused: AtomicU64,
    /// The certificate is not that of the files.
    is_behind: AtomicBool,
}

/// How often the files had changed, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reloads {
    /// Changes that came into force.
    pub(crate) applied: u64,
    /// Changes that were refused.
    pub(crate) refused: u64,
    /// Whether the certificate in force is that of the files.
    pub(crate) is_current: bool,
}

impl Tls {
    /// Reads the files. Blocks on the file system.
    ///
    /// # Errors
    /// [`TlsError`] when a file cannot be read or used, or they do not go together. A certificate that does not count at this time is
    /// used all the same, since there is no better one, and the log is told.
    pub(crate) fn load(settings: TlsSettings) -> Result<Self, TlsError> {
        let certificate = Certificate::new(&Files::read(&settings)?, &settings)?;
        let path = settings.certificate.display();
        match certificate.validity.at(clock::unix_seconds()) {
            Within::Valid => {}
            Within::Before => {
                tracing::warn!("--tls-cert {path}: is not valid yet: clients will refuse it");
            }
            Within::Expired => {
                tracing::warn!("--tls-cert {path}: has expired: clients will refuse it");
            }
        }
        Ok(Self {
            settings,
            certificate: ArcSwap::from_pointee(certificate),
            handshakes: Handshakes::default(),
            applied: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
        })
    }

    /// What a handshake that begins now goes by.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.certificate.load().config)
    }

    /// What became of handshakes.
    pub(crate) fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }

    /// When the certificate that is used ends, in Unix seconds.
    pub(crate) fn not_after(&self) -> u64 {
        self.certificate.load().validity.not_after
    }

    /// What became of the changes of the files.
    pub(crate) fn reloads(&self) -> Reloads {
        Reloads {
            applied: self.applied.load(Relaxed),
            refused: self.refused.load(Relaxed),
            is_current: !self.is_behind.load(Relaxed),
        }
    }
}
